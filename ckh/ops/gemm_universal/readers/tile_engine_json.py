"""Reader of AMD's GEMM benchmark JSON: `benchmark_results_*.json` and the bare lists of `*_partial.json`.

A file has, for each kernel, its configuration and one benchmark per problem, as `generate_benchmark_data.py` writes
them. Element type and layout come from `metadata`, else from the kernel's configuration, else fp16 and rcr, AMD's
defaults. K is never split.

Two things are corrected:

- **Padding of `mem` kernels.** As in all of ckh's GPU data and in the output of AMD's `convert_json_to_parquet`, every
  row of a kernel of pipeline `mem` has pad_m = pad_n = pad_k = 1: these kernels run every size although their names
  state False. Only the three columns are corrected, `kernel_name` remains the name that was measured.
- **Times with two decimals**, see `gemm_rows.precise_time`.

A failed benchmark becomes a row with a status and AMD's error as its message. Bandwidth is computed from the problem;
AMD's converter assumes two bytes for every element type.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from ckh.data.formats import Reading, ReadOptions
from ckh.data.readers.cells import WITHOUT_TIME, read_bytes, source_of
from ckh.data.spool import store
from ckh.errors import DataError
from ckh.files.account import LeftOut
from ckh.files.jsonfields import JsonError, parse_json
from ckh.ops.gemm_universal.readers.gemm_rows import (
    BAD_TIME,
    CONTRADICTION,
    GemmRows,
    kernel_of,
    named,
    number,
    precise_time,
    problem_of,
)
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "tile-engine-json"
BAD_ENTRY = "with fields that are missing or of another type"

_DEFAULTS = {"dtype": "fp16", "layout": "rcr"}
_DOCUMENT = re.compile(rb'\s*(?:\{(?=.*"(?:problem_sizes|kernel_config)")|\[\s*\{.*"kernel_config")', re.DOTALL)
_BOM = b"\xef\xbb\xbf"
_SHOWN = 3
_ERROR_CHARACTERS = 200

# `error` values of failures from AMD's script, and from CK's programs as passed on; any other is a failed launch.
_STATUS_OF_ERROR = {
    r"executable not found": Status.COMPILE_ERROR,
    r"time(?:out|d out)": Status.TIMEOUT,
    r"not support|unsupported": Status.UNSUPPORTED,
}


def sniff(head: bytes) -> bool:
    """True if the first bytes are an object with problem sizes or kernels, or a list with kernels."""
    return _DOCUMENT.match(head.removeprefix(_BOM)) is not None


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a benchmark file."""
    rows = GemmRows(path, options)
    content = read_bytes(path)
    metadata, results = _document(path, content)
    file = _File(rows, metadata)
    for index, entry in enumerate(results):
        for where, config, benchmark in _benchmarks(f"results[{index}]", entry):
            file.take(where, config, benchmark)
    rows.settle()
    source = source_of(path, content, NAME)
    warnings = [f"{path}: {text}" for text in file.warnings()]
    stored = store(rows.tables(source["sha256"]), options.output)
    return Reading(stored, (source,), account=rows.account, warnings=(*warnings, *rows.warnings()))


def _document(path: Path, content: bytes) -> tuple[dict[str, Any], list[Any]]:
    """Return the metadata and the entries of a file."""
    try:
        document = parse_json(content.removeprefix(_BOM), decimals=True)
    except JsonError as error:
        where = f"{path}:{error.line}" if error.line else str(path)
        raise DataError(f"cannot read {where}: {error}", "is the file complete?", code="unreadable") from error
    if isinstance(document, list):
        return {}, document
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise DataError(
            f"{path} has no list of results",
            "is it the JSON of AMD's generate_benchmark_data.py?",
            code="unknown-format",
        )
    metadata = document.get("metadata", {})
    if not isinstance(metadata, dict):
        raise DataError(f"{path}: metadata is not an object", code="unknown-format")
    return metadata, document["results"]


def _benchmarks(where: str, entry: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each benchmark of an entry with its location and kernel; None for missing parts."""
    benchmarks = entry.get("benchmarks") if isinstance(entry, dict) else None
    if not isinstance(benchmarks, list):
        yield where, None, None
        return
    for index, benchmark in enumerate(benchmarks):
        yield f"{where}.benchmarks[{index}]", entry.get("kernel_config"), benchmark


class _File:
    """State of reading a file: its rows, errors of failures, and the defaults used."""

    def __init__(self, rows: GemmRows, metadata: dict[str, Any]) -> None:
        self._rows = rows
        self._metadata = metadata
        self._failures: Counter[str] = Counter()
        self._defaults: dict[str, None] = {}

    def take(self, where: str, config: Any, benchmark: Any) -> None:
        """Add the row of a benchmark, or count it as bad."""
        try:
            self._take(where, config, benchmark)
        except LeftOut as why:
            self._rows.account.take(why, where)

    def warnings(self) -> list[str]:
        """Warnings about the file."""
        texts = [f"{key} is not stated, {_DEFAULTS[key]} is assumed" for key in self._defaults]
        if self._failures:
            texts.append(f"{sum(self._failures.values())} benchmarks failed: {_most_common(self._failures)}")
        return texts

    def _take(self, where: str, config: Any, benchmark: Any) -> None:
        if not isinstance(config, dict) or not isinstance(benchmark, dict):
            raise LeftOut(BAD_ENTRY, "there is no kernel_config, or there are no benchmarks")
        kernel = kernel_of(_kernel_name(config, benchmark), config, self._rows.arch)
        kind = self._kind(config)
        sizes = {key: benchmark[key] for key in "mnk" if key in benchmark}
        problem = problem_of(sizes, dtype=kind["dtype"], layout=kind["layout"])
        self._rows.check(kernel, problem)
        name = named(kernel)
        is_valid, error = benchmark.get("is_valid"), benchmark.get("error")
        if not isinstance(is_valid, bool):
            raise LeftOut(BAD_ENTRY, f"is_valid is {'missing' if is_valid is None else is_valid}")
        if not is_valid:
            message = " ".join(str(error or "no reason is given").split())[:_ERROR_CHARACTERS]
            self._rows.add_failed(problem, name, _status(message), message)
            self._failures[message] += 1
            return
        time = precise_time(number(benchmark, "avg_time_ms"), number(benchmark, "tflops"), problem.flops)
        if time.latency_ms <= 0:
            detail = f"avg_time_ms is {benchmark['avg_time_ms']}, though is_valid"
            raise LeftOut(BAD_TIME, detail) if time.latency_ms else LeftOut(WITHOUT_TIME)
        self._rows.add(where, problem, name, time)

    def _kind(self, config: dict[str, Any]) -> dict[str, str]:
        """Return the element type and layout."""
        stated = {key: self._metadata.get(key) or config.get(key) for key in _DEFAULTS}
        self._defaults |= {key: None for key, value in stated.items() if not value}
        return {key: str(value or _DEFAULTS[key]) for key, value in stated.items()}


def _kernel_name(config: dict[str, Any], benchmark: dict[str, Any]) -> Any:
    names = [part[key] for part, key in ((benchmark, "kernel_name"), (config, "name")) if key in part]
    if len(set(map(str, names))) > 1:
        raise LeftOut(CONTRADICTION, f"{names[1]!r} has a benchmark of {names[0]!r}")
    return names[0] if names else None


def _status(message: str) -> Status:
    of_words = (status for words, status in _STATUS_OF_ERROR.items() if re.search(words, message.lower()))
    return next(of_words, Status.LAUNCH_ERROR)


def _most_common(failures: Counter[str]) -> str:
    shown = [f"{count} {message}" for message, count in failures.most_common(_SHOWN)]
    others = sum(failures.values()) - sum(count for _, count in failures.most_common(_SHOWN))
    return ", ".join(shown + [f"{others} others"] * bool(others))
