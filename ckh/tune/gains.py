"""Gain of a tuning: measured times of the current and the chosen kernel of each shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.assess.times import times_of
from ckh.documents import Document
from ckh.records import Record
from ckh.text.shown import Shown, ShownTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.data.dataset import Dataset
    from ckh.shapes.layers import WeightedProblem

_DEVIATION = 1.4826  # standard deviation of a normal distribution / its median absolute deviation
_CONFIDENCE = 1.96  # standard errors on each side of an interval of 95 %
BY_PREDICT, AITER_TABLES = "ckh predict before tuning", "AITER's own tables"  # sources of today's kernels
WORTH_IT = 1.01  # smaller gains do not justify a table


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
    """Measured time of today's kernel divided by that of the fastest."""
    gain_interval: tuple[float, float] | None
    """95 % confidence interval of the gain, by the spread of samples."""
    predicted_kernel: str | None
    """First choice of the folder's model without measurements of this shape; with --to aiter the choice of ckh predict;
    null: there is none."""
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
    """Total time of all shapes with both kernels measured, with today's kernels, weighted by count."""
    tuned_ms: float | None
    """The same with the fastest measured kernels."""
    gain: float | None
    """today_ms / tuned_ms."""
    gain_interval: tuple[float, float] | None
    """95 % confidence interval of the gain."""
    predicted_gain: float | None
    """The predicted gains of all shapes with one, weighted by count and time; null: no prediction."""
    predicted_gain_interval: tuple[float, float] | None
    """90 % prediction interval of predicted_gain, for errors that all shapes have in common."""
    is_worth_it: bool | None
    """Whether the gain exceeds noise and 1 %; null if unknown."""
    another_hour: tuple[float, float, float] | None
    """Expected gain of another hour of measuring, in mean efficiency, with its 95 % interval; null if unknown."""
    model: str | None
    """Folder of the trained model."""
    export: str | None
    """Folder of the export."""

    def __repr__(self) -> str:
        gain = "not measured" if self.gain is None else f"{self.gain:.3f}x"
        return f"<ckh.TuneDocument {self.folder}: {len(self.shapes)} shapes of {self.op}, gain {gain}>"

    def table(self) -> ShownTable:
        """A row for each shape."""
        columns = TunedShape.field_names
        rows = [tuple(getattr(shape, name) for name in columns) for shape in self.shapes]
        return ShownTable(f"{self.folder}: {self.op} on {self.device or 'no device'}", columns, rows)


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """The measured time of a kernel in ms, and its standard error."""

    ms: float
    error_ms: float


@dataclass(frozen=True, slots=True)
class OwnTime:
    """A kernel in the consumer's own table, and its time there in ms if stated."""

    kernel: str
    ms: float | None


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of times, with its interval."""

    value: float
    interval: tuple[float, float]


def measured_times(dataset: Dataset) -> dict[str, dict[str, MeasuredTime]]:
    """Times of each problem's kernels, by canonical text and name."""
    times, frame = times_of(dataset), dataset.frame
    names, samples = frame["kernel"], frame["samples"].fillna(1).clip(lower=1)
    error = times.latency_ms * times.spread * _DEVIATION / samples.to_numpy() ** 0.5
    result: dict[str, dict[str, MeasuredTime]] = {}
    texts = [problem.canonical() for problem in dataset.problems()]
    for number, name, ms, deviation in zip(
        times.problem.tolist(), names, times.latency_ms.tolist(), error.tolist(), strict=True
    ):
        if math.isfinite(ms):
            result.setdefault(texts[number], {})[name] = MeasuredTime(ms, 0.0 if math.isnan(deviation) else deviation)
    return result


def ratio(today: Sequence[MeasuredTime], tuned: Sequence[MeasuredTime], counts: Sequence[int]) -> Ratio:
    """Ratio of two sums of times, weighted by count, with its 95 % confidence interval.

    Errors of times are independent; if both times are of the same kernel, the difference has no error.
    """
    before, after = _sum(today, counts), _sum(tuned, counts)
    variance = sum(
        (n * measured_time.error_ms / before) ** 2 + (n * other.error_ms / after) ** 2
        for n, measured_time, other in zip(counts, today, tuned, strict=True)
        if measured_time is not other
    )
    value, error = before / after, _CONFIDENCE * math.sqrt(variance)
    return Ratio(value, (value * math.exp(-error), value * math.exp(error)))


@dataclass(frozen=True, slots=True)
class PredictedGain:
    """Predicted gain of a kernel for a shape.

    Attributes:
        kernel: the kernel.
        today_ms: time of today's kernel: measured, predicted, or in the consumer's table; 0 without a gain.
        gain: time of today's kernel divided by that of the kernel, with its 90 % prediction interval; None: unknown.
    """

    kernel: str
    today_ms: float = 0.0
    gain: Ratio | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """A shape with today's kernel and the fastest measured one; None if a kernel or its time is unknown.

    `table_ms` is the time of today's kernel in the consumer's own table.
    """

    shape: WeightedProblem
    today: str | None
    before: MeasuredTime | None
    kernel: str | None
    best: MeasuredTime | None
    table_ms: float | None = None
    predicted: PredictedGain | None = None

    def row(self, whole_ms: float) -> TunedShape:
        """Row of the shape in JSON, given the total time."""
        item = None if self.before is None or self.best is None else ratio([self.before], [self.best], [1])
        expected = None if self.predicted is None else self.predicted.gain
        today_ms = self.table_ms if self.before is None else self.before.ms
        return TunedShape(
            problem=self.shape.problem.canonical(),
            count=self.shape.count,
            layers=self.shape.layers,
            today=self.today,
            today_ms=None if self.before is None else self.before.ms,
            table_ms=self.table_ms,
            kernel=self.kernel,
            latency_ms=None if self.best is None else self.best.ms,
            gain=None if item is None else item.value,
            gain_interval=None if item is None else item.interval,
            predicted_kernel=None if self.predicted is None else self.predicted.kernel,
            predicted_gain=None if expected is None else expected.value,
            predicted_gain_interval=None if expected is None else expected.interval,
            share=None if today_ms is None else self.shape.count * today_ms / whole_ms,
        )


def compared(
    shape: WeightedProblem,
    today: str | None,
    times: Mapping[str, MeasuredTime],
    table: OwnTime | None = None,
    predicted: PredictedGain | None = None,
) -> Compared:
    """Compare today's kernel of a shape, that of a table if given, with its fastest measured kernel."""
    fastest = min(times, key=lambda name: times[name].ms, default=None)
    today = today if table is None else table.kernel
    before = None if today is None else times.get(today)
    best = None if fastest is None else times[fastest]
    return Compared(shape, today, before, fastest, best, None if table is None else table.ms, predicted)


def whole(shapes: Sequence[Compared]) -> tuple[float, float, Ratio] | None:
    """Total times in ms with today's and with the fastest kernels, and their ratio; None if no shape has both."""
    pairs = [(shape.before, shape.best, shape.shape.count) for shape in shapes if shape.before and shape.best]
    if not pairs:
        return None
    before, after, counts = (list(some) for some in zip(*pairs, strict=True))
    return _sum(before, counts), _sum(after, counts), ratio(before, after, counts)


def _sum(times: Sequence[MeasuredTime], counts: Sequence[int]) -> float:
    return sum(n * time.ms for n, time in zip(counts, times, strict=True))


def is_worth_it(gain: Ratio) -> bool:
    """True if a gain exceeds noise and `WORTH_IT`."""
    return gain.interval[0] > 1 and gain.value >= WORTH_IT
