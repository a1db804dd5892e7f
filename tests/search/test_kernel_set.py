"""Covering sets of kernels, compared with all sets of small workloads."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from ckh.errors import DataError
from ckh.search import kernel_set as covering
from ckh.search.kernel_set import Workload, choose_set
from tests.refusals import expect_refusal


def workload_of(efficiency: np.ndarray, weight: np.ndarray | None = None) -> Workload:
    """Convert a matrix (problems, kernels), with 0 for a failing pair, to a workload."""
    problem, kernel = np.nonzero(efficiency)
    shares = np.full(len(efficiency), 1.0) if weight is None else weight
    return Workload(problem, kernel, efficiency[problem, kernel], shares / shares.sum(), efficiency.shape[1])


def random_matrix(seed: int, problems: int = 12, kernels: int = 9) -> np.ndarray:
    """Efficiencies with a maximum of 1 on each problem; a third of the pairs fail."""
    random = np.random.default_rng(seed)
    result = random.uniform(0.3, 1.0, (problems, kernels)) * (random.random((problems, kernels)) > 1 / 3)
    result[:, 0] = np.where(result.max(axis=1) == 0, 0.5, result[:, 0])
    return np.asarray(result / result.max(axis=1, keepdims=True))


def means_of_all(matrix: np.ndarray, size: int) -> list[float]:
    """Mean efficiency of each set of a given size that serves every problem."""
    best = [matrix[:, list(some)].max(axis=1) for some in combinations(range(matrix.shape[1]), size)]
    return [float(item.mean()) for item in best if item.min() > 0]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("keep", [0.7, 0.9, 0.97, 1.0])
def test_the_set_is_the_smallest_of_all(seed: int, keep: float) -> None:
    """No smaller set keeps the share, `is_fewest` is set, and the figures are those of the set."""
    matrix = random_matrix(seed)
    kernel_set = choose_set(workload_of(matrix), keep, matrix.shape[1])
    smallest = next(size for size in range(1, 10) if max(means_of_all(matrix, size), default=0.0) >= keep - 1e-9)
    reached = matrix[:, list(kernel_set.kernels)].max(axis=1)
    assert kernel_set.keeps
    assert kernel_set.is_fewest
    assert len(kernel_set.kernels) == kernel_set.fewest == smallest
    assert kernel_set.mean == pytest.approx(reached.mean())
    assert kernel_set.least == reached.min() > 0


@pytest.mark.parametrize("seed", range(8))
def test_without_the_solver_the_bounds_hold(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For large pools the choice is greedy: it keeps the share, and no set violates its bounds."""
    monkeypatch.setattr(covering, "MOST_EXACT_PAIRS", 0)
    matrix = random_matrix(seed)
    kernel_set = choose_set(workload_of(matrix), 0.95, matrix.shape[1])
    sizes = range(1, matrix.shape[1] + 1)
    smallest = next(size for size in sizes if max(means_of_all(matrix, size), default=0.0) >= 0.95)
    assert kernel_set.mean >= 0.95 - 1e-9
    assert kernel_set.fewest <= smallest <= len(kernel_set.kernels)
    for size, step in enumerate(kernel_set.curve, 1):
        assert max(means_of_all(matrix, size), default=0.0) <= step.bound + 1e-9


def test_weights_of_problems_are_used() -> None:
    """A problem with nearly all of the weight determines the kernel."""
    matrix = np.array([[1.0, 0.5], [0.5, 1.0], [0.5, 1.0]])
    assert choose_set(workload_of(matrix, np.array([98.0, 1.0, 1.0])), 0.9, 2).kernels == (0,)
    assert choose_set(workload_of(matrix), 0.8, 2).kernels == (1,)


def test_too_few_kernels_keep_what_they_can() -> None:
    """A limit below the required size gives the greedy choice, and the required size."""
    kernel_set = choose_set(workload_of(np.eye(5)), 0.99, 2)
    assert (kernel_set.keeps, kernel_set.is_fewest, kernel_set.fewest) == (False, False, 5)
    assert kernel_set.mean == pytest.approx(0.4)
    assert (kernel_set.least, len(kernel_set.kernels)) == (0.0, 2)


def test_a_problem_without_a_kernel_is_refused() -> None:
    """A problem without a working kernel cannot be served."""
    with expect_refusal(DataError, "no-working-kernel", "kernel"):
        choose_set(workload_of(np.array([[1.0, 0.5], [0.0, 0.0]])), 0.9, 2)
