"""Where the kernels of a run come from: a rule set or a registry, filtered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.planning.candidates import of_registry, registry_of, wanted_by
from ckh.errors import UsageError
from ckh.kernels.judging import ProblemRules
from ckh.kernels.table import KernelTable
from ckh.ops import operation
from ckh.ops.grouped_conv.features import GROUPED_CONV
from ckh.ops.grouped_conv.kernel import ConvKernel
from ckh.ops.grouped_conv.kernels.pool import RefusedKernel
from ckh.ops.grouped_conv.kernels.validity import CONV_RULES
from ckh.ops.grouped_conv.rules import DEFAULT_RULE_SET, refused_of_rule_set, rule_set, weight_options
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.archs import ArchSpec
    from ckh.data.settings import Settings
    from ckh.kernels.lists import Registry
    from ckh.ops.grouped_conv.problem import ConvProblem


_SPLITS = (1, 4, 16)  # of K, that the default kernels for weights are tried with on a GPU


@dataclass(frozen=True, slots=True)
class SetCandidates:
    """Where kernels come from.

    Attributes:
        rule_set: name of a rule set; not used with a registry.
        registry: kernels read from a file.
        wants: the filter.
        split_k: numbers of parts of K that backward-weight kernels are tried with; (1,): on a GPU the default ones with
            `_SPLITS`, and there are kernels with two stages and merged groups beside them.
        origin: where they come from, in words.
    """

    rule_set: str = DEFAULT_RULE_SET
    registry: Registry[ConvKernel] | None = None
    wants: Callable[[ConvKernel], bool] = lambda _: True
    split_k: tuple[int, ...] = (1,)
    origin: str = f"rule set {DEFAULT_RULE_SET}"

    def group(self, problem: ConvProblem) -> tuple[Any, ...]:
        """Direction, number of dimensions and dtype."""
        return problem.variant, problem.ndim, problem.dtype

    def problem_rules(self, kernels: Sequence[ConvKernel], arch: ArchSpec) -> ProblemRules:
        """The rules that decide which of some kernels apply to a problem."""
        return ProblemRules(CONV_RULES.problem, KernelTable.of(ConvKernel, kernels), arch)

    def of(
        self, variant: Direction, ndim_spatial: int, dtype: str, arch: ArchSpec
    ) -> tuple[tuple[ConvKernel, ...], tuple[RefusedKernel[ConvKernel], ...]]:
        """Kernels that the architecture can build, and those it cannot, with the reasons.

        Raises:
            UsageError: the registry is another architecture's, or the rule set is unknown.
        """
        if self.registry is None:
            found = rule_set(self.rule_set, variant, ndim_spatial, dtype, arch)
            if self._has_options(variant, arch):
                found = (*found, *weight_options(ndim_spatial, dtype, arch))
            unbuilt = refused_of_rule_set(self.rule_set, variant, ndim_spatial, dtype, arch)
        else:
            found, unbuilt = self._registered(variant, ndim_spatial, dtype, arch), ()
        # A registry may have several splits of a kernel.
        counts = _SPLITS if self._has_options(variant, arch) else self.split_k
        distinct = dict.fromkeys(split for kernel in found for split in _splits(kernel, counts))
        wanted = filter(self.wants, distinct)
        judged = [RefusedKernel(kernel, CONV_RULES.of_arch(kernel, arch)) for kernel in wanted]
        refused = [one for one in (*unbuilt, *judged) if one.reasons and self.wants(one.kernel)]
        return tuple(one.kernel for one in judged if not one.reasons), tuple(refused)

    def _registered(self, variant: Direction, ndim_spatial: int, dtype: str, arch: ArchSpec) -> tuple[ConvKernel, ...]:
        assert self.registry is not None
        group = (variant, ndim_spatial, dtype)
        return tuple(of_registry(self.registry, arch, lambda k: (k.variant, k.ndim_spatial, k.dtype) == group, *group))

    def _has_options(self, variant: Direction, arch: ArchSpec) -> bool:
        """True of the default kernels for weights on a GPU, where a sum over all pixels keeps few blocks busy."""
        is_default = self.registry is None and self.rule_set == DEFAULT_RULE_SET and self.split_k == (1,)
        return is_default and arch.is_gpu and variant is Direction.BWD_WEIGHT


def _splits(kernel: ConvKernel, counts: tuple[int, ...]) -> Iterator[ConvKernel]:
    if kernel.variant is not Direction.BWD_WEIGHT or counts == (1,):
        yield kernel
        return
    for count in counts:
        yield replace(kernel, split_k=count)


def make_candidates(
    rule_set_name: str, registry: Path | None, filter_text: str | None, split_k: tuple[int, ...]
) -> SetCandidates:
    """Candidates from a run's settings.

    Raises:
        UsageError: a setting is malformed or contradicts another.
        DataError: the registry cannot be read.
    """
    if registry is not None and rule_set_name != DEFAULT_RULE_SET:
        raise UsageError(
            "--registry and --rule-set exclude each other", "leave one of them out", code="conflicting-options"
        )
    return SetCandidates(
        rule_set_name,
        registry_of(registry, operation(GROUPED_CONV.op_type)),
        wanted_by(filter_text, ConvKernel),
        split_k,
        f"rule set {rule_set_name}" if registry is None else str(registry),
    )


def candidate_source(settings: Settings) -> SetCandidates:
    """Candidates from a run's settings, which raises what `make_candidates` does."""
    registry = None if settings.registry is None else Path(settings.registry)
    return make_candidates(settings.rule_set, registry, settings.filter, settings.split_k)
