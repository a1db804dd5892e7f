"""Computing, building and measuring batches of matrix products."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.computation import Operand, Role, Trials, matrix_product
from ckh.kernels.judging import RuleBook
from ckh.kernels.pipelines import wave_groups_of
from ckh.ops.gemm_batched.operation import FAMILY, GemmBatchedKernel
from ckh.ops.gemm_batched.problem import BATCH_STRIDES, LEADING, OP_TYPE, GemmBatchedProblem
from ckh.ops.gemm_universal.measuring import measured as gemm
from ckh.ops.gemm_universal.measuring.derived_measured import GEMM, DerivedHip, derived_measured, host_emission
from ckh.ops.gemm_universal.measuring.hip import source_of
from ckh.ops.gemm_universal.measuring.measured import kernel_class, loop_end_sizes, representatives_of
from ckh.ops.gemm_universal.problem import output_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.bench.computation import Contraction
    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders

_KERNEL = Path("ck_tile/ops/gemm/kernel/batched_gemm_kernel.hpp")
_ARGUMENTS = "UniversalGemmHostArgs<>"  # base of the batched kernel's, where it is built on the universal kernel
_BATCHES = 3
_GAP = 16  # elements between lines: a multiple of every vector width of pools


class CGemmBatchedProblem(gemm.CGemmProblem):
    """`struct ckh_gemm_batched_problem`."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("batch", *LEADING, "stride_a", "stride_b", "stride_c"))


def c_batched_problem(problem: GemmBatchedProblem) -> CGemmBatchedProblem:
    """Return the batch as kernels take it."""
    sizes = (problem.m, problem.n, problem.k, problem.split_k)
    return CGemmBatchedProblem(*sizes, problem.batch, *problem.leading, *problem.batch_strides)


def operands(problem: GemmBatchedProblem) -> tuple[Operand, ...]:
    """A, B and C as stored: batch, lines, elements of a line."""
    dtypes = (problem.dtype, problem.dtype, output_dtype(problem.dtype))
    roles = (Role.INPUT, Role.INPUT, Role.OUTPUT)
    parts = zip("abc", problem.lines, problem.leading, problem.batch_strides, dtypes, roles, strict=True)
    return tuple(
        Operand(
            name,
            (problem.batch, lines, length),
            dtype,
            role,
            None if (leading, stride) == (length, lines * length) else (stride, leading, 1),
        )
        for name, (lines, length), leading, stride, dtype, role in parts
    )


def multiply_batch(problem: GemmBatchedProblem, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return C as stored in memory, in the precision of A and B, which have the shapes of `operands`."""
    left, right = (
        matrices if letter == "r" else matrices.swapaxes(1, 2)
        for matrices, letter in zip((a, b), problem.layout, strict=False)
    )
    products: NDArray[Any] = left @ right
    return products if problem.layout[2] == "r" else products.swapaxes(1, 2)


def _contractions(problem: GemmBatchedProblem) -> tuple[Contraction]:
    strides = [(stride, leading, 1) for stride, leading in zip(problem.batch_strides, problem.leading, strict=True)]
    return (matrix_product(problem.batch, (problem.m, problem.n, problem.k), strides[:2], problem.layout),)


def _factors(
    problem: GemmBatchedProblem, index: tuple[int, int, int], a: NDArray[Any], b: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    number, *place = index
    return gemm.factors(problem, (place[0], place[1]), a[number], b[number])


@RuleBook().rule
def _lacks(pipeline: str, *, headers: GemmHeaders) -> Iterator[str]:
    common = headers.common
    if headers.is_current:
        yield f"batched kernels of {common} are not emitted"
    elif _ARGUMENTS not in common.text(_KERNEL):
        yield f"{common} have no batched kernel that is built on the universal one"
    if pipeline in common.double_buffered:
        yield f"the batched kernel of {common} has one buffer, {pipeline} needs two"
    elif wave_groups_of(pipeline):
        yield f"the batched kernel of {common} has one group of waves, {pipeline} needs two"


def _source(kernel: GemmBatchedKernel, headers: GemmHeaders) -> str:
    classes = f"gemm_{headers.common.interface}_classes.hpp"
    return source_of(kernel, headers, "gemm_plain.hpp", classes, "batched_launch.hpp", "batched_exports.hpp")


HIP = DerivedHip(__file__, "batched-train", "BatchedGemmKernel", _lacks, _source, are_persistent=False)


def loop_end_problems(kernel: GemmBatchedKernel) -> tuple[GemmBatchedProblem, ...]:
    """Return batches of one to three products, every other one with gaps between lines and between matrices."""
    problems = []
    for index, (m, n, k, parts) in enumerate(loop_end_sizes(kernel)):
        dense = GemmBatchedProblem(m, n, k, kernel.dtype, kernel.layout, parts, batch=1 + index % _BATCHES)
        problems.append(_with_gaps(dense) if index % 2 else dense)
    return tuple(dict.fromkeys(problems))


def _with_gaps(dense: GemmBatchedProblem) -> GemmBatchedProblem:
    leading = [length + _GAP for _, length in dense.lines]
    strides = [(lines + 1) * distance for (lines, _), distance in zip(dense.lines, leading, strict=True)]
    return dense.replaced(**dict(zip((*LEADING, *BATCH_STRIDES), (*leading, *strides), strict=True)))


MEASURED = derived_measured(
    OP_TYPE,
    FAMILY.pools,
    FAMILY.bench_pools,
    replace(
        GEMM.computation,
        operands=operands,
        compute=multiply_batch,
        c_problem=c_batched_problem,
        contractions=_contractions,
        factors=_factors,
        arrays=None,
    ),
    HIP.emission,
    Trials(
        loop_end_problems, kernel_class, lambda arch: representatives_of(FAMILY.space(arch), arch, GemmBatchedKernel)
    ),
    host_emission(__file__, "batched_abi.hpp", "host-batched-train"),
)
