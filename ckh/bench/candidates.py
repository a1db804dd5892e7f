"""The kernels that a run chooses from: those of a convolution's rule set or registry, or a GEMM's pool; filtered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from ckh.errors import UsageError
from ckh.kernels.config import ConvKernel
from ckh.kernels.filter import parse_filter
from ckh.kernels.pool import RefusedKernel
from ckh.kernels.registry import read_registry
from ckh.kernels.rules import DEFAULT_RULE_SET, refused_of_rule_set, rule_set
from ckh.kernels.validity import arch_reasons, problem_reasons
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.kernels.registry import Registry
    from ckh.ops.gemm_universal.kernel import GemmKernel
    from ckh.ops.gemm_universal.problem import GemmProblem
    from ckh.problems import ConvProblem


class CandidateSource(Protocol):
    """Where the kernels for problems come from. Problems of one group have the same."""

    def group(self, problem: Any) -> tuple[Any, ...]:
        """What decides which kernels there are for a problem."""

    def of(self, *group: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Kernels of a group (followed by the architecture) that can be built, and those that cannot, with reasons."""

    def problem_reasons(self, kernel: Any, arch: ArchSpec, problem: Any) -> list[str]:
        """Why a kernel does not apply to a problem."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Where kernels come from.

    Attributes:
        rule_set: name of a rule set; not used with a registry.
        registry: kernels read from a file.
        wants: the filter.
        split_k: numbers of parts of K that backward-weight kernels are tried with.
    """

    rule_set: str = DEFAULT_RULE_SET
    registry: Registry | None = None
    wants: Callable[[ConvKernel], bool] = lambda _: True
    split_k: tuple[int, ...] = (1,)

    def group(self, problem: ConvProblem) -> tuple[Any, ...]:
        """Direction, number of dimensions and dtype."""
        return problem.variant, problem.ndim, problem.dtype

    def problem_reasons(self, kernel: ConvKernel, arch: ArchSpec, problem: ConvProblem) -> list[str]:
        """Why a kernel does not apply to a problem."""
        return problem_reasons(kernel, arch, problem)

    def of(
        self, variant: Direction, ndim_spatial: int, dtype: str, arch: ArchSpec
    ) -> tuple[tuple[ConvKernel, ...], tuple[RefusedKernel[ConvKernel], ...]]:
        """Kernels that the architecture can build, and those it cannot, with the reasons.

        Raises:
            UsageError: the registry is another architecture's, or the rule set is unknown.
        """
        if self.registry is None:
            found = rule_set(self.rule_set, variant, ndim_spatial, dtype, arch)
            unbuilt = refused_of_rule_set(self.rule_set, variant, ndim_spatial, dtype, arch)
        else:
            found, unbuilt = self._registered(variant, ndim_spatial, dtype, arch), ()
        # A registry may have several splits of a kernel.
        distinct = dict.fromkeys(split for kernel in found for split in self._splits(kernel))
        wanted = filter(self.wants, distinct)
        judged = [RefusedKernel(kernel, arch_reasons(kernel, arch)) for kernel in wanted]
        refused = [one for one in (*unbuilt, *judged) if one.reasons and self.wants(one.kernel)]
        return tuple(one.kernel for one in judged if not one.reasons), tuple(refused)

    def _registered(self, variant: Direction, ndim_spatial: int, dtype: str, arch: ArchSpec) -> tuple[ConvKernel, ...]:
        assert self.registry is not None
        if self.registry.arch != arch.name:
            raise UsageError(f"the registry holds kernels of {self.registry.arch}, not of {arch.name}")
        group = (variant, ndim_spatial, dtype)
        return tuple(k for k in self.registry.kernels if (k.variant, k.ndim_spatial, k.dtype) == group)

    def _splits(self, kernel: ConvKernel) -> Iterator[ConvKernel]:
        if kernel.variant is not Direction.BWD_WEIGHT or self.split_k == (1,):
            yield kernel
            return
        for count in self.split_k:
            yield replace(kernel, split_k=count)


@dataclass(frozen=True, slots=True)
class GemmCandidates:
    """The pool of an architecture, filtered."""

    wants: Callable[[GemmKernel], bool] = lambda _: True

    def group(self, problem: GemmProblem) -> tuple[Any, ...]:
        """Dtype and layout."""
        return problem.dtype, problem.layout

    def of(self, dtype: str, layout: str, arch: ArchSpec) -> tuple[tuple[GemmKernel, ...], tuple[Any, ...]]:
        """The pool's kernels; of a GPU, those that cannot be built are too many to list."""
        from ckh.ops.gemm_universal.pool import gemm_pool, refused_pool

        kernels = tuple(filter(self.wants, gemm_pool(arch, dtype, layout)))
        if arch.is_gpu:
            return kernels, ()
        return kernels, tuple(one for one in refused_pool(arch, dtype, layout) if self.wants(one.kernel))

    def problem_reasons(self, kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> list[str]:
        """Why a kernel does not apply to a problem."""
        from ckh.ops.gemm_universal.validity import problem_reasons as reasons

        return list(reasons(kernel, arch, problem))


def make_gemm_candidates(settings: Mapping[str, object], filter_text: str | None) -> GemmCandidates:
    """Candidates of a GEMM from a run's settings.

    Args:
        settings: by option; those that only convolutions have must be None.
        filter_text: which kernels.

    Raises:
        UsageError: a setting is malformed, or one of convolutions is given.
    """
    from ckh.ops.gemm_universal.kernel import GemmKernel

    if given := [name for name, value in settings.items() if value]:
        raise UsageError(f"gemm_universal has no {given[0]}", "it is for convolutions")
    return GemmCandidates() if filter_text is None else GemmCandidates(parse_filter(filter_text, GemmKernel))


def make_candidates(
    rule_set_name: str, registry: Path | None, filter_text: str | None, split_k: tuple[int, ...]
) -> Candidates:
    """Candidates from a run's settings.

    Raises:
        UsageError: a setting is malformed or contradicts another.
        DataError: the registry cannot be read.
    """
    if registry is not None and rule_set_name != DEFAULT_RULE_SET:
        raise UsageError("--registry and --rule-set exclude each other", "leave one of them out")
    return Candidates(
        rule_set_name,
        None if registry is None else read_registry(registry),
        (lambda _: True) if filter_text is None else parse_filter(filter_text, ConvKernel),
        split_k,
    )
