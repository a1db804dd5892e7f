"""The rules on a kernel's options: merged and wave groups, two stages, stream-K, split-K and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ckh.archs import ArchSpec
from ckh.ops.grouped_conv.kernel import ConvKernel
from ckh.ops.grouped_conv.kernels.variants import (
    FILTER1X1_STRIDE1_PAD0,
    MERGING_DIRECTIONS,
    SPECIALIZATIONS,
    STREAMK_STRATEGIES,
)
from ckh.problems import DTYPE_BYTES, Direction

_FP32_BYTES = DTYPE_BYTES["fp32"]
_MAX_HALF_SPLIT_K = 128

ArchRule = Callable[[ConvKernel, ArchSpec], Iterator[str]]


def _merged_groups(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.num_groups_to_merge < 1:
        yield f"num_groups_to_merge must be 1 or more, not {kernel.num_groups_to_merge}"
    if kernel.num_groups_to_merge > 1:
        yield from _needs_option(arch, "merged_groups", "merged groups")
        if kernel.variant not in MERGING_DIRECTIONS:
            yield f"{kernel.variant} kernels cannot merge groups"


def _wave_groups(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.num_wave_groups < 1:
        yield f"num_wave_groups must be 1 or more, not {kernel.num_wave_groups}"
    if kernel.num_wave_groups > 1:
        yield from _needs_option(arch, "wave_groups", "more than one wave group")


def _two_stage(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    if not kernel.two_stage:
        return
    yield from _needs_option(arch, "two_stage", "two stages")
    if kernel.variant is not Direction.BWD_WEIGHT:
        yield f"only bwd_weight kernels can have two stages, not {kernel.variant}"


def _streamk(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.streamk is None:
        if kernel.streamk_persistent:
            yield "only stream-K kernels can be persistent"
        return
    yield from _needs_option(arch, "streamk", "stream-K")
    if kernel.streamk not in STREAMK_STRATEGIES:
        yield f"unknown stream-K strategy {kernel.streamk} (there are {', '.join(STREAMK_STRATEGIES)})"
    if kernel.variant is not Direction.BWD_WEIGHT:
        yield f"only bwd_weight kernels can use stream-K, not {kernel.variant}"
    if kernel.two_stage:
        yield "stream-K and two stages exclude each other"


def _split_k(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    if kernel.split_k < 1:
        yield f"split_k must be 1 or more, not {kernel.split_k}"
    if kernel.split_k <= 1:
        return
    yield from _needs_option(arch, "split_k", "split-K")
    if kernel.variant is not Direction.BWD_WEIGHT:
        yield f"only bwd_weight kernels can split K, not {kernel.variant}"
    if kernel.streamk is not None:
        yield "split-K and stream-K exclude each other"
    if DTYPE_BYTES.get(kernel.dtype, 0) < _FP32_BYTES and not kernel.two_stage:
        if kernel.split_k > _MAX_HALF_SPLIT_K:
            yield f"{kernel.dtype} results can be added from {_MAX_HALF_SPLIT_K} parts at most, not {kernel.split_k}"
        if kernel.vector_c is not None and kernel.vector_c % 2:
            yield f"atomic addition of {kernel.dtype} needs an even vector_c, not {kernel.vector_c}"


def _explicit_gemm(kernel: ConvKernel, arch: ArchSpec) -> Iterator[str]:
    if not kernel.explicit_gemm:
        return
    yield from _needs_option(arch, "explicit_gemm", "explicit GEMM")
    if kernel.specialization != FILTER1X1_STRIDE1_PAD0:
        yield f"explicit GEMM needs the specialization {FILTER1X1_STRIDE1_PAD0}, not {kernel.specialization}"


def _specialization(kernel: ConvKernel, _arch: ArchSpec) -> Iterator[str]:
    if kernel.specialization not in SPECIALIZATIONS:
        yield f"unknown specialization {kernel.specialization} (there are {', '.join(SPECIALIZATIONS)})"


def _needs_option(arch: ArchSpec, option: str, words: str) -> Iterator[str]:
    if not arch.supports_option(option):
        yield f"{arch.name} does not offer {words}"


# Rules on what even the shortest name holds.
NAME_OPTION_RULES: tuple[ArchRule, ...] = (_merged_groups, _wave_groups, _two_stage, _streamk)

# Rules on what only a complete kernel has.
COMPLETE_OPTION_RULES: tuple[ArchRule, ...] = (_specialization, _explicit_gemm, _split_k)
