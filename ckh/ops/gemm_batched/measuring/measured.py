"""Computing, building and measuring batches of matrix products."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.computation import Computation, HipEmission, HostEmission, Measured, Operand, Role
from ckh.ops.gemm_batched.kernels.pool import BENCH_POOLS, POOLS
from ckh.ops.gemm_batched.kernels.problem_rules import BATCHED_RULES
from ckh.ops.gemm_batched.measuring import hip
from ckh.ops.gemm_batched.problem import LEADING, OP_TYPE
from ckh.ops.gemm_universal.measuring import host
from ckh.ops.gemm_universal.measuring import measured as gemm
from ckh.ops.gemm_universal.problem import output_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.bench.codegen.ck_tile import Headers
    from ckh.bench.computation import Trials
    from ckh.kernels.judging import Rule
    from ckh.ops.gemm_batched.kernel import GemmBatchedKernel
    from ckh.ops.gemm_batched.problem import GemmBatchedProblem

_TEMPLATES = Path(__file__).parents[1] / "templates"


class CGemmBatchedProblem(ctypes.Structure):
    """`struct ckh_gemm_batched_problem`."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("m", "n", "k", "split_k", "batch", *LEADING, "stride_a", "stride_b", "stride_c")
    ]


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


def _emit_hip(kernel: GemmBatchedKernel, headers: Headers, arch: ArchSpec) -> str:
    return hip.emit(kernel, gemm.gemm_headers(headers), arch)


def _hip_rules(headers: Headers) -> tuple[Rule, ...]:
    return hip.batched_rules(gemm.gemm_headers(headers))


def _found(headers: Headers) -> dict[str, tuple[str, ...]]:
    assert _GEMM.hip is not None
    return hip.found_in(gemm.gemm_headers(headers), _GEMM.hip.found(headers))


def _trials() -> Trials[GemmBatchedProblem, GemmBatchedKernel]:
    from ckh.ops.gemm_batched.measuring.trials import TRIALS

    return TRIALS


_GEMM: Measured[Any, Any] = gemm.MEASURED
assert _GEMM.host is not None
assert _GEMM.hip is not None

MEASURED: Measured[GemmBatchedProblem, GemmBatchedKernel] = Measured(
    computation=Computation(
        operands,
        multiply_batch,
        gemm.reduction_length,
        _GEMM.computation.dtypes,
        c_batched_problem,
        _GEMM.computation.split,
    ),
    host=HostEmission(
        partial(host.emit, abi="batched_abi.hpp"),
        (_TEMPLATES / "host", *_GEMM.host.templates),
        "host-batched-train",
    ),
    hip=HipEmission(
        _emit_hip,
        (_TEMPLATES / "ck_tile", *_GEMM.hip.templates),
        "batched-train",
        ("BatchedGemmKernel",),
        _found,
        _hip_rules,
        _GEMM.hip.compile_s,
    ),
    problems=partial(gemm.problems_of_run, op=OP_TYPE),
    candidate_source=partial(gemm.candidates_of_run, op=OP_TYPE, pools=POOLS, bench_pools=BENCH_POOLS),
    reasons=BATCHED_RULES.check,
    trials=_trials,
)
