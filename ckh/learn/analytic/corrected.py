"""The analytic estimate as the score of models of few measurements, corrected where these contradict it.

A model of less than `FEWEST_OF_TREES` rows ranks by the estimate itself: the score is minus the logarithm of the
estimated time, less an offset of the kernel's family, tile, and both. Beside trees of more rows the estimate has the
weight `_BESIDE_TREES`, without offsets, which trees learn.

Offsets are from a Gaussian process of the log of measured over estimated time: independent deviations of the problem,
the kernel's family, its tile and both, each with a part common to all sizes and a part correlated between similar
sizes; kernels estimated far from the best of their problem are less informative. An offset is the deviation common to
all sizes, relative to the mean of its kind, less two standard deviations: without evidence it is 0, so that the order
is the estimate's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.errors import CkhError, DataError
from ckh.kernels.compiled import compiled_here
from ckh.kernels.table import column_of
from ckh.learn.analytic.estimate import (
    ESTIMATE,
    ESTIMATE_FEATURE,
    KernelShapes,
    kernel_inputs,
    minus_us,
    with_estimate,
)
from ckh.learn.analytic.joined import KernelJoin
from ckh.learn.models.scoring import ModelInputs
from ckh.learn.models.spec import EstimateTerm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.data.dataset import Dataset
    from ckh.learn.models.spec import ModelSpec
    from ckh.ops.base import AnyOperation, Kernel
    from ckh.schema import Resources

# With fewer rows, trees chose worse than the estimate alone for the sizes of another file, and its weight beside the
# trees of more is the best on folds of either of AMD's files of gfx950 (benchmarks/estimate_prior.py).
FEWEST_OF_TREES, _BESIDE_TREES = 3000, 0.3
_DEVIATIONS = 2.0  # less than which nothing is corrected
# Standard deviations of logs, and the correlation length in logs of sizes. Chosen on AMD's two files of gfx950.
_OF_ALL = 10.0  # a common factor, which says nothing of the order
_OF_PROBLEM = 0.25
_OF_ALL_SIZES = (0.25, 0.1, 0.1)  # of a family, a tile, and both
_OF_LIKE_SIZES = (0.15, 0.1, 0.1)
_OF_SIZES = 0.3  # for any kernel
_LENGTH = 2.0
_NOISE = 0.1
_NOISE_OF_GAP = 1.5  # times the log of the estimated time over the best of the problem
_TILE = ("tile_m", "tile_n", "tile_k")


def estimate_term(dataset: Dataset, rows: NDArray[np.int64]) -> EstimateTerm | None:
    """Return the estimate's part in the scores of a model of rows of a dataset; None if there is no estimate of some.

    The size of the whole dataset decides whether there are trees, so that folds are of the same kind as the model.
    """
    law = dataset.op.training.law
    if law is None or not law.sizes:  # tested for convolutions only: there are few complete times of GEMMs
        return None
    names, kernel = np.unique(dataset.frame["kernel"].to_numpy(dtype=str)[rows], return_inverse=True)
    kernels = complete_kernels(dataset, names.tolist())
    if kernels is None:
        return None
    if not ranks_alone(len(dataset)):
        return EstimateTerm(_BESIDE_TREES, {})
    problems, problem = np.unique(dataset.problem_ids[rows], return_inverse=True)
    measured = dataset.select(rows)
    estimated = _estimated(dataset, kernels, problems)
    error = np.log(measured.frame["latency_ms"].to_numpy(np.float64)) - estimated[problem, kernel]
    gap = (estimated - estimated.min(axis=1, keepdims=True))[problem, kernel]
    groups = kernel_groups(dataset.op, kernels)[:, kernel]
    return EstimateTerm(1.0, _offsets(groups, problem, _sizes(dataset, problems)[problem], error, gap))


def ranks_alone(rows: int) -> bool:
    """True if a model of so many rows ranks by the estimate, without trees."""
    return rows < FEWEST_OF_TREES


def row_scores(dataset: Dataset, term: EstimateTerm) -> NDArray[np.float64]:
    """The estimate's part in the score of every row of a dataset, shape (rows,)."""
    names, kernel = np.unique(dataset.frame["kernel"].to_numpy(dtype=str), return_inverse=True)
    kernels = complete_kernels(dataset, names.tolist())
    if kernels is None:
        raise DataError(
            "the model's scores have an estimate of times, and a kernel of the data has none",
            "evaluate on kernels of CK Tile on a GPU with known peak rates",
            code="no-estimate",
        )
    estimated = _estimated(dataset, kernels, np.arange(len(dataset.problems())))[dataset.problem_ids, kernel]
    return -term.weight * (estimated + offsets_of(dataset.op, kernels, term)[kernel])


def corrected_inputs(spec: ModelSpec, lead_of: Callable[[Sequence[Kernel]], NDArray[np.float64]]) -> ModelInputs:
    """Inputs of a model whose scores have the estimate: the operation's features, after the estimate's part.

    The lead that a kernel needs is subtracted from the score.
    """
    op, arch, term = spec.op, spec.gpu, spec.estimate
    assert term is not None
    assert op.training.law is not None
    engine = with_estimate(op.training.engine, op.training.law.sizes, arch, term.weight)

    def of_kernels(kernels: Sequence[Kernel]) -> dict[str, Any]:
        offsets = offsets_of(op, kernels, term) + lead_of(kernels) / term.weight
        inputs = kernel_inputs(KernelShapes.of(kernels), spec.dtype, arch, _reports(op, kernels, arch), offsets)
        return {**op.kernels.features(kernels, spec.encoding), **inputs}

    return ModelInputs(
        engine=engine,
        names=(ESTIMATE_FEATURE, *spec.feature_names),
        of_kernels=of_kernels,
        of_problem=lambda problem: op.problems.features([problem]),
    )


def kernel_groups(op: AnyOperation, kernels: Sequence[Kernel]) -> NDArray[np.str_]:
    """Names of each kernel's family, tile, and both, shape (3, kernels)."""
    families = column_of(kernels, op.kernels.slice_column).astype(str)
    tiles = ["x".join(map(str, tile)) for tile in zip(*(column_of(kernels, name) for name in _TILE), strict=True)]
    both = [f"{tile} {family}" for tile, family in zip(tiles, families, strict=True)]
    return np.array([families, tiles, both], dtype=str)


def offsets_of(op: AnyOperation, kernels: Sequence[Kernel], term: EstimateTerm) -> NDArray[np.float64]:
    """Sum of the offsets of each kernel's groups, shape (kernels,)."""
    if not term.offsets:
        return np.zeros(len(kernels))
    return np.array([sum(term.offsets.get(name, 0.0) for name in names) for names in kernel_groups(op, kernels).T])


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


def _offsets(
    groups: NDArray[np.str_],
    problem: NDArray[np.intp],
    sizes: NDArray[np.float64],
    error: NDArray[np.float64],
    gap: NDArray[np.float64],
) -> dict[str, float]:
    """Offsets of groups of kernels whose deviation exceeds its uncertainty, by name."""
    near = _near(sizes)
    covariance = _OF_ALL**2 + _OF_PROBLEM**2 * (problem[:, None] == problem) + near * _OF_SIZES**2
    for names, of_all, of_like in zip(groups, _OF_ALL_SIZES, _OF_LIKE_SIZES, strict=True):
        covariance += (names[:, None] == names) * (of_all**2 + of_like**2 * near)
    covariance[np.diag_indices(len(error))] += _NOISE**2 + (_NOISE_OF_GAP * gap) ** 2
    offsets: dict[str, float] = {}
    for names, of_all in zip(groups, _OF_ALL_SIZES, strict=True):
        kinds = np.unique(names)
        shared = (kinds[:, None] == names) * of_all**2
        explained = np.linalg.solve(covariance, np.column_stack([error, shared.T]))
        relative = np.eye(len(kinds)) - 1 / len(kinds)
        mean = relative @ shared @ explained[:, 0]
        variance = relative @ (np.eye(len(kinds)) * of_all**2 - shared @ explained[:, 1:]) @ relative
        bound = _DEVIATIONS * np.sqrt(np.maximum(np.diag(variance), 0.0))
        offset = np.sign(mean) * np.maximum(np.abs(mean) - bound, 0.0)
        offsets |= {str(kind): float(of_kind) for kind, of_kind in zip(kinds, offset, strict=True) if of_kind}
    return offsets


def _estimated(dataset: Dataset, kernels: Sequence[Kernel], problems: NDArray[np.intp]) -> NDArray[np.float64]:
    """Logs of estimated times in microseconds of kernels on some problems, shape (problems, kernels)."""
    op, arch = dataset.op, load_arch(dataset.arch).sized(dataset.num_cus)
    assert op.problems.tiled is not None
    chosen = [dataset.problems()[number] for number in problems]
    inputs = kernel_inputs(KernelShapes.of(kernels), chosen[0].dtype, arch, _reports(op, kernels, arch))
    return np.log(-minus_us(chosen, [op.problems.tiled(problem) for problem in chosen], inputs, arch))


def _reports(op: AnyOperation, kernels: Sequence[Kernel], arch: ArchSpec) -> list[Resources | None]:
    """Compiler reports of kernels compiled here: measured kernels may be another compiler's than those that ship."""
    reported = compiled_here(arch.name, op.name)
    return [reported.get(op.kernels.name(kernel)) for kernel in kernels] if reported else []


def _sizes(dataset: Dataset, problems: NDArray[np.intp]) -> NDArray[np.float64]:
    tiled = dataset.op.problems.tiled
    assert tiled is not None
    sizes = (tiled(dataset.problems()[number]) for number in problems)
    return np.log([(size.m, size.n, size.k) for size in sizes])


def _near(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Correlation of deviations at sizes, from 0 to 1, shape (rows, rows)."""
    distance = ((sizes[:, None, :] - sizes[None, :, :]) / _LENGTH) ** 2
    return np.asarray(np.exp(-0.5 * distance.sum(axis=-1)))
