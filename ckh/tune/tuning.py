"""A tuning in a folder: its steps, each a command of ckh in a process of its own, and their results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.planning.registry import first_choices, first_fits, write_registry
from ckh.bench.supervision.guard import die_with_parent
from ckh.data.journal import JOURNAL_NAME, is_started
from ckh.errors import CkhError, ExitCode, UsageError
from ckh.files.child import module_command
from ckh.files.jsonfields import own_document, read_json
from ckh.files.locks import FileLock
from ckh.files.outputs import check_output, refuse_planted, write_output
from ckh.learn.answers.probes import remember_all
from ckh.ops import operation, requested
from ckh.requested import added_work
from ckh.shapes.layers import DEFAULT
from ckh.text.log import note
from ckh.tune import steps
from ckh.tune.gains import (
    AITER_TABLES,
    BY_PREDICT,
    MeasuredRun,
    OwnTime,
    PredictedGain,
    TuneDocument,
    established,
    is_worth_it,
    measured_times,
    read_run,
    total_gain,
    tuned_shapes,
)
from ckh.tune.page import page
from ckh.tune.predicted import by_model, held_out_efficiency, over_tables, predicted_total
from ckh.tune.settings import FILE, KIND, OWN_TABLES, TARGETS, progress_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ckh.data.dataset import Dataset
    from ckh.ops.base import Kernel, Problem
    from ckh.shapes.layers import WeightedProblem
    from ckh.tune.gains import TunedShape
    from ckh.tune.settings import Progress, TuneSettings
    from ckh.tune.steps import TuneStep

_US_PER_MS = 1e3


class StepError(CkhError):
    """A step of a tuning failed; its own output has the reason."""

    default_code = "step-failed"

    def __init__(self, step: str, code: int) -> None:
        ended = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
        super().__init__(f"{step} {ended}", f"the same ckh tune continues with {step}")
        self.step, self.step_code = step, code if code >= 0 else ExitCode.INTERRUPTED


class ModelTuning:
    """A tuning in a folder, begun or to be continued."""

    def __init__(self, settings: TuneSettings, out: Path, *, force: bool, is_quiet: bool) -> None:
        self.settings, self.out = settings, out
        self._force, self._is_quiet = force, is_quiet
        self._progress = self._begun()
        self._measured_run: MeasuredRun | None = None
        self._commands: list[str] = []
        self._held_out_efficiency: tuple[float, float, float] | None = None
        self._left_out: tuple[str, ...] = ()  # of the sources, in words
        self._padded: tuple[str, ...] = ()  # shapes that are measured padded, in words

    def _begun(self) -> Progress:
        """Lock the folder while this object exists, and read its progress."""
        out = self.out
        refuse_planted(out / FILE)
        if out.exists() and not (out / FILE).exists() and (out.is_file() or any(out.iterdir())):
            raise UsageError(
                f"{out} exists and is not a folder of ckh tune", "choose another --out", code="foreign-output"
            )
        out.mkdir(parents=True, exist_ok=True)
        file, lock = os.open(out, os.O_RDONLY), FileLock(out)
        weakref.finalize(self, os.close, file)
        if not lock.take(file):
            raise UsageError(
                f"{out} is in use by another ckh tune", "wait for it, or choose another --out", code="in-use"
            )
        weakref.finalize(self, lock.release)
        if self._force:
            check_output(out / FILE, KIND, force=True)
            (out / FILE).unlink(missing_ok=True)
        return progress_of(out, self.settings)

    def planned(self) -> tuple[str, list[WeightedProblem], list[TuneStep]]:
        """List the shapes; returns the operation that is tuned, its shapes, and the steps up to measurements."""
        from ckh.shapes.problems import shapes_of

        self._run([steps.listing(self.settings, self.out)])
        listed, path = self.listed(), str(self.out / steps.SHAPES)
        shapes = shapes_of([path]).problems
        work = Counter[str]()
        for shape in shapes:
            work[shape.op] += shape.count * shape.problem.flops
        op = self.settings.op or max(work, key=lambda name: (operation(name).measured is not None, work[name]))
        # A run measures one element type: without --dtype the shapes' own, not the architecture's default.
        dtypes = {shape.problem.dtype for shape in shapes if shape.op == op}
        settings = replace(self.settings, dtype=self.settings.dtype or (dtypes.pop() if len(dtypes) == 1 else None))
        taken = shapes_of([path], replace(DEFAULT, dtype=settings.dtype, variant=settings.variant), op)
        left_out = dict.fromkeys((*listed["left_out_work"], *taken.left_words))
        self._left_out = (*listed["changes"], *taken.changes, *(f"left out {words}" for words in left_out))
        if self.settings.today is not None and operation(op).measured is None:
            raise UsageError(f"ckh does not measure kernels of {op}", "omit --today", code="inapplicable-option")
        own = taken.problems
        steps.require_model(self.settings, len(own), has_model=len(own) >= steps.FEWEST_PROBLEMS)
        is_begun = is_started(self.out / steps.RUN / JOURNAL_NAME)
        measuring = list(steps.measuring(settings, self.out, op, is_begun=is_begun, force=self._force))
        return op, own, measuring

    def listed(self) -> dict[str, Any]:
        """The document of `ckh shapes`: the shapes, and what differs from the sources."""
        document: dict[str, Any] = read_json(self.out / steps.LISTED)
        return document

    def run(self) -> TuneDocument:
        """Run the remaining steps, and write the page; returns the results."""
        from ckh.data.dataset import read_dataset

        op, shapes, measuring = self.planned()
        self._run(measuring)
        self._measured_run = self._measured_run or read_run(self.out / steps.RUN)
        path = self.out / steps.MEASURED
        measured = read_dataset(path) if path.exists() else None
        if measured is not None and (count := remember_all(measured)):
            note(f"ckh predict puts the kernels measured for {count} problems first on this device")
        problems = [] if measured is None else measured.problems()
        directions = tuple(dict.fromkeys(str(problem.variant) for problem in problems if hasattr(problem, "variant")))
        training = list(steps.learning(self.out, op, len(problems), directions=directions))
        is_trained = bool(training) and self._run(training)
        export = partial(self._export, op, len(problems), is_trained=is_trained)
        if self.settings.to == OWN_TABLES:  # whose times are compared
            export()
        rows, predicted, arch = self._rows(op, shapes, measured)
        if self.settings.to is not None and TARGETS[self.settings.to].takes_kernels:
            names = dict.fromkeys(filter(None, (row.kernel or row.predicted_kernel for row in rows)))
            kernels = [operation(op).kernels.parse(name) for name in names]
            write_registry(self.out / steps.KERNELS, kernels, arch=arch, replace=True)
        if self.settings.to != OWN_TABLES:
            export()
        document = self._document(op, rows, predicted, measured)
        text = page(document, self.settings.budget, self._commands).encode(errors="backslashreplace")
        write_output(self.out / steps.PAGE, text, replace=True)
        return document

    def _export(self, op: str, problems: int, *, is_trained: bool) -> None:
        """Write the table of the target, which may need a complete run."""
        try:
            self._run(list(steps.exporting(self.settings, self.out, op, is_trained=is_trained, problems=problems)))
        except UsageError as error:
            if self._is_complete():
                raise
            note(f"no export yet: {error.message}")

    def _run(self, wanted: Iterable[TuneStep]) -> bool:
        """Run steps; False if too little was measured for one while the run is incomplete."""
        for step in wanted:
            self._commands.append(step.line)
            if step.name in self._progress.done or (step.name == "convert" and not self._has_pairs()):
                continue
            note(f"$ {step.line}")
            code = self.called(step)
            if step.name == "train" and code == ExitCode.BAD_DATA and not self._is_complete():
                return False
            if code and not (step.is_gate_ignored and code == ExitCode.NO_KERNEL):
                raise StepError(step.name, code)
            if step.name == "bench":
                self._measured_run = read_run(self.out / steps.RUN)
            if self._is_complete():
                self._progress.mark(step.name)
        return True

    def _is_complete(self) -> bool:
        """Whether no pairs are left to measure, after which steps need not be repeated."""
        return self._measured_run is None or self._measured_run.is_complete

    def _has_pairs(self) -> bool:
        """Whether there are rows to convert; without, those of an earlier tuning in the folder are deleted."""
        self._measured_run = self._measured_run or read_run(self.out / steps.RUN)
        if self._measured_run is not None and self._measured_run.pairs:
            return True
        (self.out / steps.MEASURED).unlink(missing_ok=True)
        return False

    def called(self, step: TuneStep) -> int:
        """Run a step in a process of its own; returns its exit code. Output goes to the step's file, if it has one."""
        command = module_command("ckh", *step.args)
        parent = os.getpid()

        def begin() -> None:
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))  # until ckh can take it
            die_with_parent(parent, signal.SIGINT)  # as Ctrl-C does, if that is killed

        out = subprocess.PIPE if step.keeps is not None else sys.stderr if self._is_quiet else None
        done = subprocess.run(command, stdout=out, check=False, preexec_fn=begin)
        if step.keeps is not None and done.returncode == ExitCode.OK:
            write_output(step.keeps, done.stdout, replace=True)
        return done.returncode

    def _rows(
        self, op: str, shapes: Sequence[WeightedProblem], measured: Dataset | None
    ) -> tuple[list[TunedShape], dict[str, PredictedGain], str]:
        """Shapes by their share of the time, predicted gains by canonical text, and the architecture."""
        times, tables = {} if measured is None else measured_times(measured), self._in_tables()
        with own_document(self.out / steps.BEFORE, "ckh predict --json"):
            ranked = read_json(self.out / steps.BEFORE)["results"]
            part, arch = requested(op), next((str(answer["arch"]) for answer in ranked), "")
            chosen, first = over_tables(ranked, tables), first_choices(self.out / steps.BEFORE, operation(op))
        if part is not None and arch:
            completed = [part.completed(shape.problem, arch) for shape in shapes]
            known = first.keys() | times.keys()
            unknown = {own: part.padded(own) for own in completed if own.canonical() not in known}
            problems = [wide if (wide := unknown.get(own, own)).canonical() in known else own for own in completed]
            both = [(own, wide) for own, wide in zip(completed, problems, strict=True) if own != wide]
            self._padded = tuple(
                f"padded: {own.canonical()} to {wide.canonical()}{added_work(own, wide)}" for own, wide in both
            )
            shapes = [replace(shape, problem=problem) for shape, problem in zip(shapes, problems, strict=True)]
        problems, today = [shape.problem for shape in shapes], first
        if self.settings.today is not None:
            today = self._in_use(op, arch, problems)
        if self.settings.to == OWN_TABLES:  # what ckh chooses is new there
            predicted, today = chosen, {}
        else:
            predicted = {text: PredictedGain(name) for text, name in first.items() if text not in times}
            now = {problem: today[text] for problem in problems if (text := problem.canonical()) in today}
            predicted |= self._predicted(measured, now)
        run = self._measured_run or MeasuredRun(is_complete=True)
        rows = tuned_shapes(shapes, today, times, run, tables, predicted)
        return sorted(rows, key=lambda row: -(row.share or 0)), predicted, arch

    def _document(
        self, op: str, rows: Sequence[TunedShape], predicted: Mapping[str, PredictedGain], measured: Dataset | None
    ) -> TuneDocument:
        run = self._measured_run or MeasuredRun(is_complete=True)
        measured_rows = established(rows)
        gain, expected = total_gain(measured_rows), predicted_total(rows, predicted)
        today_ms = sum(ms for ms, _ in measured_rows)
        made = {name: str(self.out / name) for name in (steps.MODEL, steps.EXPORT) if (self.out / name).exists()}
        with own_document(self.out / steps.EXPORTED, "ckh export"):
            reasons = Counter(str(choice["reason"]) for choice in self._exported("missing"))
        without_row = (f"no row of {count} shapes: {reason}" for reason, count in reasons.items())
        devices = () if measured is None else tuple(dict.fromkeys(measured.frame["device"].dropna()))
        return TuneDocument(
            folder=str(self.out),
            op=op,
            device=", ".join(devices) or None,
            left_out=(*self._left_out, *self._padded, *without_row),
            today_from=self.settings.today or (AITER_TABLES if self.settings.to == OWN_TABLES else BY_PREDICT),
            weights={str(number): times for number, times in self.settings.weights.items()},
            shapes=tuple(rows),
            today_ms=today_ms or None,
            tuned_ms=None if gain is None else today_ms / gain.value,
            gain=None if gain is None else gain.value,
            gain_interval=None if gain is None else gain.interval,
            established=sum(row.gain is not None for row in rows),
            drift=run.drift,
            unstable=run.unstable,
            shared=run.shared,
            pairs=len(run.pairs),
            pairs_planned=run.planned,
            is_complete=run.is_complete,
            predicted_gain=None if expected is None else expected.value,
            predicted_gain_interval=None if expected is None else expected.interval,
            is_worth_it=None if gain is None else is_worth_it(gain, rows),
            held_out_efficiency=self._held_out_efficiency,
            model=made.get(steps.MODEL),
            export=made.get(steps.EXPORT),
        )

    def _in_use(self, op: str, arch: str, problems: Sequence[Problem]) -> dict[str, str]:
        """Names of the kernels in use today, by problem."""
        assert self.settings.today is not None
        path, name = Path(self.settings.today), operation(op).kernels.name
        kernels: dict[str, Kernel | None] = {}
        for dtype in {problem.dtype for problem in problems}:
            first = first_fits(path, operation(op), arch, dtype)
            kernels |= {problem.canonical(): first(problem) for problem in problems if problem.dtype == dtype}
        return {text: name(kernel) for text, kernel in kernels.items() if kernel is not None}

    def _predicted(self, measured: Dataset | None, today: Mapping[Problem, str]) -> dict[str, PredictedGain]:
        """Predicted gains by the folder's model; empty without one."""
        model = self.out / steps.MODEL
        if measured is None or not model.exists():
            return {}
        from ckh.learn.training.train import held_out

        try:
            rows = held_out(measured, measured.op.training.defaults(len(measured)))
            if rows is None:
                return {}
            share = held_out_efficiency(rows)
            self._held_out_efficiency = share.value, share.low, share.high
            return by_model(measured, rows, model, today)
        except CkhError:  # too few usable times
            return {}

    def _in_tables(self) -> dict[str, OwnTime]:
        """Rows of the consumer's own tables by problem, which an export does not replace."""
        with own_document(self.out / steps.EXPORTED, "ckh export"):
            kept = [row for row in self._exported("choices") if self.settings.installed and not row["written"]]
            times = {row["problem"]: float(row["us"] or 0) / _US_PER_MS or None for row in kept}
            return {row["problem"]: OwnTime(str(row["kernel"]), times[row["problem"]]) for row in kept}

    def _exported(self, name: str) -> Any:
        """A list in the document of an export for AITER; empty without one."""
        path = self.out / steps.EXPORTED
        return read_json(path)[name] if self.settings.to == OWN_TABLES and path.exists() else []


def dry(step: TuneStep, out: Path) -> TuneStep:
    """The dry run of a step, without the choices of an earlier step that was not done."""
    before = str(out / steps.BEFORE)
    undone = () if (out / steps.BEFORE).exists() or before not in step.args else ("--today", before)
    return replace(step, args=(*(arg for arg in step.args if arg not in undone), "--dry-run"))
