"""Streaming reader of logs: memory is proportional to the number of distinct shapes."""

from __future__ import annotations

import csv
import re
from array import array
from collections import Counter
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.errors import CkhError, DataError, UsageError
from ckh.files.account import Account
from ckh.files.untrusted import by_column
from ckh.ops import operation
from ckh.shapes.layers import Layer, StatedTime
from ckh.shapes.log_convs import call_block, driver_line, key_line, profiler_line, test_set_row, trace_event
from ckh.shapes.log_lines import (
    AITER_MARK,
    FORMATS,
    REPEATED,
    SEARCHED,
    autotune_block,
    blas_line,
    blas_profile,
    blas_row,
    kernel_row,
    missed_line,
    tunable_line,
    vllm_line,
)
from ckh.shapes.shaped import all_parts, shaped_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import BinaryIO

    from ckh.shapes.layers import RunOptions, Stated
    from ckh.shapes.log_lines import StatedShape

    Tokens = tuple[tuple[int, int], ...]  # each number with its weight

MAX_LINE_BYTES = 1 << 16
_TOO_LARGE, _OTHER_FORM = "too-large", "bad-problem"
UNSUPPORTED = "unsupported"  # code of shapes without an operation, which is not an error of a source
MAX_SHAPES = 200_000  # distinct shapes; above that of any model
READERS: dict[str, Callable[[str], Iterator[StatedShape]]] = {
    "MIOpenDriver": driver_line,
    'Problem="conv': driver_line,
    "miopenStatus_t miopen": call_block,
    "ckProfiler ": profiler_line,
    "hipblaslt-bench": blas_line,
    "rocblas-bench": blas_line,
    "function: ": blas_profile,
    "TunableOp_": tunable_line,
    "AUTOTUNE ": autotune_block,
    '{"Input Dims": ': trace_event,
    AITER_MARK: missed_line,
    **dict.fromkeys(("-NCHW-", "-NHWC-", "-NCDHW-", "-NDHWC-"), key_line),
}
VLLM_MARK = "Config file not found at"
# Columns of a table, and the reader of its rows.
TABLES: tuple[tuple[set[str], Callable[[Mapping[str, str]], Iterator[StatedShape]]], ...] = (
    *(({"transA", "transB", *sizes}, blas_row) for sizes in ("mnk", "MNK")),  # of hipBLASLt, and of rocBLAS
    ({"NDim", "Groups", "BatchSize"}, test_set_row),
    ({"avg_time_ms", "instance"}, kernel_row),  # of ckProfiler, without padding, strides and element types
    *(({name, other}, kernel_row) for name in FORMATS["profile"]["names"] for other in FORMATS["profile"]["others"]),
)
_TUNED = "Git Version: "  # begins hipBLASLt's tuning files, of which older ones have no header
TABLE_MARKS = ("transA,transB,", "NDim,Groups,", "name,avg_time_ms,", _TUNED)  # of tables that do not begin a file
_COLUMN = re.compile("|".join(sorted({max(columns, key=len) for columns, _ in TABLES})))  # each header has one of them
# Where a statement begins in a line, after timestamps and process names. All alternatives begin with a fixed letter,
# for which Python's search is fast; keys of MIOpen do not.
STATEMENT = re.compile(
    r"MIOpenDriver|Problem=\"conv|miopenStatus_t |ckProfiler |hipblaslt-bench|rocblas-bench|\{ *\w*function: |"
    r"ScaledGemm\w*TunableOp_|Gemm\w*TunableOp_|AUTOTUNE |shape is (?:[BG]:\s*\d+,\s*)?M:|"
    rf"\[\"\w+\", \{{\"Input Dims|{VLLM_MARK}"
)
_KEY = re.compile(r"\b\d+-\d+-\d+-[-\dx]+-N[CDHW]+-")
# Statements on several lines: how they begin, and the lines that continue them.
_CONTINUED = {
    b"AUTOTUNE ": re.compile(rb"\b(?:strides|dtypes): "),
    b"miopenStatus_t miopenConvolution": re.compile(rb"MIOpen\(HIP\):\s+\w+ = "),
}
_SEARCHES, _REPEATS = "[LogCmdFind", ("MIOpenDriver ", "MIOpen(HIP): Info [LogConvolutionExecution]")
_TIMES = re.compile(r"\s*(\d{1,9})\s+(?:\S*/)?")  # before a statement, as `uniq -c` counts lines


class _Key(NamedTuple):
    """Identity of a layer, to merge lines."""

    name: str
    shape: Any
    op: str
    stated: Stated


class ShapeCounts:
    """Distinct shapes of a source with their counts and times, and what was left out.

    With `keeps_times` all times are kept, else the least of each shape.
    """

    def __init__(self, wanted: RunOptions, *, keeps_times: bool = False) -> None:
        self.account = Account(wanted.strict)
        self.statements = 0  # shapes that were counted, and times
        self.times: dict[tuple[_Key, str], array[float]] = {}  # in ms, by the name of what took them
        self._counts: Counter[_Key] = Counter()
        self._repeated: Counter[_Key] = Counter()
        self._where: dict[_Key, str] = {}
        self._least: dict[_Key, StatedTime] = {}
        self._keeps_times = keeps_times
        self._last: tuple[str, list[_Key]] = "", []  # where the last shapes are stated, which later lines may time
        self._name = ""  # of what later lines may time

    def add(
        self, name: str, shape: Any, count: int, where: str, op: str = "", stated: Stated = (), rank: int = 0
    ) -> _Key:
        """Count a shape; `rank` as of `StatedShape`."""
        key = _Key(name, shape, op, stated)
        self.statements += 1
        if key not in self._where:
            if len(self._where) >= MAX_SHAPES:
                raise DataError(f"{where}: more than {MAX_SHAPES} distinct shapes", "split the log", code=_TOO_LARGE)
            self._where[key] = where
        if rank <= REPEATED:
            (self._repeated if rank else self._counts)[key] += count
        if self._last[0] != where:
            self._last, self._name = (where, []), ""
        self._last[1].append(key)
        return key

    def add_stated(self, stated: StatedShape, where: str, times: int = 1, rank: int = 0) -> None:
        """Count a shape as a line states it."""
        key = self.add(stated.name, stated.shape, stated.count * times, where, rank=max(rank, stated.rank))
        self.add_time(key, stated.time)

    def read_time(self, text: str) -> bool:
        """Take the time, or the name of what is timed, that a line states of the last shapes; False: it states none."""
        for form in FORMATS["times"]:
            if form["mark"] in text and (match := re.search(form["pattern"], text)) is not None:
                said = {name: value for name, value in match.groupdict().items() if value is not None}
                self._name = said.get("name") or self._name or form.get("name", "")
                if "ms" in said and self._name:
                    self._time_last(form, said)
                    self._name = ""
                return True
        return False

    def _time_last(self, form: Mapping[str, Any], said: Mapping[str, str]) -> None:
        """Take a time of the last shapes, unless it repeats one that was stated."""
        split = said.get("split_k", "1")
        time = StatedTime(float(said["ms"]), self._name + (f"_splitk{split}" if split != "1" else ""))
        variant = FORMATS["directions"].get(said.get("direction"))
        for key in self._last[1]:
            is_new = not (form.get("repeats") and key in self._least)
            if is_new and variant in (None, getattr(key.shape, "variant", None)):
                self.add_time(key, time)

    def add_time(self, key: _Key, time: StatedTime | None) -> None:
        """Take the time of a shape, if one is stated."""
        if time is not None:
            self.statements += 1
            self._least[key] = min(self._least.get(key, time), time)
            if self._keeps_times:
                self.times.setdefault((key, time.name), array("d")).append(time.ms)

    def layers(self) -> list[Layer]:
        """The shapes in order of first occurrence."""
        return [
            Layer(*key[:2], self._counts[key] or self._repeated[key] or 1, where, *key[2:], time=self._least.get(key))
            for key, where in self._where.items()
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
    return re.compile(b"|".join(re.escape(mark).encode() for mark in (*marks(), *READERS, *TABLE_MARKS, VLLM_MARK)))


@cache
def any_mark() -> re.Pattern[bytes]:
    """Pattern of the same markers, or those of times."""
    times = b"|".join(re.escape(form["mark"]).encode() for form in FORMATS["times"])
    return re.compile(times + b"|" + statement_mark().pattern)


def begins_with_problem(head: str) -> bool:
    """True if a file's first lines, except comments and empty lines, are canonical problem texts."""
    first = next((line for line in head.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return first.strip().startswith(tuple(prefixes()))


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Lines of a file, each truncated to `MAX_LINE_BYTES`."""
    while line := file.readline(MAX_LINE_BYTES):
        yield line
        while not line.endswith(b"\n") and (line := file.readline(MAX_LINE_BYTES)):
            pass


def read_log(lines: Iterable[bytes], path: str, wanted: RunOptions, tally: ShapeCounts) -> None:
    """Count the shapes of a log's lines, and in the account each line: used, left out, or without a statement."""
    search, firsts, table = any_mark().search, tuple(prefix.encode() for prefix in prefixes()), None
    account, tokens = tally.account, tuple(wanted.weights.items())
    total, is_file = account.total, False
    for number, line, count in _joined(lines):
        before = tally.statements
        is_marked = number == 1 or search(line) is not None or line.lstrip().startswith(firsts)
        is_cut = is_file and b"," in line and not line.endswith(b"\n")
        if is_marked or (table is not None and (is_cut or line.count(b",") >= table.commas)):
            text = line.decode("utf-8", "replace")
            try:
                if is_marked and (begun := table_of(text)) is not None:
                    table, is_file = begun, is_file or number == 1
                elif table is None or not table.read_row(text, f"{path}:{number}", tally):
                    _read_line(text, f"{path}:{number}", tokens, tally)
            except CkhError as error:
                if error.code == _TOO_LARGE:
                    raise
                if error.code == UNSUPPORTED:
                    account.leave_out(error.message)
                else:
                    account.refuse(error, f"{path}:{number}")
            except (ValueError, LookupError, TypeError) as error:  # e.g. numbers of 5000 digits, missing cells
                text = f"a statement that cannot be read ({type(error).__name__})"
                account.refuse(UsageError(text, code="bad-row"), f"{path}:{number}")
        stated = account.total - total
        if not stated and tally.statements > before:
            account.use(stated := 1)
        account.passed += count - stated
        total += count


def _joined(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes, int]]:
    """Number lines, join those of a statement on several lines, and count them."""
    held, start, number, continues = b"", 0, 0, None
    for number, line in enumerate(lines, 1):
        if continues is not None:
            if continues.search(line) is not None and len(held) < MAX_LINE_BYTES:
                held = held.rstrip() + b" " + line
                continue
            yield start, held, number - start
        continues = next((rest for mark, rest in _CONTINUED.items() if mark in line), None)
        if continues is None:
            yield number, line, 1
        held, start = line, number
    if continues is not None:
        yield start, held, number + 1 - start


class _LogTable(NamedTuple):
    """A table that begins at a line of a log; its rows have as many cells as its header."""

    names: list[str]
    read: Callable[[Mapping[str, str]], Iterator[StatedShape]]

    @property
    def commas(self) -> int:
        """Least number of commas in a row, whose quoted cells may have further ones."""
        return len(self.names) - 1

    def read_row(self, text: str, where: str, tally: ShapeCounts) -> bool:
        """Count the shape of a row, which an end of the file may cut; False if the line is none."""
        cells = _cells(text)
        if len(cells) > len(self.names) or (len(cells) < len(self.names) and text.endswith("\n")):
            return False
        for stated in self.read(by_column(self.names, cells)):
            tally.add_stated(stated, where)
        return True


def table_of(text: str) -> _LogTable | None:
    """The table whose header a line is; None if it is none."""
    if text.startswith(_TUNED):
        return _LogTable(FORMATS["blas"]["tuned"], blas_row)
    if "," not in text or _COLUMN.search(text) is None:
        return None
    names = _cells(re.sub(r"^\W*\[\d+\]:", "", text))
    read = next((read for columns, read in TABLES if columns <= set(names)), None)
    return None if read is None else _LogTable(names, read)


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([text.strip().replace("\r", " ")]), [])]


def _read_line(text: str, where: str, tokens: Tokens, tally: ShapeCounts) -> None:
    if tally.read_time(text):
        return
    if (canonical := _canonical(text)) is not None:
        tally.add("", canonical[1], 1, where, canonical[0])
        return
    for mark, op in marks().items():
        part = shaped_part(op)
        if mark in text and part is not None and (own := part.line(text)) is not None:
            if not isinstance(own, str):
                tally.add("", own, 1, where, op, part.stated(text))
            elif not _read_stated(text, where, tokens, tally):
                tally.account.leave_out(own)
            return
    _read_stated(text, where, tokens, tally)


def _canonical(text: str) -> tuple[str, Any] | None:
    """Operation and problem of a line that begins with a canonical text; None for other lines."""
    text = text.lstrip("\"' \t").lstrip()
    if not text.startswith(tuple(prefixes())):
        return None
    op = next(name for prefix, name in prefixes().items() if text.startswith(prefix))
    try:
        return op, operation(op).problems.parse(text.split(maxsplit=1)[0].rstrip("\"',"))
    except UsageError as error:
        if error.code == _OTHER_FORM:
            return None
        raise


def _read_stated(text: str, where: str, tokens: Tokens, tally: ShapeCounts) -> bool:
    """Count the shapes of the first matching parser; False if none matches."""
    begun, key = STATEMENT.search(text), _KEY.search(text) if "-N" in text else None
    if begun is None or (key is not None and key.start() < begun.start()):
        begun = key
    if begun is None:
        return False
    stated_shapes = _stated(text[begun.start() :].strip(), tokens)
    # Of MIOpen's search, or one that it or its driver prints beside another.
    rank = SEARCHED if _SEARCHES in text else REPEATED if text.startswith(_REPEATS) else 0
    counted = _TIMES.fullmatch(text, 0, begun.start())
    for stated in stated_shapes:
        tally.add_stated(stated, where, int(counted[1]) if counted else 1, rank)
    return bool(stated_shapes)


@lru_cache(maxsize=1 << 14)  # for a network's lines, which recur in each step
def _stated(text: str, tokens: Tokens) -> tuple[StatedShape, ...]:
    readers = READERS | {VLLM_MARK: lambda line: vllm_line(line, tokens)}
    return next((shapes for mark, read in readers.items() if mark in text and (shapes := tuple(read(text)))), ())
