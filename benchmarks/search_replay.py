"""Distance of `ckh search measure` to the optimum, replayed on recorded measurements of complete spaces.

    OMP_NUM_THREADS=1 python benchmarks/search_replay.py [FILE ...] [--seeds 50] [--jobs 1]

The numbers are optimum / best found after 50, 100, 220 and 500 distinct measurements, median over the seeds; a failed
configuration counts as a measurement. A file is Parquet with one row per configuration: parameters, `time_ms`,
`status`. Without files: five exhaustively measured public spaces (kernel_tuner_*.parquet; FAIR Benchmark Hub of the
autotuning community).
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.data.parquet import warn_unverified
from ckh.errors import DataError
from ckh.search.space import Space
from ckh.search.surrogate import Surrogate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SPACES = ("convolution_MI250X", "convolution_W7800", "convolution_A100", "gemm_RTX3090", "dedispersion_MI250X")
CHECKPOINTS = (50, 100, 220, 500)
DATA = Path(os.environ.get("CKH_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data"
_OK, _TIME, _STATUS = "ok", "time_ms", "status"
# Columns of counts, deviations and times. The other columns are parameters.
_MEASURED = {_TIME, _STATUS, "spread"}
_MEASURED_ENDS = ("_ms", "_samples", "_obs")


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A space and the time of every configuration, NaN if it failed."""

    space: Space
    times_ms: NDArray[np.float64]

    @property
    def optimum_ms(self) -> float:
        """The fastest time."""
        return float(np.nanmin(self.times_ms))


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Best time after each measurement, shape (seeds, budget), infinite before the first success."""

    best_ms: NDArray[np.float64]
    optimum_ms: float

    def summary(self, checkpoints: Sequence[int]) -> tuple[float, ...]:
        """Median over the seeds of optimum / best found, after each of these numbers of measurements."""
        return tuple(float(np.median(self.optimum_ms / self.best_ms[:, count - 1])) for count in checkpoints)


def read_recording(path: Path) -> Recording:
    """Read a recording.

    A column is a parameter unless it is `time_ms`, `status`, `spread`, or ends in `_ms`, `_samples` or `_obs`;
    constant columns are dropped. A row counts as failed unless its status is `ok`.

    Raises:
        DataError: a column, parameter or time is missing, or configurations are repeated.
    """
    import pandas as pd

    frame = pd.read_parquet(path)
    for name in (_TIME, _STATUS):
        if name not in frame.columns:
            raise DataError(f"{path} has no column {name}", code="missing-column")
    is_ok = (frame[_STATUS] == _OK).to_numpy()
    times = np.where(is_ok, frame[_TIME].to_numpy(dtype=np.float64), np.nan)
    if not is_ok.any() or not (np.isfinite(times[is_ok]).all() and (times[is_ok] > 0).all()):
        raise DataError(
            f"{path} needs a positive time_ms wherever the status is ok, and at least one such row", code="bad-column"
        )
    names = [name for name in frame.columns if _is_parameter(name) and len(frame[name].unique()) > 1]
    if not names:
        raise DataError(f"{path} has no column of a parameter that varies", code="bad-column")
    if frame[names].isna().any(axis=None) or frame[names].duplicated().any():
        raise DataError(f"{path} has duplicate configurations, or lacks a value of some", code="bad-column")
    warn_unverified(path)
    return Recording(Space(names, [np.asarray(frame[name].to_numpy()) for name in names]), times)


def _is_parameter(name: str) -> bool:
    return name not in _MEASURED and not name.endswith(_MEASURED_ENDS)


def replay(
    recording: Recording,
    budget: int,
    seeds: Sequence[int],
    prior: NDArray[np.float64] | None = None,
    jobs: int = 1,
) -> Replay:
    """Search a recording once for each seed.

    A search ends early at the optimum, which does not affect the reported numbers.

    Raises:
        DataError: the prior does not fit the space.
    """
    from joblib import Parallel, delayed

    search = delayed(_search)
    traces = Parallel(n_jobs=jobs)(search(recording, budget, seed, prior) for seed in seeds)
    return Replay(np.array(traces).reshape(len(seeds), budget), recording.optimum_ms)


def _search(recording: Recording, budget: int, seed: int, prior: NDArray[np.float64] | None) -> NDArray[np.float64]:
    times, best = recording.times_ms, [np.inf]

    def evaluate(index: int) -> float | None:
        best.append(min(best[-1], np.nan_to_num(times[index], nan=np.inf)))
        return None if np.isnan(times[index]) else float(times[index])

    optimum = recording.optimum_ms
    Surrogate(recording.space, seed, prior).search(evaluate, budget, lambda: best[-1] <= optimum)
    return np.array([*best[1:], *[best[-1]] * (budget + 1 - len(best))])


def main() -> None:
    """Replay and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = [DATA / f"kernel_tuner_{name}.parquet" for name in SPACES]
    parser.add_argument("recordings", nargs="*", type=Path, default=default, metavar="FILE", help="recordings")
    parser.add_argument("--seeds", type=int, default=50, help="how many searches of each space (50)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    options = parser.parse_args()

    print(f"| {options.seeds} seeds | {' | '.join(map(str, CHECKPOINTS))} | s / search |")
    print("|---" * (len(CHECKPOINTS) + 2) + "|")
    rows = []
    for path in options.recordings:
        recording = read_recording(path)
        budget = min(max(CHECKPOINTS), len(recording.space))
        start = time.perf_counter()
        result = replay(recording, budget, range(options.seeds), jobs=options.jobs)
        rows.append(result.summary([min(count, budget) for count in CHECKPOINTS]))
        _print(path.stem.removeprefix("kernel_tuner_"), rows[-1], (time.perf_counter() - start) / options.seeds)
    _print("average", tuple(np.mean(rows, axis=0)))


def _print(name: str, numbers: tuple[float, ...], seconds: float | None = None) -> None:
    text = "" if seconds is None else f"{seconds:.2f}"
    print(f"| {name} | {' | '.join(f'{number:.3f}' for number in numbers)} | {text} |", flush=True)


if __name__ == "__main__":
    main()
