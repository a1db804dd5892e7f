"""Validity of convolution kernels on an architecture and for a problem, with reasons for rejection.

Nothing is corrected: an invalid combination is rejected with all of its reasons.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ckh.kernels.judging import Rules
from ckh.ops.grouped_conv.kernels.arch_rules import COMPLETE_RULES, NAME_RULES
from ckh.ops.grouped_conv.kernels.problem_rules import PROBLEM_RULES

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.kernel import ConvKernel

_MAY_BE_NONE = "streamk"


def _missing(kernel: ConvKernel) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kernel) if f.name != _MAY_BE_NONE and getattr(kernel, f.name) is None)


CONV_RULES: Rules[ConvKernel] = Rules(NAME_RULES, COMPLETE_RULES, PROBLEM_RULES, _missing)
