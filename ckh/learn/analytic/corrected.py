"""The analytic estimate as the score of models, corrected by trees of measured times.

The score is minus the logarithm of the estimated time, plus trees times a weight. The trees are fitted to the logarithm
of estimated over measured time (`correction`), with the weight whose choices are best on held-out problems
(`weight_of`): it is 0, and the order the estimate's, until measurements choose better. Where trees of efficiency, with
the weight `OF_EFFICIENCY`, choose better still, they replace them: the estimate is then wrong as a whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.assess.metrics import choices
from ckh.errors import CkhError, DataError
from ckh.kernels.compiled import compiled_here
from ckh.learn.analytic.estimate import (
    ESTIMATE,
    ESTIMATE_FEATURE,
    KernelShapes,
    inputs_of_products,
    kernel_inputs,
    with_estimate,
)
from ckh.learn.analytic.estimator import EstimateScores
from ckh.learn.analytic.joined import KernelJoin
from ckh.learn.models.scoring import ModelInputs
from ckh.learn.models.spec import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.data.dataset import Dataset
    from ckh.learn.models.spec import ModelSpec
    from ckh.ops.base import AnyOperation, Kernel, Problem
    from ckh.schema import Resources

# More than a third is better for problems of the same session, as folds of one are, and does harm for those of another
# (benchmarks/estimate_prior.py).
WEIGHTS = (0.0, 0.1, 0.2, 0.3)
WEIGHTS_OF_SESSIONS = (*WEIGHTS, 0.5, 0.75)
# Relative to 0.3 of the estimate, the best on folds of either of AMD's files of gfx950.
OF_EFFICIENCY = 1 / 0.3
_MOST = 1.0  # of a correction
_FEWEST_CHOICES = 10  # problems: a standard error of fewer says nothing
_OF_GAP, _LEAST = 2.0, 0.02  # rows of kernels estimated far from the best of their problem weigh less


def estimated_logs(dataset: Dataset) -> NDArray[np.float64] | None:
    """Logarithms of the estimated times of all rows of a dataset; None if there is no estimate of some."""
    op = dataset.op
    if not op.training.estimated:
        return None
    names, kernel = np.unique(dataset.frame["kernel"].to_numpy(dtype=str), return_inverse=True)
    kernels = complete_kernels(dataset, names.tolist())
    if kernels is None:
        return None
    problems, logs = dataset.problems(), np.empty(len(dataset))
    estimate = EstimateScores(Wanted(op.name, None, problems[0].dtype, dataset.arch, dataset.num_cus))
    order = np.argsort(dataset.problem_ids, kind="stable")
    for problem, rows in zip(problems, np.split(order, np.cumsum(np.bincount(dataset.problem_ids))[:-1]), strict=True):
        logs[rows] = np.log(-estimate.scores([problem], [kernels[number] for number in kernel[rows]])[0])
    return logs


def correction(dataset: Dataset, estimated: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Labels, the bounded logarithms of estimated over measured time, and weights of rows; both of shape (rows,)."""
    problem = dataset.problem_ids
    least = np.full(int(problem.max()) + 1, np.inf)
    np.minimum.at(least, problem, estimated)
    error = estimated - np.log(dataset.frame["latency_ms"].to_numpy(dtype=np.float64))
    weight = np.maximum(np.exp(-_OF_GAP * (estimated - least[problem])), _LEAST)
    return np.clip(error - np.median(error), -_MOST, _MOST), weight


def weight_of(
    estimated: NDArray[np.float64],
    corrected: NDArray[np.float64],
    efficiency: NDArray[np.float64],
    problem: NDArray[np.int64],
    weights: Sequence[float] = WEIGHTS,
) -> float:
    """Weight of held-out corrections of rows that chooses best, the least of equals, by more than its standard error.

    Problems with one row do not count: there is nothing to choose.
    """
    number, rows = np.unique(problem, return_inverse=True, return_counts=True)[1:]
    scores = (weight * corrected - estimated for weight in weights)
    chosen = np.array([efficiency[choices(score, number, len(rows))] for score in scores])[:, rows > 1]
    gain = chosen - chosen[0]
    best = int(gain.sum(axis=1).argmax())
    return weights[best] if is_gain(gain[best]) else 0.0


def is_gain(gain: NDArray[np.float64], fewest: int = _FEWEST_CHOICES, deviations: float = 1.0) -> bool:
    """True if enough problems gain by more than standard errors of the mean, shape (problems,)."""
    return len(gain) >= fewest and bool(gain.mean() > deviations * gain.std() / np.sqrt(len(gain)))


def row_scores(dataset: Dataset) -> NDArray[np.float64]:
    """The estimate's part in the score of every row of a dataset, shape (rows,)."""
    if (estimated := estimated_logs(dataset)) is None:
        raise DataError(
            "the model's scores have an estimate of times, and a kernel of the data has none",
            "evaluate on kernels of CK Tile on a GPU with known peak rates",
            code="no-estimate",
        )
    return -estimated


def corrected_inputs(spec: ModelSpec, lead_of: Callable[[Sequence[Kernel]], NDArray[np.float64]]) -> ModelInputs:
    """Inputs of a model whose scores have the estimate: the operation's features, after the estimate's part.

    The lead that a kernel needs is subtracted from the score.
    """
    op, arch = spec.op, spec.gpu
    engine = with_estimate(op.training.engine, op.training.estimated, arch)

    def of_kernels(kernels: Sequence[Kernel], example: Problem) -> dict[str, Any]:
        lead, own = lead_of(kernels), op.kernels.features(kernels, spec.encoding)
        if op.problems.products is not None:
            return {**own, **inputs_of_products(op.problems.products(example), kernels, arch, lead)}
        reports = _reports(op, kernels, arch)
        return {**own, **kernel_inputs(KernelShapes.of(kernels), spec.dtype, arch, reports, lead)}

    return ModelInputs(
        engine=engine,
        names=(ESTIMATE_FEATURE, *spec.feature_names),
        of_kernels=of_kernels,
        of_problem=lambda problem: op.problems.features([problem]),
    )


def complete_kernels(dataset: Dataset, names: Sequence[str]) -> list[Kernel] | None:
    """Find a complete kernel for each name, from the default pool for short names; None if a name has none.

    Also None if there is no estimate: the operation has no tiles, or the architecture's peak rates are unknown.
    """
    op, arch = dataset.op, load_arch(dataset.arch)
    if (op.problems.tiled is None and op.problems.products is None) or arch.peaks is None:
        return None
    try:
        kernels = [op.kernels.parse(name) for name in names]
        for kernel in kernels:
            op.kernels.name(kernel)
    except CkhError:  # a short name, or not a kernel
        found: dict[int, Kernel] = {}
        for problem in {op.kernels.key_of(problem): problem for problem in dataset.problems()}.values():
            pool = op.kernels.candidates(problem, arch, Path(ESTIMATE)).pool
            for position, number in zip(*(part.tolist() for part in KernelJoin(op, names).pairs(pool)), strict=True):
                found.setdefault(number, pool[position])
            if len(found) == len(names):
                return [found[number] for number in range(len(names))]
        return None
    return kernels


def _reports(op: AnyOperation, kernels: Sequence[Kernel], arch: ArchSpec) -> list[Resources | None]:
    """Compiler reports of kernels compiled here: measured kernels may be another compiler's than those that ship."""
    reported = compiled_here(arch.name, op.name)
    return [reported.get(op.kernels.name(kernel)) for kernel in kernels] if reported else []
