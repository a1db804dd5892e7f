"""Files of GEMM problems: canonical texts, CSV, JSON, and AMD's Python, which is not executed; and named sets.

A text file has one problem per line; CSV and JSON have m, n, k and optional columns. Every fault of a file is one
`DataError` that states file, entry and reason. Duplicate problems are read once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ckh.errors import DataError, UsageError
from ckh.files.jsonfields import read_json
from ckh.files.python_lists import WrittenForm, written_problems
from ckh.files.untrusted import csv_rows, integer, read_text
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.problems import dtype_name, unknown_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    # A file's entries: location, and a function that returns the problem given the default element type.
    _Entries = Iterator[tuple[int, Callable[[str], "P"]]]

P = TypeVar("P", bound=Any)  # has a GemmProblem's `parsed`, `required`, `size_columns` and `text_columns`

# AMD's scripts have calls, and lists such as `ml_sizes = [(1, 4096, 4096), ...]` of M, N and K.
_IN_PYTHON = WrittenForm(
    "GemmProblem(M=..., N=..., K=...), ProblemSize(...) or list of (M, N, K) called sizes, shapes or problems",
    ("GemmProblem", "ProblemSize"),
    GemmProblem.required,
    ("size", "shape", "problem"),
    ("tile", "warp", "wave", "block"),
)


def is_problem_file(source: str) -> bool:
    """True if the suffix is that of a problem file."""
    return Path(source).suffix.lower() in _READERS


def _problem(kind: type[P], values: dict[str, Any], dtype: str) -> P:
    """Build a problem from named values."""
    stated = {name: value for name, value in values.items() if value not in (None, "")}
    given: dict[str, Any] = {name: _integer(name, stated[name]) for name in kind.size_columns if name in stated}
    given |= {name: str(stated[name]) for name in kind.text_columns if name in stated}
    if missing := [name for name in kind.required if name not in given]:
        raise UsageError(f"{missing[0]} is missing", code="missing-field")
    made: P = kind(**{**given, "dtype": dtype_name(given.get("dtype", dtype))})
    return made


def read_problems(
    source: str | Path, dtype: str | None = None, default_dtype: str = "fp32", kind: type[GemmProblem] = GemmProblem
) -> tuple[Any, ...]:
    """Read the distinct problems of a file in order.

    Columns and keys are m, n, k and optionally the class's other sizes, dtype (`default_dtype`) and layout (rcr); they
    are case-insensitive.
    """
    path = Path(source)
    problems: dict[Any, None] = {}
    left_open = dtype or default_dtype
    for where, make in _READERS[path.suffix.lower()](path, kind):
        try:
            problem = make(left_open)
        except UsageError as error:
            raise DataError(f"{path}:{where}: {error.message}", error.hint, code=error.code) from error
        if dtype is not None and problem.dtype != dtype:
            raise DataError(f"{path}:{where}: the problem has dtype {problem.dtype}, not {dtype}", code="mismatch")
        problems[problem] = None
    if not problems:
        raise DataError(f"{path} has no problem", code="no-problems")
    return tuple(problems)


def _lines(path: Path, kind: type[P]) -> _Entries[P]:
    for number, line in enumerate(read_text(path).splitlines(), 1):
        content = line.partition("#")[0].strip()
        if content:
            yield number, lambda _, content=content: kind.parsed(content)  # type: ignore[misc]


def _csv(path: Path, kind: type[P]) -> _Entries[P]:
    rows = ((line, cells) for line, cells in csv_rows(path, read_text(path)) if any(cells))
    names = [name.lower() for name in next(rows, (0, []))[1]]
    if missing := [name for name in kind.required if name not in names]:
        raise DataError(
            f"{path}: missing column {missing[0]}",
            "the columns are " + ", ".join((*kind.size_columns, *kind.text_columns)),
            code="missing-column",
        )
    for line, cells in rows:
        yield line, lambda dtype, cells=cells: _problem(kind, _row(names, cells), dtype)  # type: ignore[misc]


def _row(names: list[str], cells: list[str]) -> dict[str, Any]:
    if len(cells) != len(names):
        raise UsageError(f"{len(cells)} cells under {len(names)} columns", code="bad-row")
    return dict(zip(names, cells, strict=True))


def _json(path: Path, kind: type[P]) -> _Entries[P]:
    entries = read_json(path, unique=True)
    if not isinstance(entries, list):
        raise DataError(f"{path} is not a list of problems", code="unknown-format")
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, str):
            yield number, lambda _, entry=entry: kind.parsed(entry)  # type: ignore[misc]
        elif isinstance(entry, dict):
            values = {str(key).lower(): value for key, value in entry.items()}
            yield number, lambda dtype, values=values: _problem(kind, values, dtype)  # type: ignore[misc]
        else:
            raise DataError(f"{path}:{number}: {entry!r} is not a problem", code="bad-problem")


def _python(path: Path, kind: type[P]) -> _Entries[P]:
    for line, values in written_problems(path, read_text(path), _IN_PYTHON):
        lower = {name.lower(): value for name, value in values.items()}
        if len(lower) < len(values):
            raise DataError(f"{path}:{line}: duplicate value", "remove one of them", code="duplicate-name")
        yield line, lambda dtype, values=lower: _problem(kind, values, dtype)  # type: ignore[misc]


def _integer(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return integer(value if isinstance(value, str) else "")
    except ValueError:
        raise UsageError(f"{name} must be an integer, not {value!r}", code="bad-number") from None


_READERS: dict[str, Callable[[Path, type[Any]], _Entries[Any]]] = {
    ".txt": _lines,
    ".csv": _csv,
    ".json": _json,
    ".py": _python,
}


def by_name(
    prefix: str, names: Iterable[str], problems: Callable[[str], Iterable[P]], all_of_them: str = ""
) -> dict[str, Callable[[], Iterable[P]]]:
    """Return the set PREFIX-NAME of each name, and the set of all, called PREFIX unless another name is given."""
    every = tuple(names)
    sets: dict[str, Callable[[], Iterable[P]]] = {f"{prefix}-{name}": partial(problems, name) for name in every}
    return {**sets, all_of_them or prefix: lambda: chain.from_iterable(map(problems, every))}


@dataclass(frozen=True, eq=False)
class NamedSets(Generic[P]):
    """Named sets of problems."""

    kind: type[P]  # the class of the problems
    sets: Mapping[str, Callable[[], Iterable[P]]]  # name of a set -> its problems, in any element type
    default_dtype: str = "fp16"  # element type of problems that state none

    def names(self) -> tuple[str, ...]:
        """The names of all sets."""
        return tuple(self.sets)

    def load(self, source: str, variant: str | None, dtype: str | None, default_dtype: str = "") -> tuple[Any, ...]:
        """Return the problems of a set or a file, in dtype `dtype`, or in a default one if neither states a dtype."""
        if variant is not None:
            raise UsageError(f"{self.kind.op_type} has no directions", "omit --variant", code="inapplicable-option")
        default = default_dtype or self.default_dtype
        if source in self.sets:
            return tuple(dict.fromkeys(replace(problem, dtype=dtype or default) for problem in self.sets[source]()))
        if is_problem_file(source):
            return read_problems(source, dtype, default, self.kind)
        raise unknown_set(f"{source!r} is neither a problem set nor a .txt, .csv, .json or .py file", source, self.sets)
