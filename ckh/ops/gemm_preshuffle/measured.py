"""Computing, building and measuring matrix products with a shuffled B."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.codegen.ck_tile import Interface
from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.computation import Operand, Trials
from ckh.kernels.judging import RuleBook, given
from ckh.ops.gemm_preshuffle.kernel_rules import FLATMM_BYTES, POOLS, GemmPreshuffleKernel, order_of
from ckh.ops.gemm_preshuffle.problem import (
    DTYPES,
    FLATMM,
    LAYOUT,
    OP_TYPE,
    PRESHUFFLE,
    GemmPreshuffleProblem,
    StoredOrder,
)
from ckh.ops.gemm_universal.measuring import hip
from ckh.ops.gemm_universal.measuring import measured as gemm
from ckh.ops.gemm_universal.measuring.derived_measured import GEMM, derived_measured, hip_emission
from ckh.ops.gemm_universal.measuring.hip_rules import RULES_OF_ANY_PIPELINE, racing_reason, stored_together
from ckh.ops.gemm_universal.measuring.measured import cost, kernel_class, loop_end_sizes
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec, Triple
    from ckh.kernels.judging import Rule
    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders


_PIPELINES = {
    PRESHUFFLE: Path("ck_tile/ops/gemm/pipeline/wp_pipeline_agmem_bgmem_creg_v2.hpp"),
    FLATMM: Path("ck_tile/ops/flatmm/kernel/flatmm_kernel.hpp"),
}
# ckh's header of a pipeline, for each interface that it is emitted for.
EMITTED = {
    Interface.MID_2025: {FLATMM: "flatmm_mid2025.hpp"},
    Interface.LATE_2025: {PRESHUFFLE: "preshuffle_late2025.hpp", FLATMM: "flatmm_late2025.hpp"},
    Interface.CURRENT: {},
}
_EPILOGUE = Path("ck_tile/ops/epilogue/cshuffle_epilogue.hpp")

_LANES = 64
_CONSECUTIVE_ROWS = 4  # of C that a lane has of one matrix instruction; further rows are apart

rule = RuleBook().rule


@rule
def _has_pipeline(pipeline: str, *, headers: GemmHeaders) -> Iterator[str]:
    interface = headers.common.interface
    if not EMITTED[interface]:
        yield f"{OP_TYPE} needs CK Tile's interface of 2025, this is {interface}"
    elif pipeline in _PIPELINES and pipeline not in EMITTED[interface]:
        yield f"{pipeline} needs CK Tile's interface of late 2025, this is {interface}"
    elif pipeline in _PIPELINES and not headers.common.text(_PIPELINES[pipeline]):
        yield f"{headers.common} have no pipeline {pipeline}"


@rule
def _persistent(persistent: bool, *, headers: GemmHeaders) -> Iterator[str]:  # noqa: FBT001
    if persistent and (reason := racing_reason(headers)):
        yield reason


@rule
def _permuted(permute_n: bool, warp_tile: Triple, *, headers: GemmHeaders) -> Iterator[str]:  # noqa: FBT001
    if not permute_n:
        return
    if "TiledMMAPermuteN" not in headers.common.text(_EPILOGUE):
        yield f"{headers.common} have no epilogue that permutes N"
    elif (rows := warp_tile[0] * warp_tile[1] // _LANES) > _CONSECUTIVE_ROWS:
        yield f"the epilogue of {headers.common} that permutes N stores the {rows} rows of a lane as if consecutive"


@rule
def _stored(  # noqa: PLR0913 - columns of kernels
    arch: ArchSpec,
    dtype: str,
    epilogue: str | None,
    tile: Triple,
    wave: Triple,
    warp_tile: Triple,
    vector_c: int,
    permute_n: bool,  # noqa: FBT001
    *,
    headers: GemmHeaders,
) -> Iterator[str]:
    """Refuse what the cshuffle epilogue stores wrongly; kernels that permute N do not shuffle C."""
    if not permute_n:
        yield from stored_together.function(arch, dtype, epilogue, tile, wave, warp_tile, vector_c, headers=headers)


@rule
def _pieces(pipeline: str, dtype: str, warp_tile: Triple, *, headers: GemmHeaders) -> Iterator[str]:
    """Flatmm of mid-2025 does not cut B into pieces of single loads, as later headers and the order do."""
    if pipeline != FLATMM or headers.common.interface is not Interface.MID_2025:
        return
    _, columns, depth = warp_tile
    if (size := int(columns * depth * DTYPE_BYTES[dtype]) // _LANES) > FLATMM_BYTES:
        yield f"{pipeline} of {headers.common} takes pieces of {size} bytes of B, later headers {FLATMM_BYTES}"


def preshuffle_rules(headers: GemmHeaders) -> tuple[Rule, ...]:
    """Return the rules for these headers."""
    return given((*RULES_OF_ANY_PIPELINE, _has_pipeline, _pieces, _stored, _persistent, _permuted), headers=headers)


def found_in(headers: GemmHeaders) -> dict[str, tuple[str, ...]]:
    """Return the features of headers for these kernels, described."""
    (has_pipeline,) = given((_has_pipeline,), headers=headers)
    return {
        "pipelines": tuple(name for name in _PIPELINES if not list(has_pipeline.function(name))),
        "epilogues": tuple(sorted(headers.epilogues)),
    }


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
    if reasons := list(first(kernel, arch)) or [reason for check in further for reason in check(kernel, arch)]:
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
    by_class: dict[str, list[GemmPreshuffleKernel]] = {}
    for group in groups:
        for kernel in sorted(POOLS.of(arch, *group), key=cost):
            by_class.setdefault(_class(kernel), []).append(kernel)
    return by_class


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
