"""`Ranked`: a kernel with its rank. Ties: kernels with equal scores share a row of an answer, the first in the pool.

A pool starts with the kernels that have times in the model's training data, followed by the others in table order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from ckh.learn.models.calibration import FIRST
from ckh.ops import operation_of_kernel
from ckh.ranking.evaluator import best_first
from ckh.text.shown import Shown, ShownTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ckh.learn.answers.answer import NotMeasured
    from ckh.ops.base import Kernel, Problem


@dataclass(frozen=True, slots=True, eq=False)
class TiedKernels(Sequence[Any]):
    """Kernels of a pool with equal scores, created when accessed."""

    pool: Sequence[Any]
    numbers: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> Any: ...

    @overload
    def __getitem__(self, place: slice) -> TiedKernels: ...

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return TiedKernels(self.pool, self.numbers[place])
        return self.pool[int(self.numbers[place])]


class TieRows(NamedTuple):
    """The rows of a problem's answer, best first."""

    places: NDArray[np.intp]
    numbers: list[NDArray[np.intp]]

    def of_pool(self, chosen: NDArray[np.intp]) -> TieRows:
        """Convert candidate indices to pool indices, given the candidates' indices in the pool."""
        return self._replace(numbers=[chosen[row] for row in self.numbers])


def row_starts(
    score: NDArray[np.float64], alone_first: int = 0, alone_last: int = 0, kind: NDArray[np.intp] | None = None
) -> NDArray[np.intp]:
    """Return the start indices of rows among ranked kernels."""
    begins = np.ones(len(score), np.bool_)
    begins[1:] = score[1:] != score[:-1]
    if kind is not None:
        begins[1:] |= kind[1:] != kind[:-1]
    begins[: alone_first + 1] = True
    begins[len(score) - alone_last :] = True
    return np.flatnonzero(begins)


def row_lengths(score: NDArray[np.float64], kind: NDArray[np.intp] | None = None) -> list[int]:
    """Number of kernels tied with each ranked kernel, with equal score and kind."""
    counts = np.diff(np.append(row_starts(score, kind=kind), len(score)))
    return [int(count) for count in np.repeat(counts, counts)]


def first_rows(score: NDArray[np.float64], top: int, first: int) -> tuple[NDArray[np.intp], list[TieRows] | None]:
    """Order the kernels of the first rows of problems with the same candidates, shape (problems, some)."""
    order = best_first(score, first + 1)
    values = np.take_along_axis(score, order, axis=1)
    if (values[:, 1:] != values[:, :-1]).all():
        return order[:, :first], None
    lead = min(FIRST, score.shape[1])
    made, rows = np.zeros((len(score), lead + top), np.intp), []
    for number, of_problem in enumerate(score):
        groups = _groups(of_problem, top, lead)
        made[number, :lead] = np.concatenate(groups)[:lead]
        begins = [group[0] for group in groups[:top]]
        made[number, lead : lead + len(begins)] = begins
        places = np.arange(lead, lead + len(begins))
        places[:1] = 0  # its first position, also if the model has times of the first kernel only
        rows.append(TieRows(places, groups[:top]))
    return made, rows


def _groups(score: NDArray[np.float64], top: int, least: int) -> list[NDArray[np.intp]]:
    """Group candidates by score, best first, until there are `top` groups and `least` candidates, or all."""
    numbers, count = np.arange(len(score)), 0
    groups: list[NDArray[np.intp]] = []
    while len(numbers) and (len(groups) < top or count < least):
        is_best = score == score.max()
        groups.append(numbers[is_best])
        count += len(groups[-1])
        numbers, score = numbers[~is_best], score[~is_best]
    return groups


_FLOPS_PER_TFLOPS_MS = 1e9


@dataclass(frozen=True, slots=True, repr=False)
class Ranked:
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

    kernel: Kernel
    score: float
    tflops: float | None
    latency_ms: float | None
    measured_latency_ms: float | None = None
    not_measured: NotMeasured | None = None
    ties: int = 1
    alike: Sequence[Kernel] = field(default=(), compare=False)
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


class RankedList(list[Ranked], Shown):
    """Kernels of a problem, best first."""

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
_MARK = Ranked.__dict__["not_measured"].__set__


def in_order(
    problem: Problem,
    pool: Sequence[Kernel],
    order: NDArray[np.intp],
    score: NDArray[np.float64],
    tflops: NDArray[np.float64] | None,
    padded: Problem | None = None,
    *,
    ties: Iterable[int] | None = None,
    alike: Sequence[TiedKernels] | None = None,
) -> list[Ranked]:
    """Build the rows of ranked candidates, with the time derived from a finite predicted speed."""
    problem = padded or problem
    kernels, none = [pool[index] for index in order.tolist()], repeat(None)
    assert len(kernels) == len(score) == len(score if tflops is None else tflops)
    made = [object.__new__(Ranked) for _ in kernels]
    speeds: Iterable[float | None] = none
    times: Iterable[float | None] = none
    if tflops is not None:
        flops, values = problem.flops, tflops.tolist()
        known = [flops / (value * _FLOPS_PER_TFLOPS_MS) if value else math.inf for value in values]
        speeds, times = values, known
        if math.isnan(tflops.sum()):
            speeds, times = ([None if math.isnan(item) else item for item in column] for column in (values, known))
    counts: Iterable[int] = repeat(1) if ties is None else ties
    others: Iterable[Sequence[Kernel]] = repeat(()) if alike is None else alike
    columns = (kernels, score.tolist(), speeds, times, none, none, counts, others, repeat(padded), repeat(""))
    for put, column in zip(_SLOTS, columns, strict=True):
        deque(map(put, made, column), maxlen=0)
    return made


def marked(made: list[Ranked], not_measured: NotMeasured | None) -> list[Ranked]:
    """Set the caveat on newly built rows if the ranking is not based on measurements of this GPU."""
    if not_measured is not None:
        deque(map(_MARK, made, repeat(not_measured)), maxlen=0)
    return made
