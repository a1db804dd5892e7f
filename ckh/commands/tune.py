"""`ckh tune`: from the shapes of a model to a table that its server uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, OP_HELP, examples, print_json, say
from ckh.commands._duration import parse_duration
from ckh.commands.panels import AITER
from ckh.errors import CkhError, ExitCode, UsageError
from ckh.ops import operation
from ckh.text.log import emit, note

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ckh.data.dataset import Dataset
    from ckh.shapes.layers import WeightedProblem
    from ckh.tune.gains import TuneDocument
    from ckh.tune.settings import Progress, TuneSettings
    from ckh.tune.steps import TuneStep

_HOUR_S = 3600.0
_HELP = """Tune the kernels of a model: list its shapes, measure, train, and export a table for what runs it.

SOURCE is anything that `ckh shapes` reads, such as a Hugging Face config.json. Each step is a command of ckh on the
folder --out, printed before it runs: shapes, predict (today's choices), bench --plan auto (shapes weighted by their
work), convert, train (of six measured problems or more), export. Interrupted, it continues where it was when called
again with the same options; --budget may change.

The summary shows for each shape today's kernel, the fastest measured one, the gain with its 95 % interval and the
shape's share of the model's time; for all shapes the gain, whether it is worth it, and what another hour would bring.
The same, with the commands, is the page summary.md in the folder.

Kernels of AITER are not measured by ckh: there the steps are shapes, predict and export.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="tune",
        help=_HELP,
        epilog=examples(
            "ckh tune config.json --tp 8 --budget 15m --to amd-registry",
            "ckh tune config.json --tp 8 --op aiter_gemm --arch gfx942 --to aiter",
            "ckh tune resnet50 --batch 32 --arch gfx950 --dry-run",
            "ckh tune miopen.log --budget 1h --to c --out tuned",
        ),
    )(tune)


def tune(
    sources: list[str] = typer.Argument(..., metavar="SOURCE...", help="Shapes, as of ckh shapes."),
    tp: int = typer.Option(1, "--tp", min=1, metavar="N", help="Ranks of tensor parallelism."),
    tokens: str | None = typer.Option(None, "--tokens", metavar="N[,N…]", help="Rows of a language model's GEMMs."),
    batch: str = typer.Option("1", "--batch", metavar="N[,N…]", help="Images, clips or samples at a time."),
    op: str | None = typer.Option(
        None, "--op", autocompletion=_completion.operations, help=f"{OP_HELP}  [that with the most work]"
    ),
    variant: str | None = typer.Option(None, "--variant", help="Direction of convolutions.  [forward]"),
    dtype: str | None = typer.Option(
        None, "--dtype", autocompletion=_completion.dtypes, help="Element type.  [the shapes'; host: fp32]"
    ),
    device: str | None = typer.Option(
        None, "--device", metavar="KIND", help="host, hip or emulated.  [hip where a GPU is found]"
    ),
    arch: str | None = typer.Option(
        None, "--arch", autocompletion=_completion.architectures, help="Architecture.  [the device's]"
    ),
    budget: str = typer.Option(
        "15m", "--budget", metavar="TIME", rich_help_panel="Run", help="Time for compiling and measuring."
    ),
    to: str | None = typer.Option(
        None, "--to", metavar="TARGET", help="Export: aiter, amd-registry, c, inductor or miopen."
    ),
    installed: Path | None = typer.Option(
        None, "--installed", rich_help_panel=AITER, help="--to aiter: AITER's source or package, whose tables are kept."
    ),
    out: Path = typer.Option(Path("tuned"), "--out", "-o", help="Folder."),
    dry_run: bool = typer.Option(False, "--dry-run", help="List the shapes and print the steps and their time only."),
    force: bool = typer.Option(False, "--force", help="Begin anew in --out."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Run the steps and print the summary."""
    from ckh.bench.devices.device import HOST_KIND, DeviceOptions
    from ckh.bench.devices.device_choice import default_device_kind
    from ckh.tune.settings import TuneSettings
    from ckh.tune.steps import TARGETS

    parse_duration(budget)
    if to is not None and to not in TARGETS:
        raise UsageError(f"unknown target {to!r}", "one of " + ", ".join(TARGETS), code="unknown-name")
    op = None if op is None else operation(op).name
    kind = device or default_device_kind(DeviceOptions(arch))
    options = ("--batch", batch, *(("--tokens", tokens) if tokens else ()), *(("--tp", str(tp)) if tp > 1 else ()))
    settings = TuneSettings(
        tuple(sources),
        options,
        op,
        variant,
        arch,
        dtype or ("fp32" if kind == HOST_KIND else None),
        kind,
        budget,
        to,
        None if installed is None else str(installed),
    )
    _Tuning(settings, out, is_dry=dry_run, force=force, as_json=as_json).run()


class _Tuning:
    """A tuning in a folder."""

    def __init__(self, settings: TuneSettings, out: Path, *, is_dry: bool, force: bool, as_json: bool) -> None:
        self._settings, self._out, self._is_dry, self._as_json, self._force = settings, out, is_dry, as_json, force
        self._progress = self._begun(force=force)

    def _begun(self, *, force: bool) -> Progress:
        from ckh.tune.settings import FILE, progress_of

        if self._out.exists() and not (self._out / FILE).exists() and (self._out.is_file() or any(self._out.iterdir())):
            raise UsageError(
                f"{self._out} exists and is not a folder of ckh tune", "choose another --out", code="foreign-output"
            )
        if force:
            (self._out / FILE).unlink(missing_ok=True)
        return progress_of(self._out, self._settings)

    def run(self) -> None:
        """Run the steps that are left, and print the summary.

        Raises:
            typer.Exit: a step failed, with its exit code.
            CkhError: the shapes are unusable, or the target cannot be written.
        """
        from ckh.files.paths import write_atomic
        from ckh.tune import steps
        from ckh.tune.page import page, summary

        settings, out = self._settings, self._out
        self._run([steps.listing(settings, out)])
        shapes = self._shapes()
        op = settings.op or _heaviest(shapes)
        shapes = [one for one in shapes if one.op == op]
        is_begun = (out / steps.RUN / "journal.jsonl").exists()
        measuring = list(steps.measuring(settings, out, op, is_begun=is_begun, force=self._force))
        if self._is_dry:
            self._print_plan(measuring)
            return
        self._run(measuring)
        measured = self._measured()
        problems = [] if measured is None else measured.problems()
        directions = tuple(dict.fromkeys(str(one.variant) for one in problems if hasattr(one, "variant")))
        self._run(steps.learning(out, op, len(problems), directions=directions))
        is_trained, is_measured = "train" in self._progress.done, measured is not None
        self._run(steps.exporting(settings, out, op, is_trained=is_trained, is_measured=is_measured))
        document = self._document(op, shapes, measured)
        write_atomic(out / steps.PAGE, page(document, settings.budget).encode())
        if self._as_json:
            print_json(document)
        else:
            emit(summary(document, settings.budget))

    def _run(self, wanted: Iterable[TuneStep]) -> None:
        for step in wanted:
            if step.name in self._progress.done:
                continue
            note(f"$ {step.line}")
            code = self._called(step)
            if code and not (step.is_gate_ignored and code == ExitCode.NO_KERNEL):
                self._progress.repeat_from(step.after)
                again = step.after or step.name
                note(f"{step.name} ended with exit code {code}; the same ckh tune continues with {again}")
                raise typer.Exit(code)
            self._progress.mark(step.name)

    def _called(self, step: TuneStep) -> int:
        """Run a step in a process of its own; what it prints goes to a file, or with --json to stderr."""
        command = [sys.executable, "-m", "ckh", *step.args]
        if step.keeps is None:
            return subprocess.run(command, stdout=sys.stderr if self._as_json else None, check=False).returncode
        from ckh.files.paths import write_atomic

        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if done.returncode == ExitCode.OK:
            write_atomic(step.keeps, done.stdout)
        return done.returncode

    def _shapes(self) -> Sequence[WeightedProblem]:
        from ckh.shapes.problems import shapes_of
        from ckh.tune.steps import SHAPES

        return shapes_of([str(self._out / SHAPES)]).problems

    def _measured(self) -> Dataset | None:
        from ckh.data.dataset import read_dataset
        from ckh.tune.steps import MEASURED

        path = self._out / MEASURED
        return read_dataset(path) if path.exists() else None

    def _print_plan(self, measuring: Sequence[TuneStep]) -> None:
        """Print the steps, and what `ckh bench` says of its own."""
        for step in measuring:
            if step.name == "bench":
                self._called(_dry(step))
            emit(f"$ {step.line}\n")
        export = f", ckh export --to {self._settings.to}" if self._settings.to else ""
        say(f"then: ckh train of six measured problems or more{export}")

    def _document(self, op: str, shapes: Sequence[WeightedProblem], measured: Dataset | None) -> TuneDocument:
        from ckh.tune import steps
        from ckh.tune.gains import TuneDocument, compared, is_worth_it, measured_times, whole

        times, today = {} if measured is None else measured_times(measured), self._today()
        texts = [one.problem.canonical() for one in shapes]
        found = [compared(one, today.get(text), times.get(text, {})) for one, text in zip(shapes, texts, strict=True)]
        total = whole(found)
        today_ms, tuned_ms, gain = (None, None, None) if total is None else total
        rows = (one.row(today_ms or 1.0) for one in found)
        made = {name: str(self._out / name) for name in (steps.MODEL, steps.EXPORT) if (self._out / name).exists()}
        devices = () if measured is None else tuple(dict.fromkeys(measured.frame["device"].dropna()))
        return TuneDocument(
            folder=str(self._out),
            op=op,
            device=", ".join(devices) or None,
            shapes=tuple(sorted(rows, key=lambda row: -(row.share or 0))),
            today_ms=today_ms,
            tuned_ms=tuned_ms,
            gain=None if gain is None else gain.value,
            gain_interval=None if gain is None else gain.interval,
            is_worth_it=None if gain is None else is_worth_it(gain),
            another_hour=None if measured is None else _another_hour(measured, parse_duration(self._settings.budget)),
            model=made.get(steps.MODEL),
            export=made.get(steps.EXPORT),
        )

    def _today(self) -> dict[str, str]:
        from ckh.files.jsonfields import read_json
        from ckh.tune.steps import BEFORE

        results = read_json(self._out / BEFORE)["results"]
        return {one["problem"]: one["kernels"][0]["kernel"] for one in results if one["kernels"]}


def _dry(step: TuneStep) -> TuneStep:
    from dataclasses import replace

    return replace(step, args=(*step.args, "--dry-run"))


def _heaviest(shapes: Sequence[WeightedProblem]) -> str:
    """The operation with the most work."""
    work: dict[str, int] = {}
    for one in shapes:
        work[one.op] = work.get(one.op, 0) + one.count * one.problem.flops
    return max(work, key=lambda name: work[name])


def _another_hour(measured: Dataset, budget_s: float) -> tuple[float, float, float] | None:
    """The expected gain of an hour more, by the learning curve; None where there are too few problems for one."""
    from ckh.learn.judging.outlook import FEWEST_PROBLEMS, learning_curve

    if len(measured.problems()) < FEWEST_PROBLEMS:
        return None
    try:
        curve = learning_curve(measured, measured.op.training.defaults(len(measured)))
    except CkhError:  # too few usable times
        return None
    found = curve.gain(_HOUR_S / budget_s)
    return found.value, found.low, found.high
