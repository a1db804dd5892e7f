"""Files of GEMM problems: text (one canonical problem a line), CSV and JSON (with m, n, k and what else is known).

Whatever is wrong with a file is one `DataError` that says file, entry and what. A problem that stands there twice is
read once.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.ops.gemm_universal.problem import GEMM_COLUMNS, GemmProblem, parse_gemm_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REQUIRED = ("m", "n", "k")
_TEXTS = ("dtype", "layout")
_INTEGER = re.compile(r"-?[0-9]{1,18}")


def is_problem_file(source: str) -> bool:
    """Whether the name ends like a problem file's."""
    return Path(source).suffix.lower() in _READERS


def read_problems(source: str | Path, dtype: str | None = None, default_dtype: str = "fp32") -> tuple[GemmProblem, ...]:
    """Read the distinct problems of a file in their order.

    Columns and keys are m, n, k and, where they are not 1, `default_dtype` and rcr, split_k, dtype and layout; case
    does not count.

    Args:
        source: the path.
        dtype: the element type; None: what the file says, else `default_dtype`. A file that says another is refused.
        default_dtype: the element type of entries that state none.

    Raises:
        DataError: the file is unusable; the message names the entry.
    """
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the problems in {path}: {error}") from error
    problems: dict[GemmProblem, None] = {}
    left_open = dtype or default_dtype
    for where, make in _READERS[path.suffix.lower()](path, text):
        try:
            problem = make(left_open)
        except UsageError as error:
            raise DataError(f"{path}:{where}: {error.message}", error.hint) from error
        if dtype is not None and problem.dtype != dtype:
            raise DataError(f"{path}:{where}: the problem is of {problem.dtype}, not {dtype}")
        problems[problem] = None
    if not problems:
        raise DataError(f"{path} has no problem")
    return tuple(problems)


def _lines(_path: Path, text: str) -> Iterator[tuple[int, Callable[[str], GemmProblem]]]:
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if content:
            yield number, lambda _, content=content: parse_gemm_problem(content)  # type: ignore[misc]


def _csv(path: Path, text: str) -> Iterator[tuple[int, Callable[[str], GemmProblem]]]:
    rows = csv.DictReader(text.splitlines(), strict=True)
    names = [name.strip().lower() for name in rows.fieldnames or []]
    if missing := [name for name in _REQUIRED if name not in names]:
        raise DataError(f"{path}: there is no column {missing[0]}", "the columns are m, n, k, split_k, dtype, layout")
    try:
        for row in rows:
            values = dict(zip(names, row.values(), strict=False))
            yield rows.line_num, lambda dtype, values=values: _problem(values, dtype)  # type: ignore[misc]
    except csv.Error as error:
        raise DataError(f"{path}:{rows.line_num}: {error}") from error


def _json(path: Path, text: str) -> Iterator[tuple[int, Callable[[str], GemmProblem]]]:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"cannot read the problems in {path}: {error}") from error
    if not isinstance(entries, list):
        raise DataError(f"{path} is no list of problems")
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, str):
            yield number, lambda _, entry=entry: parse_gemm_problem(entry)  # type: ignore[misc]
        elif isinstance(entry, dict):
            values = {str(key).lower(): value for key, value in entry.items()}
            yield number, lambda dtype, values=values: _problem(values, dtype)  # type: ignore[misc]
        else:
            raise DataError(f"{path}:{number}: {entry!r} is no problem")


def _problem(values: dict[str, Any], dtype: str) -> GemmProblem:
    given: dict[str, Any] = {name: _integer(name, values[name]) for name in GEMM_COLUMNS if values.get(name)}
    given |= {name: str(values[name]).strip() for name in _TEXTS if values.get(name)}
    if missing := [name for name in _REQUIRED if name not in given]:
        raise UsageError(f"{missing[0]} is missing")
    return GemmProblem(**{"dtype": dtype, **given})


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not (isinstance(value, int) or _INTEGER.fullmatch(str(value).strip())):
        raise UsageError(f"{name} must be an integer, not {value!r}")
    return int(str(value).strip())


_READERS: dict[str, Callable[[Path, str], Iterator[tuple[int, Callable[[str], GemmProblem]]]]] = {
    ".txt": _lines,
    ".csv": _csv,
    ".json": _json,
}
