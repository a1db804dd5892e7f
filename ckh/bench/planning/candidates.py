"""Sources of the kernels that a run chooses from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ckh.bench.planning.registry import read_registry
from ckh.kernels.filter import parse_filter
from ckh.kernels.judging import ProblemRules, RefusedKernel
from ckh.kernels.table import KernelTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Verdicts
    from ckh.kernels.lists import Registry
    from ckh.kernels.pools import Pools
    from ckh.ops.base import AnyOperation

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)
K = TypeVar("K")


class CandidateSource(Protocol[P_contra, K]):
    """Source of the candidate kernels of problems. Problems of one group have the same candidates."""

    @property
    def origin(self) -> str:
        """Description of the source."""

    def group(self, problem: P_contra, /) -> tuple[Any, ...]:
        """Part of a problem that determines its kernels."""

    def of(self, *group: Any) -> tuple[tuple[K, ...], tuple[RefusedKernel[K], ...]]:
        """Kernels of a group (followed by the architecture) that can be built, and the refused ones with reasons."""

    def problem_rules(self, kernels: Sequence[K], arch: ArchSpec) -> ProblemRules:
        """Rules that decide which of some kernels apply to a problem."""


@dataclass(frozen=True, slots=True)
class PoolSource(Generic[P, K]):
    """The pool of an architecture, or the kernels of a registry, filtered."""

    pools: Pools[K]
    group: Callable[[P | K], tuple[Any, ...]]
    """Part of a problem that determines its candidates; of a kernel, the problems it is for."""
    wants: Callable[[K], bool] = lambda _: True
    registry: Registry[K] | None = None
    origin: str = "the pool"

    def of(self, *group: Any) -> tuple[tuple[K, ...], tuple[RefusedKernel[K], ...]]:
        """Kernels of a group, followed by the architecture, that can be built, and the refused ones."""
        *own, arch = group
        if self.registry is None:
            refused = tuple(kernel for kernel in self.pools.refused(arch, *own) if self.wants(kernel.kernel))
            return tuple(filter(self.wants, self.pools.of(arch, *own))), refused
        kernels = of_registry(self.registry, arch, lambda kernel: self.group(kernel) == tuple(own), *own)
        table = kernels if isinstance(kernels, KernelTable) else KernelTable.of(self.pools.kind, kernels)
        built, unbuilt = without_refused(table, self.pools.rules.judge(table, arch))
        return tuple(filter(self.wants, built)), tuple(kernel for kernel in unbuilt if self.wants(kernel.kernel))

    def problem_rules(self, kernels: Sequence[K], arch: ArchSpec) -> ProblemRules:
        """Rules that decide which of some kernels apply to a problem."""
        return ProblemRules(self.pools.rules.problem, KernelTable.of(self.pools.kind, kernels), arch)


def without_refused(kernels: Sequence[K], verdicts: Verdicts) -> tuple[tuple[K, ...], tuple[RefusedKernel[K], ...]]:
    """Kernels that pass, and the refused ones, each with the first reason."""
    refused = tuple(
        RefusedKernel(kernels[number], (verdicts.sentences[why],))
        for number, why in enumerate(verdicts.number.tolist())
        if why >= 0
    )
    return tuple(kernels[number] for number in verdicts.passed.tolist()), refused


def of_registry(registry: Registry[K], arch: ArchSpec, belongs: Callable[[K], bool], *group: Any) -> Sequence[K]:
    """Kernels of a registry that belong to a group: of a list, or all combinations of a configuration."""
    registry.require(arch.name)
    if registry.product is not None:
        return registry.product.table(arch, *group)
    return tuple(filter(belongs, registry.kernels))


def wanted_by(text: str | None, kind: type) -> Callable[[Any], bool]:
    """Predicate of a filter expression for kernels of a class, always true without one; raises `UsageError`."""
    return (lambda _: True) if text is None else parse_filter(text, kind)


def registry_of(path: str | Path | None, op: AnyOperation) -> Registry[Any] | None:
    """Read the registry in a file, if given; raises `DataError`."""
    return None if path is None else read_registry(Path(path), op)
