"""The rows of an answer: made here for every source of scores, C on prepared files or a model's arrays of scores.

A pool starts with the kernels that have times in the model's training data, followed by the others in table order.
Kernels with equal scores share a row, the first in the pool. Imports little, since quick answers use it.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ckh.learn.answers.answer import MAX_TIED, AnswerRows, HeadersNote, KernelRow

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ckh.learn.answers.probes import Probe
    from ckh.ops.base import Problem

_FLOPS_PER_TFLOPS_MS = 1e9


class Values(Protocol):
    """A value of each kernel: a list, an array, or a view of its memory."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __getitem__(self, place: Any, /) -> Any: ...


class Row(NamedTuple):
    """A row: a kernel, by its index in the pool, and those that share it."""

    kernel: int
    score: float
    tflops: float | None
    latency_ms: float | None
    measured_latency_ms: float | None
    ties: int
    others: Values
    not_in_headers: str


def tied(
    scores: Values,
    is_lacking: Callable[[int], bool] | None = None,
    top: int | None = None,
    alone_first: int = 0,
    alone_last: int = 0,
) -> list[tuple[int, int]]:
    """Where each of the first rows begins and ends among ranked kernels.

    Kernels with equal scores share a row if the headers here can build all of them or none, given by their place; the
    first and the last ones, which were measured here, have a row each.
    """
    rows: list[tuple[int, int]] = []
    begin, last = 0, len(scores) - alone_last
    for place in range(1, len(scores) + 1):
        if len(rows) == top:
            break
        if (
            alone_first < place < last
            and scores[place] == scores[begin]
            and (is_lacking is None or is_lacking(place) == is_lacking(begin))
        ):
            continue
        rows.append((begin, place))
        begin = place
    return rows


def rows_of(
    kernels: Values,
    scores: Values,
    tflops: Values | None,
    flops: int,
    ties: Iterable[tuple[int, int]] | None = None,
    *,
    is_each: bool = False,
    times: Sequence[float] = (),
    lack_of: Callable[[int], str] = lambda _: "",
) -> list[Row]:
    """Make the rows of ranked kernels that share them as in `tied`, or with `is_each` a row for each kernel.

    Without ties, no kernels share a row. Speeds are NaN where there are none; the first kernels have times.
    """
    rows = []
    for begin, end in ((place, place + 1) for place in range(len(kernels))) if ties is None else ties:
        for place in range(begin, end) if is_each else (begin,):
            kernel, speed, latency_ms = kernels[place], None, None
            if tflops is not None and not math.isnan(tflops[place]):
                speed = tflops[place]
                latency_ms = flops / (speed * _FLOPS_PER_TFLOPS_MS) if speed else math.inf
            measured_ms = times[place] if place < len(times) else None
            others: Values = () if is_each else kernels[begin + 1 : end]
            row = scores[place], speed, latency_ms, measured_ms, end - begin, others, lack_of(kernel)
            rows.append(Row(kernel, *row))
    return rows


class KernelKind(NamedTuple):
    """Properties shared by kernels of a pool, as far as an answer tells them."""

    lack: int  # index of the reason why the headers cannot build them; -1 if they can
    family: str  # if the model has no measurements of it; else empty
    is_estimated: bool
    is_compiled: bool
    is_timed: bool


class HeadersHere(NamedTuple):
    """The headers on this machine, and the reasons why they cannot build kernels of a pool."""

    include: str
    interface: str
    sentences: Sequence[str]


class ToldPool(NamedTuple):
    """What answers tell of a pool's kernels, by index."""

    kinds: Sequence[KernelKind]
    kind_of: Values
    headers: HeadersHere | None  # None: not built with CK Tile's headers
    name: Callable[[int], str]
    numbers_of: Callable[[Collection[str]], Mapping[str, int]]  # indices of names that are in the pool

    def kind(self, kernel: int) -> KernelKind:
        """Return the kind of a kernel."""
        number: int = self.kind_of[kernel]
        return self.kinds[number]

    def lack(self, kernel: int) -> str:
        """Reason why the headers here cannot build a kernel; empty if they can."""
        number = self.kind(kernel).lack
        return "" if self.headers is None or number < 0 else self.headers.sentences[number]


class RankedPool(NamedTuple):
    """The kernels of a problem in their order, or the first ones, with what an answer tells of all that apply."""

    run: Problem  # padded, where no kernel applies to the problem
    ranked_by: str
    pool: ToldPool
    kernels: Values  # best first; those that the headers here cannot build last
    scores: Values
    tflops: Values | None
    applying: Mapping[KernelKind, int]  # number of kernels that apply
    has_estimate: bool  # which scores kernels
    probe: Probe | None = None

    def by_times(self, probe: Probe) -> RankedPool:
        """Reorder all kernels: measured ones first, fastest first, and failed ones last."""
        from ckh.learn.answers.probes import in_front

        known, places = in_front(probe, list(self.kernels), self.pool.numbers_of)
        return self._replace(
            kernels=[self.kernels[place] for place in places],
            scores=[self.scores[place] for place in places],
            tflops=None if self.tflops is None else [self.tflops[place] for place in places],
            probe=known,
        )

    def made(self, top: int | None, *, is_each: bool = False) -> list[Row]:
        """Make the first rows; with `is_each` a row for each kernel."""
        times, failed = times_of(self.probe)
        ties = tied(self.scores, lambda place: self.pool.kind(self.kernels[place]).lack >= 0, top, len(times), failed)
        return rows_of(
            self.kernels,
            self.scores,
            self.tflops,
            self.run.flops,
            ties if self.probe is None or not is_each else None,
            is_each=is_each,
            times=times,
            lack_of=self.pool.lack,
        )

    def rows(self, top: int, refused: Mapping[str, int], timed: int | None) -> AnswerRows:
        """Make the first rows of an answer, with the numbers of refused kernels by reason, and of those with times."""
        pool, rows = self.pool, self.made(top)
        kernels = [
            KernelRow(
                kernel=pool.name(row.kernel),
                score=row.score,
                tflops=row.tflops,
                latency_ms=row.latency_ms,
                measured_latency_ms=row.measured_latency_ms,
                ties=row.ties,
                tied=tuple(map(pool.name, row.others[:MAX_TIED])),
                not_in_headers=row.not_in_headers,
                is_timed=None if timed is None else pool.kind(row.kernel).is_timed,
            )
            for row in rows
        ]
        return AnswerRows(
            run=self.run,
            kernels=kernels,
            ranked_by=self.ranked_by,
            candidates=sum(self.applying.values()),
            refused=refused,
            timed=timed,
            estimated=sum(count for kind, count in self.applying.items() if kind.is_estimated),
            compiled=sum(count for kind, count in self.applying.items() if kind.is_compiled)
            if self.has_estimate
            else None,
            headers=self._headers(),
            families=[pool.kind(row.kernel).family for row in rows],
            probe=self.probe,
        )

    def _headers(self) -> HeadersNote | None:
        if (headers := self.pool.headers) is None:
            return None
        reasons: Counter[str] = Counter()
        for kind, count in self.applying.items():
            if kind.lack >= 0:
                reasons[headers.sentences[kind.lack]] += count
        return HeadersNote.of(headers.include, headers.interface, reasons)


def times_of(probe: Probe | None) -> tuple[list[float], int]:
    """Times of the kernels measured on this machine, fastest first, and the number of those that failed."""
    if probe is None:
        return [], 0
    times = [timed.latency_ms for timed in probe.fastest_first() if timed.latency_ms is not None]
    return times, len(probe.kernels) - len(times)
