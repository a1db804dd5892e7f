"""What a reader is, what it gives, and how it reports the rows that it cannot use."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

_NAMED = 3


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a file may not say itself, `None` if not given, and whether bad rows are left out.

    `arch` is the architecture that was measured, `num_cus` its number of compute units.
    """

    arch: str | None = None
    skip_bad: bool = False
    num_cus: int | None = None


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: why, its line number from 1, and what is wrong with it."""

    reason: str
    line: int
    detail: str


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What was read from one input.

    `table` has the dataset's columns, in the order of the file; `bad` counts the rows left out by reason;
    `superseded` counts rows that a later row of the same input replaced.
    """

    table: pa.Table
    sources: tuple[dict[str, Any], ...]
    runs: tuple[dict[str, Any], ...] = ()
    bad: dict[str, int] = field(default_factory=dict)
    superseded: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reader:
    """A format: its name, whether the first bytes of a file look like it, and how it is read.

    `read` raises `DataError` when the file is unusable, and for bad rows unless they are to be skipped.
    """

    name: str
    sniff: Callable[[bytes], bool]
    read: Callable[[Path, ReadOptions], Reading]


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
    """What a dataset remembers about an input file."""
    return {"name": path.name, "format": format_name, "sha256": hashlib.sha256(content).hexdigest()}
