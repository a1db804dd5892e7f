"""Gains measured by a run: two kernels of a problem, timed in the same interleaved rounds on a steady machine."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ckh.bench.isolated.timing import UNSTABLE_SPREAD
from ckh.bench.supervision.limits import StopReason
from ckh.bench.supervision.reference_watch import DRIFT
from ckh.data.journal import EndRecord, ReferenceRecord, ResultRow, RunRecord, journal_path, records_of
from ckh.schema import MEASURED, Status
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ckh.data.journal_records import Record

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
    looks: list[ReferenceRecord] = field(default_factory=list)
    _statuses: Counter[Status] = field(default_factory=Counter)
    _rounds: dict[str, dict[tuple[str, float], dict[str, ResultRow]]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record]) -> MeasuredRun:
        """Collect from the records of a journal."""
        run = cls()
        for record in records:
            run._add(record)
        return run

    def _add(self, record: Record) -> None:
        if isinstance(record, RunRecord):
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
        samples = [row.samples_ns for row in rows]
        if not rows or len(samples[0]) != len(samples[1]) or len(samples[0]) < MIN_ROUNDS:
            return Unestablished.NO_ROUNDS
        if any((row.spread or 0.0) > UNSTABLE_SPREAD for row in rows):
            return Unestablished.UNSTABLE
        if any(row.status is Status.UNSTABLE for row in rows):
            return Unestablished.CLOCK
        if self._is_drifting(rows[0]):
            return Unestablished.DRIFT
        return ratio_of_rounds(*samples)

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


def ratio_of_rounds(today_ns: Sequence[float], best_ns: Sequence[float]) -> Ratio:
    """Geometric mean of the ratios of all rounds, with its 95 % interval by Student's t of their logarithms."""
    from statistics import mean, stdev

    from scipy.special import stdtrit

    logs = [math.log(before / after) for before, after in zip(today_ns, best_ns, strict=True)]
    quantile = float(stdtrit(len(logs) - 1, (1 + _CONFIDENCE) / 2))
    center, half = mean(logs), quantile * stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(center), (math.exp(center - half), math.exp(center + half)))
