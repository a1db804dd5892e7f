"""Gain of a tuning: two kernels of each shape, timed in the same interleaved rounds of two visits or more.

A visit's ratio is the mean of its rounds' logarithms without the smallest and the largest, which bursts of other work
do not move. The kernel that is the fastest by the other visits is compared: where noise decides, the one that looks
fastest in a visit looks better than it is. The interval is the wider of two, both by Student's t: from round to round,
and from visit to visit. The latter is by all kernels of all shapes: how far a kernel's time, relative to the others of
its rounds, differs between visits.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.intervals import CONFIDENCE
from ckh.assess.times import times_of
from ckh.bench.isolated.timing import UNSTABLE_SPREAD
from ckh.bench.planning.results import VISITS
from ckh.bench.supervision.limits import StopReason
from ckh.bench.supervision.reference_watch import DRIFT
from ckh.data.journal import EndRecord, PlanRecord, ReferenceRecord, ResultRow, RunRecord, journal_path, records_of
from ckh.documents import Document
from ckh.records import Record
from ckh.schema import MEASURED, Status
from ckh.strenum import StrEnum
from ckh.text.shown import Shown, ShownTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.data.journal_records import Record as JournalRecord
    from ckh.shapes.layers import WeightedProblem

BY_PREDICT, AITER_TABLES = "ckh predict before tuning", "AITER's own tables"  # sources of today's kernels
WORTH_IT = 1.01  # smaller gains do not justify a table
MIN_ROUNDS = 5  # of a visit


class Unestablished(StrEnum):
    """Why a gain is not established."""

    NOT_MEASURED = "not measured"
    NO_ROUNDS = "no common rounds"
    ONE_VISIT = "not confirmed by a second visit"
    UNSTABLE = "unstable"
    CLOCK = "clock changed"
    DRIFT = "drift"
    SHARED = "others used the GPU"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of times, with its interval."""

    value: float
    interval: tuple[float, float]


SAME_KERNEL = Ratio(1.0, (1.0, 1.0))


@dataclass(frozen=True, slots=True)
class VisitNoise:
    """Variance between visits of the logarithm of a kernel's time, relative to the others of its rounds."""

    variance: float = 0.0
    degrees: int = 0
    """Degrees of freedom; 0: unknown."""


_Rounds = dict[str, ResultRow]  # rows of kernels that were timed in the same rounds, by name


@dataclass
class MeasuredRun:
    """Gains recorded in the journal of a run."""

    planned: int = 0
    pairs: set[tuple[str, str]] = field(default_factory=set)
    is_complete: bool = False
    shared: int = 0  # measurements while other processes used the GPU
    looks: list[ReferenceRecord] = field(default_factory=list)
    _statuses: Counter[Status] = field(default_factory=Counter)
    _rounds: dict[str, dict[tuple[str, float], _Rounds]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[JournalRecord]) -> MeasuredRun:
        """Collect from the records of a journal."""
        run = cls()
        for record in records:
            run._add(record)
        return run

    def _add(self, record: JournalRecord) -> None:
        if isinstance(record, (RunRecord, PlanRecord)):
            self.planned = self.planned if record.pairs is None else record.pairs
        elif isinstance(record, EndRecord):
            self.is_complete = record.reason == StopReason.COMPLETE
        elif isinstance(record, ReferenceRecord):
            self.looks.append(record)
        elif isinstance(record, ResultRow):
            self.shared += _is_shared(record)
            if record.remeasured:
                rounds = self._rounds.setdefault(record.problem, {})
                rounds.setdefault((record.run_id, record.time), {})[record.kernel] = record
            else:
                self.pairs.add((record.problem, record.kernel))
                self._statuses[record.status] += 1

    @property
    def unstable(self) -> float | None:
        """Share of unstable times; None without times."""
        times = sum(self._statuses[status] for status in MEASURED)
        return self._statuses[Status.UNSTABLE] / times if times else None

    @property
    def drift(self) -> tuple[float, float] | None:
        """Minimum and maximum of the reference times, relative to the first; None if the machine did not drift."""
        ratios = [look.ratio for look in self.looks]
        return (min(ratios), max(ratios)) if any(abs(ratio - 1) > DRIFT for ratio in ratios) else None

    def gain(self, problem: str, today: str, best: str) -> Ratio | Unestablished:
        """Time of today's kernel divided by that of the fastest, by all steady visits that have both."""
        if today == best:
            return SAME_KERNEL
        groups = [rounds for rounds in self._rounds.get(problem, {}).values() if {today, best} <= rounds.keys()]
        doubts = [self._doubt(rounds[today]) or self._doubt(rounds[best]) for rounds in groups]
        steady = [rounds for rounds, doubt in zip(groups, doubts, strict=True) if doubt is None]
        if len(steady) < VISITS:
            one = Unestablished.ONE_VISIT if steady else Unestablished.NO_ROUNDS
            return next((doubt for doubt in reversed(doubts) if doubt is not None), one)
        names, logs = self._middles(steady)
        logs[:, names.index(today)] = math.inf  # not to be chosen
        ratios = []
        for number, rounds in enumerate(steady):
            chosen = names[int(np.delete(logs, number, axis=0).mean(axis=0).argmin())]
            ratios.append(log_ratios(rounds[today].samples_ns, rounds[chosen].samples_ns))
        return ratio_of_visits(ratios, self.visit_noise)

    @cached_property
    def visit_noise(self) -> VisitNoise:
        """The variance between visits, of all kernels of all shapes."""
        squares, degrees = 0.0, 0
        for groups in self._rounds.values():
            visits = [
                rounds for rounds in groups.values() if sum(self._doubt(row) is None for row in rounds.values()) > 1
            ]
            if len(visits) < VISITS:
                continue
            names, logs = self._middles(visits)
            if names:
                rest = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
                squares += float((rest**2).sum())
                degrees += (len(visits) - 1) * (len(names) - 1)
        return VisitNoise(squares / degrees, degrees) if degrees else VisitNoise()

    def _middles(self, visits: Sequence[_Rounds]) -> tuple[list[str], NDArray[np.float64]]:
        """Kernels that are steady in all visits, and the logarithms of their times, shape (visits, kernels)."""
        steady = [{name for name, row in rounds.items() if self._doubt(row) is None} for rounds in visits]
        names = sorted(set.intersection(*steady))
        logs = [[_middle(np.log(rounds[name].samples_ns)) for name in names] for rounds in visits]
        return names, np.array(logs)

    def _doubt(self, row: ResultRow) -> Unestablished | None:
        """Why the time of a kernel in rounds does not count."""
        if (doubt := doubt_of(row)) is not None:
            return doubt
        # The reference time before or after the rounds differs from the first one of the device.
        looks = [look for look in self.looks if (look.run_id, look.node) == (row.run_id, row.node)]
        before = [look.ratio for look in looks if look.time <= row.time][-1:]
        after = [look.ratio for look in looks if look.time > row.time][:1]
        return Unestablished.DRIFT if any(abs(ratio - 1) > DRIFT for ratio in before + after) else None


def read_run(folder: Path) -> MeasuredRun | None:
    """Read the journal of a run; None if it has not begun."""
    path = journal_path(folder)
    return MeasuredRun.of(records_of(path)) if path.exists() else None


def _is_shared(row: ResultRow) -> bool:
    return bool(row.card.get("other_processes"))


def doubt_of(row: ResultRow) -> Unestablished | None:
    """Why the time of a kernel in rounds does not count, by its row alone."""
    if len(row.samples_ns) < MIN_ROUNDS:
        return Unestablished.NO_ROUNDS
    if (row.spread or 0.0) > UNSTABLE_SPREAD:
        return Unestablished.UNSTABLE
    if row.status is Status.UNSTABLE:
        return Unestablished.CLOCK
    return Unestablished.SHARED if _is_shared(row) else None


def log_ratios(before: Sequence[float], after: Sequence[float]) -> NDArray[np.float64]:
    """Logarithms of the ratios of all rounds."""
    return np.log(before) - np.log(after)


def ratio_of_visits(visits: Sequence[NDArray[np.float64]], noise: VisitNoise = VisitNoise()) -> Ratio:
    """Ratio by the logarithms of each visit's rounds; its 95 % interval also has the ratio of each visit."""
    from scipy.special import stdtrit

    count, rounds = len(visits), sum(map(len, visits))
    within = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in visits) / (rounds - count)
    errors = [(within / rounds, rounds - count)]
    if noise.degrees:
        errors.append((2 * noise.variance / count, noise.degrees))  # of the difference of two kernels
    half = math.hypot(
        *(math.sqrt(variance) * float(stdtrit(degrees, (1 + CONFIDENCE) / 2)) for variance, degrees in errors)
    )
    middles = list(map(_middle, visits))
    center = sum(middles) / count
    half = max(half, *(abs(middle - center) for middle in middles))
    return Ratio(math.exp(center), (math.exp(center - half), math.exp(center + half)))


def _middle(logs: NDArray[np.float64]) -> float:
    """Mean without the smallest and the largest, of as many as a visit has."""
    return float(np.sort(logs)[1:-1].mean() if len(logs) >= MIN_ROUNDS else logs.mean())


class TunedShape(Record):
    """A shape of the model."""

    problem: str
    """Canonical text."""
    count: int
    """Number of executions."""
    layers: tuple[str, ...]
    """Names of layers."""
    today: str | None
    """The first kernel of --today that applies, or the choice of ckh predict before tuning; with --to aiter that of
    AITER's own table; null: none is known."""
    today_ms: float | None
    """Measured time of today's kernel; null if it was not measured."""
    table_ms: float | None
    """Time of today's kernel in the consumer's own table, measured by its authors; null if it is not in a table."""
    kernel: str | None
    """Fastest measured kernel; null if none was measured."""
    latency_ms: float | None
    """Measured time of the fastest kernel."""
    gain: float | None
    """Time of today's kernel divided by that of the fastest, in the same interleaved rounds; null: not established."""
    gain_interval: tuple[float, float] | None
    """95 % confidence interval of the gain, from round to round and visit to visit."""
    not_established: str | None
    """Why the gain is not established: not measured, no common rounds, not confirmed by a second visit, unstable, clock
    changed, drift, or others used the GPU; null if it is."""
    predicted_kernel: str | None
    """First choice of the folder's model without measurements of this shape; without a model, and with --to aiter, the
    choice of ckh predict; null: there is none."""
    predicted_gain: float | None
    """Predicted time of today's kernel, or its time in the consumer's table, divided by that of predicted_kernel."""
    predicted_gain_interval: tuple[float, float] | None
    """90 % prediction interval of predicted_gain."""
    share: float | None
    """Share of the time of all shapes with today's kernels, by measured times or those of AITER's tables, if known."""


class TuneDocument(Document, Shown):
    """ckh tune --json: gain of the tuned kernels for a model."""

    schema = "tune"

    folder: str
    """Folder of the tuning."""
    op: str
    """Operation."""
    device: str | None
    """Measuring device; null: nothing was measured."""
    left_out: tuple[str, ...]
    """What differs from the sources: changed element types and layouts, and the problems left out of the tuning, with
    their shares of the work and the option or command that takes them."""
    today_from: str
    """Source of today's kernels: the list of --today, "AITER's own tables", or "ckh predict before tuning"."""
    weights: Mapping[str, int]
    """How often each number of tokens runs, which the counts contain; empty: the sources have none."""
    shapes: tuple[TunedShape, ...]
    """Shapes by their share of the time."""
    today_ms: float | None
    """Total time of all shapes with an established gain, with today's kernels, weighted by count."""
    tuned_ms: float | None
    """The same with the fastest measured kernels, by the gains."""
    gain: float | None
    """today_ms / tuned_ms; null if no shape's gain is established."""
    gain_interval: tuple[float, float] | None
    """95 % confidence interval of the gain."""
    established: int
    """Number of shapes whose gain is established."""
    drift: tuple[float, float] | None
    """Minimum and maximum of the reference kernel's times, relative to the first, if the machine drifted."""
    unstable: float | None
    """Share of times whose samples differ too much."""
    shared: int
    """Number of measurements while other processes had memory on the GPU."""
    pairs: int
    """Measured pairs of a problem and a kernel."""
    pairs_planned: int
    """Pairs of the run's plan."""
    is_complete: bool
    """Whether nothing is left to do; else the same command continues."""
    predicted_gain: float | None
    """The predicted gains of all shapes with one and no measured gain, weighted by count and time; null: none."""
    predicted_gain_interval: tuple[float, float] | None
    """90 % prediction interval of predicted_gain, for errors that all shapes have in common."""
    is_worth_it: bool | None
    """Whether the gain exceeds noise and 1 %; null if unknown, as where other measured shapes may gain."""
    held_out_efficiency: tuple[float, float, float] | None
    """Mean efficiency of the model's choices for shapes that it has not seen, with its 95 % interval; null: no
    model."""
    model: str | None
    """Folder of the trained model."""
    export: str | None
    """Folder of the export."""

    def __repr__(self) -> str:
        gain = "not established" if self.gain is None else f"{self.gain:.3f}x"
        return f"<ckh.TuneDocument {self.folder}: {len(self.shapes)} shapes of {self.op}, gain {gain}>"

    def table(self) -> ShownTable:
        """A row for each shape."""
        columns = TunedShape.field_names
        rows = [tuple(getattr(shape, name) for name in columns) for shape in self.shapes]
        return ShownTable(f"{self.folder}: {self.op} on {self.device or 'no device'}", columns, rows)


@dataclass(frozen=True, slots=True)
class OwnTime:
    """A kernel in the consumer's own table, and its time there in ms if stated."""

    kernel: str
    ms: float | None


def measured_times(dataset: Dataset) -> dict[str, dict[str, float]]:
    """Times of each problem's kernels in ms, by canonical text and name."""
    times, names = times_of(dataset), dataset.frame["kernel"]
    by_problem: dict[str, dict[str, float]] = {}
    texts = [problem.canonical() for problem in dataset.problems()]
    for number, name, ms in zip(times.problem.tolist(), names, times.latency_ms.tolist(), strict=True):
        if math.isfinite(ms):
            by_problem.setdefault(texts[number], {})[name] = ms
    return by_problem


@dataclass(frozen=True, slots=True)
class PredictedGain:
    """Predicted gain of a kernel for a shape."""

    kernel: str
    today_ms: float = 0.0
    gain: Ratio | None = None


def tuned_shapes(
    shapes: Sequence[WeightedProblem],
    today: Mapping[str, str],
    times: Mapping[str, Mapping[str, float]],
    run: MeasuredRun,
    tables: Mapping[str, OwnTime],
    predicted: Mapping[str, PredictedGain],
) -> list[TunedShape]:
    """Compare each shape's kernel of today, that of a table if it is there, with its fastest measured kernel.

    The mappings are by canonical text. Shares are of the measured times with today's kernels, if any, else of those in
    the tables.
    """
    texts = [shape.problem.canonical() for shape in shapes]
    used = {text: tables[text].kernel if text in tables else today.get(text) for text in texts}
    today_ms = {text: times.get(text, {}).get(kernel or "") for text, kernel in used.items()}
    table_ms = {text: tables[text].ms if text in tables else None for text in texts}
    whole_ms = 0.0
    for column in (today_ms, table_ms):
        whole_ms = whole_ms or sum(
            shape.count * (column[text] or 0.0) for shape, text in zip(shapes, texts, strict=True)
        )
    tuned = []
    for shape, text in zip(shapes, texts, strict=True):
        own, kernel, expected = times.get(text, {}), used[text], predicted.get(text)
        best = min(own, key=own.__getitem__, default=None)
        gain: Ratio | Unestablished = Unestablished.NOT_MEASURED
        if best is not None and kernel is not None and kernel in own:
            gain = run.gain(text, kernel, best)
        expected_gain = None if expected is None else expected.gain
        ms = table_ms[text] if today_ms[text] is None else today_ms[text]
        tuned.append(
            TunedShape(
                problem=text,
                count=shape.count,
                layers=shape.layers,
                today=kernel,
                today_ms=today_ms[text],
                table_ms=table_ms[text],
                kernel=best,
                latency_ms=None if best is None else own[best],
                gain=gain.value if isinstance(gain, Ratio) else None,
                gain_interval=gain.interval if isinstance(gain, Ratio) else None,
                not_established=None if isinstance(gain, Ratio) else str(gain),
                predicted_kernel=None if expected is None else expected.kernel,
                predicted_gain=None if expected_gain is None else expected_gain.value,
                predicted_gain_interval=None if expected_gain is None else expected_gain.interval,
                share=None if ms is None or not whole_ms else shape.count * ms / whole_ms,
            )
        )
    return tuned


def total_gain(parts: Sequence[tuple[float, Ratio]]) -> Ratio | None:
    """Gain of shapes by their times with today's kernels, weighted by count, and their gains; None without shapes.

    The errors of shapes are independent.
    """
    if not parts:
        return None
    after = sum(ms / gain.value for ms, gain in parts)
    value = sum(ms for ms, _ in parts) / after
    half = math.hypot(*(ms / gain.value / after * math.log(gain.interval[1] / gain.value) for ms, gain in parts))
    return Ratio(value, (value * math.exp(-half), value * math.exp(half)))


def established(shapes: Iterable[TunedShape]) -> list[tuple[float, Ratio]]:
    """Times with today's kernels, weighted by count, and established gains."""
    return [
        (shape.count * shape.today_ms, Ratio(shape.gain, shape.gain_interval))
        for shape in shapes
        if shape.gain is not None and shape.gain_interval is not None and shape.today_ms is not None
    ]


def is_worth_it(gain: Ratio, shapes: Sequence[TunedShape]) -> bool | None:
    """True if a gain exceeds noise and `WORTH_IT`; None if it does not, but a measured shape has no gain."""
    if gain.interval[0] > 1 and gain.value >= WORTH_IT:
        return True
    return False if all(shape.gain is not None or shape.kernel is None for shape in shapes) else None
