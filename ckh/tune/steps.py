"""Steps of a tuning: ckh command lines in one folder, each of which can be repeated manually."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.ops import operation
from ckh.tune.settings import OWN_TABLES, TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ckh.tune.settings import TuneSettings

PLAN = ("--plan", "auto")  # options of ckh bench that choose kernels
FEWEST_PROBLEMS = 6  # minimum to train a model; with fewer, the fastest measured kernels are exported
PAGE = "summary.md"
SHAPES, LISTED, BEFORE = "shapes.csv", "shapes.json", "before.json"
RUN, MEASURED, MODEL = "run", "measured.parquet", "model"
KERNELS, EXPORT, EXPORTED = "kernels.json", "export", "export.json"


@dataclass(frozen=True, slots=True)
class TuneStep:
    """A ckh command line."""

    name: str
    args: tuple[str, ...]
    keeps: Path | None = None  # file that its output is written to; None: it is printed
    is_gate_ignored: bool = False  # exit code 5 (problems without a kernel) is accepted

    @property
    def line(self) -> str:
        """The command line as typed."""
        return f"ckh {shlex.join(self.args)}" + (f" > {shlex.quote(str(self.keeps))}" if self.keeps else "")


def listing(settings: TuneSettings, folder: Path) -> TuneStep:
    """Step that lists the shapes of the sources."""
    written = ("--out", str(folder / SHAPES), "--force", "--json")
    return TuneStep("shapes", ("shapes", *settings.shape_options(), *written, "--", *settings.sources), folder / LISTED)


def measuring(
    settings: TuneSettings, folder: Path, op: str, *, is_begun: bool, force: bool = False
) -> Iterator[TuneStep]:
    """Steps from shapes to measurements; none for an operation whose kernels ckh does not measure."""
    shapes = ("--op", op, "--problems", str(folder / SHAPES))
    directions = ("--variant", "all") if operation(op).has_directions else ()
    before = str(folder / BEFORE)
    yield TuneStep(
        "before",
        ("predict", *shapes, *settings.place_options(), "--top", "1", "--json"),
        folder / BEFORE,
    )
    if operation(op).measured is None:
        return
    run, budget = str(folder / RUN), ("--budget", settings.budget)
    if is_begun and not force:
        yield TuneStep("bench", ("bench", "--resume", "--out", run, *budget))
    else:
        today = settings.device_options() if settings.today else (*settings.device_options(), "--today", before)
        new = (*budget, "--out", run, *(("--force",) if is_begun else ()))
        yield TuneStep("bench", ("bench", *shapes, *directions, *today, *PLAN, *new))
    if settings.device != "emulated":
        yield TuneStep("convert", ("convert", run, "--out", str(folder / MEASURED), "--force"))


def require_model(settings: TuneSettings, problems: int, *, has_model: bool) -> None:
    """Refuse a target that needs a model without one."""
    if settings.to is not None and TARGETS[settings.to].needs_model and not has_model:
        raise UsageError(
            f"--to {settings.to} needs a model of {FEWEST_PROBLEMS} measured problems or more of one direction, "
            f"not {problems}",
            "tune more shapes, or longer (--budget), or use --to amd-registry",
            code="inapplicable-option",
        )


def learning(folder: Path, op: str, problems: int, *, directions: tuple[str, ...]) -> Iterator[TuneStep]:
    """Step that trains a model, if there are enough problems."""
    if problems >= FEWEST_PROBLEMS and len(directions) <= 1:
        variant = ("--variant", directions[0]) if directions else ()
        data = ("--data", str(folder / MEASURED))
        yield TuneStep("train", ("train", "--op", op, *variant, *data, "--out", str(folder / MODEL), "--force"))


def exporting(settings: TuneSettings, folder: Path, op: str, *, is_trained: bool, problems: int) -> Iterator[TuneStep]:
    """Step that writes the table of a target, if requested."""
    if settings.to is None:
        return
    target = TARGETS[settings.to]
    model = ("--model", str(folder / MODEL)) if is_trained else ()
    require_model(settings, problems, has_model=is_trained)
    if target.takes_kernels:
        chosen: tuple[str, ...] = ("--op", op, "--registry", str(folder / KERNELS), *settings.place_options())
    elif target.takes_problems:
        chosen = ("--op", op, "--problems", str(folder / SHAPES), *settings.place_options(), *model)
    else:
        chosen = model or settings.arch_options()
    installed = ("--installed", settings.installed) if settings.installed else ()
    args = ("export", "--to", settings.to, *chosen, *installed, "--out", str(folder / EXPORT), "--force")
    keeps = folder / EXPORTED if settings.to == OWN_TABLES else None
    yield TuneStep("export", (*args, "--json") if keeps else args, keeps, is_gate_ignored=True)
