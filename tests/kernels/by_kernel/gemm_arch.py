"""The rules that a GEMM kernel must keep on an architecture, whatever the problem.

Source: AMD's ArchFilter and the tables of its architecture specs; nothing is corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ckh.archs import ArchSpec
from ckh.kernels.pipelines import wave_group_reason
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH, GemmKernel
from ckh.ops.gemm_universal.kernels.problem_rules import MAX_VECTOR_BYTES
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, output_dtype
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from ckh.archs import Triple

ArchRule = Callable[[GemmKernel, ArchSpec], Iterator[str]]


def _is_complete(kernel: GemmKernel, _arch: ArchSpec) -> Iterator[str]:
    if missing := kernel.missing:
        yield "the kernel is incomplete, it has no " + ", ".join(missing)


def _suffix(kernel: GemmKernel, _arch: ArchSpec) -> Iterator[str]:
    if kernel.suffix:
        yield f"the suffix {kernel.suffix} of the name has no known meaning"


def _dtype(kernel: GemmKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.dtype not in arch.dtypes:
        yield f"{arch.name} does not run {kernel.dtype} (it runs {', '.join(arch.dtypes)})"


def _layout(kernel: GemmKernel, _arch: ArchSpec) -> Iterator[str]:
    if kernel.layout not in GEMM_LAYOUTS:
        yield f"unknown layout {kernel.layout} (there are {', '.join(GEMM_LAYOUTS)})"


def _pipeline(kernel: GemmKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.pipeline not in arch.pipelines:
        yield f"{arch.name} does not have the pipeline {kernel.pipeline}"


def _traits(kernel: GemmKernel, arch: ArchSpec) -> Iterator[str]:
    """Without an epilogue only what no epilogue supports is refused."""
    epilogues = arch.epilogues if kernel.epilogue is None else (kernel.epilogue,)
    if all(arch.is_trait_unsupported(kernel.pipeline, name, str(kernel.scheduler)) for name in epilogues):
        yield f"{kernel.pipeline}, {' or '.join(epilogues)} and {kernel.scheduler} do not work together"


def _lds(kernel: GemmKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.pipeline not in arch.common.pipeline_lds or kernel.dtype not in DTYPE_BYTES:
        return
    used = int((kernel.tile_m + kernel.tile_n) * kernel.tile_k * DTYPE_BYTES[kernel.dtype])
    budget = arch.lds_budget(kernel.pipeline)
    if used > budget:
        yield f"the tiles of A and B take {used} bytes of LDS, {kernel.pipeline} has {budget} on {arch.name}"


def _operator_tile(kernel: GemmKernel, arch: ArchSpec) -> Iterator[str]:
    operator = "gemm_preshuffle" if _is_preshuffled(kernel, arch) else "gemm"
    limits = arch.common.operators[operator]
    for axis, size, least, step in zip("mnk", kernel.tile, limits.minimum, limits.alignment, strict=True):
        if size < least:
            yield f"tile_{axis} {size} is less than the {least} that {operator} needs"
        elif size % step:
            yield f"tile_{axis} {size} is not a multiple of the {step} that {operator} needs"


def _epilogue(kernel: GemmKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.epilogue not in arch.epilogues:
        yield f"{arch.name} does not have the epilogue {kernel.epilogue}"


def _persistent(kernel: GemmKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.persistent and not arch.is_gpu:
        yield f"{arch.name} has no persistent kernels"


def _waves(kernel: GemmKernel, arch: ArchSpec) -> Iterator[str]:
    if not arch.supports_wave(kernel.wave):
        known = ", ".join(map(_by, arch.wave_configs))
        yield f"{arch.name} does not have the waves {_by(kernel.wave)} (it has {known})"


def _computing_wave_groups(kernel: GemmKernel, arch: ArchSpec) -> Iterator[str]:
    """GEMM kernels are emitted with as many wave groups as their pipeline needs."""
    if arch.is_gpu and (reason := wave_group_reason(kernel.pipeline, kernel.wave)):
        yield reason


def _warp_tile(kernel: GemmKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.dtype not in arch.dtypes:
        return  # _dtype has said so
    known = arch.warp_tiles_for(kernel.dtype, preshuffle=_is_preshuffled(kernel, arch))
    if not known:
        yield f"{arch.name} has no matrix instructions for {kernel.dtype} with {kernel.pipeline}"
    elif kernel.warp_tile not in known:
        has = ", ".join(map(_by, known))
        yield f"{arch.name} has no {_by(kernel.warp_tile)} warp tile for {kernel.dtype} (it has {has})"


def _tile_divisibility(kernel: GemmKernel, _arch: ArchSpec) -> Iterator[str]:
    for axis, size, waves, width in zip("mnk", kernel.tile, kernel.wave, kernel.warp_tile, strict=True):
        step = waves * width
        if min(size, waves, width) < 1:
            yield f"tile, waves and warp tile must be positive along {axis}, not {size}, {waves}, {width}"
        elif size % step:
            yield f"tile_{axis} {size} is not a multiple of {waves} waves x warp tile {width} = {step}"


def _vectors(kernel: GemmKernel, arch: ArchSpec) -> Iterator[str]:
    dtypes = (kernel.dtype, kernel.dtype, output_dtype(kernel.dtype))
    for operand, width, dtype in zip("abc", kernel.vectors, dtypes, strict=True):
        most = int(MAX_VECTOR_BYTES / DTYPE_BYTES.get(dtype, MAX_VECTOR_BYTES))
        if width != NATIVE_WIDTH and not arch.is_gpu:
            yield f"{arch.name} has no fixed vector widths, vector_{operand} must be {NATIVE_WIDTH}, not {width}"
        elif width != NATIVE_WIDTH and (width < 1 or most % width):
            yield f"vector_{operand} must be {NATIVE_WIDTH} (native) or a divisor of {most}, not {width}"


def _is_preshuffled(kernel: GemmKernel, arch: ArchSpec) -> bool:
    return kernel.pipeline in arch.common.preshuffle_pipelines


def _by(sizes: Triple) -> str:
    return "x".join(map(str, sizes))


# Rules on what even the shortest name holds.
NAME_RULES: tuple[ArchRule, ...] = (
    _is_complete,
    _suffix,
    _dtype,
    _layout,
    _pipeline,
    _traits,
    _lds,
    _operator_tile,
)

# Rules on what only a complete kernel has.
COMPLETE_RULES: tuple[ArchRule, ...] = (
    _epilogue,
    _persistent,
    _waves,
    _computing_wave_groups,
    _warp_tile,
    _tile_divisibility,
    _vectors,
)
