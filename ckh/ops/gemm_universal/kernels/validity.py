"""Validity of GEMM kernels on an architecture and for a problem, with reasons for rejection.

Nothing is corrected: an invalid combination is rejected with all of its reasons.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ckh.kernels.judging import Rules
from ckh.ops.gemm_universal.kernels.arch_rules import COMPLETE_RULES, NAME_RULES
from ckh.ops.gemm_universal.kernels.problem_rules import PROBLEM_RULES

if TYPE_CHECKING:
    from ckh.kernels.judging import Rule


def rules_with(
    named: tuple[Rule, ...] = (), complete: tuple[Rule, ...] = (), problem: tuple[Rule, ...] = ()
) -> Rules[Any]:
    """Return the rules of GEMM kernels, followed by further ones of each kind."""
    return Rules((*NAME_RULES, *named), (*COMPLETE_RULES, *complete), (*PROBLEM_RULES, *problem), attrgetter("missing"))


GEMM_RULES = rules_with()
