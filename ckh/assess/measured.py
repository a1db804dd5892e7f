"""From a dataset to the times that choices are judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.metrics import Times
from ckh.errors import DataError
from ckh.schema import MEASURED, REPEATED, Status

if TYPE_CHECKING:
    from ckh.data.dataset import Dataset
    from ckh.ops.base import AnyOperation


def needed_columns(op: AnyOperation) -> frozenset[str]:
    """The columns of an operation's dataset, besides those of identity, that a model and its judging read."""
    times = ("status", "is_valid", "latency_ms", "tflops", "spread", "device", *REPEATED)
    return frozenset({*op.input_columns, op.kernel_slice, *times})


def times_of(dataset: Dataset) -> Times:
    """Times of all rows; a row without a usable time takes for ever: to choose it is an efficiency of 0.

    Problems without any usable time keep an infinite oracle; `judged` leaves them out.
    """
    frame = dataset.frame
    is_valid = frame["is_valid"].to_numpy(dtype=bool)
    latency = np.where(is_valid, frame["latency_ms"].to_numpy(dtype=np.float64), np.inf)
    return Times(dataset.problem_ids, latency, frame["spread"].to_numpy(dtype=np.float64))


def unstable_share(dataset: Dataset) -> float:
    """The share of measured times whose samples did not agree."""
    status = dataset.frame["status"]
    unstable, measured = int((status == Status.UNSTABLE).sum()), int(status.isin(MEASURED).sum())
    return unstable / measured if measured else 0.0


def judged(dataset: Dataset) -> Dataset:
    """The rows of problems that have an oracle: at least one usable time.

    Raises:
        DataError: there is none.
    """
    has_oracle = np.isfinite(times_of(dataset).oracle_ms())
    if not has_oracle.any():
        raise DataError("no problem of the dataset has a usable time", "see the column status for why")
    return dataset if has_oracle.all() else dataset.select(has_oracle[dataset.problem_ids])
