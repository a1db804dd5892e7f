"""Baselines that a model must beat: choices that need no model.

A baseline gives every row of the judged data a score, higher is better, as a model does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.measured import times_of
from ckh.data.numbering import group_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset


def random_efficiency(dataset: Dataset) -> NDArray[np.float64]:
    """Expected efficiency of a random choice, shape (problems,)."""
    times = times_of(dataset)
    total = np.bincount(times.problem, weights=times.efficiency(), minlength=times.count)
    return np.asarray(total / np.bincount(times.problem, minlength=times.count))


def single_kernel_scores(dataset: Dataset, learned_from: Dataset) -> NDArray[np.float64]:
    """Scores of always choosing the kernel of the best mean efficiency in other data, shape (rows,).

    Where a problem lacks that kernel, the next best counts.
    """
    return _of_kernels(dataset, mean_efficiency_by_kernel(learned_from), -1.0)


def hindsight_efficiency(dataset: Dataset) -> NDArray[np.float64] | None:
    """Efficiency of the one kernel that would have been best on the whole, shape (problems,).

    One for each kind of problems, those that differ in sizes only: a kernel is for one kind. Only a kernel that was
    measured on every problem of its kind can be judged so; None if a kind has none, as in sampled data.
    """
    import pandas as pd

    times, op = times_of(dataset), dataset.op
    row_efficiency = times.efficiency()
    names = dataset.frame["kernel_name"].to_numpy(dtype=object)
    kinds = group_numbers(dataset.frame, [name for name in op.identity if name not in op.sizes])
    efficiency = np.empty(times.count)
    for kind in range(int(kinds.max()) + 1):
        rows = np.flatnonzero(kinds == kind)
        kernel_of_row, _ = pd.factorize(names[rows])
        is_everywhere = np.bincount(kernel_of_row) == len(np.unique(times.problem[rows]))
        if not is_everywhere.any():
            return None
        total = np.bincount(kernel_of_row, weights=row_efficiency[rows])
        chosen = rows[kernel_of_row == np.argmax(np.where(is_everywhere, total, -1.0))]
        efficiency[times.problem[chosen]] = row_efficiency[chosen]
    return efficiency


def mean_efficiency_by_kernel(dataset: Dataset) -> dict[str, float]:
    """Mean efficiency of each kernel over the problems that have it."""
    import pandas as pd

    efficiency = pd.Series(times_of(dataset).efficiency())
    means = efficiency.groupby(dataset.frame["kernel_name"].to_numpy()).mean()
    return {str(name): float(value) for name, value in means.items()}


def _of_kernels(dataset: Dataset, values: Mapping[str, float], otherwise: float) -> NDArray[np.float64]:
    """The value of each row's kernel, shape (rows,)."""
    import pandas as pd

    codes, names = pd.factorize(dataset.frame["kernel_name"].to_numpy(dtype=object))
    return np.array([values.get(name, otherwise) for name in names])[codes]


def nearest_problems(dataset: Dataset, learned_from: Dataset) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Of each problem the number of the nearest one of other data, and how far that is; shape (problems,) each.

    Near is in the operation's places of problems (`Operation.place`), mostly logarithms of sizes.
    """
    from sklearn.neighbors import KDTree

    here, known = (places_of(one) for one in (dataset, learned_from))
    distinct, first = np.unique(known, axis=0, return_index=True)
    distance, found = KDTree(distinct).query(here, k=1)
    return first[found[:, 0]].astype(np.int64), distance[:, 0]


def places_of(dataset: Dataset) -> NDArray[np.float64]:
    """The places of the problems, shape (problems, axes)."""
    return np.array([dataset.op.place(problem) for problem in dataset.problems()], dtype=np.float64)


def nearest_problem_scores(dataset: Dataset, learned_from: Dataset) -> NDArray[np.float64]:
    """Scores of choosing what was best on the nearest problem of other data, shape (rows,).

    Near is in the logarithms of the sizes. A kernel that was not measured there scores below all that were, in the
    order of the mean efficiency over all.
    """
    import pandas as pd

    known = times_of(learned_from)
    kernel_of_row, kernels = pd.factorize(learned_from.frame["kernel_name"].to_numpy(dtype=object))
    means = mean_efficiency_by_kernel(learned_from)
    # Of each kernel measured there, in the order of (problem, kernel).
    pair = known.problem * len(kernels) + kernel_of_row
    order = np.argsort(pair)
    pair, efficiency = pair[order], known.efficiency()[order]
    nearest, _distance = nearest_problems(dataset, learned_from)
    names = dataset.frame["kernel_name"].to_numpy(dtype=object)
    kernel = pd.Index(kernels).get_indexer(names)
    wanted = nearest[dataset.problem_ids] * len(kernels) + kernel
    found = np.minimum(np.searchsorted(pair, wanted), len(pair) - 1)
    is_known = (pair[found] == wanted) & (kernel >= 0)
    otherwise = _of_kernels(dataset, means, 0.0) - 2.0
    return np.where(is_known, efficiency[found], otherwise)
