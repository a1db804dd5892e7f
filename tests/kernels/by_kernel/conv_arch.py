"""The rules that a kernel must satisfy on an architecture, independent of the problem."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ckh.kernels.pipelines import (
    DOUBLE_SMEM_PIPELINES,
    INTERWAVE_PIPELINES,
    NO_DOUBLE_SMEM_PIPELINES,
    Scheduler,
    wave_group_reason,
)
from ckh.ops.grouped_conv.kernels.variants import REJECTED_PIPELINES, VARIANT_PIPELINES
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS
from ckh.problems import DTYPE_BYTES
from tests.kernels.by_kernel.conv_options import COMPLETE_OPTION_RULES, NAME_OPTION_RULES, ArchRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec
    from ckh.ops.grouped_conv.kernel import ConvKernel

_MAY_BE_NONE = "streamk"


def _is_complete(kernel: ConvKernel, _arch: ArchSpec) -> Iterator[str]:
    missing = [f.name for f in fields(kernel) if f.name != _MAY_BE_NONE and getattr(kernel, f.name) is None]
    if missing:
        yield "the kernel is incomplete, it has no " + ", ".join(missing)


def _dtype(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.dtype not in arch.dtypes:
        yield f"{arch.name} does not run {kernel.dtype} (it runs {', '.join(arch.dtypes)})"


def _shape(kernel: ConvKernel, _arch: ArchSpec) -> Iterator[str]:
    if kernel.ndim_spatial not in CONV_LAYOUTS:
        only = "only 2D and 3D; 1D is 2D with Hi = 1 and Y = 1"
        yield f"{kernel.ndim_spatial}D convolutions are not supported, {only}"
    elif kernel.layout not in (None, CONV_LAYOUTS[kernel.ndim_spatial]):
        why = "ckh builds channels-last kernels of CK Tile only; transpose to channels last, as MIOpen does"
        needed = CONV_LAYOUTS[kernel.ndim_spatial]
        yield f"{kernel.ndim_spatial}D kernels need layout {needed}, not {kernel.layout}: {why}"


def _direction_pipeline(kernel: ConvKernel, _arch: ArchSpec) -> Iterator[str]:
    if kernel.pipeline not in VARIANT_PIPELINES[kernel.variant]:
        yield f"{kernel.pipeline} is not a pipeline of {kernel.variant} kernels"
    if kernel.pipeline in REJECTED_PIPELINES[kernel.variant]:
        yield f"{kernel.variant} rejects the pipeline {kernel.pipeline}"


def _arch_pipeline(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.pipeline not in arch.pipelines:
        yield f"{arch.name} does not have the pipeline {kernel.pipeline}"


def _scheduler(kernel: ConvKernel, _arch: ArchSpec) -> Iterator[str]:
    if kernel.scheduler is Scheduler.INTERWAVE and kernel.pipeline not in INTERWAVE_PIPELINES:
        yield f"{kernel.pipeline} cannot be interwave, only {' and '.join(sorted(INTERWAVE_PIPELINES))} can"


def _double_smem_buffer(kernel: ConvKernel, _arch: ArchSpec) -> Iterator[str]:
    if kernel.pipeline in DOUBLE_SMEM_PIPELINES and not kernel.double_smem_buffer:
        yield f"{kernel.pipeline} needs a double smem buffer"
    if kernel.pipeline in NO_DOUBLE_SMEM_PIPELINES and kernel.double_smem_buffer:
        yield f"{kernel.pipeline} has a single buffer in LDS and cannot have a double smem buffer"


def _lds(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.pipeline not in arch.common.pipeline_lds or kernel.dtype not in DTYPE_BYTES:
        return
    used = int((kernel.tile_m + kernel.tile_n) * kernel.tile_k * DTYPE_BYTES[kernel.dtype])
    budget = arch.lds_budget(kernel.pipeline, double_smem_buffer=kernel.double_smem_buffer)
    if used > budget:
        buffered = " with a double smem buffer" if kernel.double_smem_buffer else ""
        yield f"the tiles of A and B take {used} bytes of LDS, {kernel.pipeline}{buffered} has {budget} on {arch.name}"


def _operator_tile(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    limits = arch.common.operators.get(f"{kernel.variant}_{kernel.ndim_spatial}d")
    if limits is None:
        return  # _shape has said so
    for axis, size, least, step in zip("mnk", kernel.tile, limits.minimum, limits.alignment, strict=True):
        if size < least:
            yield f"tile_{axis} {size} is less than the {least} that {kernel.variant} needs"
        elif size % step:
            yield f"tile_{axis} {size} is not a multiple of the {step} that {kernel.variant} needs"


def _epilogue(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    epilogue = str(kernel.epilogue)
    if epilogue not in arch.epilogues:
        yield f"{arch.name} does not have the epilogue {epilogue}"
    if arch.is_trait_unsupported(kernel.pipeline, epilogue, str(kernel.scheduler)):
        yield f"{kernel.pipeline}, {epilogue} and {kernel.scheduler} do not work together"


def _waves(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    wave = kernel.wave
    if not arch.supports_wave(wave):
        yield f"{arch.name} does not have the waves {_by(wave)} (it has {', '.join(map(_by, arch.wave_configs))})"


def _computing_wave_groups(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    if arch.is_gpu and (reason := wave_group_reason(kernel.pipeline, kernel.wave, kernel.num_wave_groups)):
        yield reason


def _warp_tile(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.dtype not in arch.dtypes:
        return  # _dtype has said so
    known = arch.warp_tiles_for(kernel.dtype)
    warp_tile = kernel.warp_tile
    if not known:
        yield f"{arch.name} has no matrix instructions for {kernel.dtype}"
    elif warp_tile not in known:
        yield f"{arch.name} has no {_by(warp_tile)} warp tile for {kernel.dtype} (it has {', '.join(map(_by, known))})"


def _tile_divisibility(kernel: ConvKernel, _arch: ArchSpec) -> Iterator[str]:
    for axis, size, waves, width in zip("mnk", kernel.tile, kernel.wave, kernel.warp_tile, strict=True):
        step = waves * width
        if min(size, step) < 1:
            yield f"tile, waves and warp tile must be positive along {axis}, not {size}, {waves}, {width}"
        elif size % step:
            yield f"tile_{axis} {size} is not a multiple of {waves} waves x warp tile {width} = {step}"


def _vectors(kernel: ConvKernel, _arch: ArchSpec) -> Iterator[str]:
    for operand, width in zip("abc", kernel.vectors, strict=True):
        if width < 1 or (width > 1 and width % 2):
            yield f"vector_{operand} must be 1 or even, not {width}"


def _compv6_loads(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    """Every thread of a compv6 block must have at least one vector of A and of B to load."""
    if kernel.pipeline != "compv6" or not arch.is_gpu:
        return
    wave_m, wave_n, wave_k = kernel.wave
    threads = wave_m * wave_n * wave_k * arch.wavefront_size
    for operand, size, width in zip("ab", (kernel.tile_m, kernel.tile_n), kernel.vectors, strict=False):
        if size * kernel.tile_k < threads * width:
            yield f"compv6 needs a vector of {operand.upper()} for each of {threads} threads"


def _block_per_cu(kernel: ConvKernel, _arch: ArchSpec) -> Iterator[str]:
    if kernel.block_per_cu is not None and kernel.block_per_cu < 1:
        yield f"block_per_cu must be 1 or more, not {kernel.block_per_cu}"


def _by(sizes: tuple[int, int, int]) -> str:
    return "x".join(map(str, sizes))


# Rules on what even the shortest name holds.
NAME_RULES: tuple[ArchRule, ...] = (
    _is_complete,
    _dtype,
    _shape,
    _direction_pipeline,
    _arch_pipeline,
    _scheduler,
    _double_smem_buffer,
    _lds,
    _operator_tile,
    *NAME_OPTION_RULES,
)

# Rules on what only a complete kernel has.
COMPLETE_RULES: tuple[ArchRule, ...] = (
    _epilogue,
    *COMPLETE_OPTION_RULES,
    _waves,
    _computing_wave_groups,
    _warp_tile,
    _tile_divisibility,
    _vectors,
    _compv6_loads,
    _block_per_cu,
)
