"""The rules that a GEMM kernel must keep to run a problem.

Source: the support check of CK Tile's universal GEMM kernel, which asks for padding and whole vectors along the axes
that lie contiguously in A, B and C; and AMD's data, where the `mem` pipeline runs every size whatever its name says of
padding. A kernel for the host has no code for the rest of an axis that it does not pad, contiguous or not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from math import gcd

from ckh.archs import ArchSpec
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.vectors import effective_widths
from ckh.ops.gemm_universal.problem import GemmProblem, contiguous_axes, output_dtype

ProblemRule = Callable[[GemmKernel, ArchSpec, GemmProblem], Iterator[str]]

ALWAYS_PADDED_PIPELINES = frozenset({"mem"})
_HALF = frozenset({"fp16", "bf16"})


def _same_kind(kernel: GemmKernel, _arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    if kernel.dtype != problem.dtype:
        yield f"a kernel of {kernel.dtype} cannot run a problem of {problem.dtype}"
    if kernel.layout != problem.layout:
        yield f"a kernel of layout {kernel.layout} cannot run a problem of layout {problem.layout}"


def _padding(kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    if arch.is_gpu and kernel.pipeline in ALWAYS_PADDED_PIPELINES:
        return
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


def _addressable(_kernel: GemmKernel, arch: ArchSpec, problem: GemmProblem) -> Iterator[str]:
    m, n, k = problem.m, problem.n, problem.k
    stored = {"fp32": 4, "int32": 4}.get(output_dtype(problem.dtype), 2)
    for name, size, most in (("A", m * k, 2**31 - 1), ("B", k * n, 2**31 - 1), ("C", m * n, (2**31 - 1) // stored)):
        if arch.is_gpu and size > most:
            yield f"{name} has {size} elements; CK Tile's offsets reach {most}"


PROBLEM_RULES: tuple[ProblemRule, ...] = (_same_kind, _padding, _whole_vectors, _split_k, _addressable)

# Every tile and vector width of pools divides this.
_MOST_DIVISOR = 768


def rule_key(problem: GemmProblem) -> Hashable:
    """Everything that the rules read from a problem: problems with equal keys support the same kernels."""
    m, n = (gcd(size, _MOST_DIVISOR) for size in (problem.m, problem.n))
    k = gcd(problem.k, _MOST_DIVISOR) if problem.split_k == 1 else problem.k
    return problem.dtype, problem.layout, problem.split_k, m, n, k


def kernel_key(kernel: GemmKernel, arch: ArchSpec) -> Hashable:
    """Everything that the rules read from a kernel: kernels with equal keys are refused for the same reasons."""
    kind = (kernel.dtype, kernel.layout, kernel.tile, kernel.pads, kernel.pipeline in ALWAYS_PADDED_PIPELINES)
    if not arch.is_gpu:
        return kind
    widths = effective_widths(kernel, arch) if kernel.is_complete else None
    return (*kind, widths, kernel.warp_tile[2])
