"""Gain of a tuning: two kernels of each shape, timed in the same interleaved rounds on a steady machine."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ckh.assess.times import times_of
from ckh.bench.isolated.timing import UNSTABLE_SPREAD
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

    from ckh.data.dataset import Dataset
    from ckh.data.journal_records import Record as JournalRecord
    from ckh.shapes.layers import WeightedProblem

BY_PREDICT, AITER_TABLES = "ckh predict before tuning", "AITER's own tables"  # sources of today's kernels
WORTH_IT = 1.01  # smaller gains do not justify a table
MIN_ROUNDS = 3  # for an interval
_CONFIDENCE = 0.95


class Unestablished(StrEnum):
    """Why a gain is not established."""

    NOT_MEASURED = "not measured"
    NO_ROUNDS = "no common rounds"
    UNSTABLE = "unstable"
    CLOCK = "clock changed"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of times, with its interval."""

    value: float
    interval: tuple[float, float]


SAME_KERNEL = Ratio(1.0, (1.0, 1.0))


@dataclass(slots=True)
class MeasuredRun:
    """Gains recorded in the journal of a run."""

    planned: int = 0
    pairs: set[tuple[str, str]] = field(default_factory=set)
    is_complete: bool = False
    shared: int = 0  # measurements while other processes used the GPU
    looks: list[ReferenceRecord] = field(default_factory=list)
    _statuses: Counter[Status] = field(default_factory=Counter)
    _rounds: dict[str, dict[tuple[str, float], dict[str, ResultRow]]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[JournalRecord]) -> MeasuredRun:
        """Collect from the records of a journal."""
        run = cls()
        for record in records:
            run._add(record)
        return run

    def _add(self, record: JournalRecord) -> None:
        if isinstance(record, ResultRow):
            self.shared += bool(record.card.get("other_processes"))
        if isinstance(record, (RunRecord, PlanRecord)):
            self.planned = self.planned if record.pairs is None else record.pairs
        elif isinstance(record, EndRecord):
            self.is_complete = record.reason == StopReason.COMPLETE
        elif isinstance(record, ReferenceRecord):
            self.looks.append(record)
        elif isinstance(record, ResultRow) and record.remeasured:
            rounds = self._rounds.setdefault(record.problem, {})
            rounds.setdefault((record.run_id, record.time), {})[record.kernel] = record
        elif isinstance(record, ResultRow):
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
        """Time of today's kernel divided by that of the best, by the last rounds that have both."""
        if today == best:
            return SAME_KERNEL
        groups = reversed(list(self._rounds.get(problem, {}).values()))
        rows = next(([group[today], group[best]] for group in groups if {today, best} <= group.keys()), [])
        ratio = paired_ratio(*rows) if rows else Unestablished.NO_ROUNDS
        return Unestablished.DRIFT if isinstance(ratio, Ratio) and self._is_drifting(rows[0]) else ratio

    def _is_drifting(self, row: ResultRow) -> bool:
        """Whether the reference time before or after rounds differs from the first one of the device."""
        looks = [look for look in self.looks if (look.run_id, look.node) == (row.run_id, row.node)]
        before = [look.ratio for look in looks if look.time <= row.time][-1:]
        after = [look.ratio for look in looks if look.time > row.time][:1]
        return any(abs(ratio - 1) > DRIFT for ratio in before + after)


def read_run(folder: Path) -> MeasuredRun | None:
    """Read the journal of a run; None if it has not begun."""
    path = journal_path(folder)
    return MeasuredRun.of(records_of(path)) if path.exists() else None


def paired_ratio(before: ResultRow, after: ResultRow) -> Ratio | Unestablished:
    """Time of the first row divided by that of the second, by the samples of their common rounds."""
    rows, samples = (before, after), (before.samples_ns, after.samples_ns)
    if len(samples[0]) != len(samples[1]) or len(samples[0]) < MIN_ROUNDS:
        return Unestablished.NO_ROUNDS
    if any((row.spread or 0.0) > UNSTABLE_SPREAD for row in rows):
        return Unestablished.UNSTABLE
    if any(row.status is Status.UNSTABLE for row in rows):
        return Unestablished.CLOCK
    return ratio_of_rounds(*samples)


def ratio_of_rounds(today_ns: Sequence[float], best_ns: Sequence[float]) -> Ratio:
    """Geometric mean of the ratios of all rounds, with its 95 % interval by Student's t of their logarithms."""
    from statistics import mean, stdev

    from scipy.special import stdtrit

    logs = [math.log(before / after) for before, after in zip(today_ns, best_ns, strict=True)]
    quantile = float(stdtrit(len(logs) - 1, (1 + _CONFIDENCE) / 2))
    center, half = mean(logs), quantile * stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(center), (math.exp(center - half), math.exp(center + half)))


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
    """95 % confidence interval of the gain, from round to round."""
    not_established: str | None
    """Why the gain is not established: not measured, no common rounds, unstable, clock changed or drift; null if it
    is."""
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
    today_from: str
    """Source of today's kernels: the list of --today, "AITER's own tables", or "ckh predict before tuning"."""
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
    """The predicted gains of all shapes with one, weighted by count and time; null: no prediction."""
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


def whole(shapes: Sequence[TunedShape]) -> tuple[float, float, Ratio] | None:
    """Total times in ms with today's and with the fastest kernels, and their ratio, of shapes with established gains.

    The errors of shapes are independent. None without such a shape.
    """
    parts = [
        (shape.count * shape.today_ms, shape.gain, shape.gain_interval[1])
        for shape in shapes
        if shape.gain is not None and shape.gain_interval is not None and shape.today_ms is not None
    ]
    if not parts:
        return None
    before = sum(ms for ms, _, _ in parts)
    after = sum(ms / gain for ms, gain, _ in parts)
    value = before / after
    half = math.hypot(*(ms / gain / after * math.log(high / gain) for ms, gain, high in parts))
    return before, after, Ratio(value, (value * math.exp(-half), value * math.exp(half)))


def is_worth_it(gain: Ratio, shapes: Sequence[TunedShape]) -> bool | None:
    """True if a gain exceeds noise and `WORTH_IT`; None if it does not, but a measured shape has no gain."""
    if gain.interval[0] > 1 and gain.value >= WORTH_IT:
        return True
    return False if all(shape.gain is not None or shape.kernel is None for shape in shapes) else None
