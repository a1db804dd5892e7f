"""Measurements of kernels: `ckh.bench`, by what `ckh bench` runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ckh.api.inputs import options_of
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.supervision.campaign import Campaign, Outcome
from ckh.bench.supervision.limits import BenchLimits, StopReason
from ckh.data.journal import JOURNAL_NAME, is_started
from ckh.data.settings import Given, Settings
from ckh.errors import NoKernelError, UsageError, WrongTypeError
from ckh.files.outputs import FileKind, check_output, head_of, write_output
from ckh.files.paths import path_of
from ckh.ops import as_problem, operation_of_kernel, operation_of_problem
from ckh.shapes.problems import stated_operation
from ckh.text.shown import Shown, ShownTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from typing_extensions import Unpack

    from ckh.api.keywords import BenchKeywords
    from ckh.data.dataset import Dataset
    from ckh.ops.base import Kernel, Problem

_PROBLEMS, _KERNELS = "problems.txt", "kernels.txt"  # lists that were given, in the folder of the run
_LIST = FileKind("list of names", lambda path: all(len(line.split()) == 1 for line in head_of(path).splitlines()))
_ALL_DIRECTIONS = "all"


@dataclass(frozen=True, slots=True, eq=False)
class BenchRun(Shown):
    """A run of `ckh.bench`.

    Attributes:
        folder: its folder, with the journal.
        outcome: counts, and why it ended.
    """

    folder: Path
    outcome: Outcome

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in self.outcome.totals.statuses.items())
        return f"<ckh.BenchRun {self.folder}: {counts or 'nothing new'}, {self.outcome.pairs_left} left>"

    def table(self) -> ShownTable:
        """Pairs of this call by status."""
        notes = (f"{self.outcome.reason}, {self.outcome.pairs_left} pairs left",)
        return ShownTable(str(self.folder), ("status", "pairs"), list(self.outcome.totals.statuses.items()), notes)

    def dataset(self) -> Dataset:
        """The measurements, as `ckh convert` makes a dataset of them."""
        from ckh.data.conversion import convert
        from ckh.data.dataset import read_dataset
        from ckh.data.formats import ReadOptions

        with TemporaryDirectory(prefix="ckh-data-") as folder:
            path = Path(folder, "run.parquet")
            convert([self.folder], path, ReadOptions())
            return read_dataset(path)

    def to_frame(self) -> pd.DataFrame:
        """The measurements, one row for each pair of a problem and a kernel."""
        return self.dataset().frame


def bench(
    problems: str | Path | Problem | Iterable[Problem | str] | None = None,
    out: Path | str | None = None,
    *,
    kernels: str | Iterable[str | Kernel] | None = None,
    device: str | None = None,
    resume: bool = False,
    force: bool = False,
    **options: Unpack[BenchKeywords],
) -> BenchRun:
    """Measure kernels on problems and write every result to a journal, as `ckh bench` does.

    Args:
        problems: problems or their canonical texts, or a set, file or source of shapes by name.
        out: the folder of the run; it is needed where problems or kernels are listed.
        kernels: kernels or their complete names, or as --kernels of the command, e.g. "sample:60".
        device: "host", "hip" or "emulated"; by default hip where there is a GPU, else host.
        resume: whether to go on with the run in `out`, with its settings.
        force: whether a run in `out` is replaced.
        options: other settings of the command by name: fields of `ckh.data.settings.Settings`, of `BenchLimits` (e.g.
            budget_s, timeout_s) and of `DeviceOptions` (e.g. arch).

    Raises:
        CkhError: an option is wrong, the folder is in use, the device cannot be used, or no kernel works.
        KeyboardInterrupt: it was interrupted; everything measured is saved.
    """
    settings, limits, place = options_of(options, Settings, BenchLimits, DeviceOptions)
    folder = None if out is None else path_of(out, "out")
    settings |= _problem_settings(problems, folder, force=resume or force)
    settings |= _kernel_settings(kernels, folder, force=resume or force)
    if settings.get("op") is None and not resume:
        settings["op"] = stated_operation(settings.get("problems"))
    given, most = Given(**settings), BenchLimits(**limits)
    place = {**place, "cold": bool(given["cold"])}
    campaign = Campaign(device, given, folder, resume=resume, force=force, options=DeviceOptions(**place), limits=most)
    outcome = campaign.run(most)
    if outcome.reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    if outcome.is_failed:
        raise NoKernelError(
            f"no kernel had a correct result in {campaign.out}", "see its journal", code="no-working-kernel"
        )
    return BenchRun(campaign.out, outcome)


def _problem_settings(problems: object, folder: Path | None, *, force: bool) -> dict[str, Any]:
    """The settings that mean the problems; a list of these is written to the run's folder."""
    if problems is None:
        return {}
    if isinstance(problems, (str, Path)):
        return {"problems": str(problems)}
    is_one = hasattr(problems, "canonical") or not isinstance(problems, Iterable)
    listed: list[Any] = [problems] if is_one else list(problems)  # type: ignore[call-overload]
    parsed = list(map(as_problem, listed))
    if not parsed:
        raise UsageError("no problems given", code="no-problems")
    ops, dtypes = {operation_of_problem(problem).name for problem in parsed}, {problem.dtype for problem in parsed}
    for what, names in (("operations", ops), ("element types", dtypes)):
        if len(names) > 1:
            raise UsageError(f"the problems have {len(names)} {what}: {', '.join(sorted(names))}", code="mixed-data")
    path = _written(folder, _PROBLEMS, [problem.canonical() for problem in parsed], force=force)
    settings: dict[str, Any] = {"problems": path, "op": ops.pop(), "dtype": dtypes.pop()}
    return settings | ({"variant": _ALL_DIRECTIONS} if operation_of_problem(parsed[0]).has_directions else {})


def _kernel_settings(kernels: object, folder: Path | None, *, force: bool) -> dict[str, Any]:
    """The setting that means the kernels; a list of these is written to the run's folder."""
    if kernels is None or isinstance(kernels, str):
        return {} if kernels is None else {"kernels": kernels}
    if not isinstance(kernels, Iterable):
        raise WrongTypeError("kernels", "a text or a list", kernels)
    names = [
        kernel if isinstance(kernel, str) else operation_of_kernel(kernel).kernels.name(kernel) for kernel in kernels
    ]
    return {"kernels": _written(folder, _KERNELS, names, force=force)}


def _written(folder: Path | None, name: str, lines: Sequence[str], *, force: bool) -> str:
    if folder is None:
        raise UsageError("out is missing: lists are written to the folder of the run", code="missing-option")
    path, text = folder / name, "".join(f"{line}\n" for line in lines).encode()
    # The run refuses a folder with another one; a list may be left of a run that did not start.
    if (force or not is_started(folder / JOURNAL_NAME)) and head_of(path, len(text) + 1) != text:
        check_output(path, _LIST, force=force)
        write_output(path, text)
    return str(path)
