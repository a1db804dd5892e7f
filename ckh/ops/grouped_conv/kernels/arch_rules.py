"""Rules of an architecture for convolution kernels, independent of the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.kernels.declaration import by
from ckh.kernels.judging import Rule, RuleBook, divides, has_pipeline, has_waves, operator_tile, runs_dtype
from ckh.kernels.pipelines import (
    DOUBLE_SMEM_PIPELINES,
    INTERWAVE_PIPELINES,
    NO_DOUBLE_SMEM_PIPELINES,
    THREAD_FILLING_PIPELINES,
    Scheduler,
    wave_group_reason,
)
from ckh.ops.grouped_conv.kernels.variants import (
    FILTER1X1_STRIDE1_PAD0,
    MERGING_DIRECTIONS,
    REJECTED_PIPELINES,
    SPECIALIZATIONS,
    STREAMK_STRATEGIES,
    VARIANT_PIPELINES,
)
from ckh.ops.grouped_conv.problem import CHANNELS_LAST, CONV_LAYOUTS, TRANSPOSED
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple

_FP32_BYTES = DTYPE_BYTES["fp32"]
_MAX_HALF_SPLIT_K = 128

NAMED, COMPLETE = RuleBook(), RuleBook()


def _needs_option(arch: ArchSpec, option: str, words: str) -> Iterator[str]:
    if not arch.supports_option(option):
        yield f"{arch.name} does not offer {words}"


# Rules on parameters that even the shortest name has.
NAMED.rules.append(runs_dtype)


@NAMED.rule
def _shape(ndim_spatial: int, layout: str | None) -> Iterator[str]:
    if ndim_spatial not in CONV_LAYOUTS:
        yield f"{ndim_spatial}D convolutions are not supported, only 2D and 3D; 1D is 2D with Hi = 1 and Y = 1"
    elif layout not in (None, CONV_LAYOUTS[ndim_spatial]):
        needed = CONV_LAYOUTS[ndim_spatial]
        yield f"{ndim_spatial}D kernels need layout {needed}, not {layout}: {CHANNELS_LAST}; {TRANSPOSED}"


@NAMED.rule
def _direction_pipeline(pipeline: str, variant: Direction) -> Iterator[str]:
    if pipeline not in VARIANT_PIPELINES[variant]:
        yield f"{pipeline} is not a pipeline of {variant} kernels"
    if pipeline in REJECTED_PIPELINES[variant]:
        yield f"{variant} rejects the pipeline {pipeline}"


NAMED.rules.append(has_pipeline)


@NAMED.rule
def _scheduler(scheduler: Scheduler, pipeline: str) -> Iterator[str]:
    if scheduler is Scheduler.INTERWAVE and pipeline not in INTERWAVE_PIPELINES:
        yield f"{pipeline} cannot be interwave, only {' and '.join(sorted(INTERWAVE_PIPELINES))} can"


@NAMED.rule
def _double_smem_buffer(pipeline: str, double_smem_buffer: bool) -> Iterator[str]:
    if pipeline in DOUBLE_SMEM_PIPELINES and not double_smem_buffer:
        yield f"{pipeline} needs a double smem buffer"
    if pipeline in NO_DOUBLE_SMEM_PIPELINES and double_smem_buffer:
        yield f"{pipeline} has a single buffer in LDS and cannot have a double smem buffer"


@NAMED.rule
def _lds(
    arch: ArchSpec, pipeline: str, dtype: str, tile_m: int, tile_n: int, tile_k: int, double_smem_buffer: bool
) -> Iterator[str]:
    if pipeline not in arch.common.pipeline_lds or dtype not in DTYPE_BYTES:
        return
    used = int((tile_m + tile_n) * tile_k * DTYPE_BYTES[dtype])
    budget = arch.lds_budget(pipeline, double_smem_buffer=double_smem_buffer)
    if used > budget:
        buffered = " with a double smem buffer" if double_smem_buffer else ""
        yield f"the tiles of A and B take {used} bytes of LDS, {pipeline}{buffered} has {budget} on {arch.name}"


@NAMED.rule
def _operator_tile(arch: ArchSpec, variant: Direction, ndim_spatial: int, tile: Triple) -> Iterator[str]:
    yield from operator_tile(arch, f"{variant}_{ndim_spatial}d", tile)


@NAMED.rule
def _merged_groups(arch: ArchSpec, num_groups_to_merge: int, variant: Direction) -> Iterator[str]:
    if num_groups_to_merge < 1:
        yield f"num_groups_to_merge must be 1 or more, not {num_groups_to_merge}"
    if num_groups_to_merge > 1:
        yield from _needs_option(arch, "merged_groups", "merged groups")
        if variant not in MERGING_DIRECTIONS:
            yield f"{variant} kernels cannot merge groups"


@NAMED.rule
def _wave_groups(arch: ArchSpec, num_wave_groups: int) -> Iterator[str]:
    if num_wave_groups < 1:
        yield f"num_wave_groups must be 1 or more, not {num_wave_groups}"
    if num_wave_groups > 1:
        yield from _needs_option(arch, "wave_groups", "more than one wave group")


@NAMED.rule
def _two_stage(arch: ArchSpec, two_stage: bool, variant: Direction) -> Iterator[str]:
    if not two_stage:
        return
    yield from _needs_option(arch, "two_stage", "two stages")
    if variant is not Direction.BWD_WEIGHT:
        yield f"only bwd_weight kernels can have two stages, not {variant}"


@NAMED.rule
def _streamk(
    arch: ArchSpec, streamk: str | None, streamk_persistent: bool, variant: Direction, two_stage: bool
) -> Iterator[str]:
    if streamk is None:
        if streamk_persistent:
            yield "only stream-K kernels can be persistent"
        return
    yield from _needs_option(arch, "streamk", "stream-K")
    if streamk not in STREAMK_STRATEGIES:
        yield f"unknown stream-K strategy {streamk} (there are {', '.join(STREAMK_STRATEGIES)})"
    if variant is not Direction.BWD_WEIGHT:
        yield f"only bwd_weight kernels can use stream-K, not {variant}"
    if two_stage:
        yield "stream-K and two stages exclude each other"


# Rules on parameters that only a complete kernel has.
@COMPLETE.rule
def _epilogue(arch: ArchSpec, epilogue: str | None, pipeline: str, scheduler: Scheduler) -> Iterator[str]:
    epilogue = str(epilogue)
    if epilogue not in arch.epilogues:
        yield f"{arch.name} does not have the epilogue {epilogue}"
    if arch.is_trait_unsupported(pipeline, epilogue, str(scheduler)):
        yield f"{pipeline}, {epilogue} and {scheduler} do not work together"


@COMPLETE.rule
def _specialization(specialization: str | None) -> Iterator[str]:
    if specialization not in SPECIALIZATIONS:
        yield f"unknown specialization {specialization} (there are {', '.join(SPECIALIZATIONS)})"


@COMPLETE.rule
def _explicit_gemm(arch: ArchSpec, explicit_gemm: bool | None, specialization: str | None) -> Iterator[str]:
    if not explicit_gemm:
        return
    yield from _needs_option(arch, "explicit_gemm", "explicit GEMM")
    if specialization != FILTER1X1_STRIDE1_PAD0:
        yield f"explicit GEMM needs the specialization {FILTER1X1_STRIDE1_PAD0}, not {specialization}"


@COMPLETE.rule
def _split_k(
    arch: ArchSpec,
    split_k: int,
    variant: Direction,
    streamk: str | None,
    dtype: str,
    two_stage: bool,
    vector_c: int | None,
) -> Iterator[str]:
    if split_k < 1:
        yield f"split_k must be 1 or more, not {split_k}"
    if split_k <= 1:
        return
    yield from _needs_option(arch, "split_k", "split-K")
    if variant is not Direction.BWD_WEIGHT:
        yield f"only bwd_weight kernels can split K, not {variant}"
    if streamk is not None:
        yield "split-K and stream-K exclude each other"
    if DTYPE_BYTES.get(dtype, 0) < _FP32_BYTES and not two_stage:
        if split_k > _MAX_HALF_SPLIT_K:
            yield f"{dtype} results can be added from {_MAX_HALF_SPLIT_K} parts at most, not {split_k}"
        if vector_c is not None and vector_c % 2:
            yield f"atomic addition of {dtype} needs an even vector_c, not {vector_c}"


COMPLETE.rules.append(has_waves)


@COMPLETE.rule
def _computing_wave_groups(arch: ArchSpec, pipeline: str, num_wave_groups: int, wave: Triple) -> Iterator[str]:
    if arch.is_gpu and (reason := wave_group_reason(pipeline, wave, num_wave_groups)):
        yield reason


@COMPLETE.rule
def _warp_tile(arch: ArchSpec, dtype: str, warp_tile: Triple) -> Iterator[str]:
    if dtype not in arch.dtypes:
        return  # rejected by runs_dtype
    known = arch.warp_tiles_for(dtype)
    if not known:
        yield f"{arch.name} has no matrix instructions for {dtype}"
    elif warp_tile not in known:
        yield f"{arch.name} has no {by(warp_tile)} warp tile for {dtype} (it has {', '.join(map(by, known))})"


COMPLETE.rules += map(divides, "mnk")


@COMPLETE.rule
def _vectors(vectors: Triple) -> Iterator[str]:
    for operand, width in zip("abc", vectors, strict=True):
        if width < 1 or (width > 1 and width % 2):
            yield f"vector_{operand} must be 1 or even, not {width}"


@COMPLETE.quantity
def filling(arch: ArchSpec, pipeline: str, wave: Triple) -> tuple[str, int]:
    """Pipeline and threads of a GPU block, in which each thread must load a vector of A and of B; empty for others."""
    if pipeline not in THREAD_FILLING_PIPELINES or not arch.is_gpu:
        return "", 0
    wave_m, wave_n, wave_k = wave
    return pipeline, wave_m * wave_n * wave_k * arch.wavefront_size


def _fills_threads(operand: str, axis: str) -> Rule:
    def loads(filling: tuple[str, int], size: int, depth: int, width: int) -> Iterator[str]:
        pipeline, threads = filling
        if size * depth < threads * width:
            yield f"{pipeline} needs a vector of {operand.upper()} for each of {threads} threads"

    return Rule(loads, (), ("filling", f"tile_{axis}", "tile_k", f"vector_{operand}"), COMPLETE.derived)


COMPLETE.rules += (_fills_threads("a", "m"), _fills_threads("b", "n"))


@COMPLETE.rule
def _block_per_cu(block_per_cu: int | None) -> Iterator[str]:
    if block_per_cu is not None and block_per_cu < 1:
        yield f"block_per_cu must be 1 or more, not {block_per_cu}"
