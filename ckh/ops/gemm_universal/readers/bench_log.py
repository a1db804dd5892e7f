"""Reader of raw logs of AMD's GEMM benchmarks: JSON objects between whatever else was printed.

    Shape 3: M=16 N=4096 K=4096 dtype=fp8 layout=rcr
    {"name": "gemm_universal_fp8_rcr_...", "problem": {"m": 16, ...}, "perf_result": {"latency(ms)": 0.02, ...}}

Sizes, element type and layout are those of an object's `problem`, and what that leaves out, those of the last `Shape`
line; neither may contradict the kernel's name. Kernels are as their names say, also the padding of `mem` kernels, which
tile_engine_json corrects. Times with two decimals are made more precise, see `rows.precise_time`. A run without a
time or TFLOPS above zero is a failure, and one that "Verification failed" names later has a wrong result.

The file is read once as a stream: memory grows with the number of results, a few bytes each, not with the file.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from ckh.data.formats import Reading, ReadOptions
from ckh.data.spool import store
from ckh.errors import DataError
from ckh.files.jsonfields import JsonError, parse_json
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.ops.gemm_universal.readers.kernels import kernel_of
from ckh.ops.gemm_universal.readers.rows import MISMATCH, GemmRows, Unusable, named, number, precise_time, problem_of
from ckh.ops.gemm_universal.readers.scan import MALFORMED, Found, FoundKind, Scanner, read_lines
from ckh.problems import DTYPE_BYTES
from ckh.schema import Status

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.gemm_universal.kernel import GemmKernel

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
    """True if there is a result or a `Shape` line in the first bytes."""
    return b'"perf_result"' in head or _SHAPE.search(head.decode("utf-8", "replace")) is not None


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a log.

    Raises:
        UsageError: no architecture, or an unknown one, was given.
        DataError: it cannot be read, holds no results, or objects are bad and not to be skipped.
    """
    log = _Log(GemmRows(path, options))
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for found in Scanner(read_lines(file, digest.update), _is_mark):
                log.take(found)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="unreadable") from error
    log.rows.refuse_bad()
    source = {"name": path.name, "format": NAME, "sha256": digest.hexdigest()}
    rows = store(log.rows.tables(source["sha256"]), options.output)
    return Reading(rows, (source,), bad=log.rows.bad, warnings=tuple(log.rows.warnings()))


def _is_mark(text: str) -> bool:
    return ("Shape " in text and _SHAPE.search(text) is not None) or "Verification failed" in text


class _Log:
    """The part of a log that was read: its rows, the last `Shape` line, and the last row of each kernel."""

    def __init__(self, rows: GemmRows) -> None:
        self.rows = rows
        self._shape: dict[str, Any] = {}
        self._kernels: dict[str, tuple[str, GemmKernel]] = {}
        self._row_of_kernel: dict[str, int] = {}

    def take(self, found: Found) -> None:
        """Read one more object or line."""
        where = f"line {found.line}"
        if found.kind is FoundKind.LINE:
            self._take_line(found.text)
        elif found.kind is FoundKind.DROPPED:
            self.rows.drop(where, Unusable(found.text, "the object that begins here"))
        else:
            try:
                self._take_object(where, found.text)
            except Unusable as why:
                self.rows.drop(where, why)

    def _take_line(self, text: str) -> None:
        if match := _SHAPE.search(text):
            self._shape = {name: int(match[name]) for name in "mnk"} | {
                name: match[name] for name in ("dtype", "layout")
            }
        elif (match := _WRONG.search(text)) and (row := self._row_of_kernel.get(match[1])) is not None:
            self.rows.set_wrong(row, match[0])

    def _take_object(self, where: str, text: str) -> None:
        try:
            values = parse_json(text, decimals=True)
        except JsonError as error:
            raise Unusable(MALFORMED, str(error)) from error
        perf = values.get("perf_result")
        if "name" not in values or not isinstance(perf, dict):
            raise Unusable(NO_RESULT, "there is no name or no perf_result")
        name, kernel = self._kernel(values["name"])
        stated = self._stated(values.get("problem"))
        _check(stated, kernel.dtype, kernel.layout)
        problem = problem_of(stated, kernel.dtype, kernel.layout)
        latency, tflops = number(perf, _LATENCY), number(perf, _TFLOPS)
        time = precise_time(latency, tflops, problem.flops)
        row = len(self.rows)
        if tflops > 0 and time.latency_ms > 0:
            self.rows.add(where, problem, (name, kernel), time)
        else:
            message = f"the log says {latency} ms and {tflops} TFLOPS"
            self.rows.add_failed(problem, (name, kernel), Status.LAUNCH_ERROR, message)
        self._row_of_kernel[str(values["name"]).strip()] = row

    def _kernel(self, name: Any) -> tuple[str, GemmKernel]:
        """A kernel under its complete name, each read once."""
        known = self._kernels.get(str(name))
        if known is None:
            known = self._kernels[str(name)] = named(kernel_of(name, {}, self.rows.arch))
        return known

    def _stated(self, problem: Any) -> dict[str, Any]:
        """The problem that an object states, and where it leaves something out, the last `Shape` line."""
        given = problem if isinstance(problem, dict) else {}
        if str(given.get("structured_sparsity")).lower() in {"true", "1"}:
            raise Unusable(SPARSE, "the problem has structured_sparsity")
        stated = self._shape | {name: given[name] for name in ("m", "n", "k", "split_k") if name in given}
        if "dtype_a" in given:
            stated["dtype"] = given["dtype_a"]
        if "layout_a" in given:
            stated["layout"] = "".join(_letter(given.get(f"layout_{operand}")) for operand in "abc")
        return stated


def _letter(layout: Any) -> str:
    """Of RowMajor, row, ColumnMajor, col: the first letter."""
    text = str(layout).lower()
    return "r" if "row" in text else "c" if "col" in text else "?"


def _check(stated: dict[str, Any], dtype: str, layout: str) -> None:
    """See that the log does not say another type or layout than the kernel's name; other spellings are ignored.

    Raises:
        Unusable: it does.
    """
    for what, own, known in (("dtype", dtype, DTYPE_BYTES), ("layout", layout, GEMM_LAYOUTS)):
        if what in stated and stated[what] != own and str(stated[what]) in known:
            raise Unusable(MISMATCH, f"the log says {what} {stated[what]}, the kernel's name {own}")
