"""Reads a journal line by line for `--resume`: which pairs are measured, and how long that took.

A journal may be larger than memory. Of its rows no more is kept than a resumed run asks for (`PairResults`), some bytes
each; runs, plans and looks at the machine are kept whole.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckh.bench.planning.results import PairResults
from ckh.data.journal import (
    EndRecord,
    PlanRecord,
    ReferenceRecord,
    ResultRow,
    RunRecord,
    TaskRecord,
    journal_path,
    records_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ckh.data.records import Record


@dataclass(frozen=True, slots=True)
class History:
    """The runs of a journal, in the order they were written."""

    path: Path
    runs: tuple[RunRecord, ...]
    ends: tuple[EndRecord, ...]
    plans: tuple[PlanRecord, ...]
    tasks: tuple[TaskRecord, ...]
    references: tuple[ReferenceRecord, ...]
    results: PairResults
    measured: Mapping[tuple[str, str], int]
    """How many rows of a run and problem there are, without those that were measured again."""


def read_history(folder: Path) -> History:
    """Read a journal, given itself or the folder it is in.

    Raises:
        DataError: as `read_journal`.
    """
    path = journal_path(folder)
    others: dict[type[Record], list[Record]] = {
        kind: [] for kind in (RunRecord, EndRecord, PlanRecord, TaskRecord, ReferenceRecord)
    }
    measured: Counter[tuple[str, str]] = Counter()
    numbers: dict[int, int] = {}  # of kernels in tasks: each is one object, however often it occurs

    def rows() -> Iterator[ResultRow]:
        for record in records_of(path):
            if isinstance(record, ResultRow):
                measured[record.run_id, record.problem] += not record.remeasured
                yield record
            elif isinstance(record, TaskRecord):
                kernels = tuple(numbers.setdefault(number, number) for number in record.kernels)
                others[TaskRecord].append(replace(record, kernels=kernels))
            elif type(record) in others:
                others[type(record)].append(record)

    results = PairResults.of_journal(rows())
    return History(
        path,
        tuple(others[RunRecord]),  # type: ignore[arg-type]
        tuple(others[EndRecord]),  # type: ignore[arg-type]
        tuple(others[PlanRecord]),  # type: ignore[arg-type]
        tuple(others[TaskRecord]),  # type: ignore[arg-type]
        tuple(others[ReferenceRecord]),  # type: ignore[arg-type]
        results,
        measured,
    )
