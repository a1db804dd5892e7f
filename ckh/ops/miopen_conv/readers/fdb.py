"""MIOpen's find databases, `*.fdb.txt` plain or bz2: read line by line, up to 256 MiB.

They have only the four fastest solvers of a problem, so that models learn to choose among finalists. A time of 0 is
missing: such solvers are counted and skipped.
"""

from __future__ import annotations

import bz2
import re
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from ckh.archs import arch_names
from ckh.data.readers.reader import BadRows
from ckh.errors import DataError, UsageError
from ckh.files.untrusted import BZ2_MAGIC, MOST_DATABASE_BYTES, larger_than, most_unpacked, too_large
from ckh.ops.miopen_conv.readers.fdb_line import FdbLine, LineError, SolverTime, parse_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ckh.ops.miopen_conv.problem import MiopenProblem

NAME = "miopen-fdb"
_MAX_LINE_BYTES = 1 << 20
# MIOpen's rule: up to 64 compute units in decimal after an underscore, above in hex without separator. Other files may
# have further words in between, and end in "304cu".
_DEVICE = re.compile(
    r"(?<![a-z0-9])(?P<arch>gfx(?:9[0-9a-f]{2}|1[0-9a-f]{3}))(?:_(?P<decimal>\d+)(?:cu)?|(?P<hex>[0-9a-f]+))?(?=[._]|$)"
)
_LOOKS_LIKE = re.compile(
    rb"^\d+(?:-\d+){2,3}-\d+(?:x\d+){1,2}-[\dx-]+-\d+-[A-Z]+(?:-[A-Z]+){0,2}-[A-Z]+\d+-[FBW](?:_g\d+)?=", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class FdbDevice:
    """The device that a database was measured on: architecture and number of compute units."""

    arch: str
    num_cus: int


@dataclass(frozen=True, slots=True)
class FdbRow:
    """A problem, a solver and its time."""

    problem: MiopenProblem
    solver: SolverTime


@dataclass(slots=True)
class Tally:
    """Counts of bad lines, and of solvers without a time."""

    lines: BadRows = field(default_factory=BadRows)
    without_time: int = 0

    @property
    def bad(self) -> dict[str, int]:
        """Number of bad lines, by reason."""
        return self.lines.counts

    def add(self, reason: str, line: int, detail: str) -> None:
        """Count a bad line."""
        self.lines.add(reason, line, f"{reason}, {detail}")


def sniff(head: bytes) -> bool:
    """True if the first bytes of a file look like a find database."""
    if head.startswith(BZ2_MAGIC):
        try:
            head = bz2.BZ2Decompressor().decompress(head, _MAX_LINE_BYTES)
        except OSError:
            return False
    return _LOOKS_LIKE.match(head.lstrip()) is not None


def device_of(path: Path, arch: str | None = None, num_cus: int | None = None) -> FdbDevice:
    """Return the device in a file name, e.g. gfx90a68.fdb.txt for 104 compute units; arguments take precedence.

    Raises:
        UsageError: neither the name nor the caller states it.
    """
    match = _DEVICE.search(path.name)
    result = arch or (match and match["arch"])
    count = num_cus or (match and (int(match["decimal"] or 0) or int(match["hex"] or "0", 16)))
    if not result or not count:
        raise UsageError(
            f"{path.name} does not state architecture and compute units", "name them", code="unknown-hardware"
        )
    if result not in arch_names():
        raise UsageError(f"unknown architecture {result!r}", "one of " + ", ".join(arch_names()), code="unknown-arch")
    return FdbDevice(result, count)


def iter_lines(path: Path, tally: Tally) -> Iterator[FdbLine]:
    """Yield the problems of a file; `tally` counts bad lines. Blank lines are skipped.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with _open(path) as file:
            for number, raw in enumerate(_bounded(file, path), 1):
                if raw is None:
                    tally.add("too long", number, f"more than {_MAX_LINE_BYTES} bytes")
                elif raw.strip():
                    line = _parse(raw, number, tally)
                    if line is not None:
                        yield line
    except (OSError, EOFError) as error:
        raise DataError(f"cannot read {path}: {error}", code="unreadable") from error


def iter_rows(path: Path, tally: Tally, *, skip_bad: bool = False) -> Iterator[FdbRow]:
    """Yield the solvers that have a time.

    Raises:
        DataError: the file cannot be read or has no problem; or, at its end, for bad lines unless `skip_bad`.
    """
    is_empty = True
    for line in iter_lines(path, tally):
        is_empty = False
        for solver in line.solvers:
            if solver.time_ms > 0:
                yield FdbRow(line.problem, solver)
            else:
                tally.without_time += 1
    if not skip_bad:
        tally.lines.refuse(path)
    if is_empty:
        raise DataError(f"{path} has no problem of a find database", code="no-problems")


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_bz2 = file.read(len(BZ2_MAGIC)) == BZ2_MAGIC
    return bz2.open(path, "rb") if is_bz2 else path.open("rb")


def _bounded(file: IO[bytes], path: Path) -> Iterator[bytes | None]:
    """Yield lines; None for a line that is too long to be held, whose rest is skipped.

    Raises:
        DataError: the text is larger than `MOST_DATABASE_BYTES`, or than `most_unpacked` of a packed file.
    """
    limit = most_unpacked(path.stat().st_size) if isinstance(file, bz2.BZ2File) else MOST_DATABASE_BYTES
    size, is_rest = 0, False
    while line := file.readline(_MAX_LINE_BYTES):
        size += len(line)
        if size > MOST_DATABASE_BYTES:
            raise larger_than(path, MOST_DATABASE_BYTES)
        if size > limit:
            raise too_large(str(path), limit)
        ends = len(line) < _MAX_LINE_BYTES or line.endswith(b"\n")
        if not is_rest:
            yield line if ends else None
        is_rest = not ends


def _parse(raw: bytes, number: int, tally: Tally) -> FdbLine | None:
    try:
        return parse_line(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        tally.add("not text", number, f"bytes {raw[:20]!r}")
    except LineError as error:
        tally.add(error.reason, number, error.detail)
    return None
