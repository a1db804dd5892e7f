"""A law of time, fitted to a few measured problems, as trees: what is known of sizes that were never measured.

For each kernel the law's coefficients (`features.law.TimeLaw`) are the non-negative least squares of relative errors,
in which rows far off count less. They are drawn to those of a law of the kernel's family, as strongly as one further
measurement of each would: where no small problem was measured, only other tiles say what a kernel takes there. Trees
learn the efficiencies that the law gives of the measured problems and of others around them; they are added to those
that have learned from the measurements. That is done where the law holds: where, fitted to two thirds of the problems,
or of few to all but one, it predicts the times of the others. It is a GPU's: on a CPU it errs by a factor of two and
more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.assess.measured import times_of
from ckh.learn.training.matrix import FeatureMatrix
from ckh.training import TreeParams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.features.engine import FeatureEngine

_FEWEST_ROWS = 3  # of a kernel on average: with fewer it was not tried
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
    """The law's estimates for kernels on problems: features of rows, and each row's efficiency."""

    matrix: FeatureMatrix
    efficiency: NDArray[np.float64]


def has_prior(dataset: Dataset, rows: NDArray[np.int64]) -> bool:
    """True if a law holds for rows: the operation has one, and it predicts times of problems that it did not see."""
    if dataset.op.law is None or not all(isinstance(value, int) for value in dataset.hardware().values()):
        return False
    kernels = len(np.unique(dataset.frame["kernel_name"].to_numpy(dtype=str)[rows]))
    problems, problem = np.unique(dataset.problem_ids[rows], return_inverse=True)
    if kernels == 1 or len(rows) < _FEWEST_ROWS * kernels or len(problems) < _FEWEST_PROBLEMS:
        return False
    efficiency = times_of(dataset.select(rows)).efficiency()
    fold = problem if len(problems) <= _EACH_ALONE else problem % _FOLDS
    return _unseen_error(_Law.of(dataset, rows, efficiency), fold) <= _MOST_ERROR


def prior_rows(dataset: Dataset, rows: NDArray[np.int64], efficiency: NDArray[np.float64], seed: int) -> PriorRows:
    """Fit the law to rows of a dataset, and apply it to their problems and to others around them.

    Args:
        dataset: what was measured.
        rows: which of its rows are learned from.
        efficiency: of all rows of the dataset, were they chosen; the better count for more.
        seed: what the sizes of the other problems follow from.
    """
    op, law = dataset.op, _Law.of(dataset, rows, efficiency[rows])
    assert op.law is not None
    coefficients = _coefficients(law.measured, law.kernel, law.shared, law.families)
    first_problem = np.unique(dataset.problem_ids[rows], return_index=True)[1]
    problems = {name: values[first_problem] for name, values in law.raw.items() if name not in op.engine.kernel_columns}
    random = np.random.default_rng(seed)
    copies = max(_COPIES, _FEWEST_DRAWN // len(first_problem))
    drawn = [problems, *(op.law.varied(problems, random) for _ in range(copies))]
    count, kernels = (copies + 1) * len(first_problem), len(law.first_kernel)
    grid = {name: np.repeat(np.concatenate([one[name] for one in drawn]), kernels) for name in problems}
    grid |= {name: np.tile(values[law.first_kernel], count) for name, values in law.raw.items() if name not in problems}
    terms = _with_constant(op.engine, grid, law.hardware, op.law.terms).reshape(count, kernels, -1)
    time = np.einsum("pkt,kt->pk", terms, coefficients)
    relative = time.min(axis=1, keepdims=True) / time
    return PriorRows(FeatureMatrix(op.engine, grid, law.hardware), relative.reshape(-1))


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
        assert op.law is not None
        hardware = {name: int(value) for name, value in dataset.hardware().items()}
        raw = {name: frame[name].to_numpy()[rows] for name in op.input_columns}
        latency = frame["latency_ms"].to_numpy(dtype=np.float64)[rows]
        names = frame["kernel_name"].to_numpy(dtype=str)[rows]
        _, first_kernel, kernel = np.unique(names, return_index=True, return_inverse=True)
        measured = _LawRows(_with_constant(op.engine, raw, hardware, op.law.terms), latency, efficiency)
        of_kernel = {name: raw[name][first_kernel] for name in op.engine.kernel_columns if name in raw}
        shared = _with_constant(op.engine, of_kernel, hardware, op.law.shared)
        families = frame[op.kernel_slice].to_numpy(dtype=str)[rows][first_kernel]
        return cls(raw, hardware, measured, kernel, first_kernel, shared, families)


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
