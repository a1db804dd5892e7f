"""Which kernels can be built on an architecture and used for a problem, and why the others cannot.

A rule is a small function that yields a sentence for everything that breaks it. Nothing is corrected: a combination
that breaks a rule is refused with all of its reasons. The rules of an architecture do not depend on the problem, so
their verdict on a kernel is remembered; those of a problem are cheap enough for a whole pool.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ckh.kernels.arch_rules import COMPLETE_RULES, NAME_RULES
from ckh.kernels.problem_rules import PROBLEM_RULES

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.kernels.config import ConvKernel
    from ckh.problems import ConvProblem


def check(kernel: ConvKernel, arch: ArchSpec, problem: ConvProblem | None = None) -> list[str]:
    """Every rule that the kernel breaks on the architecture and, if one is given, for the problem; empty if none."""
    reasons = list(arch_reasons(kernel, arch))
    if problem is not None:
        reasons += problem_reasons(kernel, arch, problem)
    return reasons


@lru_cache(maxsize=8192)
def arch_reasons(kernel: ConvKernel, arch: ArchSpec) -> tuple[str, ...]:
    """Every rule of the architecture that the kernel breaks."""
    rules = NAME_RULES + COMPLETE_RULES if kernel.is_complete else NAME_RULES
    return tuple(reason for rule in rules for reason in rule(kernel, arch))


def problem_reasons(kernel: ConvKernel, arch: ArchSpec, problem: ConvProblem) -> list[str]:
    """Every rule of the problem that the kernel breaks; those of the architecture are not asked."""
    return [reason for rule in PROBLEM_RULES for reason in rule(kernel, arch, problem)]
