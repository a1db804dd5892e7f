"""Pools: the kernels that are candidates for the problems of a group, on an architecture."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from ckh.kernels.judging import ProblemRules

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import RefusedKernel, Rules
    from ckh.kernels.table import KernelTable

K = TypeVar("K")
_NOT_LISTED = "it is not in the registry"
_AS_OBJECTS = 5000  # pools of so many kernels are objects, which are looked up faster; larger ones are tables


@dataclass(frozen=True, slots=True, eq=False)
class Candidates(Generic[K]):
    """Kernels that apply to a problem, and how many do not, by the first rule that each breaks.

    Attributes:
        pool: kernels among which the problem decides; the same object for problems of a kind, so that what is
            prepared for a pool can be kept.
        chosen: those that apply, as numbers in the pool, ascending; shape (candidates,).
        refused: reason -> how many kernels; of the pool and of what the architecture does not build.
        unmeasured: of what kind they are if nobody measured any such on this architecture, so that its models know
            nothing of them; empty otherwise.
        left_out: kernels of kinds, e.g. pipelines, that the architecture builds and the model learned nothing of.
    """

    pool: Sequence[K]
    chosen: NDArray[np.intp]
    refused: dict[str, int]
    unmeasured: str = ""
    left_out: Mapping[str, frozenset[K]] = field(default_factory=dict)

    @property
    def kernels(self) -> tuple[K, ...]:
        """Those that apply."""
        return tuple(self.pool[index] for index in self.chosen.tolist())

    def among(self, kernels: frozenset[K]) -> Candidates[K]:
        """Those that are some of these kernels."""
        inside = np.array([self.pool[index] in kernels for index in self.chosen.tolist()], bool)
        others = {_NOT_LISTED: int((~inside).sum())} if not inside.all() else {}
        left_out = {kind: some for kind, all_of_it in self.left_out.items() if (some := all_of_it & kernels)}
        return replace(self, chosen=self.chosen[inside], refused={**self.refused, **others}, left_out=left_out)


class Knows(Protocol):
    """The kernels that a model has learned from; equal ones have one pool."""

    def reason(self, kernel: Any) -> str:
        """Why the model says nothing of a kernel; empty if it does."""

    def new_kind(self, kernel: Any) -> str:
        """The kind of a kernel if the model has learned from none of that kind; empty if it has from some."""

    def __hash__(self) -> int:
        """Equal for equal ones."""


class Pools(Generic[K]):
    """The pools of an operation, each prepared once.

    Args:
        kind: the class of the kernels.
        rules: theirs.
        table: the kernels that are judged, of an architecture and a group.
    """

    def __init__(self, kind: type[K], rules: Rules[K], table: Callable[..., KernelTable[K]]) -> None:
        self.kind = kind
        self.rules = rules
        self.table = table
        self._judged = cache(self._judge)
        self._problem_rules = cache(self._prepare)

    def of(self, arch: ArchSpec, *group: Any, knows: Knows | None = None) -> tuple[K, ...]:
        """The kernels of a group that break no rule of the architecture, in the table's order; those a model knows."""
        return tuple(self._judged(knows, arch, *group)[0])

    def refused(self, arch: ArchSpec, *group: Any) -> Iterator[RefusedKernel[K]]:
        """The rest of the table with the reasons, one by one."""
        return self.rules.refused(self.table(arch, *group), arch)

    def candidates(self, problem: object, arch: ArchSpec, *group: Any, knows: Knows | None = None) -> Candidates[K]:
        """The kernels of a problem's group that apply to it, of those that a model knows."""
        pool, _, refused, left_out = self._judged(knows, arch, *group)
        chosen, reasons = self._problem_rules(knows, arch, *group).judge(problem)
        return Candidates(pool, chosen, dict((refused + reasons).most_common()), left_out=left_out)

    def _judge(
        self, knows: Knows | None, arch: ArchSpec, *group: Any
    ) -> tuple[Sequence[K], KernelTable[K], Counter[str], dict[str, frozenset[K]]]:
        """The kernels that are built and known, as objects and as a table, and of the others counts and new kinds."""
        table = self.table(arch, *group)
        verdicts = self.rules.judge(table, arch)
        built, refused = table.take(verdicts.passed), verdicts.counts()
        reasons = [knows.reason(kernel) for kernel in built] if knows else [""] * len(built)
        refused.update(words for words in reasons if words)
        known = built.take(np.array([number for number, words in enumerate(reasons) if not words], np.intp))
        kinds: defaultdict[str, set[K]] = defaultdict(set)
        for kind, kernel in ((knows.new_kind(kernel), kernel) for kernel in built) if knows else ():
            kinds[kind].add(kernel)
        pool = tuple(known) if len(known) <= _AS_OBJECTS else known
        return pool, known, refused, {kind: frozenset(kinds[kind]) for kind in sorted(kinds) if kind}

    def _prepare(self, knows: Knows | None, arch: ArchSpec, *group: Any) -> ProblemRules:
        return ProblemRules(self.rules.problem, self._judged(knows, arch, *group)[1], arch)
