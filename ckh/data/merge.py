"""Merge and deduplicate the rows of several inputs.

Rows stay on disk. The keys that decide between rows of a pair spill to disk, in buckets by pair, and one bucket at a
time is loaded; memory grows with distinct problems and kernels, and by one byte per row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data import tables
from ckh.data.dataset import Dataset, refuse_mixed_flags
from ckh.data.numbering import Numbering, group_numbers
from ckh.data.parquet import ColumnChunks, ContentDigest
from ckh.data.spool import Buckets
from ckh.errors import DataError
from ckh.schema import MEASURED, REPEATED, WRONG

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.data.formats import Reading
    from ckh.data.spool import StoredRows
    from ckh.ops.base import AnyOperation

_TIMES = ("latency_ms", "latency_min_ms", "spread")
_RATES = ("tflops", "bandwidth_gb_s")
_AVERAGED = (*_TIMES, "samples", *_RATES, *REPEATED)
_BUCKETS = 64
_CONTRADICTING = 1.5  # factor between times of a pair
_DEVICE_SIZE = "num_cus"  # identity column that distinguishes problems of different devices
_MOST_KERNELS = 1 << 31
_IS_WRONG, _IS_MEASURED, _IS_REMEASURED = 4, 2, 1


@dataclass(frozen=True, slots=True)
class Noise:
    """Repeatability of measurements of a pair."""

    pairs: int  # number of pairs measured repeatedly
    rows: int  # number of their additional rows
    median: float  # median over pairs of the relative median absolute deviation
    p90: float  # 90th percentile over pairs of the same

    def __str__(self) -> str:
        return (
            f"{self.pairs} pairs were measured more than once ({self.rows} further rows) and get the median; deviation "
            f"of single times: {self.median:.1%} (median), {self.p90:.1%} (P90)"
        )


@dataclass(frozen=True, eq=False)
class Merged:
    """One row per pair, and statistics of the discarded rows."""

    op: AnyOperation
    parts: tuple[StoredRows, ...]  # rows of each input
    dropped: NDArray[np.bool_]  # mask of discarded rows
    changed: Buckets | None  # changed values of rows by index of the block; None without changes
    metadata: dict[str, Any]  # as in a dataset
    problems: int
    superseded: int  # number of rows superseded within a run
    repeated: int  # number of rows superseded by another run
    noise: Noise | None  # repeatability of repeated measurements in inputs; None without them

    def __len__(self) -> int:
        return sum(map(len, self.parts)) - int(self.dropped.sum())

    @property
    def dataset(self) -> Dataset:
        """Load the merged rows into memory."""
        import pyarrow as pa

        return Dataset(tables.to_pandas(pa.concat_tables(self.blocks())), self.metadata, self.op.name)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of the merged rows, equal to the dataset's content hash."""
        digest = ContentDigest(len(self))
        for column in self.op.training.columns:
            digest.add(column, ColumnChunks(self.blocks, column.name))
        return digest.hexdigest()

    def blocks(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The merged rows in compact blocks, with all or the named columns."""
        for number, (_, start, whole, known) in enumerate(_blocks(self.parts, names)):
            table, kept = whole, known & ~self.dropped[start : start + len(whole)]
            if self.changed is not None and set(table.column_names) & set(_AVERAGED):
                table = _with_changes(table, start, self.changed.read(number))
            if kept.any():
                yield table if kept.all() else table.filter(kept)

    def by_status(self) -> dict[str, int]:
        """Number of rows of each status, most frequent first."""
        counts: Counter[str] = Counter()
        for block in self.blocks(["status"]):
            counts.update({tally["values"]: tally["counts"] for tally in block["status"].value_counts().to_pylist()})
        return {str(status): count for status, count in counts.most_common()}

    def distinct(self, name: str) -> tuple[str, ...]:
        """Distinct values of a string column, sorted."""
        texts = {text for block in self.blocks([name]) for text in block[name].unique().to_pylist()}
        return tuple(sorted(texts))


def merge(readings: Sequence[Reading], *, output: Path | None = None) -> Merged:
    """Select one row per (problem, architecture, kernel).

    Within a run the last row wins, as in the journal. Across runs, in order of precedence: a wrong or nondeterministic
    result, since a kernel that was ever wrong must not become the best; a measured time over a failure, which may have
    been transient; a remeasured row; the row with more samples; the later row.

    Rows of one pair in an input of repeated measurements (`Reading.repeats`) are first combined: the median of their
    times, or a wrong result.

    Data spill to disk beside `output`, by default in the system's temporary folder.
    """
    parts = tuple(reading.rows for reading in readings)
    op = tables.one_operation(
        tables.operation_in(table, "an input") for rows in parts for _, table in rows.all_blocks(["op_type"])
    )
    repeating = np.array([reading.repeats for reading in readings])
    keys = _PairKeys(op, parts, ("samples",), output)
    if _DEVICE_SIZE not in op.problems.identity:
        keys.refuse_mixed_devices()
    refuse_mixed_flags(run for reading in readings for run in reading.runs if keys.has_rows_of(run))
    changes = repeating.any() and any(_has_repeated(records["pair"]) for records in keys.buckets)
    if changes:
        del keys  # frees its numbering of problems and kernels, which the next one builds again
        keys = _PairKeys(op, parts, _AVERAGED, output)
    dropped = np.zeros(sum(rows.added for rows in parts), dtype=bool)
    changed = Buckets(keys.kind, output) if changes else None
    superseded = repeated = again = 0
    spreads = [np.zeros(0)]
    for records in keys.buckets:
        if not _has_repeated(records["pair"]):
            continue
        single, joined = _joined(records, repeating)
        in_run = _last_of_each(single, ("pair", "run"), ())
        chosen = _best_of_each(in_run)
        again += len(records) - len(single)
        superseded += len(single) - len(in_run)
        repeated += len(in_run) - len(chosen)
        if len(joined):
            spreads.append(joined["spread"])
        dropped[np.setdiff1d(records["row"], chosen["row"], assume_unique=True)] = True
        if changed is not None:
            new = chosen[np.isin(chosen["row"], joined["row"])]
            changed.add(new, np.searchsorted(keys.starts, new["row"], side="right") - 1)
    spread = np.concatenate(spreads)
    runs = [run for reading in readings for run in reading.runs]
    return Merged(
        op=op,
        parts=parts,
        dropped=dropped,
        changed=changed,
        metadata={
            "sources": [source for reading in readings for source in reading.sources],
            "runs": [run for i, run in enumerate(runs) if run not in runs[:i]],
        },
        problems=len(keys.problems),
        superseded=superseded + sum(reading.superseded for reading in readings),
        repeated=repeated,
        noise=Noise(len(spread), again, *np.percentile(spread, (50, 90)).tolist()) if len(spread) else None,
    )


class _PairKeys:
    """Keys that decide between the rows of pairs, with some of the rows' values, in buckets by pair."""

    def __init__(
        self, op: AnyOperation, parts: Sequence[StoredRows], values: Sequence[str], output: Path | None
    ) -> None:
        fields = [("row", "i8"), ("pair", "i8"), ("run", "i4"), ("reading", "i4"), ("rank", "i1")]
        self.kind = np.dtype([*fields, *((name, "f8") for name in values)])
        self.buckets = Buckets(self.kind, output)
        self.problems = Numbering((*op.problems.identity, "arch"))
        self._kernels = Numbering(("kernel", *op.apart))
        self._runs = Numbering(("run_id",))
        self._devices = Numbering(("arch", "device"))
        self._statuses = Numbering(("status",))
        self.starts: list[int] = []
        columns = (*self.problems.columns, "kernel", "device", "run_id", "status", "remeasured", *values)
        for reading, start, whole, kept in _blocks(parts, list(dict.fromkeys(columns))):
            self.starts.append(start)
            if not kept.any():
                continue
            table = whole if kept.all() else whole.filter(kept)
            problem, kernel = self.problems.of(table), self._kernels.of(table)
            self._devices.of(table)
            records = np.zeros(len(table), dtype=self.kind)
            records["row"] = start + np.flatnonzero(kept)
            records["pair"] = problem * _MOST_KERNELS + kernel
            records["run"] = self._runs.of(table)
            records["reading"] = reading
            records["rank"] = self._ranks(table)
            for name in values:
                column = table[name]
                is_empty = column.null_count == len(column)
                records[name] = np.nan if is_empty else column.cast("float64").fill_null(np.nan)
            # Kernels and problems are numbered consecutively: a product distributes both over the buckets, whose
            # numbers are bytes, which are radix-sorted in one pass.
            self.buckets.add(records, ((problem * 31 + kernel) % _BUCKETS).astype(np.uint8))

    def has_rows_of(self, run: dict[str, Any]) -> bool:
        """Return True if rows are of this run: one that failed at once may have had another compiler."""
        return (run.get("run_id"),) in set(self._runs)

    def refuse_mixed_devices(self) -> None:
        """Refuse rows of an architecture from several devices."""
        of_arch: dict[str, set[str]] = {}
        for arch, device in self._devices:
            of_arch.setdefault(arch, set()).update({device} - {None})
        for arch, devices in of_arch.items():
            if len(devices) > 1:
                raise DataError(
                    f"the inputs measured {arch} on different devices: {', '.join(sorted(devices))}",
                    "their times do not compare: convert them to separate datasets",
                    code="mixed-devices",
                )

    def _ranks(self, table: pa.Table) -> NDArray[np.int8]:
        numbers = self._statuses.of(table)
        rank = [_IS_WRONG * (status in WRONG) + _IS_MEASURED * (status in MEASURED) for (status,) in self._statuses]
        remeasured = table["remeasured"].cast("bool").fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
        ranks: NDArray[np.int8] = np.array(rank, dtype=np.int8)[numbers] + remeasured * np.int8(_IS_REMEASURED)
        return ranks


def between_runs(dataset: Dataset) -> str:
    """Describe problems on which runs that do not compare contradict each other; empty if there are none."""
    op, frame = dataset.op, dataset.valid().frame
    if not op.apart:
        return ""
    frame = frame.assign(problem=group_numbers(frame, (*op.problems.identity, "arch"))).sort_values("latency_ms")
    times = frame.groupby(["problem", "kernel"], observed=True)["latency_ms"].agg(["min", "max"])
    times = int((times["max"] > _CONTRADICTING * times["min"]).sum())
    winners = frame.drop_duplicates(["problem", *op.apart]).groupby("problem")["kernel"].nunique()
    differing = int((winners > 1).sum())
    if not times + differing:
        return ""
    return (
        f"tables contradict each other: on {differing} problems by the fastest kernel, on {times} pairs by more than a "
        f"factor of {_CONTRADICTING} in time; all are kept, never compared, and the median answers"
    )


def _blocks(
    parts: Sequence[StoredRows], names: Sequence[str] | None = None
) -> Iterator[tuple[int, int, pa.Table, NDArray[np.bool_]]]:
    """Yield the blocks of all inputs in order: the input's number, the first row's, the rows, and a mask of kept ones.

    Rows that are not kept were dropped by their reader.
    """
    start = 0
    for reading, rows in enumerate(parts):
        for first, table in rows.all_blocks(names):
            yield reading, start + first, table, rows.kept(first, len(table))
        start += rows.added


def _has_repeated(pair: NDArray[np.int64]) -> bool:
    """Return True if two records belong to the same pair."""
    return len(np.unique(pair)) < len(pair)


def _best_of_each(records: NDArray[Any]) -> NDArray[Any]:
    """Return the selected record of each pair."""
    return _last_of_each(records, ("pair",), ("rank", "samples"))


def _last_of_each(records: NDArray[Any], group: tuple[str, ...], by: tuple[str, ...]) -> NDArray[Any]:
    """Return the last record of each group, ordered by these fields and then by row; the result is in row order."""
    # lexsort takes the least significant key first.
    keys = [np.nan_to_num(records[name]) for name in reversed((*group, *by))]
    order = np.lexsort((records["row"], *keys))
    is_last = np.ones(len(order), dtype=bool)
    ordered = [records[name][order] for name in group]
    is_last[:-1] = np.any([values[1:] != values[:-1] for values in ordered], axis=0)
    return records[np.sort(order[is_last])]


def _joined(records: NDArray[Any], repeating: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Combine measurements of inputs with `repeating`; return the records in row order, and the combined ones."""
    import pandas as pd

    is_again = repeating[records["reading"]]
    single, joined = [records[~is_again]], [records[:0]]
    for reading in np.flatnonzero(repeating):
        again = records[is_again & (records["reading"] == reading)]
        is_repeated = pd.Series(again["pair"]).duplicated(keep=False).to_numpy()
        single.append(again[~is_repeated])
        again = again[is_repeated]
        if not len(again):
            continue
        chosen = _best_of_each(again)
        times = again[(again["rank"] & _IS_MEASURED) > 0]
        # The spread is the relative median absolute deviation of the times of a pair.
        latency = pd.Series(times["latency_ms"])
        middle = latency.groupby(times["pair"]).transform("median")
        times["spread"] = (latency - middle).abs().groupby(times["pair"]).transform("median") / middle
        times["samples"] = np.where(np.isnan(times["samples"]), 1, times["samples"])
        times["latency_min_ms"] = np.fmin(times["latency_min_ms"], times["latency_ms"])
        joined.append(_averaged(chosen, times))
        single += [chosen[~np.isin(chosen["row"], joined[-1]["row"])], joined[-1]]
    kept = np.concatenate(single)
    return kept[np.argsort(kept["row"])], np.concatenate(joined)


def _averaged(chosen: NDArray[Any], times: NDArray[Any]) -> NDArray[Any]:
    """Average the times of records: median, minimum, largest spread, sum of samples.

    The earlier and the later half of the times are also kept separately, as two measurements. Medians are of
    logarithms, rounded to twelve digits, so that they do not depend on the implementation of the exponential.
    """
    import pandas as pd

    times = times[(times["rank"] & _IS_MEASURED) > 0]
    known = pd.DataFrame({name: times[name] for name in (*_TIMES, "samples")})
    known["latency_ms"] = np.log(known["latency_ms"])
    groups = known.groupby(times["pair"])
    is_earlier = groups.cumcount() < groups["samples"].transform("size") // 2
    for name, inside in zip(REPEATED, (is_earlier, ~is_earlier), strict=True):
        known[name] = known["latency_ms"].where(inside)
    groups = known.groupby(times["pair"])
    combined = groups.agg({"latency_ms": "median", "latency_min_ms": "min", "spread": "max"})
    combined["samples"] = groups["samples"].sum(min_count=1)
    combined[list(REPEATED)] = groups[list(REPEATED)].median()
    combined = combined[groups.size() > 1]
    averaged = chosen[((chosen["rank"] & _IS_MEASURED) > 0) & np.isin(chosen["pair"], combined.index)]
    combined = combined.loc[averaged["pair"]]
    for name in ("latency_ms", *REPEATED):
        combined[name] = np.char.mod("%.12g", np.exp(combined[name])).astype(np.float64)
    slower = combined["latency_ms"].to_numpy() / averaged["latency_ms"]
    for name in _RATES:
        averaged[name] = averaged[name] / slower
    for name, values in combined.items():
        averaged[name] = values.to_numpy()
    return averaged


def _with_changes(table: pa.Table, start: int, changes: NDArray[Any]) -> pa.Table:
    """Apply changed values to a block, given the index of its first row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    changes = changes[np.argsort(changes["row"])]
    mask = np.zeros(len(table), dtype=bool)
    mask[changes["row"] - start] = True
    for name in [name for name in table.column_names if name in _AVERAGED]:
        column = table[name]
        values = pa.array(changes[name], type=column.type, from_pandas=True)
        column = pc.replace_with_mask(column, mask, values)
        table = table.set_column(table.column_names.index(name), name, column)
    return table
