"""The analytic estimate of times, corrected by few measurements.

The log of measured over estimated time is modelled as a Gaussian process: independent deviations of the problem, the
kernel's family, its tile and the kernel itself, each with a part common to all sizes and a part correlated between
similar sizes. So a pipeline that is slower than estimated is corrected after a handful of measurements, while the order
of tiles follows the estimate until there are enough. Kernels estimated far from the best of their problem are less
informative about those near it.

A correction by a few measurements may be wrong. So the estimate's first choice is kept unless another kernel is faster
by more than one standard deviation of their corrected difference (`CorrectedEstimate.cautious_times`).
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.errors import CkhError
from ckh.kernels.compiled import compiled_here
from ckh.kernels.table import column_of
from ckh.learn.analytic.estimate import ESTIMATE, KernelShapes, kernel_inputs, minus_us
from ckh.learn.analytic.joined import KernelJoin
from ckh.ops.base import Encoding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.ops.base import Kernel, Problem

# Standard deviations of logs, and the correlation length in logs of sizes. Tuned on AMD's two files of gfx950's
# convolutions, in both directions (benchmarks/estimate_prior.py).
_OF_ALL = 10.0  # a common factor, which says nothing of the order
_OF_PROBLEM = 0.25
_OF_ALL_SIZES = {"family": 0.25, "tile": 0.1, "kernel": 0.1}
_OF_LIKE_SIZES = {"family": 0.15, "tile": 0.1, "kernel": 0.1}
_OF_SIZES = 0.3  # for any kernel
_LENGTH = 2.0
_NOISE = 0.1
_NOISE_OF_GAP = 1.5  # times the log of the estimated time over the best of the problem
_MOST_ROWS = 2000  # maximum used: takes a tenth of a second
_MOST_ROWS_OF_SPREAD = 300  # for standard deviations, which fewer rows only increase
_MOST_OTHERS = 300  # unmeasured kernels
_TILE = ("tile_m", "tile_n", "tile_k")


@dataclass(frozen=True, slots=True, eq=False)
class CorrectedEstimate:
    """Estimated times of some kernels, corrected by measured ones.

    The kernels are those of the rows, by name, followed by others of the pool (`_with_others`).

    Attributes:
        dataset: the measurements.
        others: raw columns of the kernels without rows, for features.
        columns: inputs of the estimate for the kernels (`estimate.kernel_inputs`).
        groups: index of the family, tile and kernel of each kernel, by name, shape (kernels,).
        kernel: the kernel of each row, shape (rows,).
        sizes: logs of the sizes of each row's problem, shape (rows, sizes).
        weight: weight of each row, shape (rows,).
        of_spread: indices of the rows that standard deviations are computed from.
        precision: inverse of the covariance of these, shape (of_spread, of_spread).
    """

    dataset: Dataset
    others: dict[str, NDArray[Any]]
    columns: dict[str, NDArray[np.float64]]
    groups: dict[str, NDArray[np.intp]]
    kernel: NDArray[np.intp]
    sizes: NDArray[np.float64]
    weight: NDArray[np.float64]
    of_spread: NDArray[np.intp]
    precision: NDArray[np.float64]

    @classmethod
    def of(
        cls, dataset: Dataset, rows: NDArray[np.int64], seed: int, *, whole_pool: bool = False
    ) -> CorrectedEstimate | None:
        """Correct the estimate by rows of a dataset; None if there is no estimate of some of their kernels.

        Args:
            dataset: the measurements, with times.
            rows: the rows.
            seed: random seed for sampling too many rows.
            whole_pool: whether the other kernels may have tiles and options that were not measured.
        """
        names, kernel = np.unique(dataset.frame["kernel"].to_numpy(dtype=str)[rows], return_inverse=True)
        known = complete_kernels(dataset, names.tolist())
        if known is None:
            return None
        kernels, others = _with_others(dataset, known, seed, whole_pool=whole_pool)
        if len(rows) > _MOST_ROWS:
            some = np.sort(np.random.default_rng(seed).choice(len(rows), _MOST_ROWS, replace=False))
            rows, kernel = rows[some], kernel[some]
        problems, problem = np.unique(dataset.problem_ids[rows], return_inverse=True)
        groups = {
            "family": _numbered(column_of(kernels, dataset.op.kernels.slice_column).astype(str)),
            "tile": _numbered(np.column_stack([column_of(kernels, name) for name in _TILE])),
            "kernel": np.arange(len(kernels)),
        }
        arch = load_arch(dataset.arch)
        # Shipped results are of ckh's compiler; these kernels may have been compiled by another.
        reported = compiled_here(arch.name, dataset.op.name)
        reports = [reported.get(dataset.op.kernels.name(one)) for one in kernels] if reported else []
        measured = [dataset.problems()[number] for number in problems]
        columns = kernel_inputs(KernelShapes.of(kernels), measured[0].dtype, arch, reports)
        none = np.empty(0)
        made = cls(dataset, others, columns, groups, kernel, none, none, none.astype(np.intp), none)
        estimated = made._estimated(measured)
        error = np.log(dataset.frame["latency_ms"].to_numpy(np.float64)[rows]) - estimated[problem, kernel]
        gap = (estimated - estimated.min(axis=1, keepdims=True))[problem, kernel]
        sizes = made._sizes(measured)[problem]
        covariance = _OF_ALL**2 + _OF_PROBLEM**2 * (problem[:, None] == problem) + _near(sizes, sizes) * _OF_SIZES**2
        for name, group in groups.items():
            is_same = group[kernel][:, None] == group[kernel]
            covariance += is_same * (_OF_ALL_SIZES[name] ** 2 + _OF_LIKE_SIZES[name] ** 2 * _near(sizes, sizes))
        covariance[np.diag_indices(len(rows))] += _NOISE**2 + (_NOISE_OF_GAP * gap) ** 2
        weight = np.linalg.solve(covariance, error)
        some = np.random.default_rng(seed).permutation(len(rows))[:_MOST_ROWS_OF_SPREAD]
        precision = np.linalg.inv(covariance[np.ix_(some, some)])
        return cls(dataset, others, columns, groups, kernel, sizes, weight, some, precision)

    def relative_times(self, problems: Sequence[Problem]) -> NDArray[np.float64]:
        """Logs of times of all kernels, up to a constant per problem, shape (problems, kernels)."""
        near = _near(self._sizes(problems), self.sizes)
        found = self._estimated(problems)
        for name, group in self.groups.items():
            is_same = (group[:, None] == group[self.kernel]) * self.weight
            found += _OF_ALL_SIZES[name] ** 2 * is_same.sum(axis=1) + _OF_LIKE_SIZES[name] ** 2 * near @ is_same.T
        return found

    def cautious_times(self, problems: Sequence[Problem]) -> NDArray[np.float64]:
        """Add to each `relative_times` its standard deviation relative to the kernel that the estimate ranks first.

        Kernels with the same estimate as the first get none: no measurement says which of them is better.
        """
        estimated = self._estimated(problems)
        near = _near(self._sizes(problems), self.sizes[self.of_spread])
        spread = [self._spread(times.argmin(), one) for times, one in zip(estimated, near, strict=True)]
        is_first = estimated == estimated.min(axis=1, keepdims=True)
        return self.relative_times(problems) + np.where(is_first, 0.0, spread)

    def _spread(self, best: np.intp, near: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standard deviations of corrected log times relative to one kernel's, shape (kernels,)."""
        kernel = self.kernel[self.of_spread]
        variance, covariance = np.zeros(len(self.groups["kernel"])), 0.0
        for name, group in self.groups.items():
            is_same = (group[:, None] == group[kernel]).astype(np.float64)
            of_all, of_like = _OF_ALL_SIZES[name] ** 2, _OF_LIKE_SIZES[name] ** 2
            covariance = covariance + (is_same - is_same[best]) * (of_all + of_like * near)
            variance += 2 * (of_all + of_like) * (group != group[best])
        explained = ((covariance @ self.precision) * covariance).sum(axis=1)
        return np.asarray(np.sqrt(np.maximum(variance - explained, 0.0)))

    def _estimated(self, problems: Sequence[Problem]) -> NDArray[np.float64]:
        """Logs of estimated times, shape (problems, kernels)."""
        tiled = self.dataset.op.problems.tiled
        assert tiled is not None
        arch = load_arch(self.dataset.arch)
        return np.log(-minus_us(problems, [tiled(one) for one in problems], self.columns, arch))

    def _sizes(self, problems: Sequence[Problem]) -> NDArray[np.float64]:
        tiled = self.dataset.op.problems.tiled
        assert tiled is not None
        return np.log([(one.m, one.n, one.k) for one in map(tiled, problems)])


def complete_kernels(dataset: Dataset, names: Sequence[str]) -> list[Kernel] | None:
    """Find a complete kernel for each name, from the default pool for short names; None if a name has none.

    Also None if there is no estimate: the operation has no tiles, or the architecture's peak rates are unknown.
    """
    op, arch = dataset.op, load_arch(dataset.arch)
    if op.problems.tiled is None or arch.peaks is None:
        return None
    problem = dataset.problems()[0]
    try:
        kernels = [op.kernels.parse(name) for name in names]
        for kernel in kernels:
            op.kernels.name(kernel)
    except CkhError:  # a short name, or not a kernel
        pool = op.kernels.candidates(problem, arch, Path(ESTIMATE)).pool
        position, code = KernelJoin(op, names).pairs(pool)
        first = dict(zip(reversed(code.tolist()), reversed(position.tolist()), strict=True))
        return [pool[first[number]] for number in range(len(names))] if len(first) == len(names) else None
    return kernels


def _with_others(
    dataset: Dataset, kernels: Sequence[Kernel], seed: int, *, whole_pool: bool
) -> tuple[list[Kernel], dict[str, NDArray[Any]]]:
    """Add other kernels of the default pool that a model of these ranks too; returns also their raw columns.

    Each feature of an added kernel has a value that occurs among the given kernels. Of kernels with equal features one
    is added, and of too many a random sample. Of the whole pool, also the first kernel of each other family and tile.
    """
    op, arch = dataset.op, load_arch(dataset.arch)
    pool = op.kernels.candidates(dataset.problems()[0], arch, Path(ESTIMATE)).pool
    own, all_of_pool = (op.kernels.features(some, Encoding.on(arch.name)) for some in (kernels, pool))
    is_like = np.logical_and.reduce([np.isin(all_of_pool[name], values) for name, values in own.items()])
    some = np.random.default_rng(seed).permutation(np.flatnonzero(is_like))
    first = dict.fromkeys(zip(*(values.tolist() for values in own.values()), strict=True), -1)
    for number in some[: _MOST_OTHERS + len(kernels)].tolist():
        first.setdefault(tuple(values[number].item() for values in all_of_pool.values()), number)
    added = [number for number in first.values() if number >= 0]
    if whole_pool:
        coarse = attrgetter(op.kernels.slice_column, *_TILE)
        known = {coarse(kernel) for kernel in (*kernels, *(pool[number] for number in added))}
        kinds = {coarse(pool[number]): number for number in reversed(range(len(pool)))}
        added += [number for kind, number in kinds.items() if kind not in known]
    return [*kernels, *(pool[number] for number in added)], {name: one[added] for name, one in all_of_pool.items()}


def _numbered(values: NDArray[Any]) -> NDArray[np.intp]:
    """Index of each row among the distinct rows, shape (rows,)."""
    return np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)


def _near(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Correlation of deviations at sizes, from 0 to 1, shape (ones, others)."""
    distance = ((one[:, None, :] - other[None, :, :]) / _LENGTH) ** 2
    return np.asarray(np.exp(-0.5 * distance.sum(axis=-1)))
