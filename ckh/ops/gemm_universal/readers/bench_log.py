"""Reader of raw logs of AMD's GEMM benchmarks: JSON objects among other output.

    Shape 3: M=16 N=4096 K=4096 dtype=fp8 layout=rcr
    {"name": "gemm_universal_fp8_rcr_...", "problem": {"m": 16, ...}, "perf_result": {"latency(ms)": 0.02, ...}}

Sizes, element type and layout come from an object's `problem`, missing ones from the last `Shape` line; neither may
contradict the kernel's name. Kernels are taken as named, including the padding of `mem` kernels, which tile_engine_json
corrects. Times with two decimals are refined, see `gemm_rows.precise_time`. A run without a positive time and TFLOPS is
a failure; a run that a later "Verification failed" line names has a wrong result.

The file is read once as a stream: memory grows with the number of results, a few bytes each, not with the file size.

JSON objects are found in a stream of any length; only the open object is kept.

An object begins at the start of a line, or with its "name" within a line if outputs are interleaved. Braces in strings
do not count. An object that cannot be completed is dropped with a reason, and the text after its first line is scanned
again, so that no other object is lost.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.data.formats import Reading, ReadOptions
from ckh.data.readers.cells import WITHOUT_TIME
from ckh.data.spool import store
from ckh.errors import DataError
from ckh.files.account import LeftOut
from ckh.files.jsonfields import JsonError, parse_json
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.ops.gemm_universal.readers.gemm_rows import (
    MISMATCH,
    GemmRows,
    kernel_of,
    named,
    number,
    precise_time,
    problem_of,
)
from ckh.problems import DTYPE_BYTES
from ckh.schema import Status
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import IO

    from ckh.ops.gemm_universal.kernel import GemmKernel

MOST_CHARACTERS = 1 << 20
MOST_DEPTH = 32

CUT_OFF = "with a JSON object that is cut off"
MALFORMED = "with a JSON object that is malformed"
ENDLESS = "with a JSON object that does not end within 1 MiB"
TOO_DEEP = "with a JSON object that is nested too deeply"

# A string, or a quote that begins a string not terminated on its line, or a bracket.
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|["{}\[\]]')
_BRACKET = re.compile(r"[{}\[\]]")
_CLOSER = {"{": "}", "[": "]"}
_CLOSERS = frozenset(_CLOSER.values())
_QUOTE = '"'
_NAMED = re.compile(r'\{\s*"name"\s*:')
# The tile engine ends with the best of the results that it printed before.
_REPEATED = "best kernel instance"


class FoundKind(StrEnum):
    """Kinds of findings: the text of an object, the reason why an object was dropped, or a line outside objects."""

    OBJECT = "object"
    DROPPED = "dropped"
    LINE = "line"


@dataclass(frozen=True, slots=True)
class Found:
    """A finding, and the line that it begins on, counted from 1."""

    kind: FoundKind
    line: int
    text: str


class _Line(NamedTuple):
    number: int
    text: str


class _Open:
    """The open object: its lines, and the brackets that are to be closed."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self.size = 0
        self._closers: list[str] = []

    def admits_object(self) -> bool:
        """True if an object can begin on the next line."""
        last = next((text[-1] for line in reversed(self.lines) if (text := line.text.rstrip())), "")
        return last in {":", "["} or (last == "," and self._closers[-1] == "]")

    def feed(self, line: _Line) -> tuple[int, str]:
        """Process a line; return where in it the object ends, else -1, and the reason if the object is dropped."""
        self.lines.append(line)
        self.size += len(line.text)
        # Errors in a line without brackets are detected by the JSON parser.
        for match in _TOKEN.finditer(line.text) if _BRACKET.search(line.text) else ():
            token = match[0]
            if token in _CLOSER:
                self._closers.append(_CLOSER[token])
                if len(self._closers) > MOST_DEPTH:
                    return -1, TOO_DEEP
            elif token == _QUOTE or (token in _CLOSERS and self._closers.pop() != token):
                return -1, MALFORMED
            elif not self._closers:
                return match.end(), ""
        return -1, ENDLESS if self.size > MOST_CHARACTERS else ""


def read_lines(file: IO[bytes], see: Callable[[bytes], None]) -> Iterator[str]:
    """Yield the lines of a stream, split where longer than an object may be; `see` receives every byte."""
    rest = b""
    while piece := file.readline(MOST_CHARACTERS):
        see(piece)
        piece = rest + piece
        rest = b""
        if not piece.endswith(b"\n") and 0 < (end := piece.rfind(b"}") + 1) < len(piece) <= MOST_CHARACTERS:
            piece, rest = piece[:end], piece[end:]
        yield piece.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


class Scanner:
    """Iterator over the objects of a log's lines, and over lines outside objects that `is_mark` selects.

    A mark also ends an open object. `is_mark` is called only for lines that do not begin like a part of an object.
    """

    def __init__(self, lines: Iterable[str], is_mark: Callable[[str], bool]) -> None:
        self._lines = iter(lines)
        self._is_mark = is_mark
        self._number = 0
        self._again: deque[_Line] = deque()
        self._open: _Open | None = None
        self._hanging = False

    def __iter__(self) -> Iterator[Found]:
        while True:
            line = self._next()
            if line is not None:
                part = self._outside(line) if self._open is None else self._inside(self._open, line)
            elif self._open is not None:
                part = self._drop(self._open, CUT_OFF)
            else:
                return
            if part is not None:
                yield part

    def _next(self) -> _Line | None:
        if self._again:
            return self._again.popleft()
        text = next(self._lines, None)
        if text is None:
            return None
        self._number += 1
        return _Line(self._number, text.removeprefix("\ufeff") if self._number == 1 else text)

    def _outside(self, line: _Line) -> Found | None:
        text = line.text
        stripped = text.lstrip()
        hanging, self._hanging = self._hanging, False
        if stripped.startswith("{"):
            return self._begin(line)
        if hanging and stripped.startswith('"name"'):
            return self._begin(_Line(line.number, "{" + text))
        if "{" in text and _REPEATED not in text:
            if match := _NAMED.search(text):
                return self._begin(_Line(line.number, text[match.start() :]))
            self._hanging = text.rstrip().endswith("{")
        return Found(FoundKind.LINE, line.number, text) if self._is_mark(text) else None

    def _begin(self, line: _Line) -> Found | None:
        self._open = _Open()
        return self._take(self._open, line)

    def _inside(self, opened: _Open, line: _Line) -> Found | None:
        stripped = line.text.lstrip()
        if stripped.startswith("{"):
            is_cut_off = not opened.admits_object()
        else:
            is_cut_off = not stripped.startswith(('"', "}", "]")) and self._is_mark(line.text)
        if is_cut_off:
            self._again.appendleft(line)
            return self._drop(opened, CUT_OFF)
        return self._take(opened, line)

    def _take(self, opened: _Open, line: _Line) -> Found | None:
        end, reason = opened.feed(line)
        if reason:
            return self._drop(opened, reason)
        if end < 0:
            return None
        self._open = None
        text = "".join(line.text for line in opened.lines[:-1]) + line.text[:end]
        rest = line.text[end:].lstrip(" \t\r\n,;")
        if rest:
            self._again.appendleft(_Line(line.number, rest))
        return Found(FoundKind.OBJECT, opened.lines[0].number, text)

    def _drop(self, opened: _Open, reason: str) -> Found:
        self._open = None
        if reason in {CUT_OFF, ENDLESS}:
            # The text read as a part of the dropped object may contain objects.
            self._again.extendleft(reversed(opened.lines[1:]))
        return Found(FoundKind.DROPPED, opened.lines[0].number, reason)


NAME = "bench-log"
NO_RESULT = "with a JSON object that is not a benchmark result"
SPARSE = "with structured sparsity"

_SHAPE = re.compile(
    r"Shape \d+:\s+M=(?P<m>\d{1,18})\s+N=(?P<n>\d{1,18})\s+K=(?P<k>\d{1,18})"
    r"\s+dtype=(?P<dtype>\w+)\s+layout=(?P<layout>\w+)",
    re.ASCII,
)
_WRONG = re.compile(r"Verification failed, skip kernel:\s*(\S+)")
_LATENCY, _TFLOPS = "latency(ms)", "tflops(TFlops)"


def sniff(head: bytes) -> bool:
    """True if a result or a `Shape` line occurs in the first bytes."""
    return b'"perf_result"' in head or _SHAPE.search(head.decode("utf-8", "replace")) is not None


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a log."""
    log = _Log(GemmRows(path, options))
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for part in Scanner(read_lines(file, digest.update), _is_mark):
                log.take(part)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="unreadable") from error
    log.rows.settle()
    source = {"name": path.name, "format": NAME, "sha256": digest.hexdigest()}
    rows = store(log.rows.tables(source["sha256"]), options.output)
    return Reading(rows, (source,), account=log.rows.account, warnings=tuple(log.rows.warnings()))


def _is_mark(text: str) -> bool:
    return ("Shape " in text and _SHAPE.search(text) is not None) or "Verification failed" in text


class _Log:
    """State of reading a log: its rows, the last `Shape` line, and the last row of each kernel."""

    def __init__(self, rows: GemmRows) -> None:
        self.rows = rows
        self._shape: dict[str, Any] = {}
        self._kernels: dict[str, tuple[str, GemmKernel]] = {}
        self._row_of_kernel: dict[str, int] = {}

    def take(self, part: Found) -> None:
        """Process the next object or line."""
        where = f"line {part.line}"
        if part.kind is FoundKind.LINE:
            self._take_line(part.text)
        elif part.kind is FoundKind.DROPPED:
            self.rows.account.doubt(part.text, f"{where}: the object that begins here")
        else:
            try:
                self._take_object(where, part.text)
            except LeftOut as why:
                self.rows.account.take(why, where)

    def _take_line(self, text: str) -> None:
        if match := _SHAPE.search(text):
            self._shape = {name: int(match[name]) for name in "mnk"} | {
                name: match[name] for name in ("dtype", "layout")
            }
        elif (match := _WRONG.search(text)) and (row := self._row_of_kernel.get(match[1])) is not None:
            self.rows.set_wrong(row, match[0])

    def _take_object(self, where: str, text: str) -> None:
        try:
            benchmark = parse_json(text, decimals=True)
        except JsonError as error:
            raise LeftOut(MALFORMED, str(error)) from error
        perf = benchmark.get("perf_result")
        if "name" not in benchmark or not isinstance(perf, dict):
            raise LeftOut(NO_RESULT, "there is no name or no perf_result")
        name, kernel = self._kernel(benchmark["name"])
        stated = self._stated(benchmark.get("problem"))
        _check(stated, kernel.dtype, kernel.layout)
        problem = problem_of(stated, dtype=kernel.dtype, layout=kernel.layout)
        latency, tflops = number(perf, _LATENCY), number(perf, _TFLOPS)
        time = precise_time(latency, tflops, problem.flops)
        row, said = len(self.rows), f"the log says {latency} ms and {tflops} TFLOPS"
        if min(latency, tflops) < 0:
            self.rows.add_failed(problem, (name, kernel), Status.LAUNCH_ERROR, said)
        elif latency and tflops:
            self.rows.add(where, problem, (name, kernel), time)
        else:
            raise LeftOut(WITHOUT_TIME)
        self._row_of_kernel[str(benchmark["name"]).strip()] = row

    def _kernel(self, name: Any) -> tuple[str, GemmKernel]:
        """Return the complete name and the kernel, each name parsed once."""
        known = self._kernels.get(str(name))
        if known is None:
            known = self._kernels[str(name)] = named(kernel_of(name, {}, self.rows.arch))
        return known

    def _stated(self, problem: Any) -> dict[str, Any]:
        """Return the problem that an object states, completed from the last `Shape` line."""
        given = problem if isinstance(problem, dict) else {}
        if str(given.get("structured_sparsity")).lower() in {"true", "1"}:
            raise LeftOut(SPARSE, "the problem has structured_sparsity")
        stated = self._shape | {name: given[name] for name in ("m", "n", "k", "split_k") if name in given}
        if "dtype_a" in given:
            stated["dtype"] = given["dtype_a"]
        if "layout_a" in given:
            stated["layout"] = "".join(_letter(given.get(f"layout_{operand}")) for operand in "abc")
        return stated


def _letter(layout: Any) -> str:
    """Return the letter of RowMajor, row, ColumnMajor or col."""
    text = str(layout).lower()
    return "r" if "row" in text else "c" if "col" in text else "?"


def _check(stated: dict[str, Any], dtype: str, layout: str) -> None:
    """Check that type and layout in the log agree with the kernel's name; unknown spellings are ignored."""
    for what, own, known in (("dtype", dtype, DTYPE_BYTES), ("layout", layout, GEMM_LAYOUTS)):
        if what in stated and stated[what] != own and str(stated[what]) in known:
            raise LeftOut(MISMATCH, f"the log says {what} {stated[what]}, the kernel's name {own}")
