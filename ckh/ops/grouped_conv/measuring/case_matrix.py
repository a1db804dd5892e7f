"""Support matrices: which kernel options work, by pipeline, scheduler and option.

Every case is one kernel and a small problem that suits it. Options known to fail are included: what a rule or a device
rejects is a result too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ckh.bench.computation import Case
from ckh.errors import NoKernelError, UsageError
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES, Scheduler
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.kernels.variants import (
    DEFAULT_SPECIALIZATION,
    FILTER1X1_STRIDE1_PAD0,
    FILTER3X3,
    SPECIALIZATIONS,
    VARIANT_PIPELINES,
)
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ckh.archs import ArchSpec
    from ckh.ops.grouped_conv.kernel import ConvKernel

_CHANNELS, _GROUPS, _SIZE, _DEPTH = 64, 2, 16, 4
_DEPTHWISE_GROUPS = 16


def matrix(
    name: str, arch: ArchSpec, directions: tuple[Direction, ...], ndims: tuple[int, ...], dtype: str
) -> tuple[Case[ConvProblem, ConvKernel], ...]:
    """Return the cases of a matrix, by direction and number of dimensions.

    Raises:
        UsageError: no such matrix exists.
        NoKernelError: the architecture has no kernel to start from.
    """
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
    is_depthwise = kernel.specialization == FILTER3X3 or (
        kernel.num_groups_to_merge > 1 and kernel.variant is Direction.FORWARD
    )
    filter_size = 1 if kernel.specialization not in (DEFAULT_SPECIALIZATION, FILTER3X3) else 3
    is_3d = kernel.ndim_spatial == 3  # noqa: PLR2004 - dimensions
    groups = _DEPTHWISE_GROUPS if is_depthwise else _GROUPS
    return ConvProblem(
        kernel.variant,
        dtype=kernel.dtype,
        ndim=kernel.ndim_spatial,
        n=1,
        c=groups if is_depthwise else _CHANNELS,
        k=groups * _CHANNELS if is_depthwise else _CHANNELS,
        g=groups,
        di=_DEPTH if is_3d else 1,
        hi=_SIZE,
        wi=_SIZE,
        z=filter_size if is_3d else 1,
        y=filter_size,
        x=filter_size,
        pad_d=filter_size // 2 if is_3d else 0,
        pad_h=filter_size // 2,
        pad_w=filter_size // 2,
    )


def _base(direction: Direction, ndim: int, dtype: str, arch: ArchSpec) -> ConvKernel:
    pool = conv_pool(direction, arch, ndim, dtype)
    if not pool:
        raise NoKernelError(f"{arch.name} has no {direction} kernel of {dtype} in {ndim}D")
    return pool[0]


def _with_pipeline(base: ConvKernel, pipeline: str, **changes: Any) -> ConvKernel:
    return replace(base, pipeline=pipeline, double_smem_buffer=pipeline in DOUBLE_SMEM_PIPELINES, **changes)


def _pipelines(base: ConvKernel) -> Iterator[tuple[str, ConvKernel]]:
    for pipeline in VARIANT_PIPELINES[base.variant]:
        yield pipeline, _with_pipeline(base, pipeline, scheduler=Scheduler.INTRAWAVE)


def _schedulers(base: ConvKernel) -> Iterator[tuple[str, ConvKernel]]:
    for pipeline in VARIANT_PIPELINES[base.variant]:
        for scheduler in Scheduler:
            yield f"{pipeline} {scheduler}", _with_pipeline(base, pipeline, scheduler=scheduler)


_NARROW = {"vector_a": 1, "vector_b": 1, "vector_c": 1}
_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("no option", {}),
    ("double smem buffer", {"double_smem_buffer": True}),
    ("double smem buffer of compv4", {"pipeline": "compv4", "double_smem_buffer": True}),
    ("2 merged groups", {"num_groups_to_merge": 2, **_NARROW}),
    ("split image", {"split_image": True}),
    ("2 merged groups and split image", {"num_groups_to_merge": 2, "split_image": True, **_NARROW}),
    ("2 wave groups", {"num_wave_groups": 2}),
    *(
        (f"specialization {item}", {"specialization": item} | (_NARROW if item == FILTER3X3 else {}))
        for item in SPECIALIZATIONS
        if item != DEFAULT_SPECIALIZATION
    ),
    ("explicit GEMM", {"explicit_gemm": True, "specialization": FILTER1X1_STRIDE1_PAD0}),
    ("two stages", {"two_stage": True}),
    ("K split in 2", {"split_k": 2}),
    ("K split in 2, two stages", {"split_k": 2, "two_stage": True}),
    ("stream-K", {"streamk": "tree"}),
    ("2 blocks per CU", {"block_per_cu": 2}),
)


def _options(base: ConvKernel) -> Iterator[tuple[str, ConvKernel]]:
    plain = _with_pipeline(base, "compv3", scheduler=Scheduler.INTRAWAVE)
    for label, changes in _OPTIONS:
        yield label, replace(plain, **changes)


MATRICES: dict[str, Callable[[ConvKernel], Iterator[tuple[str, ConvKernel]]]] = {
    "pipelines": _pipelines,
    "schedulers": _schedulers,
    "options": _options,
}
