"""The analytic estimate of times, corrected by what few measurements say of its errors.

The logarithm of measured over estimated time is taken for a Gaussian process: independent deviations of the problem, of
the kernel's family, of its tile and of the kernel itself, each with a part that is the same for all sizes and a part
that is alike for similar sizes. So a pipeline that is slower than the estimate says becomes so after a handful of
measurements, while the order of tiles stays the estimate's until there are enough. Kernels that are estimated to be far
from the best of their problem say less of those that are near.
"""

from __future__ import annotations

from dataclasses import dataclass
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

# Standard deviations of logarithms, and the distance of logarithms of sizes at which deviations are no longer alike.
# Chosen on AMD's two files of gfx950's convolutions, in both directions (benchmarks/estimate_prior.py).
_OF_PROBLEM = 0.25
_OF_ALL_SIZES = {"family": 0.25, "tile": 0.1, "kernel": 0.1}
_OF_LIKE_SIZES = {"family": 0.15, "tile": 0.1, "kernel": 0.1}
_OF_SIZES = 0.3  # whatever the kernel
_LENGTH = 2.0
_NOISE = 0.1
_NOISE_OF_GAP = 1.5  # times the logarithm of the estimated time over the best one of the problem
_MOST_ROWS = 2000  # that are looked at: a tenth of a second
_MOST_OTHERS = 300  # kernels that were not measured
_TILE = ("tile_m", "tile_n", "tile_k")


@dataclass(frozen=True, slots=True, eq=False)
class CorrectedEstimate:
    """Estimated times of some kernels, corrected by measured ones.

    The kernels are those of the rows, by name, and after them others of the pool (`_with_others`).

    Attributes:
        dataset: the measurements.
        others: raw columns of the kernels that are of no row, for features.
        columns: what the estimate reads of the kernels (`estimate.kernel_inputs`).
        groups: number of the family, tile and kernel of each kernel, by name, shape (kernels,).
        kernel: the kernel of each row, shape (rows,).
        sizes: logarithms of the sizes of each row's problem, shape (rows, sizes).
        weight: of each row, shape (rows,).
    """

    dataset: Dataset
    others: dict[str, NDArray[Any]]
    columns: dict[str, NDArray[np.float64]]
    groups: dict[str, NDArray[np.intp]]
    kernel: NDArray[np.intp]
    sizes: NDArray[np.float64]
    weight: NDArray[np.float64]

    @classmethod
    def of(cls, dataset: Dataset, rows: NDArray[np.int64], seed: int) -> CorrectedEstimate | None:
        """Correct the estimate by rows of a dataset; None where there is no estimate of some of their kernels.

        Args:
            dataset: the measurements, with times.
            rows: the rows.
            seed: which rows are looked at, if they are too many.
        """
        names, kernel = np.unique(dataset.frame["kernel"].to_numpy(dtype=str)[rows], return_inverse=True)
        known = complete_kernels(dataset, names.tolist())
        if known is None:
            return None
        kernels, others = _with_others(dataset, known, seed)
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
        # What ships is of our compiler; whoever measured these kernels may have had another.
        reported = compiled_here(arch.name, dataset.op.name)
        reports = [reported.get(dataset.op.kernels.name(one)) for one in kernels] if reported else []
        measured = [dataset.problems()[number] for number in problems]
        columns = kernel_inputs(KernelShapes.of(kernels), measured[0].dtype, arch, reports)
        made = cls(dataset, others, columns, groups, kernel, np.empty(0), np.empty(0))
        estimated = made._estimated(measured)
        error = np.log(dataset.frame["latency_ms"].to_numpy(np.float64)[rows]) - estimated[problem, kernel]
        gap = (estimated - estimated.min(axis=1, keepdims=True))[problem, kernel]
        sizes = made._sizes(measured)[problem]
        covariance = _OF_PROBLEM**2 * (problem[:, None] == problem) + _near(sizes, sizes) * _OF_SIZES**2
        for name, group in groups.items():
            is_same = group[kernel][:, None] == group[kernel]
            covariance += is_same * (_OF_ALL_SIZES[name] ** 2 + _OF_LIKE_SIZES[name] ** 2 * _near(sizes, sizes))
        covariance[np.diag_indices(len(rows))] += _NOISE**2 + (_NOISE_OF_GAP * gap) ** 2
        weight = np.linalg.solve(covariance, error - np.median(error))
        return cls(dataset, others, columns, groups, kernel, sizes, weight)

    def relative_times(self, problems: Sequence[Problem]) -> NDArray[np.float64]:
        """Logarithms of times of all kernels, each problem's up to a constant, shape (problems, kernels)."""
        near = _near(self._sizes(problems), self.sizes)
        found = self._estimated(problems)
        for name, group in self.groups.items():
            is_same = (group[:, None] == group[self.kernel]) * self.weight
            found += _OF_ALL_SIZES[name] ** 2 * is_same.sum(axis=1) + _OF_LIKE_SIZES[name] ** 2 * near @ is_same.T
        return found

    def _estimated(self, problems: Sequence[Problem]) -> NDArray[np.float64]:
        """Logarithms of estimated times, shape (problems, kernels)."""
        tiled = self.dataset.op.problems.tiled
        assert tiled is not None
        arch = load_arch(self.dataset.arch)
        return np.log(-minus_us(problems, [tiled(one) for one in problems], self.columns, arch))

    def _sizes(self, problems: Sequence[Problem]) -> NDArray[np.float64]:
        tiled = self.dataset.op.problems.tiled
        assert tiled is not None
        return np.log([(one.m, one.n, one.k) for one in map(tiled, problems)])


def complete_kernels(dataset: Dataset, names: Sequence[str]) -> list[Kernel] | None:
    """A complete kernel of each name, from the default pool where it leaves fields open; None if one has none.

    Also None where no estimate knows them: their operation has no tiles, or the peaks of the architecture are unknown.
    """
    op, arch = dataset.op, load_arch(dataset.arch)
    if op.problems.tiled is None or arch.peaks is None:
        return None
    problem = dataset.problems()[0]
    try:
        kernels = [op.kernels.parse(name) for name in names]
        for kernel in kernels:
            op.kernels.name(kernel)
    except CkhError:  # a name that leaves fields open, or is of no kernel
        pool = op.kernels.candidates(problem, arch, Path(ESTIMATE)).pool
        position, code = KernelJoin(op, names).pairs(pool)
        first = dict(zip(reversed(code.tolist()), reversed(position.tolist()), strict=True))
        return [pool[first[number]] for number in range(len(names))] if len(first) == len(names) else None
    return kernels


def _with_others(
    dataset: Dataset, kernels: Sequence[Kernel], seed: int
) -> tuple[list[Kernel], dict[str, NDArray[Any]]]:
    """The kernels, and others of the default pool that a model of them ranks too; raw columns of these.

    Each feature of another kernel has a value that one of the kernels has. Of kernels with the same features there is
    one, and of too many a random sample.
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
    return [*kernels, *(pool[number] for number in added)], {name: one[added] for name, one in all_of_pool.items()}


def _numbered(values: NDArray[Any]) -> NDArray[np.intp]:
    """The number of each row among the distinct ones, shape (rows,)."""
    return np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)


def _near(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """How alike deviations of sizes are, from 0 to 1, shape (ones, others)."""
    distance = ((one[:, None, :] - other[None, :, :]) / _LENGTH) ** 2
    return np.asarray(np.exp(-0.5 * distance.sum(axis=-1)))
