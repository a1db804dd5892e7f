"""Helpers shared by the readers: file content, provenance, and refusal of bad rows."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.files import untrusted

if TYPE_CHECKING:
    from pathlib import Path


PARQUET_MAGIC = b"PAR1"
_NAMED = 3
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BadRow:
    """An unusable row: reason, line number counted from 1, and detail."""

    reason: str
    line: int
    detail: str


class BadRows:
    """Number of unusable rows of a file by reason, and the first few; lines of rows without a time, left out."""

    def __init__(self) -> None:
        self.without_time: list[int] = []
        self.counts: dict[str, int] = {}
        self.first: list[BadRow] = []

    def add(self, reason: str, line: int, detail: str) -> None:
        """Count a row; line numbers are counted from 1."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        if len(self.first) < _NAMED:
            self.first.append(BadRow(reason, line, detail))

    def left_out(self) -> dict[str, int]:
        """Return the number of omitted rows by reason; that of rows without a time names the first lines."""
        lines = ", ".join(map(str, self.without_time[:_NAMED])) + (", …" if len(self.without_time) > _NAMED else "")
        return self.counts | ({f"without a time (line {lines})": len(self.without_time)} if lines else {})

    def refuse(self, path: Path) -> None:
        """Refuse the file if it has unusable rows."""
        if self.counts:
            refuse_bad(path, self.counts, self.first)


def refuse_bad(path: Path | str, counts: dict[str, int], first: list[BadRow]) -> None:
    """Refuse a file for its bad rows."""
    by_reason = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    named = "; ".join(f"line {row.line}: {row.detail}" for row in first[:_NAMED])
    total = sum(counts.values())
    raise DataError(
        f"{path}: {total} bad {'row' if total == 1 else 'rows'} ({by_reason}): {named}",
        "fix them, or omit them with --skip-bad",
        code="bad-row",
    )


class MissingTime(Exception):  # noqa: N818 - the row is left out and counted
    """A time that is empty, zero or not finite, as tuners write it for a kernel that failed."""


def stated_time(text: str) -> float:
    """Return the time in a cell."""
    time = float(text.replace("_", "no number") or "nan")
    if not math.isfinite(time) or time == 0:
        raise MissingTime
    if time < 0:
        raise ValueError(text)
    return time


def read_bytes(path: Path) -> bytes:
    """Read a file that must not be empty."""
    content = untrusted.read_bytes(path, untrusted.MOST_TEXT_BYTES)
    if not content or content.isspace():
        raise DataError(f"{path} is empty", code="empty")
    return content


def source_of(path: Path, content: bytes, format_name: str) -> dict[str, Any]:
    """Provenance of an input file, as stored in a dataset."""
    return {"name": path.name, "format": format_name, "sha256": hashlib.sha256(content).hexdigest()}


def source_of_file(path: Path, format_name: str) -> dict[str, Any]:
    """`source_of` for a file that need not fit in memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return {"name": path.name, "format": format_name, "sha256": digest.hexdigest()}


def parquet_head(path: Path) -> bytes:
    """Return a text that identifies the format of a Parquet file: its magic number and a line with its column names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {path}: {str(error).splitlines()[0]}", code="unreadable") from error
    return PARQUET_MAGIC + b"\n" + ",".join(names).encode() + b"\n"


def parquet_columns(head: bytes) -> frozenset[str]:
    """Column names of a Parquet file from its `parquet_head`; empty for other files."""
    magic, _, names = head.partition(b"\n")
    return frozenset(names.decode(errors="replace").strip().split(",")) if magic == PARQUET_MAGIC else frozenset()
