"""Gain of a tuning: measured times of the current and the chosen kernel of each shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.assess.times import times_of
from ckh.documents import Document
from ckh.records import Record
from ckh.text.shown import Shown, ShownTable
from ckh.tune.common_rounds import Ratio, Unestablished

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.data.dataset import Dataset
    from ckh.shapes.layers import WeightedProblem
    from ckh.tune.common_rounds import MeasuredRun

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
    result: dict[str, dict[str, float]] = {}
    texts = [problem.canonical() for problem in dataset.problems()]
    for number, name, ms in zip(times.problem.tolist(), names, times.latency_ms.tolist(), strict=True):
        if math.isfinite(ms):
            result.setdefault(texts[number], {})[name] = ms
    return result


@dataclass(frozen=True, slots=True)
class PredictedGain:
    """Predicted gain of a kernel for a shape."""

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
    today_ms: float | None
    kernel: str | None
    latency_ms: float | None
    gain: Ratio | Unestablished
    table_ms: float | None = None
    predicted: PredictedGain | None = None

    def row(self, whole_ms: float) -> TunedShape:
        """Row of the shape in JSON, given the total time with today's kernels."""
        gain = self.gain if isinstance(self.gain, Ratio) else None
        expected = None if self.predicted is None else self.predicted.gain
        today_ms = self.table_ms if self.today_ms is None else self.today_ms
        return TunedShape(
            problem=self.shape.problem.canonical(),
            count=self.shape.count,
            layers=self.shape.layers,
            today=self.today,
            today_ms=self.today_ms,
            table_ms=self.table_ms,
            kernel=self.kernel,
            latency_ms=self.latency_ms,
            gain=None if gain is None else gain.value,
            gain_interval=None if gain is None else gain.interval,
            not_established=None if isinstance(self.gain, Ratio) else str(self.gain),
            predicted_kernel=None if self.predicted is None else self.predicted.kernel,
            predicted_gain=None if expected is None else expected.value,
            predicted_gain_interval=None if expected is None else expected.interval,
            share=None if today_ms is None or not whole_ms else self.shape.count * today_ms / whole_ms,
        )


def compared(
    shape: WeightedProblem,
    today: str | None,
    times: Mapping[str, float],
    run: MeasuredRun | None = None,
    table: OwnTime | None = None,
    predicted: PredictedGain | None = None,
) -> Compared:
    """Compare today's kernel of a shape, that of a table if given, with its fastest measured kernel."""
    today = today if table is None else table.kernel
    best = min(times, key=times.__getitem__, default=None)
    gain: Ratio | Unestablished = Unestablished.NOT_MEASURED
    if run is not None and best is not None and today is not None and today in times:
        gain = run.gain(shape.problem.canonical(), today, best)
    today_ms = None if today is None else times.get(today)
    table_ms = None if table is None else table.ms
    return Compared(shape, today, today_ms, best, None if best is None else times[best], gain, table_ms, predicted)


def today_total_ms(shapes: Sequence[Compared]) -> float:
    """Total time of the shapes whose kernel of today was measured, weighted by count."""
    return sum(shape.shape.count * shape.today_ms for shape in shapes if shape.today_ms is not None)


def whole(shapes: Sequence[Compared]) -> tuple[float, float, Ratio] | None:
    """Total times in ms with today's and with the fastest kernels, and their ratio, of shapes with established gains.

    The errors of shapes are independent. None without such a shape.
    """
    parts = [
        (shape.shape.count * shape.today_ms, shape.gain)
        for shape in shapes
        if isinstance(shape.gain, Ratio) and shape.today_ms is not None
    ]
    if not parts:
        return None
    before = sum(ms for ms, _ in parts)
    after = sum(ms / gain.value for ms, gain in parts)
    value = before / after
    half = math.hypot(*(ms / gain.value / after * math.log(gain.interval[1] / gain.value) for ms, gain in parts))
    return before, after, Ratio(value, (value * math.exp(-half), value * math.exp(half)))


def is_worth_it(gain: Ratio, shapes: Sequence[Compared]) -> bool | None:
    """True if a gain exceeds noise and `WORTH_IT`; None if it does not, but those of other measured shapes may."""
    if gain.interval[0] > 1 and gain.value >= WORTH_IT:
        return True
    return False if all(isinstance(shape.gain, Ratio) or shape.kernel is None for shape in shapes) else None
