"""Computing, building and measuring matrix products with a shuffled B."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ckh.bench.codegen.unit_source import UnsupportedKernelError
from ckh.bench.computation import Operand, Trials
from ckh.ops.gemm_preshuffle.hip_rules import EMITTED, found_in, preshuffle_rules
from ckh.ops.gemm_preshuffle.kernel_rules import GemmPreshuffleKernel, order_of
from ckh.ops.gemm_preshuffle.pool import POOLS
from ckh.ops.gemm_preshuffle.problem import DTYPES, LAYOUT, OP_TYPE, GemmPreshuffleProblem, StoredOrder
from ckh.ops.gemm_universal.measuring import hip
from ckh.ops.gemm_universal.measuring import measured as gemm
from ckh.ops.gemm_universal.measuring.derived_measured import GEMM, derived_measured, hip_emission
from ckh.ops.gemm_universal.measuring.trials import cost, kernel_class, loop_end_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.ops.gemm_universal.measuring.hip_headers import GemmHeaders


def shuffled(order: StoredOrder, dtype: str, b: NDArray[Any]) -> NDArray[Any]:
    """Return B in an order, given its columns as rows (N x K)."""
    n, k = b.shape
    piece = order.elements(dtype)
    parts = b.reshape(n // order.group, order.waves, order.columns, order.repeats, k // piece, piece)
    pieces: NDArray[Any] = parts.transpose(0, 3, 1, 4, 2, 5)
    return pieces


def operands(problem: GemmPreshuffleProblem) -> tuple[Operand, ...]:
    """A, B, which kernels read in its order, and C."""
    a, b, c = gemm.operands(problem)
    return a, replace(b, order=partial(shuffled, problem.stored_order, problem.dtype)), c


def emit(kernel: GemmPreshuffleKernel, headers: GemmHeaders, arch: ArchSpec) -> str:
    """Return the C++ source of one kernel for an architecture."""
    first, *further = preshuffle_rules(headers)
    if reasons := list(first(kernel, arch)) or [reason for item in further for reason in item(kernel, arch)]:
        raise UnsupportedKernelError("; ".join(reasons))
    own = (f"inline constexpr bool permute_n = {str(kernel.permute_n).lower()};",)
    includes = (EMITTED[headers.common.interface][kernel.pipeline], "gemm_exports.hpp")
    return hip.source_of(kernel, headers, *includes, vocabulary="preshuffle_vocabulary.hpp", own=own)


def _class(kernel: GemmPreshuffleKernel) -> str:
    order = order_of(kernel)
    assert order is not None
    kind = f"{kernel_class(kernel)}, {kernel.epilogue}, B {order.columns}x{order.bytes}"
    return f"{kind} permuted" if order.permutes_n else kind


def _loop_ends(kernel: GemmPreshuffleKernel) -> Iterator[GemmPreshuffleProblem]:
    """Yield problems whose B can be stored in the kernel's order."""
    order = order_of(kernel)
    assert order is not None
    ragged = kernel.tile_m + 3, kernel.tile_n, 2 * kernel.tile_k, 1  # for loops over pairs of tiles too
    for m, n, k, parts in (*loop_end_sizes(kernel), ragged):
        if parts == 1 and n % order.group == 0 and k % order.elements(kernel.dtype) == 0:
            yield GemmPreshuffleProblem(m, n, k, kernel.dtype, kernel.layout, b_order=str(order))


def _representatives(arch: ArchSpec) -> dict[str, list[GemmPreshuffleKernel]]:
    """Return each epilogue, persistence and order of B of every element type."""
    groups = [(dtype, LAYOUT, permuted) for dtype in DTYPES for permuted in (False, True) if dtype in arch.dtypes]
    result: dict[str, list[GemmPreshuffleKernel]] = {}
    for group in groups:
        for kernel in sorted(POOLS.of(arch, *group), key=cost):
            result.setdefault(_class(kernel), []).append(kernel)
    return result


HIP = hip_emission(
    __file__, "preshuffle-train", ("UniversalGemmKernel", "FlatmmKernel"), emit, preshuffle_rules, found_in
)
MEASURED = derived_measured(
    OP_TYPE,
    POOLS,
    POOLS,
    replace(GEMM.computation, operands=operands, dtypes=DTYPES),
    HIP,
    Trials(lambda kernel: tuple(_loop_ends(kernel)), _class, _representatives),
)
