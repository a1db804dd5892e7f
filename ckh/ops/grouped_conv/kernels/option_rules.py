"""Rules on a kernel's options: merged and wave groups, two stages, stream-K, split-K and others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.kernels.judging import Rule, RuleBook
from ckh.ops.grouped_conv.kernels.variants import (
    FILTER1X1_STRIDE1_PAD0,
    MERGING_DIRECTIONS,
    SPECIALIZATIONS,
    STREAMK_STRATEGIES,
)
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec

_FP32_BYTES = DTYPE_BYTES["fp32"]
_MAX_HALF_SPLIT_K = 128

rule = RuleBook().rule


@rule
def _merged_groups(arch: ArchSpec, num_groups_to_merge: int, variant: Direction) -> Iterator[str]:
    if num_groups_to_merge < 1:
        yield f"num_groups_to_merge must be 1 or more, not {num_groups_to_merge}"
    if num_groups_to_merge > 1:
        yield from _needs_option(arch, "merged_groups", "merged groups")
        if variant not in MERGING_DIRECTIONS:
            yield f"{variant} kernels cannot merge groups"


@rule
def _wave_groups(arch: ArchSpec, num_wave_groups: int) -> Iterator[str]:
    if num_wave_groups < 1:
        yield f"num_wave_groups must be 1 or more, not {num_wave_groups}"
    if num_wave_groups > 1:
        yield from _needs_option(arch, "wave_groups", "more than one wave group")


@rule
def _two_stage(arch: ArchSpec, two_stage: bool, variant: Direction) -> Iterator[str]:
    if not two_stage:
        return
    yield from _needs_option(arch, "two_stage", "two stages")
    if variant is not Direction.BWD_WEIGHT:
        yield f"only bwd_weight kernels can have two stages, not {variant}"


@rule
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


@rule
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


@rule
def _explicit_gemm(arch: ArchSpec, explicit_gemm: bool | None, specialization: str | None) -> Iterator[str]:
    if not explicit_gemm:
        return
    yield from _needs_option(arch, "explicit_gemm", "explicit GEMM")
    if specialization != FILTER1X1_STRIDE1_PAD0:
        yield f"explicit GEMM needs the specialization {FILTER1X1_STRIDE1_PAD0}, not {specialization}"


@rule
def _specialization(specialization: str | None) -> Iterator[str]:
    if specialization not in SPECIALIZATIONS:
        yield f"unknown specialization {specialization} (there are {', '.join(SPECIALIZATIONS)})"


def _needs_option(arch: ArchSpec, option: str, words: str) -> Iterator[str]:
    if not arch.supports_option(option):
        yield f"{arch.name} does not offer {words}"


# Rules on parameters that even the shortest name has.
NAME_OPTION_RULES: tuple[Rule, ...] = (_merged_groups, _wave_groups, _two_stage, _streamk)

# Rules on parameters that only a complete kernel has.
COMPLETE_OPTION_RULES: tuple[Rule, ...] = (_specialization, _explicit_gemm, _split_k)
