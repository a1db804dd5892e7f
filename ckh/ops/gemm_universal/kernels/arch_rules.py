"""Rules of an architecture for GEMM kernels, independent of the problem.

Source: AMD's ArchFilter and the tables of its architecture specs; invalid combinations are never corrected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from ckh.kernels.scheduler import Scheduler

rule = RuleBook().rule


@rule
def _suffix(suffix: str) -> Iterator[str]:
    if suffix:
        yield f"the suffix {suffix} of the name has no known meaning"


@rule
def _dtype(arch: ArchSpec, dtype: str) -> Iterator[str]:
    if dtype not in arch.dtypes:
        yield f"{arch.name} does not run {dtype} (it runs {', '.join(arch.dtypes)})"


@rule
def _layout(layout: str | None) -> Iterator[str]:
    if layout not in GEMM_LAYOUTS:
        yield f"unknown layout {layout} (there are {', '.join(GEMM_LAYOUTS)})"


@rule
def _pipeline(arch: ArchSpec, pipeline: str) -> Iterator[str]:
    if pipeline not in arch.pipelines:
        yield f"{arch.name} does not have the pipeline {pipeline}"


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
    limits = arch.common.operators[operator]
    for axis, size, least, step in zip("mnk", tile, limits.minimum, limits.alignment, strict=True):
        if size < least:
            yield f"tile_{axis} {size} is less than the {least} that {operator} needs"
        elif size % step:
            yield f"tile_{axis} {size} is not a multiple of the {step} that {operator} needs"


@rule
def _epilogue(arch: ArchSpec, epilogue: str | None) -> Iterator[str]:
    if epilogue not in arch.epilogues:
        yield f"{arch.name} does not have the epilogue {epilogue}"


@rule
def _persistent(arch: ArchSpec, persistent: bool | None) -> Iterator[str]:
    if persistent and not arch.is_gpu:
        yield f"{arch.name} has no persistent kernels"


@rule
def _waves(arch: ArchSpec, wave: Triple) -> Iterator[str]:
    if not arch.supports_wave(wave):
        known = ", ".join(map(by, arch.wave_configs))
        yield f"{arch.name} does not have the waves {by(wave)} (it has {known})"


@rule
def _computing_wave_groups(arch: ArchSpec, pipeline: str, wave: Triple) -> Iterator[str]:
    """GEMM kernels are emitted with as many wave groups as their pipeline requires."""
    if arch.is_gpu and (reason := wave_group_reason(pipeline, wave)):
        yield reason


@rule
def _warp_tile(arch: ArchSpec, dtype: str, pipeline: str, warp_tile: Triple) -> Iterator[str]:
    if dtype not in arch.dtypes:
        return  # rejected by _dtype
    known = arch.warp_tiles_for(dtype, preshuffle=_is_preshuffled(pipeline, arch))
    if not known:
        yield f"{arch.name} has no matrix instructions for {dtype} with {pipeline}"
    elif warp_tile not in known:
        has = ", ".join(map(by, known))
        yield f"{arch.name} has no {by(warp_tile)} warp tile for {dtype} (it has {has})"


def _divides(axis: str) -> Rule:
    def divides(size: int, waves: int, width: int) -> Iterator[str]:
        step = waves * width
        if min(size, waves, width) < 1:
            yield f"tile, waves and warp tile must be positive along {axis}, not {size}, {waves}, {width}"
        elif size % step:
            yield f"tile_{axis} {size} is not a multiple of {waves} waves x warp tile {width} = {step}"

    return Rule(divides, (), (f"tile_{axis}", f"wave_{axis}", f"warp_tile_{axis}"), {})


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
    _dtype,
    _layout,
    _pipeline,
    _traits,
    _lds,
    _operator_tile,
)

# Of these, the rules of kernels whose pipelines the specifications list apart from the others.
RULES_OF_ANY_PIPELINE = tuple(item for item in NAME_RULES if item is not _pipeline)

# Rules on parameters that only a complete kernel has.
COMPLETE_RULES: tuple[Rule, ...] = (
    _epilogue,
    _persistent,
    _waves,
    _computing_wave_groups,
    _warp_tile,
    *map(_divides, "mnk"),
    _vectors,
)
