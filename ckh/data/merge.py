"""Merging what several inputs say about the same pair of problem and kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.data import tables
from ckh.data.dataset import Dataset
from ckh.data.numbering import group_numbers
from ckh.data.schema import MEASURED, WRONG
from ckh.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from ckh.data.readers import Reading

_TIMES = ("latency_ms", "latency_min_ms", "spread", "samples")
_RANKED = ("device", "run_id", "status", "samples", "remeasured")


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A dataset with one row for each pair, and how many rows gave way to another of the same run, or of another."""

    dataset: Dataset
    superseded: int
    repeated: int


def merge(readings: Sequence[Reading], *, averages: bool = False) -> Merged:
    """One row for each (problem, architecture, kernel).

    Within a run the last row counts, as in the journal. Across runs: a result that was wrong or nondeterministic counts
    before anything else, since a kernel that was ever wrong must not become the best; then a measured time before a
    failure, which may have passed; then a row that was remeasured; then the one with more samples; then the later one.

    A machine's speed changes from hour to hour, and not for all kernels alike. With `averages` each input is merged so
    by itself, and where several inputs have a time for a pair, its time is their geometric mean.

    Raises:
        DataError: the rows of one architecture come from devices of different names, whose times do not compare.
    """
    import numpy as np

    table = tables.concat([reading.table for reading in readings])
    pair_columns = (*tables.operation_in(table, "the inputs").identity, "arch", "kernel_name")
    keys = tables.to_pandas(table.select([*pair_columns, *_RANKED]))
    _refuse_mixed_devices(keys)
    pair = group_numbers(keys, pair_columns)
    in_run = _last_of_each(keys, pair)
    chosen = in_run[_best_of_each(keys.iloc[in_run], pair[in_run])]
    metadata = {
        "sources": [source for reading in readings for source in reading.sources],
        "runs": _distinct([run for reading in readings for run in reading.runs]),
    }
    superseded = sum(reading.superseded for reading in readings) + len(keys) - len(in_run)
    kept = tables.to_pandas(table if len(chosen) == len(keys) else table.take(chosen))
    if averages:
        reading_of_row = np.repeat(np.arange(len(readings)), [len(reading.table) for reading in readings])[in_run]
        in_reading = in_run[_best_of_each(keys.iloc[in_run], pair[in_run] * len(readings) + reading_of_row)]
        times = tables.to_pandas(table.select(["status", *_TIMES]).take(in_reading))
        kept = _averaged(kept, pair[chosen], times, pair[in_reading])
    return Merged(Dataset(kept, metadata), superseded, len(in_run) - len(chosen))


def _averaged(frame: pd.DataFrame, pair: NDArray[Any], times: pd.DataFrame, pair_of_time: NDArray[Any]) -> pd.DataFrame:
    """The rows with the times of their pairs: geometric mean, least, most spread, all samples.

    Args:
        frame: rows of a dataset.
        pair: of each row its pair, shape (rows,).
        times: times of pairs, one of each pair and input.
        pair_of_time: of each time its pair, shape (times,).
    """
    import numpy as np

    measured = [str(one) for one in MEASURED]
    is_time = times["status"].isin(measured).to_numpy()
    known = times[is_time].assign(latency_ms=np.log(times["latency_ms"][is_time]))
    groups = known.groupby(pair_of_time[is_time])
    found = groups.agg({"latency_ms": "mean", "latency_min_ms": "min", "spread": "max"})
    found["samples"] = groups["samples"].sum(min_count=1)
    rows = frame["status"].isin(measured).to_numpy()
    found = found.loc[pair[rows]].set_index(frame.index[rows])
    found["latency_ms"] = np.exp(found["latency_ms"])
    slower = found["latency_ms"] / frame.loc[rows, "latency_ms"]
    changed: pd.DataFrame = frame.copy()
    for name in ("tflops", "bandwidth_gb_s"):
        changed.loc[rows, name] = frame.loc[rows, name] / slower
    for name, values in found.items():
        changed.loc[rows, name] = values.astype(frame[name].dtype)
    return changed


def _last_of_each(frame: pd.DataFrame, pair: NDArray[Any]) -> NDArray[Any]:
    """Row numbers of the last row of each pair in each run, in order."""
    import numpy as np
    import pandas as pd

    run = pd.factorize(frame["run_id"], use_na_sentinel=False)[0]
    key = pd.Series(pair * (int(run.max()) + 1) + run)
    return np.flatnonzero(~key.duplicated(keep="last").to_numpy())


def _best_of_each(frame: pd.DataFrame, pair: NDArray[Any]) -> NDArray[Any]:
    """Positions of the row of each pair that counts, in order."""
    import numpy as np
    import pandas as pd

    status = frame["status"]
    order = np.lexsort(
        (
            np.arange(len(frame)),
            frame["samples"].fillna(0).to_numpy(dtype=float),
            (frame["remeasured"] == True).to_numpy(dtype=bool),  # noqa: E712 # null counts as not remeasured
            status.isin([str(one) for one in MEASURED]).to_numpy(dtype=bool),
            status.isin([str(one) for one in WRONG]).to_numpy(dtype=bool),
        )
    )
    is_last = ~pd.Series(pair[order]).duplicated(keep="last").to_numpy()
    return np.sort(order[is_last])


def _refuse_mixed_devices(frame: pd.DataFrame) -> None:
    named = frame[["arch", "device"]].drop_duplicates().dropna()
    for arch, devices in named.groupby("arch")["device"]:
        if len(devices) > 1:
            raise DataError(
                f"the inputs measured {arch} on different devices: {', '.join(sorted(devices))}",
                "their times do not compare: convert them to separate datasets",
            )


def _distinct(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [run for i, run in enumerate(runs) if run not in runs[:i]]
