"""Streaming reader of logs: memory is proportional to the number of distinct shapes."""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.errors import CkhError, DataError, UsageError
from ckh.files.untrusted import integer
from ckh.ops import operation
from ckh.shapes.layers import Layer
from ckh.shapes.log_lines import IGNORED, READERS, STATEMENT, VLLM_MARK, kernel_name, vllm_line
from ckh.shapes.shaped import all_parts, shaped_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ckh.shapes.layers import RunOptions, Stated
    from ckh.shapes.log_lines import StatedShape

MAX_LINE_BYTES = 1 << 16
_TOO_LARGE, _OTHER_FORM = "too-large", "bad-problem"
UNSUPPORTED = "unsupported"  # code of shapes without an operation, which is not an error of a source
MAX_SHAPES = 200_000  # distinct shapes; above that of any model
_NAME_COLUMNS = ("Kernel_Name", "KernelName", "Name", "kernel_name", "Kernel Name")
_COUNT_COLUMNS = ("Calls", "Count", "calls")


class _Key(NamedTuple):
    """Identity of a layer, to merge lines."""

    name: str
    shape: Any
    op: str
    stated: Stated


class ShapeCounts:
    """Distinct shapes of a source with their counts, and what was left out."""

    def __init__(self, wanted: RunOptions) -> None:
        self.bad: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self._skip_bad = wanted.skip_bad
        self._counts: Counter[_Key] = Counter()
        self._where: dict[_Key, str] = {}

    def add(self, name: str, shape: Any, count: int, where: str, op: str = "", stated: Stated = ()) -> None:
        """Count a shape."""
        key = _Key(name, shape, op, stated)
        if key not in self._counts:
            if len(self._counts) >= MAX_SHAPES:
                raise DataError(f"{where}: more than {MAX_SHAPES} distinct shapes", "split the log", code=_TOO_LARGE)
            self._where[key] = where
        self._counts[key] += count

    def refuse(self, error: CkhError, where: str) -> None:
        """Count an error, or raise it unless bad lines are left out."""
        message = error.message if error.message.startswith(where) else f"{where}: {error.message}"
        if not self._skip_bad:
            hint = " and ".join(filter(None, (error.hint, "ckh shapes --skip-bad leaves such lines out")))
            raise DataError(message, hint, code=error.code) from error
        self.bad[message if not self.bad else next(iter(self.bad))] += 1

    def layers(self) -> list[Layer]:
        """The shapes in order of first occurrence."""
        return [
            Layer(key.name, key.shape, count, self._where[key], key.op, key.stated)
            for key, count in self._counts.items()
        ]


@cache
def marks() -> dict[str, str]:
    """Marker text of a line -> the operation that parses such lines."""
    return {mark: name for name, part in all_parts().items() for mark in part.marks}


@cache
def prefixes() -> dict[str, str]:
    """Prefix of canonical problem texts -> the operation, longer ones first."""
    return {operation(name).prefix: name for name in sorted(all_parts(), key=lambda name: -len(operation(name).prefix))}


@cache
def statement_mark() -> re.Pattern[bytes]:
    """Pattern of the markers in a line's bytes that may state a shape."""
    return re.compile(b"|".join(re.escape(mark).encode() for mark in (*marks(), *READERS, VLLM_MARK)))


@cache
def any_mark() -> re.Pattern[bytes]:
    """Pattern of the same markers, or a canonical problem text at the beginning."""
    firsts = b"|".join(re.escape(prefix).encode() for prefix in prefixes())
    return re.compile(rb"\A\s*(?:" + firsts + b")|" + statement_mark().pattern)


def begins_with_problem(head: str) -> bool:
    """True if a file's first lines, except comments and empty lines, are canonical problem texts."""
    first = next((line for line in head.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return first.strip().startswith(tuple(prefixes()))


def read_log(lines: Iterable[bytes], path: str, wanted: RunOptions, tally: ShapeCounts) -> None:
    """Count the shapes of a log's lines; other lines are skipped."""
    search = any_mark().search
    for number, line in enumerate(lines, 1):
        if search(line) is not None:
            try:
                _read_line(line.decode("utf-8", "replace"), path, number, wanted, tally)
            except CkhError as error:
                if error.code == _TOO_LARGE:
                    raise
                if error.code == UNSUPPORTED:
                    tally.left_out[error.message] += 1
                else:
                    tally.refuse(error, f"{path}:{number}")


def _read_line(text: str, path: str, number: int, wanted: RunOptions, tally: ShapeCounts) -> None:
    where = f"{path}:{number}"
    if (canonical := _canonical(text)) is not None:
        tally.add("", canonical[1], 1, where, canonical[0])
        return
    for mark, op in marks().items():
        part = shaped_part(op)
        if mark in text and part is not None and (own := part.line(text, Path(path), number)) is not None:
            if not isinstance(own, str):
                tally.add("", own, 1, where, op, part.stated(text))
            elif not _read_stated(text, where, wanted, tally):
                tally.left_out[own] += 1
            return
    _read_stated(text, where, wanted, tally)


def _canonical(text: str) -> tuple[str, Any] | None:
    """Operation and problem of a line that begins with a canonical text; None for other lines."""
    first = text.lstrip("\"' \t").split(maxsplit=1)[0].rstrip("\"',")
    op = next((name for prefix, name in prefixes().items() if first.startswith(prefix)), None)
    if op is None:
        return None
    try:
        return op, operation(op).problems.parse(first)
    except UsageError as error:
        if error.code == _OTHER_FORM:
            return None
        raise


def _read_stated(text: str, where: str, wanted: RunOptions, tally: ShapeCounts) -> bool:
    """Count the shapes of the first matching parser; False if none matches."""
    if IGNORED in text or (start := STATEMENT.search(text)) is None:
        return False
    stated_shapes = _stated(text[start.start() :].strip(), tuple(wanted.weights.items()))
    for stated in stated_shapes:
        tally.add(stated.name, stated.shape, stated.count, where)
    return bool(stated_shapes)


@lru_cache(maxsize=4096)  # for a network's lines, which recur in each step
def _stated(text: str, tokens: tuple[tuple[int, int], ...]) -> tuple[StatedShape, ...]:
    readers: dict[str, Callable[[str], Iterator[StatedShape]]] = {
        **READERS,
        VLLM_MARK: lambda line: vllm_line(line, tokens),
    }
    return next((shapes for mark, read in readers.items() if mark in text and (shapes := tuple(read(text)))), ())


def read_kernels(lines: Iterable[bytes], path: str, tally: ShapeCounts) -> None:
    """Count the shapes in kernel names of a profiler's CSV file, by calls or rows."""
    reader = csv.reader((line.decode("utf-8", "replace") for line in lines), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        name_at = next((header.index(name) for name in _NAME_COLUMNS if name in header), None)
        count_at = next((header.index(name) for name in _COUNT_COLUMNS if name in header), None)
        if name_at is None:
            raise DataError(f"{path}: no column of kernels' names", code="missing-column")
        for cells in reader:
            if len(cells) == len(header):
                _read_kernel(
                    cells[name_at], "1" if count_at is None else cells[count_at], f"{path}:{reader.line_num}", tally
                )
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not CSV: {error}", code="not-csv") from error


def _read_kernel(name: str, count: str, where: str, tally: ShapeCounts) -> None:
    try:
        calls = max(1, integer(count))
    except ValueError:
        calls = 1
    try:
        stated_shapes = list(kernel_name(name, calls))
    except UsageError as error:
        tally.refuse(error, where)
        return
    for stated in stated_shapes:
        tally.add(stated.name, stated.shape, stated.count, where)
    if not stated_shapes:
        tally.left_out["kernels whose name states no sizes"] += 1


def is_profile(head: str) -> bool:
    """True if a file begins with the header of a profiler's table of kernels."""
    names = {name.strip().strip('"') for name in head.split("\n", 1)[0].split(",")}
    return bool(names & set(_NAME_COLUMNS)) and bool(
        names & {*_COUNT_COLUMNS, "Dispatch_Id", "DurationNs", "End_Timestamp", "EndNs"}
    )
