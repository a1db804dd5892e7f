"""Rules for what CK Tile's headers lack, or compute wrongly, of kernels that read a shuffled B."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.interfaces import Interface
from ckh.kernels.judging import RuleBook, given
from ckh.ops.gemm_preshuffle.kernel_rules import FLATMM_BYTES
from ckh.ops.gemm_preshuffle.problem import FLATMM, OP_TYPE, PRESHUFFLE
from ckh.ops.gemm_universal.measuring.hip_rules import RULES_OF_ANY_PIPELINE, racing_reason, stored_together
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.kernels.judging import Rule
    from ckh.ops.gemm_universal.measuring.hip_headers import GemmHeaders

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
def _persistent(persistent: bool, *, headers: GemmHeaders) -> Iterator[str]:
    if persistent and (reason := racing_reason(headers)):
        yield reason


@rule
def _permuted(permute_n: bool, warp_tile: Triple, *, headers: GemmHeaders) -> Iterator[str]:
    if not permute_n:
        return
    if "TiledMMAPermuteN" not in headers.common.text(_EPILOGUE):
        yield f"{headers.common} have no epilogue that permutes N"
    elif (rows := warp_tile[0] * warp_tile[1] // _LANES) > _CONSECUTIVE_ROWS:
        yield f"the epilogue of {headers.common} that permutes N stores the {rows} rows of a lane as if consecutive"


@rule
def _stored(
    arch: ArchSpec,
    dtype: str,
    epilogue: str | None,
    tile: Triple,
    wave: Triple,
    warp_tile: Triple,
    vector_c: int,
    permute_n: bool,
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
