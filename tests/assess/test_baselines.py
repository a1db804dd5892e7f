"""Baselines that need no model, on cases worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.assess.baselines import (
    Learned,
    random_efficiency,
)
from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.data.dataset import Dataset
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.learn.conftest import build, kernels

if TYPE_CHECKING:
    import numpy as np

A, B, C = kernels()[:3]
SMALL = ConvProblem(Direction.FORWARD, 1, 16, 16, 1, 8, 8, 3, 3)
LARGE = replace(SMALL, c=1024, k=1024, hi=64, wi=64)
# Efficiencies: A 1, 1/2; B 1/2, 1; C 1/4 and a failure.
KNOWN = build([(SMALL, A, 1), (SMALL, B, 2), (SMALL, C, 4), (LARGE, A, 20), (LARGE, B, 10), (LARGE, C, 1)], failed=[5])


def chosen(scores: np.ndarray, dataset: Dataset) -> list[str]:
    """Names of the kernels chosen by scores."""
    rows = choices(scores, dataset.problem_ids, len(dataset.problems()))
    return [str(dataset.frame["kernel"][row]) for row in rows]


def test_a_random_choice_has_the_mean_efficiency() -> None:
    """Expected efficiency is the mean over the kernels of a problem, with 0 for a failure."""
    assert random_efficiency(times_of(KNOWN)).tolist() == pytest.approx([(1 + 1 / 2 + 1 / 4) / 3, (1 / 2 + 1 + 0) / 3])


def test_launch_bound_kernels_are_ties() -> None:
    """Launch-bound kernels get the shortest of their times; failures and other kernels are unchanged."""
    data = build(
        [(SMALL, A, 3), (SMALL, B, 2), (SMALL, C, 4), (LARGE, A, 20), (LARGE, B, 10), (LARGE, C, 1)], failed=[5]
    )
    statuses = ["launch_bound", "launch_bound", "ok", "launch_bound", "ok", str(data.frame["status"][5])]
    bound = Dataset(data.frame.assign(status=statuses), data.metadata, data.op.name)
    assert times_of(bound).latency_ms.tolist() == [2, 2, 4, 20, 10, float("inf")]


def test_the_single_kernel_is_the_best_on_average() -> None:
    """If the best is missing the next best is chosen, and unknown kernels come last."""
    learned = build([(SMALL, A, 2), (SMALL, B, 1), (SMALL, C, 4)])
    other = kernels()[3]
    data = build([(LARGE, other, 1), (LARGE, A, 5), (LARGE, B, 9), (SMALL, other, 1), (SMALL, C, 8), (SMALL, A, 9)])
    scores = Learned([learned]).single_kernel_scores(data)
    assert scores.tolist() == [-1.0, 0.5, 1.0, -1.0, 0.25, 0.5]
    assert chosen(scores, data) == [kernel_name(B), kernel_name(A)]


@pytest.mark.parametrize(("change", "best"), [({"c": 32}, A), ({"c": 512, "hi": 32}, B), ({"stride_h": 2}, A)])
def test_the_nearest_problems_best_kernel_is_chosen(change: dict[str, int], best: object) -> None:
    """A small problem uses the best kernel of the small one, a large problem that of the large one."""
    problem = replace(LARGE if "hi" in change else SMALL, **change)  # type: ignore[arg-type]
    data = build([(problem, kernel, 1) for kernel in (C, B, A)])
    assert chosen(Learned([KNOWN]).nearest_problem_scores(data), data) == [kernel_name(A if best is A else B)]


def test_a_kind_counts_more_than_a_size() -> None:
    """A factor 2 in the stride is as far as a factor 16 in a size."""
    strided = replace(SMALL, stride_h=2)
    learned = build([(SMALL, A, 1), (SMALL, B, 2), (replace(strided, c=128), A, 2), (replace(strided, c=128), B, 1)])
    near, far = replace(strided, c=16), replace(strided, c=1)
    data = build([(problem, kernel, 1) for problem in (near, far) for kernel in (A, B)])
    # From c=16: three octaves to the strided problem, four to the other. From c=1: seven, and sqrt(4 * 4 + 4 * 4).
    assert chosen(Learned([learned]).nearest_problem_scores(data), data) == [kernel_name(B), kernel_name(A)]


def test_kernels_unmeasured_on_the_nearest_problem_come_last() -> None:
    """A kernel not measured there scores below all measured ones, by its mean efficiency elsewhere."""
    learned = build([(SMALL, A, 1), (SMALL, C, 100), (LARGE, B, 1), (LARGE, A, 2)])
    data = build([(SMALL, B, 1), (SMALL, C, 1), (SMALL, A, 1)])
    assert Learned([learned]).nearest_problem_scores(data).tolist() == pytest.approx([1.0 - 2.0, 0.01, 1.0])
