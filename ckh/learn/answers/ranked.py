"""`Ranked`: a kernel with its rank, and the order of kernels by arrays of scores."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar, overload

import numpy as np

from ckh.ops import operation_of_kernel
from ckh.ranking.evaluator import best_first
from ckh.text.shown import Shown, ShownTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.learn.answers.answer import NotMeasured
    from ckh.learn.answers.answer_rows import Row, Values
    from ckh.ops.base import Kernel, Problem


K = TypeVar("K", bound="Kernel")

_TIMES_MORE = 8  # kernels that are ordered, if the first ones are tied with others


@dataclass(frozen=True, slots=True, eq=False)
class TiedKernels(Sequence[Any]):
    """Kernels of a pool with equal scores, created when accessed."""

    pool: Sequence[Any]
    numbers: Values

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> Any: ...

    @overload
    def __getitem__(self, place: slice) -> TiedKernels: ...

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return TiedKernels(self.pool, self.numbers[place])
        return self.pool[self.numbers[place]]


def first_orders(score: NDArray[np.float64], top: int, first: int) -> NDArray[np.intp] | list[NDArray[np.intp]]:
    """Order at least `first` kernels of problems with the same candidates, and all that share the `top` first rows.

    An array of shape (problems, first) if no kernels are tied, else an array for each problem.
    """
    order = best_first(score, first + 1)
    values = np.take_along_axis(score, order, axis=1)
    is_new = values[:, 1:] != values[:, :-1]
    if is_new.all():
        return order[:, :first]
    orders, count = list(order), score.shape[1]
    for number in np.flatnonzero(is_new.sum(axis=1) < top).tolist():
        while len(orders[number]) < count and np.count_nonzero(np.diff(score[number, orders[number]])) < top:
            orders[number] = best_first(score[number], len(orders[number]) * _TIMES_MORE)
    return orders


@dataclass(frozen=True, slots=True, repr=False)
class Ranked(Generic[K]):
    """A kernel with its rank.

    Attributes:
        kernel: the kernel.
        score: ranking score.
        tflops: predicted speed, if any.
        latency_ms: predicted time, if any.
        measured_latency_ms: time measured by a probe or tuning on this machine, if it determines the rank.
        not_measured: caveat if the ranking is not based on measurements of this GPU and element type.
        ties: number of candidates with this score, including this kernel.
        alike: the other tied kernels if a number of distinct rows was requested; otherwise each has a row.
        padded: the padded problem that the kernel runs, to which speed and time refer, if no kernel applies to the
            requested problem; otherwise None.
        not_in_headers: reason why CK Tile's headers here cannot build the kernel; empty if they can, or are unknown.
    """

    kernel: K
    score: float
    tflops: float | None
    latency_ms: float | None
    measured_latency_ms: float | None = None
    not_measured: NotMeasured | None = None
    ties: int = 1
    alike: Sequence[K] = field(default=(), compare=False)
    padded: Problem | None = None
    not_in_headers: str = ""

    @property
    def name(self) -> str:
        """Complete name of the kernel."""
        return operation_of_kernel(self.kernel).kernels.name(self.kernel)

    def __repr__(self) -> str:
        speed = "" if self.tflops is None else f", {self.tflops:.4g} TFLOPS"
        time = "" if self.latency_ms is None else f", {self.latency_ms:.4g} ms"
        return f"<ckh.Ranked {self.name}: score {self.score:.4g}{speed}{time}>"


class RankedList(list[Ranked[K]], Shown, Generic[K]):
    """Kernels of a problem, best first; slices are such lists too."""

    @overload
    def __getitem__(self, place: SupportsIndex) -> Ranked[K]: ...

    @overload
    def __getitem__(self, place: slice) -> RankedList[K]: ...

    def __getitem__(self, place: SupportsIndex | slice) -> Ranked[K] | RankedList[K]:
        return RankedList(super().__getitem__(place)) if isinstance(place, slice) else super().__getitem__(place)

    def __repr__(self) -> str:
        first = f", first {self[0]!r}" if self else ""
        return f"<ckh.RankedList of {len(self)} kernels{first}>"

    def table(self) -> ShownTable:
        """A row for each kernel."""
        columns = ("kernel", "tflops", "latency_ms", "measured_latency_ms", "score", "ties", "not_in_headers")
        rows = [(ranked.name, *(getattr(ranked, name) for name in columns[1:])) for ranked in self]
        doubts = {ranked.not_measured for ranked in self if ranked.not_measured is not None}
        notes = tuple(line for doubt in doubts for line in doubt.lines()[:1])
        return ShownTable(f"{len(self)} kernels, best first", columns, rows, notes)


# Setting the slots of a frozen dataclass takes less than half the time: `rank` returns hundreds of objects.
_SLOTS = tuple(Ranked.__dict__[ranked.name].__set__ for ranked in fields(Ranked))


def ranked_kernels(
    pool: Sequence[Kernel], rows: Sequence[Row], padded: Problem | None = None, not_measured: NotMeasured | None = None
) -> list[Ranked[Any]]:
    """Build the ranked kernels of the rows of an answer."""
    if not rows:
        return []
    made = [object.__new__(Ranked) for _ in rows]
    numbers, scores, speeds, times, measured, ties, others, lacks = zip(*rows, strict=True)
    kernels = [pool[number] for number in numbers]
    alike = [TiedKernels(pool, tied) if len(tied) else () for tied in others]
    columns: Any = kernels, scores, speeds, times, measured, repeat(not_measured), ties, alike, repeat(padded), lacks
    for put, column in zip(_SLOTS, columns, strict=True):
        deque(map(put, made, column), maxlen=0)
    return made
