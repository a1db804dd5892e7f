"""What a problem asks to compute: shapes of the operands, the right result, and the problem as kernels take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.bench import gemm_reference, reference
from ckh.bench.library import c_gemm_problem, c_problem
from ckh.errors import UsageError
from ckh.ops import GEMM_UNIVERSAL, GROUPED_CONV, operation_of
from ckh.ops.gemm_universal.problem import output_dtype

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Mapping

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
        result_dtypes: the dtypes that operands can have, each with that of the result.
        c_problem: the structure that kernels take.
    """

    operand_shapes: Callable[[Any], tuple[Shape, Shape, Shape]]
    compute: Callable[[Any, NDArray[Any], NDArray[Any]], NDArray[Any]]
    reduction_length: Callable[[Any], int]
    result_dtypes: Mapping[str, str]
    c_problem: Callable[[Any], ctypes.Structure]

    def result_dtype(self, problem: Problem) -> str:
        """The dtype of a problem's result.

        Raises:
            UsageError: kernels of the problem's dtype cannot be measured.
        """
        if problem.dtype not in self.result_dtypes:
            raise UsageError(
                f"kernels of {problem.dtype} cannot be measured", "one of " + ", ".join(self.result_dtypes)
            )
        return self.result_dtypes[problem.dtype]


_DTYPES = ("fp32", "fp16", "bf16")
_GEMM_DTYPES = (*_DTYPES, "fp8", "bf8", "int8")

_COMPUTATIONS = {
    GROUPED_CONV: Computation(
        reference.operand_shapes,
        reference.convolve,
        reference.reduction_length,
        {dtype: dtype for dtype in _DTYPES},
        c_problem,
    ),
    GEMM_UNIVERSAL: Computation(
        gemm_reference.operand_shapes,
        gemm_reference.multiply,
        gemm_reference.reduction_length,
        {dtype: output_dtype(dtype) for dtype in _GEMM_DTYPES},
        c_gemm_problem,
    ),
}


def is_computed(op: str) -> bool:
    """Whether kernels of an operation can be built and measured."""
    return op in _COMPUTATIONS


def computation_of(problem: Problem) -> Computation:
    """What a problem asks to compute.

    Raises:
        KeyError: ckh does not compute problems of its operation.
    """
    return _COMPUTATIONS[operation_of(problem.canonical()).name]
