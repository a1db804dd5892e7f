"""Baselines that a model must beat: choices that need no model.

Like a model, a baseline scores every row of the evaluated data, higher is better. Data come in parts of whole problems.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.assess.times import times_of
from ckh.data.numbering import group_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ckh.assess.metrics import Times
    from ckh.data.dataset import Dataset

    Kind: TypeAlias = tuple[Any, ...]  # of problems: all of their identity except the sizes


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

    def means(self) -> dict[str, float]:
        """Mean efficiency of each kernel over the problems it was measured on."""
        return dict(zip(self._numbers, self._means.tolist(), strict=True))

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


def hindsight_efficiency(parts: Iterable[Dataset]) -> NDArray[np.float64] | None:
    """Efficiency of the single kernel that would have been best overall, shape (problems,).

    There is one such kernel for each kind of problems (equal except for sizes), since a kernel serves one kind. It must
    have been measured on every problem of its kind; the result is None if a kind has no such kernel, as in sampled
    data.
    """
    totals: dict[Kind, _Totals] = {}
    for part in parts:
        for of_kind in _of_kinds(part):
            totals.setdefault(of_kind.kind, _Totals()).add(of_kind)
    best = {kind: total.best() for kind, total in totals.items()}
    if not all(best.values()):
        return None
    efficiencies = []
    for part in parts:
        efficiency = np.empty(len(part.first_rows))
        for of_kind in _of_kinds(part):
            chosen = of_kind.codes == of_kind.names.index(best[of_kind.kind])
            efficiency[of_kind.problem[chosen]] = of_kind.efficiency[chosen]
        efficiencies.append(efficiency)
    return np.concatenate(efficiencies)


@dataclass(frozen=True, slots=True, eq=False)
class _OfKind:
    """The rows of one kind in a part: index and name of the kernel, problem, and efficiency."""

    kind: Kind
    codes: NDArray[np.int64]
    names: list[str]
    problem: NDArray[np.int64]
    efficiency: NDArray[np.float64]


class _Totals:
    """Totals over a kind's problems: measurements and summed efficiency per kernel, and number of problems."""

    def __init__(self) -> None:
        self._rows: Counter[str] = Counter()
        self._sums: dict[str, float] = {}
        self._problems = 0

    def add(self, of_kind: _OfKind) -> None:
        """Add the rows of a part."""
        sums = np.array([self._sums.get(name, 0.0) for name in of_kind.names])
        # Added sequentially, so that rounding does not depend on the parts.
        np.add.at(sums, of_kind.codes, of_kind.efficiency)
        self._sums.update(zip(of_kind.names, sums.tolist(), strict=True))
        self._rows.update(dict(zip(of_kind.names, np.bincount(of_kind.codes).tolist(), strict=True)))
        self._problems += len(np.unique(of_kind.problem))

    def best(self) -> str:
        """Return the best kernel among those measured on every problem, the first of ties; empty if there is none."""
        everywhere = [name for name, count in self._rows.items() if count == self._problems]
        return max(everywhere, key=self._sums.__getitem__, default="")


def _of_kinds(dataset: Dataset) -> Iterator[_OfKind]:
    import pandas as pd

    times, op = times_of(dataset), dataset.op
    columns = [name for name in op.problems.identity if name not in op.problems.sizes]
    kinds, efficiency, kernel = group_numbers(dataset.frame, columns), times.efficiency(), dataset.frame["kernel"]
    for number in range(int(kinds.max()) + 1):
        rows = np.flatnonzero(kinds == number)
        codes, names = pd.factorize(kernel.to_numpy(dtype=object)[rows])
        kind = tuple(map(str, dataset.frame[columns].iloc[rows[0]]))
        yield _OfKind(kind, codes, [str(name) for name in names], times.problem[rows], efficiency[rows])


def _kernels(dataset: Dataset) -> tuple[NDArray[np.int64], list[str]]:
    """Kernel index of each row within the dataset, and the kernel names."""
    import pandas as pd

    codes, names = pd.factorize(dataset.frame["kernel"])
    return codes, [str(name) for name in names]
