"""Problems weighted by their number of executions in a model, from a list of `ckh shapes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.errors import DataError, UsageError
from ckh.shapes.problems import counts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset


def listed(dataset: Dataset, source: str) -> tuple[Dataset, NDArray[np.float64]]:
    """Problems of a dataset that a source lists, and their numbers of executions, shape (problems,)."""
    counts = counts_of(dataset.op, source, dataset.problems())
    if counts is None:
        raise UsageError(
            f"{source} states no counts of its problems", "name a list of ckh shapes", code="inapplicable-option"
        )
    is_listed = np.array([problem in counts for problem in dataset.problems()])
    if not is_listed.any():
        raise DataError(
            f"none of the {len(is_listed)} measured problems is in {source}", "omit --problems", code="no-match"
        )
    selected = dataset.select(is_listed[dataset.problem_ids])
    return selected, np.array([counts[problem] for problem in selected.problems()], dtype=np.float64)


def mean(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Weighted mean of values, shape (problems,) both."""
    return float(np.average(values, weights=weights))


def quantiles(
    values: NDArray[np.float64], shares: Sequence[float], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weighted quantiles; interpolated if all weights are equal, else values of the sample."""
    if (weights == weights[0]).all():
        return np.asarray(np.quantile(values, shares))
    return np.asarray(np.quantile(values, shares, weights=weights, method="inverted_cdf"))
