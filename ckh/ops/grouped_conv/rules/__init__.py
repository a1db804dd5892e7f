"""Rule sets: named sets of kernels, made from AMD's curated tables, for a direction, dtype and architecture."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ckh.kernels.lists import RuleSets
from ckh.ops.grouped_conv.rules.sets import (
    DEFAULT_RULE_SET,
    RULE_SETS,
    RuleSet,
    refused_of_rule_set,
    rule_set,
    weight_options,
)

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.ops.grouped_conv.kernel import ConvKernel
    from ckh.ops.grouped_conv.problem import ConvProblem

__all__ = [
    "DEFAULT_RULE_SET",
    "RULE_SETS",
    "SETS_OF_CONV",
    "RuleSet",
    "refused_of_rule_set",
    "rule_set",
    "weight_options",
]

_drawn = lru_cache(maxsize=64)(rule_set)  # computing the full rule set takes a second


def _of_problem(name: str, problem: ConvProblem, arch: ArchSpec) -> tuple[ConvKernel, ...]:
    return tuple(_drawn(name, problem.variant, problem.ndim, problem.dtype, arch))


SETS_OF_CONV = RuleSets(tuple(RULE_SETS), _of_problem)
