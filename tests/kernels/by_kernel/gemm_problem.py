"""The rules that a GEMM kernel must keep to run a problem.

Source: the support check of CK Tile's universal GEMM kernel, which asks for padding and whole vectors along the axes
that lie contiguously in A, B and C; and the checks before a launch in ckh's templates of 2025. A kernel for the host
has no code for the rest of an axis that it does not pad, contiguous or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ckh.archs import ArchSpec
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.problem_rules import effective_widths
from ckh.ops.gemm_universal.problem import GemmProblem, contiguous_axes, output_dtype

ProblemRule = Callable[[GemmKernel, ArchSpec, GemmProblem], Iterator[str]]

# Pipeline -> tiles along K for which an unpadded kernel loads further ones.
OVERRUNS = {"compv4": (1, 3), "compv6": (1,), "comp_async": (3,)}
_HALF = frozenset({"fp16", "bf16"})


def _same_kind(kernel: GemmKernel, _arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    if kernel.dtype != problem.dtype:
        yield f"a kernel of {kernel.dtype} cannot run a problem of {problem.dtype}"
    if kernel.layout != problem.layout:
        yield f"a kernel of layout {kernel.layout} cannot run a problem of layout {problem.layout}"


def _padding(kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    axes = contiguous_axes(problem.layout) if arch.is_gpu else tuple("mnk")
    for axis, tile, padded in zip("mnk", kernel.tile, kernel.pads, strict=True):
        step = tile * problem.split_k if axis == "k" else tile
        if padded is False and axis in axes and problem.size(axis) % step:
            parts = f" x split_k {problem.split_k}" if step != tile else ""
            yield f"{axis.upper()} = {problem.size(axis)} is not a multiple of tile_{axis} {tile}{parts}, nor padded"


def _whole_vectors(kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    if not arch.vector_divisibility or not kernel.is_complete:
        return
    widths, axes = effective_widths(kernel, arch), contiguous_axes(problem.layout)
    for operand, width, axis in zip("abc", widths, axes, strict=True):
        if problem.size(axis) % width:
            yield f"{axis.upper()} = {problem.size(axis)} is not a multiple of vector_{operand} = {width}"


def _split_k(kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    if problem.split_k == 1:
        return
    if not arch.is_gpu:
        yield f"{arch.name} does not split K"
    elif kernel.is_complete:
        # All parts but the last are equal, in whole warp tiles.
        depth = kernel.warp_tile[2]
        part = -(-problem.k // (problem.split_k * depth)) * depth
        if part * (problem.split_k - 1) >= problem.k:
            yield f"K = {problem.k} in {problem.split_k} parts of {part} leaves nothing for the last"
        if output_dtype(kernel.dtype) in _HALF and effective_widths(kernel, arch)[2] % 2:
            yield f"split_k {problem.split_k} needs an even vector_c for {output_dtype(kernel.dtype)} results"


def _loop_end(kernel: GemmKernel, steps: int) -> tuple[bool, int]:
    """Whether the main loop runs, and its tail, as `BlockHasHotloop` and `GetBlockLoopTailNum` say."""
    m, n, k = kernel.tile
    match kernel.pipeline:
        case "compv3":
            return (True, 0) if steps > 2 else (False, steps % 2)
        case "compv4" | "comp_async":
            return steps > 2, steps % 2 if steps > 1 else -1
        case "compv6":
            return steps > 3, steps % 2
        case "mem":
            size = {"fp32": 4, "fp8": 1, "bf8": 1, "int8": 1}.get(kernel.dtype, 2)
            groups = max(1, 4 // (kernel.wave_m * kernel.wave_n * kernel.wave_k))  # type: ignore[operator]
            ahead = min(max(-(-(32768 // groups) // ((m + n) * k * size)), 2), 8)
            return steps > ahead, steps % ahead
    return True, 0


def _rows_of_c(kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    is_added = arch.is_gpu and problem.split_k > 1 and kernel.dtype == "bf16"
    if is_added and problem.size("m") % kernel.tile_m:
        why = "CK Tile of 2025 adds bf16 beyond C"
        yield f"M = {problem.size('m')} is not a multiple of tile_m {kernel.tile_m}: {why}"


def _parts_alike(kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    if not arch.is_gpu or not kernel.is_complete or problem.split_k == 1:
        return
    depth = kernel.warp_tile[2]
    part = (problem.k + problem.split_k * depth - 1) // (problem.split_k * depth) * depth
    last = problem.k - part * (problem.split_k - 1)
    ends = {_loop_end(kernel, (length + kernel.tile_k - 1) // kernel.tile_k) for length in (part, last) if last > 0}
    if len(ends) > 1:
        yield f"parts of K of {part}, the last of {last}, end unlike in tiles of {kernel.tile_k}"


def _overrun(kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    if not arch.is_gpu or kernel.pad_k is not False or problem.layout != "rcr":
        return
    for trip in OVERRUNS.get(kernel.pipeline, ()):
        if problem.k == trip * kernel.tile_k * problem.split_k:
            what = f"{trip} x tile_k {kernel.tile_k}"
            yield f"K = {problem.k} in {problem.split_k} parts is {what}: CK Tile of 2025 reads beyond"


def _addressable(kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    if not arch.is_gpu:
        return
    m, n, k, (tile_m, tile_n, tile_k) = problem.m, problem.n, problem.k, kernel.tile
    stored = {"fp32": 4, "int32": 4}.get(output_dtype(problem.dtype), 2)
    loaded = {"fp32": 2**30 - 1}.get(problem.dtype, 2**31 - 1)
    a = (m, tile_m, k) if problem.layout[0] == "r" else (k, tile_k, m)
    b = (k, tile_k, n) if problem.layout[1] == "r" else (n, tile_n, k)
    c = (m, tile_m, n)
    for name, (lines, tile, length), tiles, most in zip(
        "ABC", (a, b, c), (3, 3, 1), (loaded, loaded, (2**31 - 1) // stored), strict=True
    ):
        beyond = (lines + tiles * tile) * length
        if beyond > most:
            yield (
                f"{name} has {lines * length} elements, {beyond} with the tiles beyond; CK Tile's offsets reach {most}"
            )


PROBLEM_RULES: tuple[ProblemRule, ...] = (
    *(_same_kind, _padding, _whole_vectors, _split_k),
    *(_rows_of_c, _parts_alike, _overrun, _addressable),
)
