"""Matrix products in NumPy, the reference that kernels are checked against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.ops.gemm_universal.problem import GemmProblem


def operand_shapes(problem: GemmProblem) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Shapes of A, B and C as they lie in memory: of a column-major matrix, its transpose."""
    shapes = (problem.a_shape, problem.b_shape, problem.c_shape)
    a, b, c = (shape if letter == "r" else shape[::-1] for shape, letter in zip(shapes, problem.layout, strict=True))
    return a, b, c


def reduction_length(problem: GemmProblem) -> int:
    """The products that one element of C sums."""
    return problem.k


def multiply(problem: GemmProblem, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """C as it lies in memory, in the precision of A and B, which have the shapes of `operand_shapes`."""
    left, right = (
        matrix if letter == "r" else matrix.T for matrix, letter in zip((a, b), problem.layout, strict=False)
    )
    product: NDArray[Any] = left @ right
    return product if problem.layout[2] == "r" else product.T
