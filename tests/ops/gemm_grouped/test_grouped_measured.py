"""Groups of products computed: operands, loop ends and execution."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.bench.compilation.kernel_cache import loadable
from ckh.bench.computation import Role
from ckh.bench.isolated.kernel_library import KernelLibrary
from ckh.errors import UsageError
from ckh.isa.source import described
from ckh.ops.gemm_grouped.measured import (
    MEASURED,
    c_problem,
    multiply_groups,
    operands,
)
from ckh.ops.gemm_grouped.operation import parse_grouped_kernel
from ckh.ops.gemm_grouped.problem import GemmGroupedProblem
from ckh.ops.gemm_universal.kernel import kernel_name
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from tests.real import Real, compiles
from tests.refusals import expect_refusal

ARCH = load_arch("gfx942")
EMITTED = "gemm_grouped_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_32x32x16"


@pytest.mark.parametrize("layout", GEMM_LAYOUTS)
def test_operands_are_the_matrices_of_all_groups(layout: str) -> None:
    """A and C have the rows of all groups, B is one matrix for each, and rows are multiplied with their group's."""
    problem = GemmGroupedProblem(ms="5+3x2+0", n=4, k=6, dtype="fp8", layout=layout)
    a, b, c = operands(problem)
    shapes = [(11, 6) if layout[0] == "r" else (6, 11), (4, 6, 4) if layout[1] == "r" else (4, 4, 6), (11, 4)]
    assert [(operand.name, operand.dtype, operand.role) for operand in (a, b, c)] == [
        ("a", "fp8", Role.INPUT),
        ("b", "fp8", Role.INPUT),
        ("c", "fp16", Role.OUTPUT),
    ]
    assert [item.shape for item in (a, b, c)] == shapes
    random = np.random.default_rng(1)
    left, right = random.standard_normal(a.shape), random.standard_normal(b.shape)
    result = multiply_groups(problem, left, right)
    rows = left if layout[0] == "r" else left.T
    for row, group in enumerate([0] * 5 + [1] * 3 + [2] * 3):
        weight = right[group] if layout[1] == "r" else right[group].T
        np.testing.assert_allclose(result[row], [sum(rows[row] * weight[:, column]) for column in range(4)])


def test_the_structure_of_kernels() -> None:
    """Sizes of one product with the sum of all M, the number of groups, and their M, largest first."""
    problem = GemmGroupedProblem(ms="8x2+0+24", n=32, k=16, dtype="fp16", split_k=2)
    words = np.frombuffer(bytes(c_problem(problem)), np.int64)
    assert words[:9].tolist() == [40, 32, 16, 2, 4, 24, 8, 8, 0]
    assert words.size == 5 + 1024
    assert not words[9:].any()


def test_loop_ends_are_of_one_group_and_of_several() -> None:
    """All numbers of steps, in one group, equal ones, and unequal ones of which one has no rows; split K too."""
    kernel = replace(parse_grouped_kernel(EMITTED), pad_m=True, pad_n=True, pad_k=True)
    assert MEASURED.trials is not None
    result = MEASURED.trials().loop_ends(kernel)
    assert {problem.k // 64 for problem in result if problem.k % 64 == 0 and problem.split_k == 1} >= set(range(1, 4))
    assert {problem.num_groups for problem in result} == {1, 3, 4}
    assert {0 in problem.all_m for problem in result} == {True, False}
    assert {problem.split_k for problem in result} == {1, 2, 3}
    assert [reason for item in result for reason in MEASURED.reasons(kernel, ARCH, item)] == []


@pytest.mark.parametrize("changes", [{"persistent": True}, {"pipeline": "compv4"}])
def test_kernels_with_all_loops_in_one_function_are_not_explained(changes: dict[str, Any]) -> None:
    """Their loops cannot be told apart; other kernels have a function for each way a loop ends."""
    kernel = parse_grouped_kernel(EMITTED)
    other = replace(kernel, **changes)
    assert (kernel.chooses_loop, other.chooses_loop) == (False, True)
    with expect_refusal(UsageError, "unsupported", kernel_name(other)):
        described(kernel_name(other), None, "gfx942", None)


REAL = "gemm_grouped_fp16_rcr_compv3_cshuffle_intrawave_True_True_True_False_32x32x32_2x2x1_16x16x32"


@pytest.mark.slow
@compiles(("gfx942", "gemm_grouped", REAL))
@pytest.mark.parametrize(
    ("sizes", "ms", "word"),
    [
        ({}, (48, 0, 7), None),
        ({"m": 54}, (48, 0, 7), "sum"),
        ({"groups": 0}, (55,), "1024"),
        ({"groups": 1025}, (55,), "1024"),
        ({}, (60, -5), "negative"),
        ({"n": 30}, (48, 7), "IsSupportedArgument"),
        ({"k": 2**26, "m": 55}, (55,), "32-bit"),
        ({"n": 2**16, "m": 2**25}, (2**15,) * 1024, "tiles"),
    ],
)
def test_real_kernels_refuse_problems_with_wrong_results(
    sizes: dict[str, int], ms: tuple[int, ...], word: str | None, real_kernels: Real
) -> None:
    """A compiled kernel refuses wrong sums and numbers of groups, and groups out of reach, before any launch."""
    report = real_kernels["gfx942", parse_grouped_kernel(REAL)]
    problem: Any = c_problem(GemmGroupedProblem(ms="55", n=32, k=64, dtype="fp16"))
    problem.groups = len(ms)
    problem.ms[: len(ms)] = ms
    for name, value in sizes.items():
        setattr(problem, name, value)
    result = KernelLibrary(loadable(report.library)).unsupported(ctypes.byref(problem))
    assert (result is None) if word is None else (result is not None and word in result.decode())
