"""Which GEMM kernels can be built on an architecture and used for a problem, and why the others cannot.

A rule is a small function that yields a sentence for everything that breaks it. Nothing is corrected: a combination
that breaks a rule is refused with all of its reasons.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ckh.ops.gemm_universal.arch_rules import COMPLETE_RULES, NAME_RULES
from ckh.ops.gemm_universal.problem_rules import PROBLEM_RULES

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.ops.gemm_universal.kernel import GemmKernel
    from ckh.ops.gemm_universal.problem import GemmProblem


def check(kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem | None = None) -> list[str]:
    """Every rule that the kernel breaks on the architecture and, if one is given, for the problem; empty if none."""
    reasons = list(arch_reasons(kernel, arch))
    if problem is not None:
        reasons += problem_reasons(kernel, arch, problem)
    return reasons


@lru_cache(maxsize=8192)
def arch_reasons(kernel: GemmKernel, arch: ArchSpec) -> tuple[str, ...]:
    """`judge`, remembered: the verdict does not depend on the problem."""
    return judge(kernel, arch)


def judge(kernel: GemmKernel, arch: ArchSpec) -> tuple[str, ...]:
    """Every rule of the architecture that the kernel breaks."""
    rules = NAME_RULES + COMPLETE_RULES if kernel.is_complete else NAME_RULES
    return tuple(reason for rule in rules for reason in rule(kernel, arch))


def problem_reasons(kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> list[str]:
    """Every rule of the problem that the kernel breaks; those of the architecture are not asked."""
    return [reason for rule in PROBLEM_RULES for reason in rule(kernel, arch, problem)]
