"""Slices of GEMM problems."""

from __future__ import annotations

import pytest

from ckh.ops.gemm_universal.operation import SLICES
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.gemm_universal.problem_sets import problem_set


@pytest.mark.parametrize("kind", SLICES)
def test_slices_of_a_kind_partition_the_problems(kind: str) -> None:
    """Every problem is in exactly one slice of each kind."""
    for problem in (*problem_set("gemm-train"), *problem_set("llm", layout="crr")):
        assert sum(test(problem) for test in SLICES[kind].values()) == 1


@pytest.mark.parametrize(
    ("m", "k", "shape", "depth"),
    [
        (31, 511, "tiny M", "shallow K"),
        (32, 512, "small M", "medium K"),
        (255, 4095, "small M", "medium K"),
        (256, 4096, "medium M", "deep K"),
        (4095, 1, "medium M", "shallow K"),
        (4096, 9000, "large M", "deep K"),
    ],
)
def test_limits_match_amd(m: int, k: int, shape: str, depth: str) -> None:
    """M is split at 32, 256 and 4096, K at 512 and 4096, as in AMD's evaluation."""
    problem = GemmProblem(m, 8, k, layout="crr")
    assert [name for name, test in SLICES["shape"].items() if test(problem)] == [shape]
    assert [name for name, test in SLICES["depth"].items() if test(problem)] == [depth]
    assert [name for name, test in SLICES["layout"].items() if test(problem)] == ["crr"]
