"""Results of a run's pairs: the last row of each, its times, and which are measured again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.rows import NS_PER_MS
from ckh.schema import MEASURED, TRIED_AGAIN, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ckh.data.journal import ResultRow

LEADER_MARGIN = 0.08  # how far behind the fastest a kernel is still measured again
MAX_LEADERS = 12


class PairResults:
    """The last row of every pair, by problem; what is known when a run is resumed."""

    def __init__(self, rows: Iterable[ResultRow] = ()) -> None:
        self._by_problem: dict[str, dict[str, ResultRow]] = {}
        for row in rows:
            self.add(row)

    def add(self, row: ResultRow) -> None:
        """Take in a row, which replaces an earlier one of its pair, and those of its problem by another device."""
        rows = self._by_problem.setdefault(row.problem, {})
        if self.device(row.problem) != row.node:
            rows.clear()
        rows[row.kernel] = row

    def device(self, problem: str) -> str | None:
        """The device that measured a problem; None: it was not measured."""
        return next((row.node for row in self._by_problem.get(problem, {}).values()), None)

    def set_aside(self, problem: str) -> None:
        """Forget what is known of a problem, which is measured anew."""
        self._by_problem.pop(problem, None)

    def has(self, problem: str, kernel: str) -> bool:
        """True if there is a row of the pair that says something about it."""
        row = self._by_problem.get(problem, {}).get(kernel)
        return row is not None and row.status not in TRIED_AGAIN

    def by_problem(self) -> Iterator[tuple[str, str, list[str]]]:
        """Of each problem the device that measured it, and its kernels with a row that says something."""
        for problem, rows in self._by_problem.items():
            if names := [name for name in rows if self.has(problem, name)]:
                yield problem, rows[names[-1]].node, names

    def times(self, problem: str) -> dict[str, float]:
        """The times of a problem's kernels in ms, by name."""
        return {row.kernel: row.latency_ms for row in self._measured(problem) if row.latency_ms}

    @property
    def is_any_right(self) -> bool:
        """True if any pair has a right result, with a time or of a device that has none."""
        rows = (row for rows in self._by_problem.values() for row in rows.values())
        return any(row.status is Status.VERIFIED or row.latency_ms for row in rows)

    def best_ns(self, problem: str) -> float:
        """The least median time of a problem, 0 if none is known."""
        return min((_time_ns(row) for row in self._measured(problem)), default=0.0)

    def leaders(self, problem: str, count: int | None = None) -> list[ResultRow]:
        """The rows to measure again, fastest first; none if that was done or there is nothing to compare.

        Args:
            problem: canonical text.
            count: how many; None: up to `MAX_LEADERS` that are within `LEADER_MARGIN` of the best.
        """
        ranked = sorted(self._measured(problem), key=_time_ns)
        again = sum(row.remeasured for row in self._by_problem.get(problem, {}).values())
        if not ranked or again >= (1 if count is None else min(count, len(ranked))):
            return []
        limit = _time_ns(ranked[0]) * (1 + LEADER_MARGIN) if count is None else float("inf")
        close = [row for row in ranked[: count or MAX_LEADERS] if _time_ns(row) <= limit]
        return close if len(close) > 1 else []

    def _measured(self, problem: str) -> list[ResultRow]:
        rows = self._by_problem.get(problem, {}).values()
        return [row for row in rows if row.status in MEASURED and row.latency_ms]


def _time_ns(row: ResultRow) -> float:
    return (row.latency_ms or 0.0) * NS_PER_MS
