"""Files of GEMM problems, and named sets. CSV and JSON have m, n, k and optional columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ckh.errors import DataError, UsageError
from ckh.files.python_lists import WrittenForm
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.problem_files import integer_of, is_problem_file, read_entries
from ckh.problems import dtype_name, unknown_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ckh.files.account import Account

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


def _problem(kind: type[P], values: dict[str, Any], dtype: str) -> P:
    """Build a problem from named values."""
    given_values = {name: value for name, value in values.items() if value not in (None, "")}
    stated = {name.lower(): value for name, value in given_values.items()}
    if len(stated) < len(given_values):
        raise UsageError("duplicate value", "remove one of them", code="duplicate-name")
    given: dict[str, Any] = {name: integer_of(name, stated[name]) for name in kind.size_columns if name in stated}
    given |= {name: str(stated[name]) for name in kind.text_columns if name in stated}
    if missing := [name for name in kind.required if name not in given]:
        raise UsageError(f"{missing[0]} is missing", code="missing-field")
    problem: P = kind(**{**given, "dtype": dtype_name(given.get("dtype", dtype))})
    return problem


def read_problems(
    source: str | Path,
    dtype: str | None = None,
    default_dtype: str = "fp32",
    kind: type[GemmProblem] = GemmProblem,
    account: Account | None = None,
) -> tuple[Any, ...]:
    """Read the distinct problems of a file in order.

    Columns and keys are m, n, k and optionally the class's other sizes, dtype (`default_dtype`) and layout (rcr); they
    are case-insensitive.
    """
    left_open = dtype or default_dtype

    def make(entry: object) -> GemmProblem:
        if not isinstance(entry, (str, dict)):
            raise UsageError(f"{entry!r} is not a problem", code="bad-problem")
        problem = kind.parsed(entry) if isinstance(entry, str) else _problem(kind, entry, left_open)
        if dtype is not None and problem.dtype != dtype:
            raise UsageError(f"the problem has dtype {problem.dtype}, not {dtype}", code="mismatch")
        return problem

    def header(path: Path, _line: int, cells: list[str]) -> list[str]:
        names = [name.lower() for name in cells]
        known = (*kind.size_columns, *kind.text_columns)
        if missing := [name for name in kind.required if name not in names]:
            what = f"{path}: missing column {missing[0]}"
            raise DataError(what, "the columns are " + ", ".join(known), code="missing-column")
        return [name if name in known else "" for name in names]

    return read_entries(Path(source), make, header, kind.text_columns, _IN_PYTHON, account)


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

    def load(
        self,
        source: str,
        variant: str | None,
        dtype: str | None,
        default_dtype: str = "",
        account: Account | None = None,
    ) -> tuple[Any, ...]:
        """Return the problems of a set or a file, in dtype `dtype`, or in a default one if neither states a dtype."""
        if variant is not None:
            raise UsageError(f"{self.kind.op_type} has no directions", "omit --variant", code="inapplicable-option")
        default = default_dtype or self.default_dtype
        if source in self.sets:
            return tuple(dict.fromkeys(replace(problem, dtype=dtype or default) for problem in self.sets[source]()))
        if is_problem_file(source):
            return read_problems(source, dtype, default, self.kind, account)
        raise unknown_set(f"{source!r} is neither a problem set nor a .txt, .csv, .json or .py file", source, self.sets)
