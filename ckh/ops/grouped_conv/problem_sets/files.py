"""Problem files: text (one canonical problem per line), CSV with AMD's columns, JSON (list of problems), AMD's Python.

Entries that are not understood are left out and counted. Duplicate problems are read once.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.files.python_lists import WrittenForm
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, ConvProblem, parse_conv_problem
from ckh.ops.problem_files import read_entries
from ckh.problems import Direction, dtype_name
from ckh.text.log import note

if TYPE_CHECKING:
    from ckh.files.account import Account

REQUIRED = ("N", "C", "K", "Hi", "Wi", "Y", "X")
DEPTH = {"Di": 1, "Z": 1, "stride_d": 1, "pad_d": 0, "dilation_d": 1}
TEXTS = ("variant", "dtype", "layout")
# Columns of AMD's benchmark CSV and of ckh's results that do not describe the problem.
IGNORED = frozenset(
    {"kernel", "kernel_name", "problem_idx", "latency_ms", "tflops", "bandwidth_gb_s", "non_zero", "run_id", "is_valid"}
    | {"error_msg", "name", "id", "count", "Do", "Ho", "Wo"}
)
# Columns or keys of other names are ignored, unless they look like a size: then they are taken for a mistake.
_LIKE_A_SIZE = re.compile(
    r"[a-z]{1,2}|(stride|pad|dil|group|batch|n?dim|(data_?)?type|layout|direction).*", re.IGNORECASE
)
_KNOWN = (*CONV_COLUMNS, "ndim", *TEXTS)
# Other names of columns: ckh's fields, and AMD's name of the direction.
_OTHER_NAMES = {**{name: column for column, name in CONV_COLUMNS.items()}, "direction": "variant"}
# In AMD's Python files a problem has all its values as keyword arguments, anywhere in the file.
_IN_PYTHON = WrittenForm("GroupedConvProblem(N=..., C=..., ...)", ("GroupedConvProblem",))


def read_problems(
    source: str | Path,
    variant: Direction | None = None,
    dtype: str | None = None,
    default_dtype: str = "fp32",
    account: Account | None = None,
) -> tuple[ConvProblem, ...]:
    """Read the distinct problems of a file in order, which must have a direction and dtype if these are requested.

    CSV rows, JSON objects and problems in Python may omit all but N, C, K, Hi, Wi, Y, X; they are 3D if a depth column
    is not at its default; a 3D problem of depth 1 needs the column `ndim`. JSON objects may use AMD's columns or
    `ConvProblem`'s fields. Other columns and keys are ignored; a note names those of a CSV. From a Python file the
    literal problems are read (see `ckh.files.python_lists`).
    """

    def make(entry: object) -> ConvProblem:
        problem = _from_entry(entry, variant or Direction.FORWARD, dtype or default_dtype)
        for name, requested in (("variant", variant), ("dtype", dtype)):
            if requested is not None and requested != (stated := getattr(problem, name)):
                raise UsageError(
                    f"{name} is {stated}, but {requested} was requested",
                    f"request {stated} or change the file",
                    code="mismatch",
                )
        return problem

    return read_entries(Path(source), make, _header, TEXTS, _IN_PYTHON, account)


def _header(path: Path, line: int, header: list[str]) -> list[str]:
    header = ["variant" if name == "direction" else name for name in header]
    others = [column for column in header if column not in {*_KNOWN, *IGNORED}]
    problems = {
        "missing": [column for column in REQUIRED if column not in header],
        "unknown": [column for column in others if _LIKE_A_SIZE.fullmatch(column)],
        "repeated": sorted({column for column in header if header.count(column) > 1}),
    }
    for what, columns in problems.items():
        if columns:
            hint = "the columns are " + ", ".join(_KNOWN)
            raise DataError(f"{path}:{line}: {what} columns: {', '.join(map(repr, columns))}", hint, code="bad-header")
    if others:
        note(f"{path}: ignored columns: {', '.join(map(repr, others))}")
    return [name if name in _KNOWN else "" for name in header]


def _from_entry(entry: object, variant: Direction, dtype: str) -> ConvProblem:
    """The problem of an entry, of this direction and dtype unless it states others."""
    if isinstance(entry, str):
        return parse_conv_problem(entry)
    if not isinstance(entry, dict):
        raise UsageError(f"not a problem: {json.dumps(entry)[:80]}", code="bad-problem")
    given: dict[str, Any] = {key: value for key, value in entry.items() if key not in IGNORED}
    row = {_OTHER_NAMES.get(key, key): value for key, value in given.items()}
    if len(row) < len(given):
        raise UsageError("duplicate value, under AMD's name and under ckh's", code="duplicate-name")
    others = [key for key in row if key not in _KNOWN]
    if unknown := [key for key in others if _LIKE_A_SIZE.fullmatch(key)]:
        raise UsageError(f"unknown keys: {', '.join(map(repr, unknown))}", code="unknown-field")
    for key in others:
        del row[key]
    for key in TEXTS:
        if key in row and not isinstance(row[key], str):
            raise UsageError(f"{key} must be text, not {row[key]!r}", code="bad-field")
    return _problem(row, variant, dtype)


def _problem(row: dict[str, Any], variant: Direction, dtype: str) -> ConvProblem:
    if missing := [column for column in REQUIRED if column not in row]:
        raise UsageError(f"{', '.join(missing)} missing", code="missing-field")
    deep = any(column in row and row[column] != default for column, default in DEPTH.items())
    ndim = row.get("ndim", 3 if deep else 2)
    if type(ndim) is not int:
        raise UsageError(f"ndim must be 2 or 3, not {ndim!r}", code="out-of-range")
    fixed = {
        "variant": row.get("variant", variant),
        "dtype": dtype_name(row.get("dtype", dtype)),
        "layout": row.get("layout", ""),
        "ndim": ndim,
    }
    sizes = {name: row[column] for column, name in CONV_COLUMNS.items() if column in row}
    return ConvProblem(**{"g": 1, **sizes}, **fixed)
