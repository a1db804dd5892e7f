"""Trial executions of convolution kernels: kernel classes, and problems that exercise all loop remainders.

Pipelines treat the first and last iterations over K separately, and differ in their number; tiles are cut off where M,
N and K are not multiples of them; strides, dilations, padding and groups change the loads. The support matrices
(`MATRICES`) show which options work, by pipeline, scheduler and option; options known to fail are included: what a rule
or a device rejects is a result too.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from ckh.bench.computation import Case, Trials
from ckh.errors import NoKernelError, UsageError
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES, Scheduler, loaded_ahead, most_steps
from ckh.kernels.table import SIZES, TRIPLES
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.kernels.variants import (
    DEFAULT_SPECIALIZATION,
    FILTER1X1_STRIDE1_PAD0,
    FILTER3X3,
    SPECIALIZATIONS,
    VARIANT_PIPELINES,
)
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.ops.grouped_conv.rules.sets import rule_set
from ckh.problems import Direction
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ckh.archs import ArchSpec
    from ckh.ops.grouped_conv.kernel import ConvKernel


_RAGGED = 8  # channels beyond whole tiles: a multiple of every vector width of pools
_CHANNELS = 24
_ROWS, _COLUMNS = 5, 7
_PADDED = (2, 3, 4)  # images, rows and columns
_WAVES = 4
_UNSCHEDULED = ("basic_v1",)  # ignores the scheduler in its name
_USUAL = ("mem", "compv3")
# Absent from the rule sets.
_COMPV5: dict[str, Any] = {
    "pipeline": "compv5",
    "num_wave_groups": 2,
    "double_smem_buffer": False,
    "scheduler": Scheduler.INTRAWAVE,
    **dict(zip(SIZES, (64, 64, 64, 1, 1, 2, 32, 32, 16), strict=True)),
    **dict.fromkeys(TRIPLES["vectors"], 8),
}
# For 2-byte elements, two of these tiles are as much as `mem` prefetches.
_SQUARE: dict[str, Any] = dict(zip(SIZES, (64, 64, 64, 2, 2, 1, 32, 32, 16), strict=True))
_3D = 3
_KINDS = (("fp16", 2), ("bf16", 2), ("fp32", 2), ("fp16", 3))


def loop_end_problems(kernel: ConvKernel) -> tuple[ConvProblem, ...]:
    """Return the problems; a kernel may reject some."""
    return tuple(dict.fromkeys(_problems(kernel)))


def _problems(kernel: ConvKernel) -> Iterator[ConvProblem]:
    step = kernel.tile_k * max(1, kernel.split_k or 1)
    padding = int(kernel.specialization in {None, DEFAULT_SPECIALIZATION})  # not supported by the others
    for steps in range(1, most_steps(*kernel.loop) + 1):
        yield _pointwise(kernel, steps * step, padding=0 if kernel.variant is Direction.BWD_DATA else padding)
    yield _pointwise(kernel, 2 * step + _RAGGED, padding=padding)
    yield _pointwise(kernel, step, m_tiles=7)
    yield _filtered(kernel, padding=1)
    yield _filtered(kernel, padding=1, stride=2)
    yield _filtered(kernel, padding=2, dilation=2, channels=_RAGGED, size=2)
    yield _filtered(kernel, padding=1, stride=2, dilation=2, groups=3, batch=2)
    if _is_depthwise(kernel):
        yield from (_depthwise(kernel, stride) for stride in (1, 2))


def _pointwise(kernel: ConvKernel, depth: int, *, m_tiles: int = 0, padding: int = 0) -> ConvProblem:
    """A 1x1 filter whose GEMM has this depth; N is a tile and a remainder, M fewer than these tiles.

    Padding, larger than the filter's reach, adds whole rows and columns outside the image, for two images.
    """
    across, groups = kernel.tile_n + _RAGGED, max(1, kernel.num_groups_to_merge or 1)
    c, k = {Direction.FORWARD: (depth, across), Direction.BWD_DATA: (across, depth)}.get(
        kernel.variant, (across, _CHANNELS)
    )
    images, rows, columns = _PADDED if padding else (1, _ROWS, _COLUMNS)
    if kernel.variant is Direction.BWD_WEIGHT:
        sizes = _positions(depth, padding)
        k = max(_CHANNELS, (2 * m_tiles - 1) * kernel.tile_m // 2)
    else:
        sizes = {"n": images, "hi": max(rows, (m_tiles - 1) * kernel.tile_m // columns + 2), "wi": columns}
        sizes |= {"pad_h": padding, "pad_w": padding}
    return _conv(kernel, c=c * groups, k=k * groups, g=groups, y=1, x=1, **sizes)


def _positions(depth: int, padding: int) -> dict[str, int]:
    """Sizes of two images with this total number of positions, with a border if columns remain within."""
    columns = depth // 8 - 2
    if padding and columns > 0 and not depth % 8:
        return {"n": 2, "hi": 2, "wi": columns, "pad_h": 1, "pad_w": 1}
    return {"n": 2, "hi": 1, "wi": depth // 2}


def _filtered(
    kernel: ConvKernel, *, groups: int = 2, batch: int = 1, channels: int = _CHANNELS, size: int = 3, **moves: int
) -> ConvProblem:
    """A filter with these strides, dilations and paddings; a small filter with few channels is one iteration over K."""
    groups *= max(1, kernel.num_groups_to_merge or 1)
    sizes = {"n": batch, "c": channels * groups, "k": (channels + _RAGGED) * groups, "g": groups, "hi": 9, "wi": 11}
    stride, dilation, padding = moves.get("stride", 1), moves.get("dilation", 1), moves.get("padding", 0)
    two = {"stride_h": stride, "stride_w": stride, "dilation_h": dilation, "dilation_w": dilation}
    if kernel.ndim_spatial == _3D:
        two |= {"di": 6, "z": 2, "stride_d": stride, "dilation_d": dilation, "pad_d": padding}
    return _conv(kernel, y=size, x=size, pad_h=padding, pad_w=padding, **sizes, **two)


def _is_depthwise(kernel: ConvKernel) -> bool:
    merges = kernel.num_groups_to_merge > 1 and kernel.variant is Direction.FORWARD
    return merges or kernel.specialization == FILTER3X3


def _depthwise(kernel: ConvKernel, stride: int) -> ConvProblem:
    """One channel per group and a filter of size 3 along each axis."""
    groups = _CHANNELS * kernel.num_groups_to_merge
    sizes = {"n": 2, "c": groups, "k": groups * _RAGGED, "g": groups, "hi": 9, "wi": 11}
    moves = {"pad_h": 1, "pad_w": 1, "stride_h": stride, "stride_w": stride}
    if kernel.ndim_spatial == _3D:
        moves |= {"di": 6, "z": 3, "stride_d": stride, "pad_d": 1}
    return _conv(kernel, y=3, x=3, **sizes, **moves)


def _conv(kernel: ConvKernel, **sizes: Any) -> ConvProblem:
    return ConvProblem(kernel.variant, dtype=kernel.dtype, ndim=kernel.ndim_spatial, **sizes)


def kernel_class(kernel: ConvKernel) -> str:
    """Describe direction, dtype, pipeline, scheduler, options that change the computation, and whether it is 3D."""
    scheduler = "" if kernel.pipeline in _UNSCHEDULED else f" {kernel.scheduler}"
    options = [
        ("double buffer", kernel.double_smem_buffer and kernel.pipeline not in DOUBLE_SMEM_PIPELINES),
        ("merged groups", (kernel.num_groups_to_merge or 1) > 1),
        ("split image", kernel.split_image),
        ("split K", (kernel.split_k or 1) > 1),
        ("two stages", kernel.two_stage),
        ("stream-K", kernel.streamk),
        ("explicit GEMM", kernel.explicit_gemm),
        ("3D", kernel.ndim_spatial == _3D),
    ]
    words = [f"{kernel.variant} {kernel.dtype} {kernel.pipeline}{scheduler}", *(name for name, has in options if has)]
    return ", ".join(words)


def representatives(arch: ArchSpec) -> dict[str, list[ConvKernel]]:
    """Return every pipeline and scheduler in each dtype; in fp16 also each option, and 3D."""
    by_class: dict[str, list[ConvKernel]] = {}
    for direction, (dtype, ndim) in product(Direction, _KINDS):
        if dtype not in arch.dtypes or not conv_pool(direction, arch, ndim, dtype):
            continue
        for kernel in sorted(_candidates(direction, ndim, dtype, arch), key=cost):
            if (dtype, ndim) == _KINDS[0] or kernel_class(replace(kernel, ndim_spatial=2)).count(",") == 0:
                by_class.setdefault(kernel_class(kernel), []).append(kernel)
    return by_class


def _candidates(direction: Direction, ndim: int, dtype: str, arch: ArchSpec) -> set[ConvKernel]:
    kernels = set(rule_set("tests", direction, ndim, dtype, arch))
    for base in conv_pool(direction, arch, ndim, dtype)[:1]:
        kernels |= {kernel for name in MATRICES for _, kernel in MATRICES[name](base)}
        kernels |= {kernel for _, kernel in MATRICES["schedulers"](replace(base, **_SQUARE))}
        kernels.add(replace(base, **_COMPV5))
    if direction is Direction.BWD_WEIGHT:
        kernels |= {replace(kernel, split_k=2) for kernel in kernels if kernel.pipeline in _USUAL}
    return {kernel for kernel in kernels if not kernel.rounds_parts and not CONV_RULES.check(kernel, arch)}


def cost(kernel: ConvKernel) -> tuple[bool, bool, int, int, int, str]:
    """Sort key: kernels that support any problem, then several waves, since one wave cannot race, then small tiles.

    Each loop remainder is compiled separately: kernels with few precede small tiles, except in forward's first kind.
    """
    is_special = kernel.specialization not in {None, DEFAULT_SPECIALIZATION}
    is_first = kernel.variant is Direction.FORWARD and (kernel.dtype, kernel.ndim_spatial) == _KINDS[0]
    ends = 0 if is_first else loaded_ahead(*kernel.loop)
    sides = kernel.tile_m + kernel.tile_n
    volume = kernel.tile_m * kernel.tile_n * kernel.tile_k
    return is_special, kernel.num_waves < _WAVES, ends, volume, sides, repr(kernel)


TRIALS = Trials(loop_end_problems, kernel_class, representatives)


def matrix(
    name: str, arch: ArchSpec, directions: tuple[Direction, ...], ndims: tuple[int, ...], dtype: str
) -> tuple[Case[ConvProblem, ConvKernel], ...]:
    """Return the cases of a matrix, by direction and number of dimensions."""
    if name not in MATRICES:
        raise UsageError(f"unknown matrix {name!r}", one_of(name, MATRICES), code="unknown-name")
    return tuple(
        Case(label, kernel, problem_for(kernel), {"direction": str(direction), "ndim": ndim})
        for direction in directions
        for ndim in ndims
        for label, kernel in MATRICES[name](_base(direction, ndim, dtype, arch))
    )


def problem_for(kernel: ConvKernel) -> ConvProblem:
    """Return a small problem that the kernel supports."""
    if _is_depthwise(kernel):
        return _depthwise(kernel, 1)
    is_pointwise = kernel.specialization != DEFAULT_SPECIALIZATION
    return _pointwise(kernel, 2 * kernel.tile_k) if is_pointwise else _filtered(kernel, padding=1, batch=8)


def _base(direction: Direction, ndim: int, dtype: str, arch: ArchSpec) -> ConvKernel:
    pool = conv_pool(direction, arch, ndim, dtype)
    if not pool:
        raise NoKernelError(f"{arch.name} has no {direction} kernel of {dtype} in {ndim}D")
    return pool[0]


def _with_pipeline(base: ConvKernel, pipeline: str, **changes: Any) -> ConvKernel:
    return replace(base, pipeline=pipeline, double_smem_buffer=pipeline in DOUBLE_SMEM_PIPELINES, **changes)


_NARROW = dict.fromkeys(TRIPLES["vectors"], 1)
_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("no option", {}),
    ("double smem buffer", {"double_smem_buffer": True}),
    ("double smem buffer of compv4", {"pipeline": "compv4", "double_smem_buffer": True}),
    ("2 merged groups", {"num_groups_to_merge": 2, **_NARROW}),
    ("split image", {"split_image": True}),
    ("2 merged groups and split image", {"num_groups_to_merge": 2, "split_image": True, **_NARROW}),
    ("2 wave groups", {"num_wave_groups": 2}),
    *(
        (f"specialization {name}", {"specialization": name} | (_NARROW if name == FILTER3X3 else {}))
        for name in SPECIALIZATIONS
        if name != DEFAULT_SPECIALIZATION
    ),
    ("explicit GEMM", {"explicit_gemm": True, "specialization": FILTER1X1_STRIDE1_PAD0}),
    ("two stages", {"two_stage": True}),
    ("K split in 2", {"split_k": 2}),
    ("K split in 2, two stages", {"split_k": 2, "two_stage": True}),
    ("stream-K", {"streamk": "tree"}),
    ("2 blocks per CU", {"block_per_cu": 2}),
)


MATRICES: dict[str, Callable[[ConvKernel], Iterator[tuple[str, ConvKernel]]]] = {
    "pipelines": lambda base: (
        (pipeline, _with_pipeline(base, pipeline, scheduler=Scheduler.INTRAWAVE))
        for pipeline in VARIANT_PIPELINES[base.variant]
    ),
    "schedulers": lambda base: (
        (f"{pipeline} {scheduler}", _with_pipeline(base, pipeline, scheduler=scheduler))
        for pipeline in VARIANT_PIPELINES[base.variant]
        for scheduler in Scheduler
    ),
    "options": lambda base: (
        (label, replace(_with_pipeline(base, "compv3", scheduler=Scheduler.INTRAWAVE), **changes))
        for label, changes in _OPTIONS
    ),
}
