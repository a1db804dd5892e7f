"""Problems that exercise every remainder of a convolution kernel's loops, and kernel classes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.kernels.pipelines import loaded_ahead
from ckh.ops.grouped_conv.kernel import parse_kernel_name
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.kernels.variants import FILTER1X1_PAD0
from ckh.ops.grouped_conv.measuring.trials import kernel_class, loop_end_problems, representatives
from ckh.problems import Direction

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.kernel import ConvKernel

PLAIN = parse_kernel_name("grouped_conv_fwd_fp16_nhwgc_2d_compv3_cshuffle_intrawave_128x64x32_2x2x1_32x32x16_vec8_8_8")


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("split_k", [1, 2])
def test_every_number_of_steps(direction: Direction, split_k: int) -> None:
    """The GEMM's K has 1 to 6 whole tiles per part, and a remainder in some problem; M and N have remainders too."""
    kernel = replace(PLAIN, variant=direction, split_k=split_k)
    sizes = [problem.gemm_sizes for problem in loop_end_problems(kernel)]
    depths = {k for _, _, k in sizes}
    assert {steps * 32 * split_k for steps in range(1, 7)} <= depths
    assert any(depth % (32 * split_k) for depth in depths)
    assert any(m > 128 and m % 128 for m, _, _ in sizes)
    assert any(n > 64 and n % 64 for _, n, _ in sizes)


def test_strides_dilations_groups_and_depths() -> None:
    """Some problem has each of them, in 3D along the depth as well."""
    problems = loop_end_problems(replace(PLAIN, ndim_spatial=3, layout="ndhwgc"))
    assert any(problem.stride_h == problem.stride_d == 2 for problem in problems)
    assert any(problem.dilation_w == problem.dilation_d == 2 for problem in problems)
    assert any(problem.g == 3 and problem.n == 2 for problem in problems)
    assert any(problem.z > 1 and problem.di > 1 for problem in problems)


def bordered(kernel: ConvKernel) -> set[int]:
    """Return the depths of the problems with two images, a 1x1 filter and padding."""
    problems = (
        problem
        for problem in loop_end_problems(kernel)
        if problem.y == problem.x == 1 and problem.pad_h == problem.pad_w == 1
    )
    return {problem.gemm_sizes[2] for problem in problems if problem.n == 2}


@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.BWD_WEIGHT])
def test_borders_at_every_loop_tail(direction: Direction) -> None:
    """A 1x1 filter reads rows and columns outside two images at every number of iterations, unless rejected."""
    plain = replace(PLAIN, variant=direction)
    assert bordered(plain) == {32, 64, 72, 96, 128, 160, 192}
    assert bordered(replace(plain, specialization=FILTER1X1_PAD0)) == set()


def test_more_blocks_than_rows_of_a_block_group() -> None:
    """Some problem has at least five tiles along M and two along N."""
    sizes = [problem.gemm_sizes for problem in loop_end_problems(PLAIN)]
    assert any(m > 4 * 128 and n > 64 for m, n, _ in sizes)


def test_merged_groups_have_enough_groups() -> None:
    """Every problem's groups are a multiple of the groups that a kernel merges."""
    problems = loop_end_problems(replace(PLAIN, variant=Direction.BWD_WEIGHT, num_groups_to_merge=4))
    assert {problem.g % 4 for problem in problems} == {0}


def test_specialized_kernels_have_their_own_problems() -> None:
    """A kernel for 3x3 filters with one channel per group has such problems, with and without a stride."""
    kernel = replace(PLAIN, specialization="filter3x3", vector_a=1, vector_b=1, vector_c=1)
    allowed = [
        problem for problem in loop_end_problems(kernel) if not CONV_RULES.check(kernel, load_arch("gfx942"), problem)
    ]
    assert {(problem.c_per_group, problem.y, problem.stride_h) for problem in allowed} == {(1, 3, 1), (1, 3, 2)}


def test_classes() -> None:
    """A class has what affects the result: direction, dtype, pipeline, scheduler, options; not the tile."""
    weight = replace(PLAIN, variant=Direction.BWD_WEIGHT, split_k=2, two_stage=True)
    assert kernel_class(PLAIN) == "forward fp16 compv3 intrawave"
    assert kernel_class(weight).split(", ") == ["bwd_weight fp16 compv3 intrawave", "split K", "two stages"]
    assert kernel_class(replace(PLAIN, tile_m=64)) == kernel_class(PLAIN)
    assert kernel_class(replace(PLAIN, ndim_spatial=3, layout="ndhwgc")) == "forward fp16 compv3 intrawave, 3D"
    assert kernel_class(replace(PLAIN, pipeline="basic_v1")) == "forward fp16 basic_v1"


def test_representatives_belong_to_their_class() -> None:
    """Each class has a kernel of every direction, with and without split, in one and two stages, and its problems."""
    result = representatives(load_arch("gfx942"))
    for name in ("forward fp16 mem interwave", "bwd_data fp16 compv3 intrawave", "bwd_weight fp16 compv4 intrawave"):
        assert name in result
    options = ["bwd_weight fp16 mem intrawave", "merged groups", "split K", "two stages"]
    assert ", ".join(options) in result
    assert not any("split K" in name and "two stages" not in name for name in result if " fp32 " not in name)
    assert {kernel.ndim_spatial for kernel in result["forward fp16 compv3 intrawave, 3D"]} == {3}


def test_representatives_of_mem_classes_compile_quickly() -> None:
    """It prefetches as few tiles as `mem` allows, since each remainder is compiled; forward's first kind more."""
    result = representatives(load_arch("gfx942"))
    ahead = {
        name: loaded_ahead(first.pipeline, (first.tile_m, first.tile_n, first.tile_k), 4, first.dtype)
        for name, (first, *_) in result.items()
        if " mem " in name and set(name.split(", ")[1:]) <= {"3D", "split K"}
    }
    most = {"forward fp16 mem interwave": 4, "forward fp16 mem intrawave": 4}
    assert ahead == dict.fromkeys(ahead, 2) | most
