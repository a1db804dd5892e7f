"""Validity of GEMM kernels on an architecture and for a problem, with reasons for rejection.

Nothing is corrected: an invalid combination is rejected with all of its reasons.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from ckh.kernels.judging import Rules
from ckh.ops.gemm_universal.kernels.arch_rules import COMPLETE_RULES, NAME_RULES
from ckh.ops.gemm_universal.kernels.problem_rules import PROBLEM_RULES

if TYPE_CHECKING:
    from ckh.ops.gemm_universal.kernel import GemmKernel

GEMM_RULES: Rules[GemmKernel] = Rules(NAME_RULES, COMPLETE_RULES, PROBLEM_RULES, attrgetter("missing"))
