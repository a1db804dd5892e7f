"""Bounded reading of untrusted files: bytes, text, integers, CSV rows, and names.

Safety checks common to all file formats. JSON is read by `ckh.files.jsonfields`.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from typing import TYPE_CHECKING

from ckh.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MIB = 1 << 20
MOST_BYTES = 512 * MIB  # for a model's file, and for the memory of an untrusted Parquet file
MOST_TEXT_BYTES = 64 * MIB  # for text that is read as a whole: JSON, problem files, tuned tables
MOST_MODEL_BYTES = 16 * MIB  # for a JSON file of a model's folder, unpacked: twice the largest that training writes
# Limits of an unpacked file: the size, and the ratio to its packed size. Forests are packed to a third, find databases
# to a tenth; a higher ratio is not plausible.
MOST_UNPACKED_BYTES = 2048 * MIB
MOST_RATIO = 100
SMALL_BYTES = 16 * MIB  # above which the ratio is checked

GZIP_MAGIC, BZ2_MAGIC = b"\x1f\x8b", b"BZh"

_CHUNK_BYTES = 1 << 18
_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,18})(?:\.0*)?\s*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read the bytes of a file."""
    try:
        with path.open("rb") as file:
            parts, size = [], 0
            while size <= most and (part := file.read(_CHUNK_BYTES)):
                parts.append(part)
                size += len(part)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="unreadable") from error
    if size > most:
        raise larger_than(path, most)
    return b"".join(parts)


def larger_than(path: Path, most: int) -> DataError:
    """Error of a file above the size limit of its kind."""
    return DataError(
        f"{path} is larger than {_size(most)}, the limit for this kind of file",
        "split it into several files",
        code="too-large",
    )


def read_text(path: Path) -> str:
    """Read a UTF-8 text file, without its byte order mark."""
    return as_text(path, read_bytes(path, MOST_TEXT_BYTES))


def as_text(path: Path, content: bytes) -> str:
    """Decode the bytes of a file."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: not a text file in UTF-8", code="not-text") from error


def unpacked(content: bytes, name: str, most: int | None = None) -> bytes:
    """Unpack a gzip file; other content is returned unchanged."""
    if not content.startswith(GZIP_MAGIC):
        return content
    limit = most_unpacked(len(content)) if most is None else most
    parts, size = [], 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            while part := file.read(_CHUNK_BYTES):  # reading `limit` at once takes as much memory
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise too_large(name, limit)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is damaged: {error}", code="damaged") from error
    return b"".join(parts)


def most_unpacked(packed_bytes: int) -> int:
    """Maximum unpacked size of a packed file."""
    return min(MOST_UNPACKED_BYTES, max(SMALL_BYTES, MOST_RATIO * packed_bytes))


def too_large(name: str, limit: int) -> DataError:
    """Error of a packed file above the limit."""
    return DataError(
        f"{name} unpacks to more than {_size(limit)}, more than any valid file",
        "unpack it yourself if you trust it",
        code="too-large",
    )


def integer(text: str) -> int:
    """Parse an integer of at most 18 digits, also if written as 64.0."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise ValueError(f"not an integer: {text[:40]!r}")
    return int(match[1])


def csv_rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of CSV text that are not empty, the header first, with the number of their last line; cells are stripped.

    A row that omits its last cells gets empty ones, as pandas and AITER read it, but not a file's last row without a
    line's end, which is cut; empty cells beyond the header are dropped.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    width, cut_line = 0, 0 if text.endswith(("\n", "\r")) else text.count("\n") + 1
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            width = width or len(cells)
            while len(cells) > width and not cells[-1]:
                cells.pop()
            yield reader.line_num, cells + [""] * (width - len(cells)) * (reader.line_num != cut_line)
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not CSV: {error}", code="not-csv") from error


def by_column(names: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """The cells of a row by the names of its columns."""
    if len(cells) != len(names):
        raise DataError(f"{len(cells)} cells under {len(names)} columns", code="bad-row")
    return dict(zip(names, cells, strict=True))


def require_name(text: object, what: str) -> str:
    """Validate an external name that becomes part of a path or of source code.

    At most 128 letters, digits and `_ . + -`, not beginning with a dot, a dash or a plus: so it cannot leave a folder,
    end a string, or print invisible characters.
    """
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise DataError(
            f"{what} {str(text)[:80]!r} is not a name", "names are of letters, digits and _ . + -", code="bad-name"
        )
    return text


def _size(count: int) -> str:
    return f"{count // MIB} MiB"
