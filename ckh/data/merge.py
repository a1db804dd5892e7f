"""Merging what several inputs say about the same pair of problem and kernel.

Rows stay compact, and are expanded a block at a time: what memory a merge takes beside them is a few numbers a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ckh.data import tables
from ckh.data.dataset import BLOCK_ROWS, Dataset
from ckh.data.digest import ContentDigest
from ckh.data.numbering import group_numbers
from ckh.errors import DataError
from ckh.schema import MEASURED, WRONG

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.formats import Reading
    from ckh.ops.base import Operation
    from ckh.schema import Column

_TIMES = ("latency_ms", "latency_min_ms", "spread", "samples")
_RATES = ("tflops", "bandwidth_gb_s")
_RANKED = ("run_id", "status", "samples", "remeasured")


@dataclass(frozen=True, eq=False)
class Merged:
    """One row for each pair, and how many rows gave way to another of the same run, or of another.

    Attributes:
        op: the operation that all rows are of.
        table: all rows, compact.
        chosen: the numbers of those that count, ascending.
        changed: columns of those that count with other values than the table's, by name, shape (chosen rows,) each.
        metadata: as a dataset has it.
        problems: how many distinct problems there are.
    """

    op: Operation
    table: pa.Table
    chosen: NDArray[np.int64]
    changed: dict[str, pa.Array]
    metadata: dict[str, Any]
    problems: int
    superseded: int
    repeated: int

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def dataset(self) -> Dataset:
        """The rows that count, all in memory."""
        import pyarrow as pa

        return Dataset(tables.to_pandas(pa.concat_tables(self.blocks())), self.metadata, self.op.name)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of the rows that count, as of a dataset."""
        digest = ContentDigest(len(self))
        for column in self.op.columns:
            digest.add(column, _Values(self, column))
        return digest.hexdigest()

    def blocks(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows that count in compact tables of some thousands, with all columns or those of these names."""
        import numpy as np

        table = self.table if names is None else self.table.select(names)
        start = done = 0
        for batch in table.to_batches(max_chunksize=BLOCK_ROWS):
            first, last = np.searchsorted(self.chosen, (start, start + len(batch))).tolist()
            rows = self.chosen[first:last] - start
            start += len(batch)
            if not len(rows):
                continue
            block = tables.of_batch(batch if len(rows) == len(batch) else batch.take(rows))
            for name in self.changed.keys() & set(block.column_names):
                values = self.changed[name].slice(done, len(rows))
                block = block.set_column(block.column_names.index(name), name, values)
            done += len(rows)
            yield block

    def by_status(self) -> dict[str, int]:
        """Number of rows of each status, the most frequent first."""
        counts: Counter[str] = Counter()
        for block in self.blocks(["status"]):
            counts.update({one["values"]: one["counts"] for one in block["status"].value_counts().to_pylist()})
        return {str(status): count for status, count in counts.most_common()}

    def distinct(self, name: str) -> tuple[str, ...]:
        """The texts of a column, sorted."""
        found = {text for block in self.blocks([name]) for text in block[name].unique().to_pylist()}
        return tuple(sorted(found))


class _Values:
    """A column of the rows that count, block by block, as often as it is iterated."""

    def __init__(self, merged: Merged, column: Column) -> None:
        self._merged = merged
        self._column = column

    def __iter__(self) -> Iterator[pa.Array]:
        import pyarrow as pa

        plain = pa.type_for_alias(self._column.type)
        for block in self._merged.blocks([self._column.name]):
            for chunk in block.column(0).chunks:
                yield chunk if self._column.type == "string" else chunk.cast(plain)


class _Columns(Mapping[str, "pd.Series"]):
    """The columns of distinct things of a compact table as numbers, equal where the values are, one at a time."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table.column_names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.column_names)

    def __getitem__(self, name: str) -> pd.Series:
        import numpy as np
        import pandas as pd

        known: dict[Any, int] = {}
        parts = []
        for chunk in self._table.column(name).chunks:
            numbers = [known.setdefault(value, len(known)) for value in chunk.dictionary.to_pylist()]
            parts.append(np.array([*numbers, -1], dtype=np.int32)[chunk.indices.fill_null(-1)])
        series: pd.Series = pd.Series(np.concatenate(parts))
        return series


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
    op = tables.operation_in(table, "the inputs")
    columns = _Columns(table)
    _refuse_mixed_devices(table)
    pair = group_numbers(columns, (*op.identity, "arch"))
    problems = int(pair.max()) + 1
    kernel = group_numbers(columns, ("kernel_name",))
    pair *= int(kernel.max()) + 1
    pair += kernel
    del kernel
    in_run = chosen = np.arange(len(pair))
    changed: dict[str, pa.Array] = {}
    if _has_repeated(pair):
        keys = tables.plain(table.select(_RANKED)).to_pandas()
        in_run = _last_of_each(keys, pair)
        chosen = in_run[_best_of_each(keys.iloc[in_run], pair[in_run])]
        if averages:
            sizes = [len(reading.table) for reading in readings]
            reading_of_row = np.repeat(np.arange(len(readings)), sizes)[in_run]
            by_reading = group_numbers({"pair": pair[in_run], "reading": reading_of_row}, ("pair", "reading"))
            in_reading = in_run[_best_of_each(keys.iloc[in_run], by_reading)]
            times = tables.plain(table.select(["status", *_TIMES]).take(in_reading)).to_pandas()
            kept = tables.plain(table.select(["status", *_TIMES, *_RATES]).take(chosen)).to_pandas()
            averaged = _averaged(kept, pair[chosen], times, pair[in_reading])
            changed = {
                name: tables.array_of(averaged[name], table.schema.field(name).type) for name in (*_TIMES, *_RATES)
            }
    return Merged(
        op=op,
        table=table,
        chosen=chosen,
        changed=changed,
        metadata={
            "sources": [source for reading in readings for source in reading.sources],
            "runs": _distinct([run for reading in readings for run in reading.runs]),
        },
        problems=problems,
        superseded=sum(reading.superseded for reading in readings) + len(pair) - len(in_run),
        repeated=len(in_run) - len(chosen),
    )


def _has_repeated(values: NDArray[np.int64]) -> bool:
    """Whether a value occurs twice; with less memory than a table of them would take."""
    import numpy as np

    ordered = np.sort(values)
    return bool((ordered[1:] == ordered[:-1]).any())


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


def _refuse_mixed_devices(table: pa.Table) -> None:
    found: dict[str, set[str]] = {}
    for batch in table.select(["arch", "device"]).to_batches():
        for row in tables.plain(tables.of_batch(batch)).group_by(["arch", "device"]).aggregate([]).to_pylist():
            found.setdefault(row["arch"], set()).update({row["device"]} - {None})
    for arch, devices in found.items():
        if len(devices) > 1:
            raise DataError(
                f"the inputs measured {arch} on different devices: {', '.join(sorted(devices))}",
                "their times do not compare: convert them to separate datasets",
            )


def _distinct(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [run for i, run in enumerate(runs) if run not in runs[:i]]
