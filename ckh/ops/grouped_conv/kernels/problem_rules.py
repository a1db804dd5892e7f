"""Rules for a kernel to support a problem, and all rules of convolution kernels together.

Source: the support checks of CK Tile's kernels.

Nothing is corrected: an invalid combination is rejected with all of its reasons.

C and K are channels per group, as in CK Tile.
"""

from __future__ import annotations

from math import gcd, prod
from operator import attrgetter
from typing import TYPE_CHECKING

from ckh.kernels.judging import RuleBook, Rules
from ckh.kernels.pipelines import LEAST_TRIPS_PIPELINES, OVERRUNNING_PIPELINES, loop_of
from ckh.kernels.table import TRIPLES
from ckh.ops.grouped_conv.kernels.arch_rules import COMPLETE, NAMED
from ckh.ops.grouped_conv.kernels.variants import FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0, FILTER3X3
from ckh.ops.grouped_conv.requested import has_few_channels
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.ops.grouped_conv.kernel import ConvKernel
    from ckh.ops.grouped_conv.problem import ConvProblem

BOOK = RuleBook()
rule = BOOK.rule

# Direction -> (vector width, contiguous channels of that operand).
_VECTOR_CHANNELS: dict[Direction, tuple[tuple[str, str], ...]] = {
    Direction.FORWARD: (("vector_a", "c_per_group"), ("vector_b", "c_per_group"), ("vector_c", "k_per_group")),
    Direction.BWD_DATA: (("vector_a", "k_per_group"), ("vector_b", "c_per_group"), ("vector_c", "c_per_group")),
    Direction.BWD_WEIGHT: (("vector_a", "k_per_group"), ("vector_b", "c_per_group"), ("vector_c", "c_per_group")),
}
# A forward kernel that merges groups loads A and stores C across groups.
_MERGED_FORWARD = (("vector_b", "c_per_group"), ("vector_c", "g"))
_MEANING = {"c_per_group": "C/G", "k_per_group": "K/G", "g": "G"}
# Limit of the byte offsets of CK Tile's tensors.
_MAX_TENSOR_BYTES = 2**31 - 1
_FP32_BYTES = int(DTYPE_BYTES["fp32"])
_OVERRUN_TRIPS = 3
_MAX_GEMMS = 128  # of backward data in a launch


@rule
def _same_kind(
    problem: ConvProblem, variant: Direction, dtype: str, ndim_spatial: int, layout: str | None
) -> Iterator[str]:
    if variant is not problem.variant:
        yield f"a {variant} kernel cannot run a {problem.variant} problem"
    if dtype != problem.dtype:
        yield f"a kernel of {dtype} cannot run a problem of {problem.dtype}"
    if ndim_spatial != problem.ndim:
        yield f"a {ndim_spatial}D kernel cannot run a {problem.ndim}D problem"
    if layout is not None and layout != problem.layout:
        yield f"a kernel of layout {layout} cannot run a problem of layout {problem.layout}"


@rule
def _vector_divisibility(
    arch: ArchSpec, problem: ConvProblem, num_groups_to_merge: int, variant: Direction, vectors: Triple
) -> Iterator[str]:
    if not arch.vector_divisibility:
        return
    is_merged_forward = num_groups_to_merge > 1 and variant is Direction.FORWARD
    widths = dict(zip(TRIPLES["vectors"], vectors, strict=True))
    for vector, channels in _MERGED_FORWARD if is_merged_forward else _VECTOR_CHANNELS[variant]:
        width, size = widths[vector], getattr(problem, channels)
        if width and size % width:
            yield f"{_MEANING[channels]} = {size} is not a multiple of {vector} = {width}"


@rule
def _merged_groups(problem: ConvProblem, num_groups_to_merge: int, variant: Direction) -> Iterator[str]:
    merged = num_groups_to_merge
    if merged <= 1:
        return
    if problem.g % merged:
        yield f"G = {problem.g} is not a multiple of the {merged} groups to merge"
    if variant is Direction.FORWARD and problem.c_per_group != 1:
        yield f"merging groups in forward needs C/G = 1, not {problem.c_per_group}"


@rule
def _specialization(problem: ConvProblem, specialization: str | None) -> Iterator[str]:
    if specialization not in _SPECIALIZED:
        return
    for condition, words in _SPECIALIZED[specialization]:
        if not condition(problem):
            yield f"the specialization {specialization} needs {words}"


def _gemm_depths(problem: ConvProblem) -> tuple[int, int]:
    """Return the least and the greatest possible K of a problem's GEMMs.

    Backward data is a GEMM for each position within the strides, with the taps of the filter that reach it; dilation
    can make positions fewer, and is not traced further.
    """
    k = problem.gemm_sizes[2]
    if problem.variant is not Direction.BWD_DATA:
        return k, k
    least = most = problem.k_per_group
    for taps, stride, dilation in _axes(problem):
        if stride == 1:
            fewest, largest = taps, taps
        else:
            fewest = taps // stride if taps >= stride else 1
            largest = taps if dilation != 1 else -(-taps // stride)
        least, most = least * fewest, most * largest
    return least, most


def _gemms(problem: ConvProblem) -> int:
    """Return the number of GEMMs of backward data, at most."""
    return prod(min(taps, stride) for taps, stride, _ in _axes(problem))


def _axes(problem: ConvProblem) -> tuple[tuple[int, int, int], ...]:
    """Return the filter's size, the stride and the dilation along each axis."""
    axes = (
        (problem.z, problem.stride_d, problem.dilation_d),
        (problem.y, problem.stride_h, problem.dilation_h),
        (problem.x, problem.stride_w, problem.dilation_w),
    )
    return axes[3 - problem.ndim :]


@rule
def _countable(arch: ArchSpec, problem: ConvProblem, variant: Direction) -> Iterator[str]:
    if arch.is_gpu and variant is Direction.BWD_DATA and (gemms := _gemms(problem)) > _MAX_GEMMS:
        yield f"bwd_data with these strides is {gemms} GEMMs, CK Tile launches at most {_MAX_GEMMS}"


@BOOK.quantity
def looping(
    arch: ArchSpec, is_complete: bool, variant: Direction, pipeline: str, dtype: str, tile: Triple, wave: Triple
) -> tuple[int, int, int]:
    """Return the main loop of a GPU kernel of backward data (`pipelines.loop_of`) and tile K; 0 for others."""
    if variant is not Direction.BWD_DATA or not arch.is_gpu or not is_complete:
        return 0, 0, 0
    stages, tails = loop_of(pipeline, tile, prod(wave), dtype)
    return (stages, tails, tile[2]) if stages else (0, 0, 0)


@rule
def _gemms_alike(problem: ConvProblem, looping: tuple[int, int, int]) -> Iterator[str]:
    """Kernels of CK Tile's headers of 2025 know at compile time whether their main loop runs and how it ends."""
    stages, tails, depth = looping
    if not stages:
        return
    least, most = _gemm_depths(problem)
    fewest, largest = -(-least // depth), -(-most // depth)
    if fewest != largest and (tails > 1 or fewest <= stages):
        yield f"bwd_data's GEMMs take {fewest} to {largest} iterations over K, for CK Tile of 2025 too unlike"


@BOOK.quantity
def stepping(pipeline: str, tile_k: int, split_k: int) -> tuple[str, int, int]:
    """Return pipeline, tile K and split K where several iterations over K are required; empty for others."""
    return (pipeline, tile_k, split_k) if pipeline in LEAST_TRIPS_PIPELINES else ("", 0, 0)


@rule
def _least_trips(arch: ArchSpec, problem: ConvProblem, stepping: tuple[str, int, int]) -> Iterator[str]:
    pipeline, depth, parts = stepping
    if not pipeline:
        return
    k = problem.gemm_sizes[2]
    if problem.variant is Direction.BWD_WEIGHT and (trips := -(-k // depth)) < arch.least_trips:
        yield f"{pipeline} in bwd_weight needs {arch.least_trips} iterations over K, {k} gives {trips}"
    elif arch.is_gpu and (shortest := _gemm_depths(problem)[0]) <= depth * parts:
        yield f"{pipeline} is wrong with a single iteration over K: {shortest} in {parts} parts, tile_k {depth}"


@BOOK.quantity
def parting(pipeline: str, tile_k: int, split_k: int) -> tuple[str, int, int]:
    """Return pipeline, tile K and split K where the iterations of a part matter in backward weight."""
    return (pipeline, tile_k, split_k) if pipeline in OVERRUNNING_PIPELINES and split_k > 1 else ("", 0, 0)


@rule
def _overrun(arch: ArchSpec, problem: ConvProblem, parting: tuple[str, int, int]) -> Iterator[str]:
    """Without split K, excess iterations add zeros from beyond K."""
    pipeline, depth, parts = parting
    if not pipeline or not arch.is_gpu or problem.variant is not Direction.BWD_WEIGHT:
        return
    k = problem.gemm_sizes[2]
    if -(-k // (depth * parts)) == _OVERRUN_TRIPS:
        yield f"{pipeline} in bwd_weight reads beyond its part of K where {k} in {parts} parts takes three iterations"


@BOOK.quantity
def addressing(variant: Direction, dtype: str, explicit_gemm: bool | None, two_stage: bool) -> tuple[bool, int, int]:
    """Return whether a kernel splits the batch into addressable parts, and bytes per element of image and filter.

    Source: GetSplitedNSize in CK Tile's transform_conv_fwd_to_gemm.hpp and transform_conv_bwd_data_to_gemm.hpp.
    Backward weight and explicit GEMMs do not split; explicit GEMMs of forward count fp32 elements; two stages first
    store the filter in fp32.
    """
    size = int(DTYPE_BYTES.get(dtype, 0))
    cuts_batch = variant is not Direction.BWD_WEIGHT and not explicit_gemm
    image = _FP32_BYTES if explicit_gemm and variant is Direction.FORWARD else size
    return cuts_batch, image, _FP32_BYTES if two_stage else size


@rule
def _addressable(arch: ArchSpec, problem: ConvProblem, addressing: tuple[bool, int, int]) -> Iterator[str]:
    if not arch.is_gpu:
        return
    cuts_batch, image_bytes, filter_bytes = addressing
    images, scope = (1, "image of the ") if cuts_batch else (problem.n, "")
    x, w, y = _elements(problem)
    tensors = ((f"{scope}input", images * x * image_bytes), (f"{scope}output", images * y * image_bytes))
    for name, size in (*tensors, ("filter", w * filter_bytes)):
        if size > _MAX_TENSOR_BYTES:
            yield f"the {name} has {size} bytes; CK Tile's offsets reach {_MAX_TENSOR_BYTES}"


def _elements(problem: ConvProblem) -> tuple[int, int, int]:
    """Number of elements of an image of the input, of the filter, and of an image of the output."""
    return (
        problem.c * problem.di * problem.hi * problem.wi,
        problem.k * problem.c_per_group * problem.z * problem.y * problem.x,
        problem.k * problem.do * problem.ho * problem.wo,
    )


def _is_1x1(problem: ConvProblem) -> bool:
    return (problem.z, problem.y, problem.x) == (1, 1, 1)


def _is_stride1(problem: ConvProblem) -> bool:
    return (problem.stride_d, problem.stride_h, problem.stride_w) == (1, 1, 1)


def _is_unpadded(problem: ConvProblem) -> bool:
    return (problem.pad_d, problem.pad_h, problem.pad_w) == (0, 0, 0)


def _is_3x3(problem: ConvProblem) -> bool:
    return (problem.z, problem.y, problem.x)[3 - problem.ndim :] == (3,) * problem.ndim


def _has_one_channel(problem: ConvProblem) -> bool:
    return problem.c_per_group == 1


_SPECIALIZED: dict[str | None, tuple[tuple[Callable[[ConvProblem], bool], str], ...]] = {
    FILTER1X1_PAD0: ((_is_1x1, "a 1x1 filter"), (_is_unpadded, "no padding")),
    FILTER1X1_STRIDE1_PAD0: ((_is_1x1, "a 1x1 filter"), (_is_stride1, "stride 1"), (_is_unpadded, "no padding")),
    FILTER3X3: ((_is_3x3, "a 3x3 filter"), (_has_one_channel, "C/G = 1")),
}

PROBLEM_RULES = tuple(BOOK.rules)

# All vector widths and numbers of merged groups of pools divide the first; the iterations that rules count, over all
# parts of K, are within the second, and single ones within the third.
_MOST_DIVISOR = 64
_MOST_DEPTH = 2**20
_ONE_DEPTH = 2**12


def rule_key(problem: ConvProblem) -> Hashable:
    """Return the part of a problem that the rules read: problems of one key have the same applicable kernels."""
    specialized = tuple(condition(problem) for condition in (_is_1x1, _is_stride1, _is_unpadded, _is_3x3))
    channels = (gcd(size, _MOST_DIVISOR) for size in (problem.c_per_group, problem.k_per_group, problem.g))
    least, most = _gemm_depths(problem)
    counts = least != most or problem.variant is Direction.BWD_WEIGHT  # whether rules count iterations
    depths = (min(least, _MOST_DEPTH), min(most, _MOST_DEPTH)) if counts else (min(least, _ONE_DEPTH),)
    kind = (problem.variant, problem.dtype, problem.ndim, problem.layout, _gemms(problem) > _MAX_GEMMS)
    few = has_few_channels(problem.c, problem.k, problem.g)
    return (*kind, *channels, few, _has_one_channel(problem), *specialized, *depths, *_reached(problem))


def _reached(problem: ConvProblem) -> Iterator[bool]:
    """Yield whether offsets reach the tensors that `_addressable` may compare, in the order of its sizes."""
    x, w, y = _elements(problem)
    for size in (int(DTYPE_BYTES[problem.dtype]), _FP32_BYTES):
        for elements in (x, y, problem.n * x, problem.n * y, w):
            yield size * elements <= _MAX_TENSOR_BYTES


CONV_RULES: Rules[ConvKernel] = Rules(tuple(NAMED.rules), tuple(COMPLETE.rules), PROBLEM_RULES, attrgetter("missing"))
