"""The rules that a kernel must keep to run a problem. Source: the support checks of CK Tile's kernels.

C and K are channels per group here, as they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod

from ckh.archs import ArchSpec
from ckh.ops.grouped_conv.kernel import ConvKernel
from ckh.ops.grouped_conv.kernels.variants import FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0, FILTER3X3
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import DTYPE_BYTES, Direction

ProblemRule = Callable[[ConvKernel, ArchSpec, ConvProblem], Iterator[str]]

# Direction -> (vector width, the channels it runs along).
_VECTOR_CHANNELS: dict[Direction, tuple[tuple[str, str], ...]] = {
    Direction.FORWARD: (("vector_a", "c_per_group"), ("vector_b", "c_per_group"), ("vector_c", "k_per_group")),
    Direction.BWD_DATA: (("vector_a", "k_per_group"), ("vector_b", "c_per_group"), ("vector_c", "c_per_group")),
    Direction.BWD_WEIGHT: (("vector_a", "k_per_group"), ("vector_b", "c_per_group"), ("vector_c", "c_per_group")),
}
# A forward kernel that merges groups loads A and stores C across groups.
_MERGED_FORWARD = (("vector_b", "c_per_group"), ("vector_c", "g"))
_MEANING = {"c_per_group": "C/G", "k_per_group": "K/G", "g": "G"}


def _same_kind(kernel: ConvKernel, _arch: ArchSpec, problem: ConvProblem) -> Iterator[str]:
    if kernel.variant is not problem.variant:
        yield f"a {kernel.variant} kernel cannot run a {problem.variant} problem"
    if kernel.dtype != problem.dtype:
        yield f"a kernel of {kernel.dtype} cannot run a problem of {problem.dtype}"
    if kernel.ndim_spatial != problem.ndim:
        yield f"a {kernel.ndim_spatial}D kernel cannot run a {problem.ndim}D problem"
    if kernel.layout is not None and kernel.layout != problem.layout:
        yield f"a kernel of layout {kernel.layout} cannot run a problem of layout {problem.layout}"


def _vector_divisibility(kernel: ConvKernel, arch: ArchSpec, problem: ConvProblem) -> Iterator[str]:
    if not arch.vector_divisibility:
        return
    is_merged_forward = kernel.num_groups_to_merge > 1 and kernel.variant is Direction.FORWARD
    for vector, channels in _MERGED_FORWARD if is_merged_forward else _VECTOR_CHANNELS[kernel.variant]:
        width, size = getattr(kernel, vector), getattr(problem, channels)
        if width and size % width:
            yield f"{_MEANING[channels]} = {size} is not a multiple of {vector} = {width}"


def _merged_groups(kernel: ConvKernel, _arch: ArchSpec, problem: ConvProblem) -> Iterator[str]:
    merged = kernel.num_groups_to_merge
    if merged <= 1:
        return
    if problem.g % merged:
        yield f"G = {problem.g} is not a multiple of the {merged} groups to merge"
    if kernel.variant is Direction.FORWARD and problem.c_per_group != 1:
        yield f"merging groups in forward needs C/G = 1, not {problem.c_per_group}"


def _specialization(kernel: ConvKernel, _arch: ArchSpec, problem: ConvProblem) -> Iterator[str]:
    if kernel.specialization not in _SPECIALIZED:
        return
    for condition, words in _SPECIALIZED[kernel.specialization]:
        if not condition(problem):
            yield f"the specialization {kernel.specialization} needs {words}"


def _taps_of_gemms(problem: ConvProblem) -> list[list[int]]:
    """Taps along each axis that reach an input element, for each position within the stride that has any."""
    axes = (
        (problem.z, problem.stride_d, problem.dilation_d),
        (problem.y, problem.stride_h, problem.dilation_h),
        (problem.x, problem.stride_w, problem.dilation_w),
    )
    return [
        # Where dilation may leave fewer positions, one of all taps counts too.
        [len(range(at, taps, stride)) for at in range(min(taps, stride))] + [taps] * (stride > 1 and dilation > 1)
        for taps, stride, dilation in axes[3 - problem.ndim :]
    ]


def _depths(problem: ConvProblem) -> list[int]:
    if problem.variant is not Direction.BWD_DATA:
        return [problem.gemm_sizes[2]]
    return [problem.k_per_group * prod(taps) for taps in product(*_taps_of_gemms(problem))]


def _countable(kernel: ConvKernel, arch: ArchSpec, problem: ConvProblem) -> Iterator[str]:
    gemms = (problem.z, problem.y, problem.x), (problem.stride_d, problem.stride_h, problem.stride_w)
    count = prod(min(pair) for pair in list(zip(*gemms, strict=True))[3 - problem.ndim :])
    if arch.is_gpu and problem.variant is Direction.BWD_DATA and count > 128:
        yield f"bwd_data with these strides is {count} GEMMs, CK Tile launches at most 128"


def _gemms_alike(kernel: ConvKernel, arch: ArchSpec, problem: ConvProblem) -> Iterator[str]:
    if kernel.variant is not Direction.BWD_DATA or not arch.is_gpu or not kernel.is_complete:
        return
    steps = sorted({-(-depth // kernel.tile_k) for depth in _depths(problem)})
    looped = {"compv3": 2, "compv4": 2, "comp_async": 2, "compv6": 3, "mem": 8}
    is_alike = len(steps) == 1 or (kernel.pipeline == "compv3" and steps[0] > looped["compv3"])
    if kernel.pipeline in looped and not is_alike:
        yield f"bwd_data's GEMMs take {steps[0]} to {steps[-1]} iterations over K, for CK Tile of 2025 too unlike"


def _compv6_loops(kernel: ConvKernel, arch: ArchSpec, problem: ConvProblem) -> Iterator[str]:
    if kernel.pipeline != "compv6":
        return
    loops = -(-problem.gemm_sizes[2] // kernel.tile_k)
    if problem.variant is Direction.BWD_WEIGHT and loops < arch.least_trips:
        yield f"compv6 in bwd_weight needs {arch.least_trips} iterations over K, {problem.gemm_sizes[2]} gives {loops}"
    elif arch.is_gpu and min(_depths(problem)) <= kernel.tile_k * kernel.split_k:
        where = f"{min(_depths(problem))} in {kernel.split_k} parts, tile_k {kernel.tile_k}"
        yield f"compv6 is wrong with a single iteration over K: {where}"


def _overrun(kernel: ConvKernel, arch: ArchSpec, problem: ConvProblem) -> Iterator[str]:
    if (kernel.pipeline, problem.variant) != ("compv4", Direction.BWD_WEIGHT) or kernel.split_k < 2 or not arch.is_gpu:
        return
    k = problem.n * problem.do * problem.ho * problem.wo
    step = kernel.tile_k * kernel.split_k
    if 2 * step < k <= 3 * step:
        where = f"where {k} in {kernel.split_k} parts takes three iterations"
        yield f"compv4 in bwd_weight reads beyond its part of K {where}"


def _addressable(kernel: ConvKernel, arch: ArchSpec, problem: ConvProblem) -> Iterator[str]:
    if not arch.is_gpu:
        return
    element = int(DTYPE_BYTES[kernel.dtype])
    is_whole = kernel.variant is Direction.BWD_WEIGHT or kernel.explicit_gemm
    pixel = 4 if kernel.explicit_gemm and kernel.variant is Direction.FORWARD else element
    name = "the {}" if is_whole else "the image of the {}"
    cut = 1 if is_whole else problem.n
    sizes = {
        name.format("input"): prod(problem.input_shape) // cut * pixel,
        name.format("output"): prod(problem.output_shape) // cut * pixel,
        "the filter": prod(problem.weight_shape) * (4 if kernel.two_stage else element),
    }
    for tensor, size in sizes.items():
        if size >= 2**31:
            yield f"{tensor} has {size} bytes; CK Tile's offsets reach 2147483647"


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

PROBLEM_RULES: tuple[ProblemRule, ...] = (
    _same_kind,
    _vector_divisibility,
    _merged_groups,
    _specialization,
    _countable,
    _gemms_alike,
    _compv6_loops,
    _overrun,
    _addressable,
)
