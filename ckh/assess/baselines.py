"""What a model must beat: choices that need no model.

A baseline gives every row of the judged data a score, higher is better, as a model does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.measured import times_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.problems import ConvProblem

_WEIGHT_OF_KIND = 4.0  # a factor 16 in a size counts as much as another stride, dilation or dimension


def random_efficiency(dataset: Dataset) -> NDArray[np.float64]:
    """Expected efficiency of a random choice, shape (problems,)."""
    times = times_of(dataset)
    total = np.bincount(times.problem, weights=times.efficiency(), minlength=times.count)
    return np.asarray(total / np.bincount(times.problem, minlength=times.count))


def single_kernel_scores(dataset: Dataset, learned_from: Dataset) -> NDArray[np.float64]:
    """Scores of always choosing the kernel of the best mean efficiency in other data, shape (rows,).

    Where a problem lacks that kernel, the next best counts.
    """
    mean = mean_efficiency_by_kernel(learned_from)
    return np.array([mean.get(name, -1.0) for name in dataset.frame["kernel_name"]])


def mean_efficiency_by_kernel(dataset: Dataset) -> dict[str, float]:
    """Mean efficiency of each kernel over the problems that have it."""
    import pandas as pd

    efficiency = pd.Series(times_of(dataset).efficiency())
    means = efficiency.groupby(dataset.frame["kernel_name"].to_numpy()).mean()
    return {str(name): float(value) for name, value in means.items()}


def nearest_problem_scores(dataset: Dataset, learned_from: Dataset) -> NDArray[np.float64]:
    """Scores of choosing what was best on the nearest problem of other data, shape (rows,).

    Near is in the logarithms of the sizes. A kernel that was not measured there scores below all that were, in the
    order of the mean efficiency over all.
    """
    known = times_of(learned_from)
    efficiency: list[dict[str, float]] = [{} for _ in range(known.count)]
    for number, name, value in zip(known.problem, learned_from.frame["kernel_name"], known.efficiency(), strict=True):
        efficiency[number][name] = float(value)
    mean = mean_efficiency_by_kernel(learned_from)
    places = np.array([_place(problem) for problem in learned_from.problems()])
    here = np.array([_place(problem) for problem in dataset.problems()])
    nearest = [int(np.argmin(((places - place) ** 2).sum(axis=1))) for place in here]
    return np.array(
        [
            efficiency[nearest[number]].get(name, mean.get(name, 0.0) - 2.0)
            for number, name in zip(dataset.problem_ids, dataset.frame["kernel_name"], strict=True)
        ]
    )


def _place(problem: ConvProblem) -> list[float]:
    """A problem as a point: logarithms of sizes, and the small integers that make problems differ in kind."""
    sizes = (problem.n, problem.g, problem.c_per_group, problem.k_per_group, problem.di, problem.hi, problem.wi)
    kind = (problem.z, problem.y, problem.x, problem.stride_d, problem.stride_h, problem.stride_w)
    more = (problem.dilation_d, problem.dilation_h, problem.dilation_w, problem.ndim)
    return [float(np.log2(size)) for size in sizes] + [_WEIGHT_OF_KIND * float(np.log2(size)) for size in kind + more]
