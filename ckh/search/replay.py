"""Replay strategies on recorded exhaustive measurements: how near to the optimum, after how many measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.data.tables import warn_unverified
from ckh.errors import DataError
from ckh.search.run import run
from ckh.search.space import Space
from ckh.search.strategies import DEFAULT_STRATEGY, make_strategy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

_OK = "ok"
_TIME = "time_ms"
_STATUS = "status"
# What a recording says of a measurement besides: counts, deviations and times. The rest are parameters.
_MEASURED = {_TIME, _STATUS, "spread"}
_MEASURED_ENDS = ("_ms", "_samples", "_obs")


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A space and the time of every configuration, not a number where it failed."""

    space: Space
    times_ms: NDArray[np.float64]

    @property
    def optimum_ms(self) -> float:
        """The fastest time."""
        return float(np.nanmin(self.times_ms))


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Best time after each measurement, shape (seeds, budget), infinite until something worked."""

    best_ms: NDArray[np.float64]
    optimum_ms: float

    def efficiencies(self, checkpoint: int) -> NDArray[np.float64]:
        """Optimum / best found after so many measurements, one for each seed."""
        return np.asarray(self.optimum_ms / self.best_ms[:, checkpoint - 1])

    def summary(self, checkpoints: Sequence[int]) -> tuple[float, ...]:
        """The median over the seeds of optimum / best found, at each checkpoint."""
        return tuple(float(np.median(self.efficiencies(checkpoint))) for checkpoint in checkpoints)


def read_recording(path: Path) -> Recording:
    """Read a Parquet file with one row for each configuration: parameters, `time_ms`, `status`.

    A column is a parameter unless it is `time_ms`, `status`, `spread`, or ends in `_ms`, `_samples` or `_obs`;
    constant columns are dropped. A row counts as failed unless its status is `ok`.

    Raises:
        DataError: the file cannot be read, or a column, parameter or time is missing.
    """
    import pandas as pd
    import pyarrow as pa

    try:
        frame = pd.read_parquet(path)
    except FileNotFoundError:
        raise DataError(f"no such file: {path}", code="no-file") from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}", code="unreadable") from error
    for name in (_TIME, _STATUS):
        if name not in frame.columns:
            raise DataError(f"{path} has no column {name}", code="missing-column")
    times = np.where((frame[_STATUS] == _OK).to_numpy(), frame[_TIME].to_numpy(dtype=np.float64), np.nan)
    is_ok = (frame[_STATUS] == _OK).to_numpy()
    if not is_ok.any() or not (np.isfinite(times[is_ok]).all() and (times[is_ok] > 0).all()):
        raise DataError(
            f"{path} needs a positive time_ms wherever the status is ok, and at least one such row", code="bad-column"
        )
    names = [name for name in frame.columns if _is_parameter(name) and len(frame[name].unique()) > 1]
    if not names:
        raise DataError(f"{path} has no column of a parameter that varies", code="bad-column")
    try:
        space = Space(names, [_values(frame[name]) for name in names])
    except DataError as error:
        raise DataError(f"{path}: {error.message}", error.hint, code=error.code) from error
    warn_unverified(path)
    return Recording(space, times)


def _is_parameter(name: str) -> bool:
    return name not in _MEASURED and not name.endswith(_MEASURED_ENDS)


def _values(column: pd.Series) -> NDArray[np.generic]:
    return np.asarray(column.to_numpy())


def replay(
    recording: Recording,
    budget: int,
    seeds: Sequence[int],
    strategy: str = DEFAULT_STRATEGY,
    prior: NDArray[np.float64] | None = None,
    jobs: int = 1,
) -> Replay:
    """Search a recording once for each seed.

    A search ends early at the optimum, which changes nothing in what is reported.

    Raises:
        UsageError: there is no such strategy.
        DataError: the prior does not fit the space.
    """
    from joblib import Parallel, delayed

    search = delayed(_search)
    traces = Parallel(n_jobs=jobs)(search(recording, budget, seed, strategy, prior) for seed in seeds)
    return Replay(np.array(traces).reshape(len(seeds), budget), recording.optimum_ms)


def _search(
    recording: Recording, budget: int, seed: int, strategy: str, prior: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    times, optimum = recording.times_ms, recording.optimum_ms
    best = np.inf

    def evaluate(index: int) -> float | None:
        nonlocal best
        best = min(best, np.nan_to_num(times[index], nan=np.inf))
        return None if np.isnan(times[index]) else float(times[index])

    result = run(make_strategy(strategy, recording.space, seed, prior), evaluate, budget, lambda: best <= optimum)
    trace = [np.inf if step.best_ms is None else step.best_ms for step in result.trace]
    return np.array([*trace, *[best] * (budget - len(trace))])
