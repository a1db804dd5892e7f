"""Times of a dataset by which choices are evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.metrics import Times
from ckh.errors import DataError
from ckh.schema import MEASURED, REPEATED, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.ops.base import AnyOperation

    Scorer: TypeAlias = Callable[[Dataset], NDArray[np.float64]]  # score of each row, higher is better


def needed_columns(op: AnyOperation) -> frozenset[str]:
    """Columns of an operation's dataset, besides the identity columns, needed by a model and its evaluation."""
    times = ("status", "is_valid", "latency_ms", "tflops", "spread", "device", "hw_num_cus", *REPEATED)
    return frozenset({*op.training.input_columns, op.kernels.slice_column, *times})


def times_of(dataset: Dataset) -> Times:
    """Times of all rows; a row without a usable time is infinite, so that choosing it has an efficiency of 0.

    Launch-bound kernels of a problem are ties: all get the shortest of their times. Problems without any usable time
    keep an infinite oracle; `judged` leaves them out.
    """
    frame = dataset.frame
    is_valid = frame["is_valid"].to_numpy(dtype=bool)
    latency = np.where(is_valid, frame["latency_ms"].to_numpy(dtype=np.float64), np.inf)
    is_bound = is_valid & (frame["status"] == Status.LAUNCH_BOUND).to_numpy(dtype=bool)
    if is_bound.any():
        least = np.full(dataset.problem_ids.max() + 1, np.inf)
        np.minimum.at(least, dataset.problem_ids[is_bound], latency[is_bound])
        latency[is_bound] = least[dataset.problem_ids[is_bound]]
    return Times(dataset.problem_ids, latency, frame["spread"].to_numpy(dtype=np.float64))


def efficiency_of(dataset: Dataset) -> NDArray[np.float64]:
    """Efficiency of each row, if chosen; without times that of the kernel that others chose is 1, of all others 0."""
    times = times_of(dataset)
    is_timed = np.isfinite(times.oracle_ms())[times.problem]
    is_chosen = (dataset.frame["status"] == Status.CHOSEN).to_numpy(dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(is_timed, times.efficiency(), is_chosen)


def unstable_counts(dataset: Dataset) -> NDArray[np.int64]:
    """Number of times with inconsistent samples, and number of measured times; shape (2,)."""
    status = dataset.frame["status"]
    return np.array([(status == Status.UNSTABLE).sum(), status.isin(MEASURED).sum()], dtype=np.int64)


def unstable_share(parts: Iterable[Dataset]) -> float:
    """Share of measured times with inconsistent samples, over a dataset's parts."""
    unstable, measured = np.sum([unstable_counts(part) for part in parts], axis=0).tolist()
    return unstable / measured if measured else 0.0


def has_oracle(dataset: Dataset) -> NDArray[np.bool_]:
    """Mask of problems with at least one usable time, shape (problems,)."""
    return np.isfinite(times_of(dataset).oracle_ms())


def judged(dataset: Dataset) -> Dataset:
    """Select the rows of problems that have an oracle: at least one usable time."""
    is_timed = has_oracle(dataset)
    if not is_timed.any():
        raise no_oracle()
    return dataset if is_timed.all() else dataset.select(is_timed[dataset.problem_ids])


def no_oracle() -> DataError:
    """Error for data without any usable time."""
    return DataError("the dataset has no valid time", "see the column status for why", code="not-measured")
