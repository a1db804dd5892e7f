"""Deduplicate the rows of a journal, spilling to disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.data.journal import Damage, KernelRecord, ReferenceRecord, ResultRow, RunRecord
from ckh.data.spool import Buckets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.data.journal import Located
    from ckh.resources import Resources

_BATCH_ROWS = 1 << 15
_BUCKETS = 64
_MOST_KERNELS = 1 << 31
_STRETCH_BYTES = 1 << 24  # of a journal, of whose rows one table is made
_MOST_STRETCHES = 1 << 32
_PLACE = [("pair", "i8"), ("start", "i8"), ("line", "i8"), ("run", "i4"), ("node", "i4")]
_FINAL = [("first", "i8"), ("start", "i8"), ("line", "i8")]


class JournalRows:
    """The rows of a journal by where they stand, and what its other records say.

    Attributes:
        runs: the records of runs, in order.
        looks: of each run at the machine: when, ms of the reference kernel, clock and temperature where shown.
        resources: what the compiler said of a kernel, by `source_hash`; the last record counts.
        damaged: how many lines hold no record.
        count: number of rows.
    """

    def __init__(self, records: Iterable[Located], output: Path | None) -> None:
        import numpy as np

        self.runs: list[RunRecord] = []
        self.looks: dict[str, list[list[float | None]]] = {}
        self.resources: dict[str, Resources | None] = {}
        self.damaged = self.count = 0
        self._output = output
        self._problems: dict[str, int] = {}
        self._kernels: dict[str, int] = {}
        self._run_ids: dict[str, int] = {}
        self._places = Buckets(np.dtype(_PLACE), output)
        self._nodes: dict[str, int] = {}
        self._node_of: list[int] = []  # of each problem, the one that measured it last
        batch: list[tuple[int, int, int, int, int]] = []
        for line, start, record in records:
            if isinstance(record, ResultRow):
                batch.append((self._pair(record), start, line, self._number(record.run_id), self._node(record)))
                if len(batch) == _BATCH_ROWS:
                    self._store(batch)
            else:
                self._take(record)
        self._store(batch)

    def final(self) -> Iterator[NDArray[Any]]:
        """The last row of each pair, as its byte (`start`) and its `line`, in tables of some thousands of one run.

        Rows of a problem that another device measured anew are left out (`Journal.final_rows`). A row stands in the
        place of the pair's first row among the rows of its own run.
        """
        import numpy as np

        final, node_of = Buckets(np.dtype(_FINAL), self._output), np.array(self._node_of, np.int32)
        for all_places in self._places:
            places = all_places[all_places["node"] == node_of[all_places["pair"] // _MOST_KERNELS]]
            if not len(places):
                continue
            ordered = places[np.lexsort((places["start"], places["pair"]))]
            is_new = ordered["pair"][1:] != ordered["pair"][:-1]
            first, last = ordered[np.append(True, is_new)], ordered[np.append(is_new, True)]
            records = np.empty(len(last), dtype=final.kind)
            records["first"], records["start"], records["line"] = first["start"], last["start"], last["line"]
            final.add(records, last["run"].astype(np.int64) * _MOST_STRETCHES + first["start"] // _STRETCH_BYTES)
        for records in final:
            yield records[np.argsort(records["first"])]

    def _take(self, record: object) -> None:
        if isinstance(record, RunRecord):
            self.runs.append(record)
            self._number(record.run_id)
        elif isinstance(record, ReferenceRecord):
            look = [record.time, record.latency_ms, record.clock_mhz, record.temperature_c]
            self.looks.setdefault(record.run_id, []).append(look)
        elif isinstance(record, KernelRecord):
            self.resources[record.source_hash] = record.resources
        self.damaged += isinstance(record, Damage)

    def _pair(self, row: ResultRow) -> int:
        problem = self._problems.setdefault(row.problem, len(self._problems))
        return problem * _MOST_KERNELS + self._kernels.setdefault(row.kernel, len(self._kernels))

    def _node(self, row: ResultRow) -> int:
        """The number of a row's device, which its problem has from now on."""
        problem, node = self._problems[row.problem], self._nodes.setdefault(row.node, len(self._nodes))
        self._node_of[problem : problem + 1] = [node]  # which may be one behind the last
        return node

    def _number(self, run_id: str) -> int:
        return self._run_ids.setdefault(run_id, len(self._run_ids))

    def _store(self, batch: list[tuple[int, int, int, int, int]]) -> None:
        """Keep the places of some rows on disk, and empty the list."""
        import numpy as np

        records = np.array(batch, dtype=self._places.kind)
        self._places.add(records, (records["pair"] // _MOST_KERNELS * 31 + records["pair"] % _MOST_KERNELS) % _BUCKETS)
        self.count += len(batch)
        batch.clear()
