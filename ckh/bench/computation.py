"""What a problem asks to compute: shapes of the operands, the right result, and the problem as kernels take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.bench import gemm_reference, reference
from ckh.bench.library import c_gemm_problem, c_problem
from ckh.errors import DataError, UsageError
from ckh.kernels.names import parse_kernel_name
from ckh.ops import GEMM_UNIVERSAL, GROUPED_CONV, operation_of
from ckh.ops.gemm_universal.problem import output_dtype

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from ckh.ops.base import Problem
    from ckh.ops.gemm_universal.problem import GemmProblem

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """How a kernel splits the sum over K.

    Attributes:
        parts: what is added to the result by atomic operations, in whatever order; 1: it is stored, not added.
        in_fp32: whether the parts are added in float32 and their sum is rounded once, by a second stage; else every
            part and every sum is rounded to the result's dtype.
    """

    parts: int = 1
    in_fp32: bool = False

    @property
    def repeats(self) -> bool:
        """Whether every run of the kernel gives the same bits: one order of additions gives other bits than another."""
        return self.parts == 1


@dataclass(frozen=True, slots=True)
class Computation:
    """An operation's computation.

    Attributes:
        operand_shapes: of a problem's operands a and b and of its result.
        compute: the result, in the precision of operands of these shapes.
        reduction_length: the most products that one element of the result sums.
        result_dtypes: the dtypes that operands can have, each with that of the result.
        c_problem: the structure that kernels take.
        split: how the kernel of a name splits a problem's sums.
    """

    operand_shapes: Callable[[Any], tuple[Shape, Shape, Shape]]
    compute: Callable[[Any, NDArray[Any], NDArray[Any]], NDArray[Any]]
    reduction_length: Callable[[Any], int]
    result_dtypes: Mapping[str, str]
    c_problem: Callable[[Any], ctypes.Structure]
    split: Callable[[Any, str], Split]

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


def _conv_split(_problem: Problem, kernel_name: str) -> Split:
    """The kernel's own; none of a library that does not tell a name, or one of its own."""
    try:
        kernel = parse_kernel_name(kernel_name)
    except DataError:
        return Split()
    return Split(kernel.split_k, bool(kernel.two_stage))


def _gemm_split(problem: GemmProblem, _kernel_name: str) -> Split:
    """The problem's; GEMM kernels have no second stage."""
    return Split(problem.split_k)


_DTYPES = ("fp32", "fp16", "bf16")
_GEMM_DTYPES = (*_DTYPES, "fp8", "bf8", "int8")

_COMPUTATIONS = {
    GROUPED_CONV: Computation(
        reference.operand_shapes,
        reference.convolve,
        reference.reduction_length,
        {dtype: dtype for dtype in _DTYPES},
        c_problem,
        _conv_split,
    ),
    GEMM_UNIVERSAL: Computation(
        gemm_reference.operand_shapes,
        gemm_reference.multiply,
        gemm_reference.reduction_length,
        {dtype: output_dtype(dtype) for dtype in _GEMM_DTYPES},
        c_gemm_problem,
        _gemm_split,
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
