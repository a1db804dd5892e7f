"""Sets and files of problems of an operation that shares `gemm_universal`'s parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ckh.errors import UsageError
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.gemm_universal.problem_sets.files import is_problem_file, read_problems
from ckh.problems import unknown_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

P = TypeVar("P", bound=GemmProblem)


def by_name(
    prefix: str, names: Iterable[str], problems: Callable[[str], Iterable[P]], all_of_them: str = ""
) -> dict[str, Callable[[], Iterable[P]]]:
    """Return the set PREFIX-NAME of each name, and the set of all, called PREFIX unless another name is given."""
    every = tuple(names)
    sets: dict[str, Callable[[], Iterable[P]]] = {f"{prefix}-{name}": partial(problems, name) for name in every}
    return {**sets, all_of_them or prefix: lambda: chain.from_iterable(map(problems, every))}


@dataclass(frozen=True, eq=False)
class NamedSets(Generic[P]):
    """Named sets of problems.

    Attributes:
        kind: the class of the problems.
        sets: name of a set -> its problems, in any element type.
    """

    kind: type[P]
    sets: Mapping[str, Callable[[], Iterable[P]]]

    def names(self) -> tuple[str, ...]:
        """The names of all sets."""
        return tuple(self.sets)

    def load(self, source: str, variant: str | None, dtype: str | None, default_dtype: str = "fp16") -> tuple[Any, ...]:
        """Return the problems of a set or a file, in dtype `dtype`, or in `default_dtype` if neither states a dtype.

        Raises:
            UsageError: it is neither a set nor a file, or a direction is given.
            DataError: the file has a line that is not a problem.
        """
        if variant is not None:
            raise UsageError(f"{self.kind.op_type} has no directions", "omit --variant", code="inapplicable-option")
        if source in self.sets:
            chosen = dtype or default_dtype
            return tuple(dict.fromkeys(replace(problem, dtype=chosen) for problem in self.sets[source]()))
        if is_problem_file(source):
            return read_problems(source, dtype, default_dtype, self.kind)
        raise unknown_set(f"{source!r} is neither a problem set nor a .txt, .csv, .json or .py file", source, self.sets)
