"""A law of time, fitted to a few measured problems, as trees: what is known of sizes that were never measured.

For each kernel the law's coefficients (`features.law.TimeLaw`) are the non-negative least squares of relative errors,
in which rows far off count less. Trees learn the efficiencies that the law gives of the measured problems and of others
around them; they are added to those that have learned from the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.learn.matrix import FeatureMatrix
from ckh.training import TreeParams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.features.engine import FeatureEngine
    from ckh.features.law import TimeLaw

# Problems that every kernel must have been measured on: three for each coefficient.
_FEWEST_PROBLEMS = 30
_COPIES = 8  # problems drawn around each measured one
_PASSES = 4
_FAR_OFF = 0.15  # a relative error from which on a row counts less
PRIOR_TREES = TreeParams(
    n_estimators=200, learning_rate=0.1, num_leaves=31, colsample_bytree=0.6, reg_alpha=0.05, reg_lambda=0.5
)


@dataclass(frozen=True, slots=True, eq=False)
class PriorRows:
    """The law's estimates for kernels on problems: features of rows, and each row's efficiency."""

    matrix: FeatureMatrix
    efficiency: NDArray[np.float64]


def has_prior(dataset: Dataset, rows: NDArray[np.int64]) -> bool:
    """True if a law can be fitted to rows: the operation has one, and each kernel was measured on enough problems."""
    if dataset.op.law is None or not all(isinstance(value, int) for value in dataset.hardware().values()):
        return False
    counts = np.unique(dataset.frame["kernel_name"].to_numpy(dtype=str)[rows], return_counts=True)[1]
    return len(counts) > 1 and int(counts.min()) >= _FEWEST_PROBLEMS


def prior_rows(dataset: Dataset, rows: NDArray[np.int64], efficiency: NDArray[np.float64], seed: int) -> PriorRows:
    """Fit the law to rows of a dataset, and apply it to their problems and to others around them.

    Args:
        dataset: what was measured.
        rows: which of its rows are learned from.
        efficiency: of all rows of the dataset, were they chosen; the better count for more.
        seed: what the sizes of the other problems follow from.
    """
    op, frame = dataset.op, dataset.frame
    assert op.law is not None
    hardware = {name: int(value) for name, value in dataset.hardware().items()}
    raw = {name: frame[name].to_numpy()[rows] for name in op.input_columns}
    latency = frame["latency_ms"].to_numpy(dtype=np.float64)[rows]
    _, first_kernel, kernel = np.unique(
        frame["kernel_name"].to_numpy(dtype=str)[rows], return_index=True, return_inverse=True
    )
    terms = _terms(op.engine, op.law, raw, hardware)
    coefficients = np.stack(
        [
            _fitted(terms[kernel == number], latency[kernel == number], efficiency[rows][kernel == number])
            for number in range(len(first_kernel))
        ]
    )
    first_problem = np.unique(dataset.problem_ids[rows], return_index=True)[1]
    problems = {name: values[first_problem] for name, values in raw.items() if name not in op.engine.kernel_columns}
    random = np.random.default_rng(seed)
    drawn = [problems, *(op.law.varied(problems, random) for _ in range(_COPIES))]
    count, kernels = (_COPIES + 1) * len(first_problem), len(first_kernel)
    grid = {name: np.repeat(np.concatenate([one[name] for one in drawn]), kernels) for name in problems}
    grid |= {name: np.tile(values[first_kernel], count) for name, values in raw.items() if name not in problems}
    time = np.einsum("pkt,kt->pk", _terms(op.engine, op.law, grid, hardware).reshape(count, kernels, -1), coefficients)
    relative = time.min(axis=1, keepdims=True) / time
    return PriorRows(FeatureMatrix(op.engine, grid, hardware), relative.reshape(-1))


def _terms(
    engine: FeatureEngine, law: TimeLaw, columns: Mapping[str, NDArray[Any]], hardware: Mapping[str, int]
) -> NDArray[np.float64]:
    """The law's terms and the constant, shape (rows, terms)."""
    found = engine.quantities(columns, hardware, law.terms)
    return np.column_stack([np.ones(len(found)), found])


def _fitted(
    terms: NDArray[np.float64], latency: NDArray[np.float64], efficiency: NDArray[np.float64]
) -> NDArray[np.float64]:
    """A kernel's coefficients, shape (terms,)."""
    from scipy.optimize import nnls

    weight = efficiency / latency
    found = np.zeros(terms.shape[1])
    for _ in range(_PASSES):
        weighted = terms * weight[:, None]
        scale = np.maximum(np.abs(weighted).max(axis=0), np.finfo(np.float64).tiny)
        found = nnls(weighted / scale, latency * weight)[0] / scale
        error = np.log(np.maximum(terms @ found, np.finfo(np.float64).tiny) / latency)
        weight = efficiency / latency / np.sqrt(1.0 + (error / _FAR_OFF) ** 2)
    return found
