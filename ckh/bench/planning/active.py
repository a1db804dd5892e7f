"""`ckh bench --active`: choose pairs of a plan as results arrive, until more pairs would gain little.

`learn.selection` makes the choices. This module maps indices to problems and kernels, converts results to training
rows, and extrapolates a learning curve to the expected gain of a minute or an hour. A model is trained in the thread of
the device that finished last: that device idles meanwhile, and all others continue.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.intervals import Estimate
from ckh.bench.planning.plan import Task, full_name
from ckh.data import tables
from ckh.data.dataset import Dataset
from ckh.data.journal import ChosenRecord
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.learn.judging.outlook import FEWEST_PROBLEMS, LearningCurve, learning_curve
from ckh.learn.models.artifact import load_model, wanted_for
from ckh.learn.models.pooled import PooledScores
from ckh.learn.selection import FEWEST_LEARNED, Chosen, PairChooser, by_worth, is_due, quick_options
from ckh.learn.training.save import save
from ckh.learn.training.train import train
from ckh.ops import operation, operation_of_problem
from ckh.schema import HARDWARE, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.bench.planning.few_plan import Order
    from ckh.bench.planning.plan import Plan
    from ckh.bench.planning.results import PairResults
    from ckh.data.journal import JournalWriter, RunRecord
    from ckh.learn.models.artifact import Model
    from ckh.learn.models.spec import Wanted
    from ckh.ops.base import Kernel

_MINUTE_S, _HOUR_S = 60.0, 3600.0
_BEFORE = "what was known before"


@dataclass(frozen=True, slots=True)
class ActiveReport:
    """State of an active run, and the expected gain of more time."""

    pairs: int
    """Pairs that have a time, of this run and those that it continued."""
    problems: int
    """Problems that were measured."""
    kernels: int
    """Kernels that were measured."""
    models: int
    """Models trained during the run."""
    pairs_a_minute: float
    """Pairs measured per minute, compilation and training included."""
    efficiency: Estimate | None
    """Mean efficiency of a quick model of these pairs on unseen problems; null: too few problems."""
    minute: Estimate | None
    """Expected gain of another minute."""
    hour_pairs: int
    """Pairs that another hour would measure."""
    hour: Estimate | None
    """Expected gain of another hour."""


@dataclass(frozen=True, slots=True, eq=False)
class _Learned:
    """A model of problems of a kind: its efficiency, and the model if it is the best so far."""

    curve: LearningCurve
    problems: int
    model: Model | None


class ActiveRun:
    """Selection of pairs of an active run; thread-safe.

    Args:
        plan: all pairs that may be measured.
        results: results so far; grows during the run.
        known: prior knowledge of kernels.
        run: record of the run.
        journal: journal of choices.
        folder: folder of trained models.
        stop_gain: gain in percentage points per minute below which the run ends.
        jobs: threads for training.
    """

    def __init__(
        self,
        plan: Plan,
        results: PairResults,
        known: Order,
        run: RunRecord,
        journal: JournalWriter,
        folder: Path,
        stop_gain: float,
        jobs: int,
    ) -> None:
        self._tasks, self._results, self._known = plan.tasks, results, known
        self._run, self._journal, self._folder = run, journal, folder
        self._stop_gain, self._jobs = stop_gain, jobs
        self._kernels = plan.kernels
        self._names = [full_name(kernel) for kernel in self._kernels]
        number_of = {kernel: number for number, kernel in enumerate(self._kernels)}
        self._numbers = [np.array([number_of[kernel] for kernel in task.kernels]) for task in plan.tasks]
        self._canonical = [task.problem.canonical() for task in plan.tasks]
        self._number_of = {canonical: number for number, canonical in enumerate(self._canonical)}
        self._kinds = [wanted_for(task.problem, run.arch) for task in plan.tasks]
        self._pairs = plan.pairs
        self._open: dict[str, Chosen] = {}
        self._order: dict[int, None] = {}  # problems in the order of measurement
        self._lock, self._scoring, self._learning = threading.Lock(), threading.Lock(), threading.Lock()
        self._learned: dict[Wanted, _Learned] = {}
        self._models = self._learned_pairs = 0
        self.is_enough = False
        places = np.array([operation_of_problem(task.problem).problems.place(task.problem) for task in plan.tasks])
        self._chooser = PairChooser(by_worth(places, run.seed), self._numbers, partial(self._scored, {}), seed=run.seed)
        self._take_results()
        self._start_s, self._before = time.monotonic(), self._measured()
        if self._before:
            self._learn()

    @property
    def useful(self) -> tuple[Kernel, ...]:
        """Kernels that are currently candidates."""
        return tuple(self._kernels[number] for number in sorted(self._chooser.useful))

    def next(self, node: str) -> Task | None:
        """Select the next pairs for a node's device; None if it is done."""
        with self._lock:
            chosen = None if self.is_enough else self._chooser.next(node)
            if chosen is None:
                return None
            canonical = self._canonical[chosen.problem]
            self._open[canonical] = chosen
            model = self._learned.get(self._kinds[chosen.problem])
            by = _BEFORE if model is None or model.model is None else f"a model of {self._learned_pairs} pairs"
            record = ChosenRecord(
                self._run.run_id, canonical, tuple(chosen.kernels.tolist()), by, round(time.time(), 3), node
            )
            self._journal.add_chosen(record)
        return Task(self._tasks[chosen.problem].problem, tuple(self._kernels[i] for i in chosen.kernels.tolist()))

    def done(self, task: Task, node: str, build: Callable[[Sequence[Kernel]], None]) -> None:
        """Add the results of selected pairs, and train if there are enough new ones.

        Training may make other kernels useful, which are built before they can be chosen.
        """
        with self._lock:
            chosen = self._open.pop(task.problem.canonical())
            self._order[chosen.problem] = None
            self._chooser.done(chosen, node)
        if is_due(self._measured(), self._learned_pairs) and self._learning.acquire(blocking=False):
            try:
                self._learn(build)
            finally:
                self._learning.release()

    def is_over(self, node: str) -> bool:
        """True if a node's device is done."""
        with self._lock:
            return self.is_enough or self._chooser.is_done(node)

    def report(self) -> ActiveReport:
        """Final state, and the expected gain of another hour."""
        measured = self._measured()
        if measured > self._learned_pairs:
            self._learn()
        rate = self._pairs_a_second()
        hour_pairs = min(round(_HOUR_S * rate), self._pairs - measured)
        times = [self._results.times(self._canonical[number]) for number in self._order]
        return ActiveReport(
            pairs=measured,
            problems=len(self._order),
            kernels=len(set().union(*times)),
            models=self._models,
            pairs_a_minute=_MINUTE_S * rate,
            efficiency=self._joined(LearningCurve.now),
            minute=self._gain(_MINUTE_S * rate),
            hour_pairs=hour_pairs,
            hour=self._gain(hour_pairs),
        )

    def _scored(
        self, learned: dict[Wanted, PooledScores], problem: int, kernels: NDArray[np.int64]
    ) -> NDArray[np.float64] | None:
        """Scores of a problem's kernels by the model of its kind, or prior knowledge."""
        task, scores = self._tasks[problem], learned.get(self._kinds[problem])
        with self._scoring:
            if scores is not None:
                return scores(task.problem, kernels)
            known = self._known(task.problem, self._kernels, self._numbers[problem])
        if known is None:
            return None
        order = np.argsort(self._numbers[problem])
        return np.asarray(known[order[np.searchsorted(self._numbers[problem], kernels, sorter=order)]])

    def _take_results(self) -> None:
        """Mark pairs measured by earlier runs as selected."""
        names = {name: number for number, name in enumerate(self._names)}
        for canonical, node, kernels in self._results.by_problem():
            number = self._number_of[canonical]
            self._order[number] = None
            self._chooser.take(number, [names[kernel] for kernel in kernels], node)

    def _measured(self) -> int:
        return sum(len(self._results.times(self._canonical[number])) for number in list(self._order))

    def _pairs_a_second(self) -> float:
        return (self._measured() - self._before) / max(time.monotonic() - self._start_s, 1e-9)

    def _learn(self, build: Callable[[Sequence[Kernel]], None] = lambda _kernels: None) -> None:
        """Train models on the results so far, and estimate the gain of more pairs."""
        measured = self._measured()
        by_kind: dict[Wanted, list[int]] = {}
        for number in list(self._order):
            by_kind.setdefault(self._kinds[number], []).append(number)
        for kind, problems in by_kind.items():
            if (learned := self._learned_of(problems)) is not None:
                self._learned[kind] = learned
        self._learned_pairs = measured
        models = {kind: item.model for kind, item in self._learned.items() if item.model is not None}
        self._models += bool(models)
        scores = partial(self._scored, {kind: PooledScores(model, self._kernels) for kind, model in models.items()})
        useful = self._chooser.useful_by(scores)
        build([self._kernels[number] for number in sorted(useful)])
        of_models = {number for number, kind in enumerate(self._kinds) if kind in models}
        with self._lock:
            self._chooser.learn(scores, useful, of_models)
        minute = self._gain(_MINUTE_S * self._pairs_a_second())
        self.is_enough = minute is not None and 0 <= 100 * minute.value < self._stop_gain

    def _learned_of(self, problems: Sequence[int]) -> _Learned | None:
        """Model of problems of a kind; None if there are too few results."""
        times = {
            number: result for number in problems if len(result := self._results.times(self._canonical[number])) > 1
        }
        if len(times) < FEWEST_LEARNED:
            return None
        dataset = self._dataset(times)
        options = quick_options(dataset.op.training.defaults(len(dataset)), self._jobs)
        curve = learning_curve(dataset, options)
        model = None
        if self._is_better(curve, dataset, times):
            folder = self._folder / f"{self._models}-{len(dataset)}-{len(times)}"
            save(train(dataset, options, lambda _steps, _text: None), folder)
            model = load_model(folder)
        return _Learned(curve, len(times), model)

    def _is_better(self, curve: LearningCurve, dataset: Dataset, times: dict[int, dict[str, float]]) -> bool:
        """True if a model's choices on unseen problems beat prior knowledge."""
        before = []
        for number, result in times.items():
            known = self._known_of(number, list(result))
            if known is None:
                return True
            before.append(known)
        return curve.against(dataset, np.concatenate(before)) > 0

    def _known_of(self, problem: int, names: Sequence[str]) -> NDArray[np.float64] | None:
        number_of = {self._names[number]: number for number in self._numbers[problem].tolist()}
        return self._scored({}, problem, np.array([number_of[name] for name in names]))

    def _dataset(self, times: dict[int, dict[str, float]]) -> Dataset:
        """Dataset of problems, by index, with the times of kernels in ms, by name."""
        number_of = {name: number for number, name in enumerate(self._names)}
        kernels = {
            name: i for i, name in enumerate(dict.fromkeys(name for result in times.values() for name in result))
        }
        latency = np.array([time_ms for result in times.values() for time_ms in result.values()])
        pairs = Pairs(
            [self._tasks[number].problem for number in times],
            np.repeat(np.arange(len(times)), [len(result) for result in times.values()]),
            [self._kernels[number_of[name]] for name in kernels],
            list(kernels),
            np.array([kernels[name] for result in times.values() for name in result]),
            operation(self._run.op).name,
        )
        run = self._run
        origin = Origin(run.arch, run.device, {name: run.hardware[name] for name in HARDWARE}, run.run_id)
        table = build_table(pairs, Results([str(Status.OK)] * len(latency), latency, {}), origin)
        return Dataset(tables.to_pandas(tables.plain(table)))

    def _gain(self, pairs: float) -> Estimate | None:
        """Expected gain in mean efficiency of measuring `pairs` more pairs."""
        measured = self._measured()
        share = min(pairs, self._pairs - measured) / max(measured, 1)
        return self._joined(partial(LearningCurve.gain, share=share))

    def _joined(self, figure: Callable[[LearningCurve], Estimate]) -> Estimate | None:
        """Mean of a figure of the learning curves of all kinds, weighted by problems."""
        learned = [item for item in self._learned.values() if item.problems >= FEWEST_PROBLEMS]
        if not learned:
            return None
        weights = np.array([item.problems for item in learned])
        drawings = [figure(learned.curve) for learned in learned]
        values = np.array([(estimate.value, estimate.low, estimate.high) for estimate in drawings])
        value, low, high = (weights @ values / weights.sum()).tolist()
        return Estimate(value, low, high)
