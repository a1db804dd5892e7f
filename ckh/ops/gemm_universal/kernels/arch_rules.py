"""Rules of an architecture for GEMM kernels, independent of the problem.

Source: AMD's ArchFilter and the tables of its architecture specs; invalid combinations are never corrected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.kernels.arch_rules import divides, has_pipeline, has_waves, operator_tile, runs_dtype
from ckh.kernels.judging import Rule, RuleBook
from ckh.kernels.name_grammar import by
from ckh.kernels.pipelines import wave_group_reason
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH
from ckh.ops.gemm_universal.kernels.vectors import MAX_VECTOR_BYTES
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, output_dtype
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.kernels.pipelines import Scheduler

rule = RuleBook().rule


@rule
def _suffix(suffix: str) -> Iterator[str]:
    if suffix:
        yield f"the suffix {suffix} of the name has no known meaning"


@rule
def _layout(layout: str | None) -> Iterator[str]:
    if layout not in GEMM_LAYOUTS:
        yield f"unknown layout {layout} (there are {', '.join(GEMM_LAYOUTS)})"


@rule
def _traits(arch: ArchSpec, epilogue: str | None, pipeline: str, scheduler: Scheduler) -> Iterator[str]:
    """Reject unsupported traits; without an epilogue, only what no epilogue supports is rejected."""
    epilogues = arch.epilogues if epilogue is None else (epilogue,)
    if all(arch.is_trait_unsupported(pipeline, name, str(scheduler)) for name in epilogues):
        yield f"{pipeline}, {' or '.join(epilogues)} and {scheduler} do not work together"


@rule
def _lds(arch: ArchSpec, pipeline: str, dtype: str, tile_m: int, tile_n: int, tile_k: int) -> Iterator[str]:
    if pipeline not in arch.common.pipeline_lds or dtype not in DTYPE_BYTES:
        return
    used = int((tile_m + tile_n) * tile_k * DTYPE_BYTES[dtype])
    budget = arch.lds_budget(pipeline)
    if used > budget:
        yield f"the tiles of A and B take {used} bytes of LDS, {pipeline} has {budget} on {arch.name}"


@rule
def _operator_tile(arch: ArchSpec, pipeline: str, tile: Triple) -> Iterator[str]:
    operator = "gemm_preshuffle" if _is_preshuffled(pipeline, arch) else "gemm"
    yield from operator_tile(arch, operator, tile)


@rule
def _epilogue(arch: ArchSpec, epilogue: str | None) -> Iterator[str]:
    if epilogue not in arch.epilogues:
        yield f"{arch.name} does not have the epilogue {epilogue}"


@rule
def _persistent(arch: ArchSpec, persistent: bool | None) -> Iterator[str]:
    if persistent and not arch.is_gpu:
        yield f"{arch.name} has no persistent kernels"


@rule
def _computing_wave_groups(arch: ArchSpec, pipeline: str, wave: Triple) -> Iterator[str]:
    """GEMM kernels are emitted with as many wave groups as their pipeline requires."""
    if arch.is_gpu and (reason := wave_group_reason(pipeline, wave)):
        yield reason


@rule
def _warp_tile(arch: ArchSpec, dtype: str, pipeline: str, warp_tile: Triple) -> Iterator[str]:
    if dtype not in arch.dtypes:
        return  # rejected by runs_dtype
    known = arch.warp_tiles_for(dtype, preshuffle=_is_preshuffled(pipeline, arch))
    if not known:
        yield f"{arch.name} has no matrix instructions for {dtype} with {pipeline}"
    elif warp_tile not in known:
        has = ", ".join(map(by, known))
        yield f"{arch.name} has no {by(warp_tile)} warp tile for {dtype} (it has {has})"


@rule
def _vectors(arch: ArchSpec, dtype: str, vectors: Triple) -> Iterator[str]:
    dtypes = (dtype, dtype, output_dtype(dtype))
    for operand, width, stored in zip("abc", vectors, dtypes, strict=True):
        most = int(MAX_VECTOR_BYTES / DTYPE_BYTES.get(stored, MAX_VECTOR_BYTES))
        if width != NATIVE_WIDTH and not arch.is_gpu:
            yield f"{arch.name} has no fixed vector widths, vector_{operand} must be {NATIVE_WIDTH}, not {width}"
        elif width != NATIVE_WIDTH and (width < 1 or most % width):
            yield f"vector_{operand} must be {NATIVE_WIDTH} (native) or a divisor of {most}, not {width}"


def _is_preshuffled(pipeline: str, arch: ArchSpec) -> bool:
    return pipeline in arch.common.preshuffle_pipelines


# Rules on parameters that even the shortest name has.
NAME_RULES: tuple[Rule, ...] = (
    _suffix,
    runs_dtype,
    _layout,
    has_pipeline,
    _traits,
    _lds,
    _operator_tile,
)

# Of these, the rules of kernels whose pipelines the specifications list apart from the others.
RULES_OF_ANY_PIPELINE = tuple(item for item in NAME_RULES if item is not has_pipeline)

# Rules on parameters that only a complete kernel has.
COMPLETE_RULES: tuple[Rule, ...] = (
    _epilogue,
    _persistent,
    has_waves,
    _computing_wave_groups,
    _warp_tile,
    *map(divides, "mnk"),
    _vectors,
)
