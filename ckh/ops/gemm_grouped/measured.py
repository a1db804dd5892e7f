"""Computing, building and measuring matrix products that share N and K."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.bench.computation import ArrayForm, Trials, dense_strides, matrix_product
from ckh.kernels.judging import RuleBook
from ckh.ops.gemm_grouped.operation import FAMILY, GemmGroupedKernel
from ckh.ops.gemm_grouped.problem import MAX_GROUPS, OP_TYPE, GemmGroupedProblem
from ckh.ops.gemm_universal.measuring import measured as gemm
from ckh.ops.gemm_universal.measuring.derived_measured import GEMM, DerivedHip, derived_measured, host_emission
from ckh.ops.gemm_universal.measuring.hip import source_of
from ckh.ops.gemm_universal.measuring.measured import kernel_class, loop_end_sizes, representatives_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.bench.computation import Contraction, Operand
    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders

_KERNEL = Path("ck_tile/ops/gemm/kernel/grouped_gemm_kernel.hpp")
_ARGUMENTS = "UniversalGemmKernelArgs"  # of a group, where the kernel is built on the universal kernel
_TWO_BUFFERS = "DoubleSmemBuffer"


class CGemmGroupedProblem(gemm.CGemmProblem):
    """`struct ckh_gemm_grouped_problem`."""

    _fields_ = (("groups", ctypes.c_int64), ("ms", ctypes.c_int64 * MAX_GROUPS))


def c_problem(problem: GemmGroupedProblem) -> ctypes.Structure:
    """Return the groups as kernels take them."""
    sizes = (problem.m, problem.n, problem.k, problem.split_k, problem.num_groups)
    return CGemmGroupedProblem(*sizes, (ctypes.c_int64 * MAX_GROUPS)(*problem.all_m))


def operands(problem: GemmGroupedProblem) -> tuple[Operand, ...]:
    """A of all rows, B of each group, and C of all rows, as stored: column-major matrices are transposed."""
    a, b, c = gemm.operands(problem)
    return a, replace(b, shape=(problem.num_groups, *b.shape)), c


def _arrays(problem: GemmGroupedProblem) -> tuple[ArrayForm, ...]:
    _, b, _ = operands(problem)
    first, _, last = gemm.arrays(problem)
    return first, ArrayForm("b", 1, b.shape, "G, K, N" if problem.layout[1] == "r" else "G, N, K"), last


def multiply_groups(problem: GemmGroupedProblem, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return C as stored in memory, in the precision of A and B, which have the shapes of `operands`."""
    rows = a if problem.layout[0] == "r" else a.T
    ends = np.cumsum(problem.all_m)[:-1]
    products = [
        part @ (weight if problem.layout[1] == "r" else weight.T)
        for part, weight in zip(np.split(rows, ends), b, strict=True)
    ]
    return np.concatenate(products)


def _contractions(problem: GemmGroupedProblem) -> list[Contraction]:
    a, b, _ = operands(problem)
    strides = [(0, *dense_strides(operand.shape)[-2:]) for operand in (a, b)]
    row, products = strides[0][1] if problem.layout[0] == "r" else 1, []
    for group, (m, end) in enumerate(zip(problem.all_m, accumulate(problem.all_m), strict=True)):
        firsts = ((end - m) * problem.n, (end - m) * row, group * problem.k * problem.n)
        products.append(matrix_product(1, (m, problem.n, problem.k), strides, problem.layout, firsts))
    return products


def _factors(
    problem: GemmGroupedProblem, index: tuple[int, int], a: NDArray[Any], b: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    group = int(np.searchsorted(np.cumsum(problem.all_m), index[0], side="right"))
    return gemm.factors(problem, index, a, b[group])


@RuleBook().rule
def _lacks(pipeline: str, *, headers: GemmHeaders) -> Iterator[str]:
    common = headers.common
    if headers.is_current:
        yield f"{OP_TYPE} needs CK Tile's interface of 2025, this is {common.interface}"
    elif _ARGUMENTS not in common.text(_KERNEL):
        yield f"{common} have no grouped kernel that is built on the universal one"
    elif pipeline in common.double_buffered and _TWO_BUFFERS not in common.text(_KERNEL):
        yield f"the grouped kernel of {common} has one buffer, {pipeline} needs two"
    elif pipeline not in headers.persistent:
        yield f"{pipeline} of {common} does not say whether it is persistent, which the grouped kernel requires"


def _source(kernel: GemmGroupedKernel, headers: GemmHeaders) -> str:
    interface = headers.common.interface
    of_interface = (f"gemm_{interface}_classes.hpp", f"grouped_{interface}.hpp")
    return source_of(kernel, headers, "gemm_plain.hpp", *of_interface, "grouped_launch.hpp", "grouped_exports.hpp")


HIP = DerivedHip(__file__, "grouped-train", "GroupedGemmKernel", _lacks, _source)


def _loop_ends(kernel: GemmGroupedKernel) -> tuple[GemmGroupedProblem, ...]:
    """Return `gemm_universal`'s sizes as groups: in turns one, unequal ones and one without rows, and equal ones."""
    problems: list[GemmGroupedProblem] = []
    for index, (m, n, k, parts) in enumerate(loop_end_sizes(kernel)):
        ms = (f"{m}", f"{m + kernel.tile_m}+{m}x2+0", f"{m}x3")[index % 3]
        problems.append(GemmGroupedProblem(ms=ms, n=n, k=k, dtype=kernel.dtype, layout=kernel.layout, split_k=parts))
    return tuple(dict.fromkeys(problems))


MEASURED = derived_measured(
    OP_TYPE,
    FAMILY.pools,
    FAMILY.bench_pools,
    replace(
        GEMM.computation,
        operands=operands,
        compute=multiply_groups,
        c_problem=c_problem,
        contractions=_contractions,
        factors=_factors,
        arrays=_arrays,
    ),
    HIP.emission,
    Trials(_loop_ends, kernel_class, lambda arch: representatives_of(FAMILY.space(arch), arch, GemmGroupedKernel)),
    host_emission(__file__, "grouped_abi.hpp", "host-grouped-train"),
)
