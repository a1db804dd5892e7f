"""Rows and records on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.data import spool, tables
from ckh.data.spool import Buckets, StoredRows
from ckh.errors import OutputError
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    import pytest

    from ckh.data.dataset import Dataset


def test_dropped_rows_are_not_returned(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored rows equal the added rows, for any block size, and their file is unnamed."""
    monkeypatch.setattr(spool, "BLOCK_ROWS", 3)
    table = tables.compact(tables.from_pandas(dataset.frame, "test"), "test")
    rows = StoredRows(tmp_path / "out.parquet")
    rows.add(table)
    rows.add(table.slice(1))
    count = len(table)
    rows.drop(np.array([2, count]))
    assert (rows.added, len(rows)) == (2 * count - 1, 2 * count - 3)
    kept = [row for number, row in enumerate([*table.to_pylist(), *table.to_pylist()[1:]]) if number not in {2, count}]
    assert rows.table().to_pylist() == kept
    assert [path.name for path in tmp_path.iterdir()] == ["amd.csv"]


def test_records_by_bucket() -> None:
    """A bucket holds its records in insertion order."""
    kind = np.dtype([("row", "i8"), ("value", "f8")])
    records = np.array([(number, number / 2) for number in range(20)], dtype=kind)
    buckets = Buckets(kind)
    for part in (records[:7], records[7:7], records[7:]):
        buckets.add(part, part["row"] * 5 % 3)
    assert [bucket["row"].tolist() for bucket in buckets] == [
        [number for number in range(20) if number * 5 % 3 == bucket] for bucket in range(3)
    ]
    assert len(buckets.read(9)) == 0


def test_a_full_disk_is_one_error_line(dataset: Dataset) -> None:
    """A full disk is an output error."""
    rows = StoredRows()
    rows._file._file.close()
    rows._file._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    with expect_refusal(OutputError, "unwritable", "No space left"):
        rows.add(tables.from_pandas(dataset.frame, "test"))
    rows._file._file.close()
