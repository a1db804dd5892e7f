"""Spaces of kernels contain legal kernels only, and include the candidate pool."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from ckh.archs import load_arch
from ckh.errors import NoKernelError, UsageError
from ckh.ops import operation, operation_of
from ckh.ops.gemm_universal.kernels.pool import space_of
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, GemmProblem
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.search.space import kernel_space, searched
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Callable


P = TypeVar("P", ConvProblem, GemmProblem)
CONV = ConvProblem(Direction.FORWARD, n=1, c=64, k=64, g=1, hi=14, wi=14, y=3, x=3, pad_h=1, pad_w=1)
GEMM = GemmProblem(128, 1536, 7168)
ARCH_DTYPES = (("host", "fp32"), ("gfx942", "bf16"), ("gfx90a", "fp16"))


def space_for(problem: ConvProblem | GemmProblem, arch: str = "host", limit: int = 10_000) -> Any:
    """The space of a problem with its pool."""
    spec = load_arch(arch)
    pool = operation_of(problem.canonical()).kernels.candidates(problem, spec, Path()).kernels
    return kernel_space(problem, spec, pool, limit)


def _value(space: Any, number: int, name: str) -> Any:
    """Value of a parameter in a configuration."""
    places = {parameter.name: place for place, parameter in enumerate(space.space.parameters)}
    return space.space.parameters[places[name]].values[space.space.codes[number, places[name]]]


def random_conv(rng: random.Random, dtype: str) -> ConvProblem:
    """A convolution of any direction, often with odd channels."""
    groups, filter_size = rng.choice((1, 1, 2, 4)), rng.choice((1, 3))
    c, k = (groups * rng.choice((3, 8, 12, 64)) for _ in range(2))
    variant, n, stride = rng.choice(list(Direction)), rng.choice((1, 4)), rng.choice((1, 2))
    return ConvProblem(variant, n, c, k, groups, 14, 9, filter_size, 3, stride_h=stride, pad_h=1, pad_w=1, dtype=dtype)


def random_gemm(rng: random.Random, dtype: str) -> GemmProblem:
    """A GEMM of any layout, with sizes that tiles divide or not."""
    m, n, k = (rng.choice((1, 24, 96, 128, 264, 1000, 4096)) for _ in range(3))
    return GemmProblem(m, n, k, dtype, rng.choice(GEMM_LAYOUTS), rng.choice((1, 1, 2)) if k > 1 else 1)


def first_with_kernels(draw: Callable[[], P], arch: str) -> tuple[P, Any]:
    """The first drawn problem that has kernels, and its space."""
    for _ in range(100):
        problem = draw()
        with suppress(NoKernelError):
            return problem, space_for(problem, arch, limit=2500)
    raise AssertionError("no problem has a kernel")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("arch", "dtype"), ARCH_DTYPES)
def test_convolution_proposals_are_legal(arch: str, dtype: str, seed: int) -> None:
    """Kernels of random convolutions violate no rule, are unique and numbered, and round-trip through names."""
    spec, rng = load_arch(arch), random.Random(f"{arch} {seed}")
    problem, space = first_with_kernels(lambda: random_conv(rng, dtype), arch)
    op = operation("grouped_conv")
    assert len(set(space.kernels)) == len(space.kernels) == len(space.space)
    for number, kernel in enumerate(space.kernels):
        assert CONV_RULES.check(kernel, spec, problem) == []
        if number % 50 == 0:
            assert op.kernels.parse(op.kernels.name(kernel)) == kernel
            assert _value(space, number, "tile_m") == kernel.tile_m


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("arch", "dtype"), ARCH_DTYPES)
def test_gemm_proposals_are_legal(arch: str, dtype: str, seed: int) -> None:
    """Kernels of random GEMMs violate no rule, are unique and numbered, and round-trip through names."""
    spec, rng = load_arch(arch), random.Random(f"{arch} {seed}")
    problem, space = first_with_kernels(lambda: random_gemm(rng, dtype), arch)
    op = operation("gemm_universal")
    assert len(set(space.kernels)) == len(space.kernels) == len(space.space)
    for number, kernel in enumerate(space.kernels):
        if number >= space.pool_size or number % 10 == seed:  # of a GPU's tens of thousands of candidates
            assert GEMM_RULES.check(kernel, spec, problem) == []
        if number % 50 == 0:
            assert op.kernels.parse(op.kernels.name(kernel)) == kernel
            assert _value(space, number, "tile_n") == kernel.tile_n


@pytest.mark.parametrize("problem", [CONV, GEMM])
def test_the_pool_comes_first_at_any_limit(problem: ConvProblem | GemmProblem) -> None:
    """Every candidate is included, in order, even if nothing else fits."""
    pool = operation_of(problem.canonical()).kernels.candidates(problem, load_arch("host"), Path()).kernels
    small, large = space_for(problem, limit=1), space_for(problem, limit=2000)
    assert small.kernels == pool
    assert large.kernels[: large.pool_size] == pool
    assert large.pool_size == len(pool)
    assert len(large) == 2000


@pytest.mark.slow
def test_a_host_convolution_is_searched_over_all_waves_and_warp_tiles() -> None:
    """All five waves, three warp tiles and four widths of each operand occur, and only changes that affect the code."""
    space = space_for(CONV, limit=12_000)
    values = {parameter.name: parameter.values for parameter in space.space.parameters}
    assert values["wave"] == ("1x4x1", "2x2x1", "4x1x1", "4x4x1", "8x2x1")
    assert values["warp_tile"] == ("16x16x16", "16x16x32", "32x32x16")
    assert [values[f"vector_{operand}"] for operand in "abc"] == [(1, 2, 4, 8)] * 3
    assert len(values["pipeline"]) == 6
    assert "block_per_cu" not in values
    assert {kernel.block_per_cu for kernel in space.kernels} == {1}


@pytest.mark.slow
def test_a_whole_space_leaves_nothing_out() -> None:
    """The host's GEMM space is searched completely: more tiles than the pool's, every pad."""
    space = space_for(GEMM, limit=100_000)
    assert space.left_out == 0
    assert {kernel.tile for kernel in space.kernels} > set(space_of(load_arch("host")).tiles)
    assert len({kernel.pads for kernel in space.kernels}) == 8


@pytest.mark.slow
def test_omitted_kernels_are_counted() -> None:
    """Each combination is in the space, refused, or omitted."""
    whole, part = space_for(GEMM, limit=10**9), space_for(GEMM, limit=12_000)
    assert whole.left_out == 0
    assert 0 < len(whole) - len(part) <= part.left_out
    assert set(part.kernels) < set(whole.kernels)


@pytest.mark.slow
def test_the_same_problem_has_the_same_space() -> None:
    """The random part does not depend on the call."""
    assert space_for(CONV, limit=11_000).kernels == space_for(CONV, limit=11_000).kernels


@pytest.mark.slow
def test_a_gpu_is_searched_over_blocks_per_cu_and_persistence() -> None:
    """On gfx942 there are kernels beyond the pool in GPU-only options."""
    conv = space_for(ConvProblem(Direction.FORWARD, 1, 64, 64, 1, 14, 14, 1, 1, dtype="bf16"), "gfx942", 40_000)
    gemm = space_for(GemmProblem(128, 1536, 7168, "bf16"), "gfx942", 30_000)
    assert {kernel.block_per_cu for kernel in conv.kernels} == {1, 2}
    assert {kernel.persistent for kernel in gemm.kernels} == {False, True}
    assert {kernel.epilogue for kernel in gemm.kernels} == {"cshuffle", "default"}


@pytest.mark.slow
def test_gpu_proposals_beyond_the_pool_can_be_loaded() -> None:
    """Every thread of a block loads whole vectors of A and B, for any vector width."""
    space = space_for(ConvProblem(Direction.FORWARD, 1, 64, 64, 1, 14, 14, 1, 1, dtype="bf16"), "gfx942", 12_000)
    for kernel in space.kernels[space.pool_size :]:
        threads = 64 * kernel.wave_m * kernel.wave_n * kernel.wave_k
        for rows, width in ((kernel.tile_m, kernel.vector_a), (kernel.tile_n, kernel.vector_b)):
            share = rows * kernel.tile_k / threads
            assert share >= 1
            assert share % width == 0 or width % share == 0


def test_kernels_that_a_device_cannot_build_are_omitted() -> None:
    """An additional check applies to the pool's kernels too."""
    pool = operation("grouped_conv").kernels.candidates(CONV, load_arch("host"), Path()).kernels
    space: Any = kernel_space(CONV, load_arch("host"), pool, 1000, lambda kernel: asdict(kernel)["pipeline"] == "mem")
    assert {kernel.pipeline for kernel in space.kernels} == {"mem"}
    assert space.pool_size == sum(asdict(kernel)["pipeline"] == "mem" for kernel in pool)


def test_no_legal_kernel_is_an_error() -> None:
    """A dtype that the architecture does not run has no space."""
    with expect_refusal(NoKernelError, "no-kernel", "kernel", "host", "conv_forward_fp16"):
        space_for(ConvProblem(Direction.FORWARD, 1, 8, 8, 1, 7, 7, 1, 1, dtype="fp16"))


def test_listed_kernels_cannot_be_searched() -> None:
    """An operation whose kernels have no parameters is refused."""
    with expect_refusal(UsageError, "unsupported", "aiter_moe"):
        searched(operation("aiter_moe"))
