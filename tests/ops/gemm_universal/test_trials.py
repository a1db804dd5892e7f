"""Problems that exercise every remainder of a GEMM kernel's loops, and kernel classes."""

from __future__ import annotations

from ckh.archs import load_arch
from ckh.bench.computation import measured_of
from ckh.kernels.pipelines import loaded_ahead
from ckh.ops import operation
from ckh.ops.gemm_universal.measuring.measured import loop_end_problems, representatives

ARCH = load_arch("gfx942")


def test_every_number_of_steps() -> None:
    """K has 1 to 6 whole tiles and remainders, as have M and N, and is split in 2 and 3 parts."""
    kernel = representatives(ARCH)["fp8 rcr compv3 intrawave"][0]
    problems = loop_end_problems(kernel)
    whole = {problem.k for problem in problems if problem.split_k == 1}
    assert {steps * kernel.tile_k for steps in range(1, 7)} <= whole
    assert any(depth % kernel.tile_k for depth in whole)
    assert any(problem.m % kernel.tile_m for problem in problems)
    assert any(problem.n % kernel.tile_n for problem in problems)
    assert {problem.split_k for problem in problems} == {1, 2, 3}


def test_a_persistent_kernel_has_more_tiles_than_blocks() -> None:
    """Each of the emulated GPU's four compute units gets a second tile, of several iterations."""
    kernel = representatives(ARCH)["fp16 rcr compv3 intrawave, persistent"][0]
    m, n, k = kernel.tile
    assert any(
        problem.m // m * (problem.n // n) > 2 * 4 and problem.k // k == 2 for problem in loop_end_problems(kernel)
    )


def test_an_unpadded_kernel_refuses_only_ragged_problems() -> None:
    """Problems that it does not support are rejected by its rules; whole tiles remain."""
    measured = measured_of(operation("gemm_universal"))
    kernel = next(
        representative for representative in representatives(ARCH)["fp16 rcr compv3 intrawave"] if representative.pad_m
    )
    problems = loop_end_problems(kernel)
    allowed = [problem for problem in problems if not measured.reasons(kernel, ARCH, problem)]
    assert len(allowed) > 6
    assert {item.k // kernel.tile_k for item in allowed if item.split_k == 1 and not item.k % kernel.tile_k} >= {
        1,
        2,
        6,
    }


def test_classes() -> None:
    """Layouts, dtypes, pipelines and persistent kernels are classes of their own."""
    result = representatives(ARCH)
    assert {"fp16 crr mem interwave", "int8 rcr compv3 intrawave", "fp16 rcr compv4 intrawave, persistent"} <= {*result}
    assert {name.split()[1] for name in result} == {"rcr", "rrr", "crr", "ccr"}


def test_representatives_of_mem_classes_compile_quickly() -> None:
    """It prefetches as few tiles as `mem` allows, since each remainder is compiled; in one class the most."""
    first = {name: kernels[0] for name, kernels in representatives(ARCH).items() if " mem " in name}
    ahead = {name: loaded_ahead("mem", kernel.tile, 4, kernel.dtype) for name, kernel in first.items()}
    assert ahead == dict.fromkeys(ahead, 2) | {"fp16 rcr mem intrawave": 8}
