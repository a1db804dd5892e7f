"""The key of a problem's candidates: problems of one key have the same candidates, whatever their sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckh.archs import load_arch
from ckh.ops import operation
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Sequence

NOWHERE = Path("nowhere")
CHANNELS = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96, 100, 256, 1024, 3072])
SIZES = st.integers(1, 40)


@st.composite
def convolutions(draw: st.DrawFn) -> ConvProblem:
    """All directions, 2D and 3D, small and large filters, with and without groups."""
    groups, taps = draw(st.sampled_from([1, 2, 4, 8, 32])), draw(st.sampled_from([1, 3, 5]))
    ndim = draw(st.sampled_from([2, 3]))
    depth: dict[str, Any] = {"di": 4, "z": taps, "pad_d": taps // 2} if ndim == 3 else {}
    return ConvProblem(
        draw(st.sampled_from(list(Direction))),
        *(draw(SIZES), groups * draw(CHANNELS), groups * draw(CHANNELS), groups),
        *(draw(SIZES) + taps, draw(SIZES) + taps, taps, taps),
        pad_h=taps // 2,
        pad_w=taps // 2,
        stride_h=draw(st.sampled_from([1, 2])),
        ndim=ndim,
        dtype=draw(st.sampled_from(["bf16", "fp32"])),
        **depth,
    )


@settings(max_examples=60, deadline=None)
@given(first=convolutions(), second=convolutions(), factor=st.sampled_from([1, 3, 16, 11]))
def test_convolutions_with_the_same_key_have_the_same_candidates(
    first: ConvProblem, second: ConvProblem, factor: int
) -> None:
    """On a GPU, where vectors must divide channels; sizes that no rule reads are arbitrary."""
    op, arch = operation("grouped_conv"), load_arch("gfx942")
    larger = replace(first, n=first.n * factor, c=first.c * factor, k=first.k * factor, hi=first.hi + factor)
    for other in (second, larger):
        if op.kernels.key_of(first) == op.kernels.key_of(other):
            candidates, two = op.kernels.candidates(first, arch, NOWHERE), op.kernels.candidates(other, arch, NOWHERE)
            assert candidates.pool is two.pool
            assert np.array_equal(candidates.chosen, two.chosen)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 12000)),
    turns=st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
    layout=st.sampled_from(["rcr", "rrr", "ccr"]),
)
@pytest.mark.parametrize("arch", ["host", "gfx942"])
def test_gemms_with_the_same_key_have_the_same_candidates(
    sizes: tuple[int, int, int], turns: tuple[int, int, int], layout: str, arch: str
) -> None:
    """Sizes that differ by common multiples of all tiles are equivalent, unless K is short or offsets nearly end."""
    op, spec = operation("gemm_universal"), load_arch(arch)
    dtype = spec.default_dtype
    first = gemm(sizes, dtype, layout)
    second = gemm([size + turn * 9 * 5005 * 4096 for size, turn in zip(sizes, turns, strict=True)], dtype, layout)
    assert (op.kernels.key_of(first) == op.kernels.key_of(second)) is (beside(first) == beside(second))
    if beside(first) != beside(second):
        return
    candidates, two = op.kernels.candidates(first, spec, NOWHERE), op.kernels.candidates(second, spec, NOWHERE)
    assert candidates.pool is two.pool
    assert np.array_equal(candidates.chosen, two.chosen)


def beside(problem: GemmProblem) -> tuple[int, ...]:
    """What matters beside divisors: a short K, and lines of matrices near the end of 32-bit offsets, else 0."""
    m, n, k, layout = problem.m, problem.n, problem.k, problem.layout
    loaded, stored = {"fp32": (2**30 - 1, 2**29 - 1)}.get(problem.dtype, (2**31 - 1, 2**30 - 1))
    a, b = (m, k) if layout[0] == "r" else (k, m), (k, n) if layout[1] == "r" else (n, k)
    result = [k if k <= 2**13 else 0]
    for (lines, length), tiles, most in ((a, 3, loaded), (b, 3, loaded), ((m, n), 1, stored)):
        is_near = (lines + tiles * 2**11) * length > most
        result += [lines, length] if is_near else [0, 0]
    return tuple(result)


def gemm(sizes: Sequence[int], dtype: str, layout: str) -> GemmProblem:
    """Return a product of these M, N and K."""
    m, n, k = sizes
    return GemmProblem(m, n, k, dtype, layout)
