"""What a problem asks to compute: shapes of the operands, the right result, and the problem as kernels take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.bench import gemm_reference, reference
from ckh.bench.library import c_gemm_problem, c_problem
from ckh.ops import GEMM_UNIVERSAL, GROUPED_CONV, operation_of

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ckh.ops.base import Problem

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Computation:
    """An operation's computation.

    Attributes:
        operand_shapes: of a problem's operands a and b and of its result.
        compute: the result, in the precision of operands of these shapes.
        reduction_length: the most products that one element of the result sums.
        c_problem: the structure that kernels take.
    """

    operand_shapes: Callable[[Any], tuple[Shape, Shape, Shape]]
    compute: Callable[[Any, NDArray[Any], NDArray[Any]], NDArray[Any]]
    reduction_length: Callable[[Any], int]
    c_problem: Callable[[Any], ctypes.Structure]


_COMPUTATIONS = {
    GROUPED_CONV: Computation(reference.operand_shapes, reference.convolve, reference.reduction_length, c_problem),
    GEMM_UNIVERSAL: Computation(
        gemm_reference.operand_shapes, gemm_reference.multiply, gemm_reference.reduction_length, c_gemm_problem
    ),
}


def computation_of(problem: Problem) -> Computation:
    """What a problem asks to compute.

    Raises:
        KeyError: ckh does not compute problems of its operation.
    """
    return _COMPUTATIONS[operation_of(problem.canonical()).name]
