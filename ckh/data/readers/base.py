"""Helpers that readers share: the bytes of a file, where rows come from, and refusing rows that cannot be used."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

PARQUET_MAGIC = b"PAR1"
_NAMED = 3
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: why, its line number from 1, and what is wrong with it."""

    reason: str
    line: int
    detail: str


def refuse_bad(path: Path, counts: dict[str, int], first: list[BadRow]) -> None:
    """Refuse a file for its bad rows.

    Raises:
        DataError: always; one line with the count by reason and the first few rows.
    """
    by_reason = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    named = "; ".join(f"line {row.line}: {row.detail}" for row in first[:_NAMED])
    total = sum(counts.values())
    raise DataError(
        f"{path}: {total} bad {'row' if total == 1 else 'rows'} ({by_reason}): {named}",
        "mend them, or leave them out with --skip-bad",
    )


def read_bytes(path: Path) -> bytes:
    """The bytes of a file that must not be empty.

    Raises:
        DataError: it cannot be read, or is empty.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if not content or content.isspace():
        raise DataError(f"{path} is empty")
    return content


def source_of(path: Path, content: bytes, format_name: str) -> dict[str, Any]:
    """The provenance of an input file that a dataset keeps."""
    return {"name": path.name, "format": format_name, "sha256": hashlib.sha256(content).hexdigest()}


def source_of_file(path: Path, format_name: str) -> dict[str, Any]:
    """As `source_of`, of a file that need not fit in memory.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return {"name": path.name, "format": format_name, "sha256": digest.hexdigest()}


def parquet_head(path: Path) -> bytes:
    """A text that tells the format of a Parquet file: its magic number, and a line with the names of its columns.

    Raises:
        DataError: it is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {path}: {str(error).splitlines()[0]}") from error
    return PARQUET_MAGIC + b"\n" + ",".join(names).encode() + b"\n"


def parquet_columns(head: bytes) -> frozenset[str]:
    """The columns of a Parquet file by its `parquet_head`; none if it is the head of another."""
    magic, _, names = head.partition(b"\n")
    return frozenset(names.decode(errors="replace").strip().split(",")) if magic == PARQUET_MAGIC else frozenset()
