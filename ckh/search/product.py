"""The kernels that a search may propose: the product of bases and option sets.

A base is a choice of tile, waves, warp tile and pipeline, with its other fields as in the candidate pool. Rules that do
not depend on options are evaluated on the bases; the others on each option set with each distinct kind of bases. So
millions of kernels are checked without creating an object for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ckh.kernels.declaration import by
from ckh.kernels.judging import ProblemRules, judge_table
from ckh.kernels.table import TRIPLES, distinct
from ckh.ops.base import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rule, Rules
    from ckh.kernels.table import KernelTable
    from ckh.ops.base import Kernel

P = TypeVar("P", bound=Problem)


@dataclass(frozen=True, slots=True)
class Options:
    """Fields of a kernel, and the sets of values to combine with each base."""

    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A parameter of the search space, and its value in a kernel: a number, a string or a bool."""

    name: str
    value: Callable[[Any], str | int | bool]


def parameters(*names: str) -> tuple[KernelParameter, ...]:
    """Return fields of kernels, or groups of them such as `wave`, as parameters; texts are plain, sizes are MxNxK."""

    def of(name: str) -> KernelParameter:
        def value(kernel: Any) -> str | int | bool:
            own: str | int | bool = getattr(kernel, name)
            return str(own) if isinstance(own, str) else own

        return KernelParameter(name, (lambda kernel: by(getattr(kernel, name))) if name in TRIPLES else value)

    return tuple(map(of, names))


class Product:
    """All kernels that may be proposed for problems of a kind on an architecture, numbered base by base.

    Args:
        bases: fields and values of the bases.
        options: option sets to combine with each base.
        rules: the operation's rules.
        more: further rules of the architecture.
        arch: the architecture.
        parameters: parameters that distinguish the kernels.

    Attributes:
        bases: bases that the architecture supports.
    """

    def __init__(
        self,
        bases: KernelTable[Any],
        options: Options,
        rules: Rules[Any],
        more: tuple[Rule, ...],
        arch: ArchSpec,
        parameters: Sequence[KernelParameter],
    ) -> None:
        names = frozenset(options.names)
        of_arch = (*rules.named, *rules.complete, *more)
        self.bases = bases.take(rules.judge(bases, arch).passed)
        self.options = options
        self.parameters = tuple(parameters)
        of_both = [rule for rule in (*of_arch, *rules.problem) if rule.fields & names]
        self._kind_of, kinds = _kinds(self.bases, sorted(frozenset().union(*(r.fields for r in of_both)) - names))
        crossed = kinds.crossed(options.names, options.rows)
        builds = judge_table([rule for rule in of_arch if rule.fields & names], crossed, arch).number < 0
        self._builds = builds.reshape(len(kinds), len(options.rows))
        self._of_bases = ProblemRules([rule for rule in rules.problem if not rule.fields & names], self.bases, arch)
        self._of_kinds = ProblemRules([rule for rule in rules.problem if rule.fields & names], crossed, arch)
        others = [rule for rule in more if not rule.fields & names]
        self._builds_base = judge_table(others, self.bases, arch).number < 0

    def legal(
        self, problem: Problem, pool: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None
    ) -> NDArray[np.bool_]:
        """Mask of the kernels that can be built and apply to a problem, shape (bases, option sets).

        Kernels of the pool always do.

        Args:
            problem: the problem.
            pool: bases and option sets of the candidates, as returned by `numbers_of`.
        """
        applies = np.zeros(self._builds.size, np.bool_)
        applies[self._of_kinds.judge(problem)[0]] = True
        legal = (self._builds & applies.reshape(self._builds.shape))[self._kind_of]
        base = np.zeros(len(self.bases), np.bool_)
        base[self._of_bases.judge(problem)[0]] = True
        legal &= (base & self._builds_base)[:, None]
        if pool is not None:
            legal[pool] = True
        return legal

    def useful(self, problem: Problem) -> NDArray[np.intp]:
        """Indices of the option sets that are possible with any base for a problem, on any architecture."""
        applies = np.zeros(self._builds.size, np.bool_)
        applies[self._of_kinds.judge(problem)[0]] = True
        kinds = self._kind_of[self._of_bases.judge(problem)[0]]
        return np.flatnonzero(applies.reshape(self._builds.shape)[np.unique(kinds)].any(axis=0))

    def numbers_of(self, kernels: Sequence[Kernel]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Base index and option set index of each kernel; -1 for kernels outside the product."""
        row_of = {row: number for number, row in enumerate(self.options.rows)}
        own = (tuple(getattr(kernel, name) for name in self.options.names) for kernel in kernels)
        rows = np.array([row_of.get(values, -1) for values in own], np.intp)
        bases = self.bases.numbers_of(kernels, self.options.names)
        is_there = (bases >= 0) & (rows >= 0)
        return np.where(is_there, bases, -1), np.where(is_there, rows, -1)

    @property
    def own(self) -> int:
        """Index of the option set that the bases have by default; -1 if it is not included."""
        if not len(self.bases):
            return -1
        values = tuple(self.bases.coded(name)[0][0] for name in self.options.names)
        return self.options.rows.index(values) if values in self.options.rows else -1

    def kernel(self, base: int, row: int) -> Kernel:
        """Kernel of a base and an option set."""
        values = dict(zip(self.options.names, self.options.rows[row], strict=True))
        made: Kernel = replace(self.bases[base], **values)
        return made


@dataclass(frozen=True, slots=True)
class Searched(Generic[P]):
    """How kernels of an operation are searched.

    Attributes:
        product: the kernels that may be proposed for a problem on an architecture.
    """

    product: Callable[[P, ArchSpec], Product]


def _kinds(table: KernelTable[Any], names: Sequence[str]) -> tuple[NDArray[np.intp], KernelTable[Any]]:
    """Kind of each kernel by the given fields, and one kernel of each kind."""
    columns = [table.coded(name) for name in names]
    _, kind = distinct([(codes, len(values)) for values, codes in columns], len(table))
    _, first = np.unique(kind, return_index=True)
    return kind, table.take(first)
