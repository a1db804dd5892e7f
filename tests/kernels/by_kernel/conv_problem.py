"""The rules that a kernel must keep to run a problem. Source: the support checks of CK Tile's kernels.

C and K are channels per group here, as they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from math import gcd, prod

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


def _compv6_loops(kernel: ConvKernel, arch: ArchSpec, problem: ConvProblem) -> Iterator[str]:
    if kernel.pipeline != "compv6" or problem.variant is not Direction.BWD_WEIGHT:
        return
    loops = -(-problem.gemm_sizes[2] // kernel.tile_k)
    if loops < arch.least_trips:
        yield f"compv6 in bwd_weight needs {arch.least_trips} iterations over K, {problem.gemm_sizes[2]} gives {loops}"


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
    _compv6_loops,
    _overrun,
    _addressable,
)

# All vector widths and numbers of merged groups of pools divide the first; the trips that a kernel needs are within the
# second.
_MOST_DIVISOR = 64
_MOST_DEPTH = 2**20


def rule_key(problem: ConvProblem) -> Hashable:
    """Everything that the rules read from a problem: problems with equal keys support the same kernels."""
    specialized = tuple(condition(problem) for condition in (_is_1x1, _is_stride1, _is_unpadded, _is_3x3))
    channels = (gcd(size, _MOST_DIVISOR) for size in (problem.c_per_group, problem.k_per_group, problem.g))
    # Only compv6 in backward weight asks how long K is.
    depth = min(problem.gemm_sizes[2], _MOST_DEPTH) if problem.variant is Direction.BWD_WEIGHT else 0
    kind = (problem.variant, problem.dtype, problem.ndim, problem.layout)
    return (*kind, *channels, _has_one_channel(problem), *specialized, depth)


def kernel_key(kernel: ConvKernel) -> Hashable:
    """Everything that the rules read from a kernel: kernels with equal keys are refused for the same reasons."""
    kind = (kernel.variant, kernel.dtype, kernel.ndim_spatial, kernel.layout, kernel.specialization)
    widths = (kernel.vector_a, kernel.vector_b, kernel.vector_c, kernel.num_groups_to_merge)
    tensors = (kernel.explicit_gemm, kernel.two_stage)
    return (*kind, *widths, kernel.tile_k if kernel.pipeline == "compv6" else 0, *tensors)
