"""Baselines that a model must beat: choices that need no model.

Like a model, a baseline scores every row of the evaluated data, higher is better. Data come in parts of whole problems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.times import times_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ckh.assess.metrics import Times
    from ckh.data.dataset import Dataset

_MAX_DISTANCES = 1 << 22  # coordinates in memory at a time


def random_efficiency(times: Times) -> NDArray[np.float64]:
    """Expected efficiency of a random choice, shape (problems,)."""
    total = np.bincount(times.problem, weights=times.efficiency(), minlength=times.count)
    return np.asarray(total / np.bincount(times.problem, minlength=times.count))


class Learned:
    """Training data of the baselines, in twelve bytes per row."""

    def __init__(self, parts: Iterable[Dataset]) -> None:
        self._numbers: dict[str, int] = {}
        kernels, efficiencies, rows, places = [], [], [], []
        for part in parts:
            times, kernel = times_of(part), self._numbered(part)
            order = np.lexsort((kernel, times.problem))
            kernels.append(kernel[order])
            efficiencies.append(times.efficiency()[order])
            rows.append(np.bincount(times.problem))
            places.append(places_of(part))
        self._kernel, self._efficiency = np.concatenate(kernels), np.concatenate(efficiencies)
        # Rows _start[p] to _start[p + 1] belong to problem p, ordered by kernel.
        self._start = np.concatenate([[0], np.cumsum(np.concatenate(rows))])
        self._means = np.bincount(self._kernel, weights=self._efficiency) / np.bincount(self._kernel)
        self._places, self._first = np.unique(np.concatenate(places), axis=0, return_index=True)

    def single_kernel_scores(self, dataset: Dataset) -> NDArray[np.float64]:
        """Scores for always choosing the kernel with the best mean efficiency, shape (rows,).

        Where a problem lacks that kernel, the next best is chosen.
        """
        kernel = self._known(dataset)
        return np.where(kernel >= 0, self._means[kernel], -1.0)

    def nearest_problem_scores(self, dataset: Dataset) -> NDArray[np.float64]:
        """Scores for choosing the best kernel of the nearest problem, shape (rows,).

        Distances are measured in the operation's coordinates of problems (`Operation.place`), mostly logarithms of
        sizes. Kernels not measured on that problem rank below the measured ones, by mean efficiency over all problems.
        """
        kernel, problem = self._known(dataset), dataset.problem_ids
        nearest = self._first[_nearest(places_of(dataset), self._places)]
        scores = np.where(kernel >= 0, self._means[kernel], 0.0) - 2.0
        order = np.argsort(problem, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(problem[order])) + 1):
            start, stop = self._start[nearest[problem[rows[0]]] : nearest[problem[rows[0]]] + 2]
            measured = self._kernel[start:stop]
            index = np.minimum(np.searchsorted(measured, kernel[rows]), stop - start - 1)
            is_known = measured[index] == kernel[rows]
            scores[rows[is_known]] = self._efficiency[start:stop][index[is_known]]
        return scores

    def _numbered(self, dataset: Dataset) -> NDArray[np.int32]:
        """Number the kernel of each row, adding new kernels, shape (rows,)."""
        codes, names = _kernels(dataset)
        return np.array([self._numbers.setdefault(name, len(self._numbers)) for name in names], dtype=np.int32)[codes]

    def _known(self, dataset: Dataset) -> NDArray[np.int32]:
        """Number of each row's kernel, -1 if unknown, shape (rows,)."""
        codes, names = _kernels(dataset)
        return np.array([self._numbers.get(name, -1) for name in names], dtype=np.int32)[codes]


def places_of(dataset: Dataset) -> NDArray[np.float64]:
    """Coordinates of the problems, shape (problems, axes)."""
    return np.array([dataset.op.problems.place(problem) for problem in dataset.problems()], dtype=np.float64)


def _nearest(places: NDArray[np.float64], known: NDArray[np.float64]) -> NDArray[np.intp]:
    """Index of the nearest known place of each place, the first of ties, shape (places,)."""
    step = max(1, _MAX_DISTANCES // known.size)
    nearest = [
        np.square(places[start : start + step, None] - known).sum(axis=2).argmin(axis=1)
        for start in range(0, len(places), step)
    ]
    return np.concatenate(nearest)


def _kernels(dataset: Dataset) -> tuple[NDArray[np.int64], list[str]]:
    """Kernel index of each row within the dataset, and the kernel names."""
    import pandas as pd

    codes, names = pd.factorize(dataset.frame["kernel"])
    return codes, [str(name) for name in names]
