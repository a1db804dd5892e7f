"""Prior knowledge of times at measured and other sizes, as trees of a time model.

For each kernel the coefficients of the time model (`features.law.TimeLaw`) are fitted by non-negative least squares of
relative errors, with less weight for outliers. They are shrunk towards those of a time model of the kernel's family,
with the strength of one additional measurement: where no small problem was measured, only other tiles determine a
kernel's time there. The time model is used if it is valid: if, fitted to two thirds of the problems, or to all but one
if there are few, it predicts the times of the others. It is meant for GPUs: on a CPU it errs by a factor of two and
more.

Trees learn the efficiencies that it predicts, for the measured problems and for others around them; they are added to
the trees trained on measurements, with equal weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import nnls

from ckh.assess.times import times_of
from ckh.learn.training.feature_matrix import FeatureMatrix
from ckh.training import TreeParams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.features.engine import FeatureEngine

_FEWEST_ROWS = 3  # per kernel on average: not tested with fewer
_FOLDS = 3
_FEWEST_PROBLEMS = 2 * _FOLDS
_EACH_ALONE = 12  # up to this many problems, cross-validation leaves one out: two thirds of so few are not enough
# Maximum median error of log times of a valid time model. AMD's gfx950 has .05 with 900 rows and .1 to .3 with 100, and
# gains from time models up to .5; the host has .45 to 1.3 with any number, and loses (`benchmarks/few_shots.py`).
_MOST_ERROR = 0.35
_COPIES = 8  # minimum number of problems drawn around each measured one
_FEWEST_DRAWN = 300  # problems in total: trees also learn the time model of a few measured ones
_OCTAVES = 2.0  # range of drawn sizes around measured ones, up and down
_PASSES = 4
_MOST_STEPS = 30  # of a fit, per coefficient
_FAR_OFF = 0.15  # relative error above which a row gets less weight
PRIOR_TREES = TreeParams(
    n_estimators=200, learning_rate=0.1, num_leaves=63, colsample_bytree=0.8, reg_alpha=0.05, reg_lambda=0.5
)


@dataclass(frozen=True, slots=True, eq=False)
class PriorRows:
    """Predicted efficiencies of kernels on problems: features of rows, and each row's efficiency."""

    matrix: FeatureMatrix
    efficiency: NDArray[np.float64]


def prior_rows(
    dataset: Dataset, rows: NDArray[np.int64], efficiency: NDArray[np.float64], seed: int
) -> PriorRows | None:
    """Predict the kernels of rows on their problems and on others around them; None without a valid time model."""
    if not has_prior(dataset, rows):
        return None
    law = _Law.of(dataset, rows, efficiency[rows])
    grid = _Grid.around(dataset, rows, law, seed)
    time = law.log_times(dataset, grid)
    predicted = np.exp(time.min(axis=1, keepdims=True) - time)
    return PriorRows(FeatureMatrix(dataset.op.training.engine, grid.columns, law.hardware), predicted.reshape(-1))


def has_prior(dataset: Dataset, rows: NDArray[np.int64]) -> bool:
    """True if the operation's time model predicts times of held-out problems of rows."""
    if dataset.op.training.law is None or not all(isinstance(value, int) for value in dataset.hardware().values()):
        return False
    kernels = len(np.unique(dataset.frame["kernel"].to_numpy(dtype=str)[rows]))
    problems, problem = np.unique(dataset.problem_ids[rows], return_inverse=True)
    if kernels == 1 or len(rows) < _FEWEST_ROWS * kernels or len(problems) < _FEWEST_PROBLEMS:
        return False
    efficiency = times_of(dataset.select(rows)).efficiency()
    fold = problem if len(problems) <= _EACH_ALONE else problem % _FOLDS
    return _unseen_error(_Law.of(dataset, rows, efficiency), fold) <= _MOST_ERROR


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """Measured problems and others around them, and all measured kernels."""

    problems: dict[str, NDArray[Any]]
    kernels: dict[str, NDArray[Any]]

    @classmethod
    def around(cls, dataset: Dataset, rows: NDArray[np.int64], law: _Law, seed: int) -> _Grid:
        """Draw problems around those of rows of a dataset."""
        op = dataset.op
        assert op.training.law is not None
        first = np.unique(dataset.problem_ids[rows], return_index=True)[1]
        measured = {
            name: values[first] for name, values in law.raw.items() if name not in op.training.engine.kernel_columns
        }
        random = np.random.default_rng(seed)
        copies = max(_COPIES, _FEWEST_DRAWN // len(first))
        drawn = [measured, *(op.training.law.varied(measured, _OCTAVES, random) for _ in range(copies))]
        problems = {name: np.concatenate([sizes[name] for sizes in drawn]) for name in measured}
        kernels = {name: values[law.first_kernel] for name, values in law.raw.items() if name not in measured}
        return cls(problems, kernels)

    @property
    def count(self) -> int:
        """Number of problems."""
        return len(next(iter(self.problems.values())))

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Raw columns of all kernels of each problem, shape (problems * kernels,)."""
        kernels = len(next(iter(self.kernels.values())))
        of_problems = {name: np.repeat(values, kernels) for name, values in self.problems.items()}
        return of_problems | {name: np.tile(values, self.count) for name, values in self.kernels.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _LawRows:
    """Rows for fitting a time model: terms, shape (rows, terms), times in ms, and efficiencies."""

    terms: NDArray[np.float64]
    latency: NDArray[np.float64]
    efficiency: NDArray[np.float64]

    def of(self, rows: NDArray[np.bool_]) -> _LawRows:
        """Select some of the rows."""
        return _LawRows(self.terms[rows], self.latency[rows], self.efficiency[rows])

    @property
    def sizes(self) -> NDArray[np.float64]:
        """Root mean square of each weighted term, shape (terms,)."""
        weighted = self.terms * (self.efficiency / self.latency)[:, None]
        return np.asarray(np.sqrt((weighted**2).mean(axis=0)))


@dataclass(frozen=True, slots=True, eq=False)
class _Law:
    """Inputs for fitting time models of kernels."""

    raw: dict[str, NDArray[Any]]
    hardware: dict[str, int]
    measured: _LawRows
    kernel: NDArray[np.int64]
    first_kernel: NDArray[np.int64]
    shared: NDArray[np.float64]
    families: NDArray[np.str_]

    @classmethod
    def of(cls, dataset: Dataset, rows: NDArray[np.int64], efficiency: NDArray[np.float64]) -> _Law:
        """Read the inputs from rows of a dataset, with efficiencies of shape (rows,)."""
        op, frame = dataset.op, dataset.frame
        assert op.training.law is not None
        hardware = {name: int(value) for name, value in dataset.hardware().items()}
        raw = {name: frame[name].to_numpy()[rows] for name in op.training.input_columns}
        latency = frame["latency_ms"].to_numpy(dtype=np.float64)[rows]
        names = frame["kernel"].to_numpy(dtype=str)[rows]
        _, first_kernel, kernel = np.unique(names, return_index=True, return_inverse=True)
        measured = _LawRows(
            _with_constant(op.training.engine, raw, hardware, op.training.law.terms), latency, efficiency
        )
        of_kernel = {name: raw[name][first_kernel] for name in op.training.engine.kernel_columns if name in raw}
        shared = _with_constant(op.training.engine, of_kernel, hardware, op.training.law.shared)
        families = frame[op.kernels.slice_column].to_numpy(dtype=str)[rows][first_kernel]
        return cls(raw, hardware, measured, kernel, first_kernel, shared, families)

    def log_times(self, dataset: Dataset, grid: _Grid) -> NDArray[np.float64]:
        """Predict logs of the times of a grid's kernels, shape (problems, kernels)."""
        op = dataset.op
        assert op.training.law is not None
        shared = _with_constant(op.training.engine, grid.kernels, self.hardware, op.training.law.shared)
        coefficients = _coefficients(self.measured, self.kernel, shared, self.families)
        terms = _with_constant(op.training.engine, grid.columns, self.hardware, op.training.law.terms)
        terms = terms.reshape(grid.count, len(self.families), -1)
        return np.asarray(np.log(np.einsum("pkt,kt->pk", terms, coefficients)))


def _unseen_error(law: _Law, fold: NDArray[np.int64]) -> float:
    """Median error of out-of-fold log times, over kernels that occur in the other folds."""
    errors = []
    for number in np.unique(fold):
        learned = fold != number
        known, kernel = np.unique(law.kernel[learned], return_inverse=True)
        coefficients = np.zeros((len(law.shared), law.measured.terms.shape[1]))
        coefficients[known] = _coefficients(law.measured.of(learned), kernel, law.shared[known], law.families[known])
        held = ~learned & np.isin(law.kernel, known)
        time = (law.measured.terms[held] * coefficients[law.kernel[held]]).sum(axis=1)
        errors.append(_log_error(time, law.measured.latency[held]))
    return float(np.median(np.abs(np.concatenate(errors))))


def _log_error(time: NDArray[np.float64], latency: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of predicted over measured time."""
    return np.asarray(np.log(np.maximum(time, np.finfo(np.float64).tiny) / latency))


def _with_constant(
    engine: FeatureEngine, columns: Mapping[str, NDArray[Any]], hardware: Mapping[str, int], names: Sequence[str]
) -> NDArray[np.float64]:
    """Derived quantities, preceded by a column of ones, shape (rows, 1 + names)."""
    quantities = engine.quantities(columns, hardware, names)
    return np.column_stack([np.ones(len(quantities)), quantities])


def _coefficients(
    measured: _LawRows, kernel: NDArray[np.int64], shared: NDArray[np.float64], families: NDArray[np.str_]
) -> NDArray[np.float64]:
    """Fit the coefficients of each kernel, shape (kernels, terms)."""
    coefficients = np.empty((len(families), measured.terms.shape[1]))
    sizes = measured.sizes
    for family in np.unique(families):
        rows = families[kernel] == family
        part = measured.of(rows)
        joint = (part.terms[:, :, None] * shared[kernel[rows]][:, None, :]).reshape(len(part.terms), -1)
        factors = _fitted(replace(part, terms=joint)).reshape(len(sizes), -1)
        for number in np.flatnonzero(families == family):
            coefficients[number] = _fitted(measured.of(kernel == number), factors @ shared[number], sizes)
    return coefficients


def _fitted(
    measured: _LawRows, drawn_to: NDArray[np.float64] | None = None, strength: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Fit non-negative coefficients of terms, shape (terms,), shrunk towards others, each with its strength."""
    terms, latency, weight = measured.terms, measured.latency, measured.efficiency / measured.latency
    pull = np.empty((0, terms.shape[1])) if strength is None else np.diag(strength)
    pulled = np.empty(0) if drawn_to is None else pull @ drawn_to
    values = np.zeros(terms.shape[1])
    for _ in range(_PASSES):
        weighted = np.concatenate([terms * weight[:, None], pull])
        scale = np.maximum(np.abs(weighted).max(axis=0), np.finfo(np.float64).tiny)
        right = np.concatenate([latency * weight, pulled])
        values = nnls(weighted / scale, right, maxiter=_MOST_STEPS * len(scale))[0] / scale
        error = _log_error(terms @ values, latency)
        weight = measured.efficiency / latency / np.sqrt(1.0 + (error / _FAR_OFF) ** 2)
    return values
