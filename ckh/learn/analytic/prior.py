"""What is known of times before and beyond the measured ones, as trees: a law, and the estimate as it was corrected.

For each kernel the law's coefficients (`features.law.TimeLaw`) are the non-negative least squares of relative errors,
in which rows far off count less. They are drawn to those of a law of the kernel's family, as strongly as one further
measurement of each would: where no small problem was measured, only other tiles say what a kernel takes there. The law
is used where it holds: where, fitted to two thirds of the problems, or of few to all but one, it predicts the times of
the others. It is a GPU's: on a CPU it errs by a factor of two and more.

Of few measurements the analytic estimate, corrected by them (`corrected`), orders kernels better than any law or tree,
so it weighs more the fewer rows there are. Trees learn the efficiencies that both give, of the measured problems and of
others around them; they are added to those that have learned from the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.assess.times import times_of
from ckh.learn.analytic.corrected import CorrectedEstimate, complete_kernels
from ckh.learn.training.feature_matrix import FeatureMatrix
from ckh.training import TreeParams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.features.engine import FeatureEngine

# Weight of the estimate beside 1 of the law and 1 of the trees of measurements: times the reciprocal square root of the
# rows less that of so many rows, from which on it did not help (benchmarks/estimate_prior.py).
_ESTIMATE_WEIGHT, _ROWS_WITHOUT_ESTIMATE = 30.0, 3000
_FEWEST_ROWS = 3  # of a kernel on average: with fewer a law was not tried
_FOLDS = 3
_FEWEST_PROBLEMS = 2 * _FOLDS
_EACH_ALONE = 12  # problems up to which each is predicted by a law of all others: two thirds of so few say too little
# The median error of logarithms of times up to which a law holds. AMD's gfx950 has .05 of 900 rows and .1 to .3 of 100,
# and gains from a law of up to .5; the host has .45 to 1.3 of any number, and loses (`benchmarks/few_shots.py`).
_MOST_ERROR = 0.35
_COPIES = 8  # problems drawn around each measured one, or more
_FEWEST_DRAWN = 300  # problems in all: trees learn the law of a few measured ones, too
_PASSES = 4
_MOST_STEPS = 30  # of a fit, for each coefficient
_FAR_OFF = 0.15  # a relative error from which on a row counts less
PRIOR_TREES = TreeParams(
    n_estimators=200, learning_rate=0.1, num_leaves=63, colsample_bytree=0.8, reg_alpha=0.05, reg_lambda=0.5
)


@dataclass(frozen=True, slots=True, eq=False)
class PriorRows:
    """Analytic estimates for kernels on problems: features of rows, each row's efficiency, and the weight of all."""

    matrix: FeatureMatrix
    efficiency: NDArray[np.float64]
    weight: float


def has_prior(dataset: Dataset, rows: NDArray[np.int64]) -> bool:
    """True if rows have a prior: a law that holds for them, or an estimate of all of their kernels."""
    if not _can_vary(dataset) or _law_holds(dataset, rows):
        return _can_vary(dataset)
    names = np.unique(dataset.frame["kernel"].to_numpy(dtype=str)[rows])
    return len(rows) < _ROWS_WITHOUT_ESTIMATE and complete_kernels(dataset, names.tolist()) is not None


def prior_rows(
    dataset: Dataset, rows: NDArray[np.int64], efficiency: NDArray[np.float64], seed: int
) -> PriorRows | None:
    """Apply what is known of the kernels of rows to their problems and to others around them; None without a prior.

    Args:
        dataset: what was measured.
        rows: which of its rows are learned from.
        efficiency: of all rows of the dataset, were they chosen; the better count for more.
        seed: what the sizes of the other problems follow from.
    """
    if not _can_vary(dataset):
        return None
    law = _Law.of(dataset, rows, efficiency[rows])
    is_few = len(rows) < _ROWS_WITHOUT_ESTIMATE
    estimate = CorrectedEstimate.of(dataset, rows, seed) if is_few else None
    law_weight = 1.0 if _law_holds(dataset, rows) else 0.0
    fade = len(rows) ** -0.5 - _ROWS_WITHOUT_ESTIMATE**-0.5
    estimate_weight = 0.0 if estimate is None else _ESTIMATE_WEIGHT * fade
    if not (weight := law_weight + estimate_weight):
        return None
    grid = _Grid.around(dataset, rows, law, estimate, seed)
    time = np.zeros((grid.count, len(grid.kernels[dataset.op.kernels.slice_column])))
    if law_weight:
        time += law_weight / weight * law.log_times(dataset, grid)
    if estimate is not None:
        time += estimate_weight / weight * estimate.relative_times(grid.points)
    found = np.exp(time.min(axis=1, keepdims=True) - time)
    return PriorRows(FeatureMatrix(dataset.op.training.engine, grid.columns, law.hardware), found.reshape(-1), weight)


def _can_vary(dataset: Dataset) -> bool:
    """True if other problems can be drawn around measured ones, on a machine whose quantities are known."""
    return dataset.op.training.law is not None and all(isinstance(value, int) for value in dataset.hardware().values())


def _law_holds(dataset: Dataset, rows: NDArray[np.int64]) -> bool:
    """True if the operation's law predicts times of problems that it did not see."""
    kernels = len(np.unique(dataset.frame["kernel"].to_numpy(dtype=str)[rows]))
    problems, problem = np.unique(dataset.problem_ids[rows], return_inverse=True)
    if kernels == 1 or len(rows) < _FEWEST_ROWS * kernels or len(problems) < _FEWEST_PROBLEMS:
        return False
    efficiency = times_of(dataset.select(rows)).efficiency()
    fold = problem if len(problems) <= _EACH_ALONE else problem % _FOLDS
    return _unseen_error(_Law.of(dataset, rows, efficiency), fold) <= _MOST_ERROR


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """Measured problems and others around them, and all kernels of each.

    Attributes:
        problems: raw columns of problems, shape (problems,).
        kernels: raw columns of kernels, shape (kernels,); the measured ones are first.
        points: the problems.
    """

    problems: dict[str, NDArray[Any]]
    kernels: dict[str, NDArray[Any]]
    points: list[Any]

    @classmethod
    def around(
        cls, dataset: Dataset, rows: NDArray[np.int64], law: _Law, estimate: CorrectedEstimate | None, seed: int
    ) -> _Grid:
        """Draw problems around those of rows of a dataset."""
        op = dataset.op
        assert op.training.law is not None
        first = np.unique(dataset.problem_ids[rows], return_index=True)[1]
        measured = {
            name: values[first] for name, values in law.raw.items() if name not in op.training.engine.kernel_columns
        }
        random = np.random.default_rng(seed)
        copies = max(_COPIES, _FEWEST_DRAWN // len(first))
        drawn = [measured, *(op.training.law.varied(measured, random) for _ in range(copies))]
        problems = {name: np.concatenate([one[name] for one in drawn]) for name in measured}
        kernels = {name: values[law.first_kernel] for name, values in law.raw.items() if name not in measured}
        if estimate is not None:
            kernels = {name: np.concatenate([one, estimate.others[name]]) for name, one in kernels.items()}
        frame = dataset.frame.iloc[np.tile(rows[first], copies + 1)].assign(**problems)
        return cls(problems, kernels, [op.problems.of_row(row) for row in frame.to_dict("records")])

    @property
    def count(self) -> int:
        """Number of problems."""
        return len(self.points)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Raw columns of all kernels of each problem, shape (problems * kernels,)."""
        kernels = len(next(iter(self.kernels.values())))
        of_problems = {name: np.repeat(values, kernels) for name, values in self.problems.items()}
        return of_problems | {name: np.tile(values, self.count) for name, values in self.kernels.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _LawRows:
    """Rows that a law is fitted to: its terms, shape (rows, terms), times in ms, and how near each is to the best."""

    terms: NDArray[np.float64]
    latency: NDArray[np.float64]
    efficiency: NDArray[np.float64]

    def of(self, rows: NDArray[np.bool_]) -> _LawRows:
        """Some of the rows."""
        return _LawRows(self.terms[rows], self.latency[rows], self.efficiency[rows])

    @property
    def sizes(self) -> NDArray[np.float64]:
        """The usual size of a weighted term, shape (terms,)."""
        weighted = self.terms * (self.efficiency / self.latency)[:, None]
        return np.asarray(np.sqrt((weighted**2).mean(axis=0)))


@dataclass(frozen=True, slots=True, eq=False)
class _Law:
    """What laws of kernels are fitted to.

    Attributes:
        raw: columns of all rows.
        hardware: its quantities.
        measured: terms and times of all rows.
        kernel: the number of each row's kernel.
        first_kernel: a row of each kernel, shape (kernels,).
        shared: what coefficients of like kernels differ by, shape (kernels, shared).
        families: which kernels are alike, shape (kernels,).
    """

    raw: dict[str, NDArray[Any]]
    hardware: dict[str, int]
    measured: _LawRows
    kernel: NDArray[np.int64]
    first_kernel: NDArray[np.int64]
    shared: NDArray[np.float64]
    families: NDArray[np.str_]

    @classmethod
    def of(cls, dataset: Dataset, rows: NDArray[np.int64], efficiency: NDArray[np.float64]) -> _Law:
        """Those of rows of a dataset, whose efficiencies are of shape (rows,)."""
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
        """Logarithms of the times of a grid's kernels, shape (problems, kernels)."""
        op = dataset.op
        assert op.training.law is not None
        shared = _with_constant(op.training.engine, grid.kernels, self.hardware, op.training.law.shared)
        families = np.concatenate([self.families, grid.kernels[op.kernels.slice_column][len(self.families) :]])
        coefficients = _coefficients(self.measured, self.kernel, shared, families)
        terms = _with_constant(op.training.engine, grid.columns, self.hardware, op.training.law.terms)
        return np.asarray(np.log(np.einsum("pkt,kt->pk", terms.reshape(grid.count, len(families), -1), coefficients)))


def _unseen_error(law: _Law, fold: NDArray[np.int64]) -> float:
    """The median error of logarithms of times, in each fold by a law of the others, of kernels that these have."""
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
    """The logarithm of a predicted time over a measured one."""
    return np.asarray(np.log(np.maximum(time, np.finfo(np.float64).tiny) / latency))


def _with_constant(
    engine: FeatureEngine, columns: Mapping[str, NDArray[Any]], hardware: Mapping[str, int], names: Sequence[str]
) -> NDArray[np.float64]:
    """Derived quantities with a 1 before them, shape (rows, 1 + names)."""
    found = engine.quantities(columns, hardware, names)
    return np.column_stack([np.ones(len(found)), found])


def _coefficients(
    measured: _LawRows, kernel: NDArray[np.int64], shared: NDArray[np.float64], families: NDArray[np.str_]
) -> NDArray[np.float64]:
    """The law of each kernel, shape (kernels, terms).

    Args:
        measured: rows of all kernels.
        kernel: the number of each row's kernel.
        shared: what coefficients of like kernels differ by, shape (kernels, shared).
        families: which kernels are alike, shape (kernels,).
    """
    found = np.empty((len(families), measured.terms.shape[1]))
    sizes = measured.sizes
    for family in np.unique(families):
        rows = families[kernel] == family
        part = measured.of(rows)
        joint = (part.terms[:, :, None] * shared[kernel[rows]][:, None, :]).reshape(len(part.terms), -1)
        factors = _fitted(replace(part, terms=joint)).reshape(len(sizes), -1)
        for number in np.flatnonzero(families == family):
            found[number] = _fitted(measured.of(kernel == number), factors @ shared[number], sizes)
    return found


def _fitted(
    measured: _LawRows, drawn_to: NDArray[np.float64] | None = None, strength: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Coefficients of terms that are not negative, shape (terms,), drawn to others, each by its strength."""
    from scipy.optimize import nnls

    terms, latency, weight = measured.terms, measured.latency, measured.efficiency / measured.latency
    pull = np.empty((0, terms.shape[1])) if strength is None else np.diag(strength)
    pulled = np.empty(0) if drawn_to is None else pull @ drawn_to
    found = np.zeros(terms.shape[1])
    for _ in range(_PASSES):
        weighted = np.concatenate([terms * weight[:, None], pull])
        scale = np.maximum(np.abs(weighted).max(axis=0), np.finfo(np.float64).tiny)
        right = np.concatenate([latency * weight, pulled])
        found = nnls(weighted / scale, right, maxiter=_MOST_STEPS * len(scale))[0] / scale
        error = _log_error(terms @ found, latency)
        weight = measured.efficiency / latency / np.sqrt(1.0 + (error / _FAR_OFF) ** 2)
    return found
