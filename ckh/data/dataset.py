"""`Dataset`: measured rows with a complete identity, read from and written to Parquet."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ckh.data import numbering, tables
from ckh.data.parquet import METADATA_KEYS, ContentDigest, DatasetFile, is_dataset, write_parquet
from ckh.data.tables import BLOCK_ROWS
from ckh.errors import DataError, UsageError
from ckh.files.outputs import FileKind, check_output, open_output
from ckh.files.paths import path_of
from ckh.kernels.table import column_of
from ckh.ops import operation
from ckh.ops.base import lazily
from ckh.schema import HARDWARE, Status
from ckh.text.shown import MAX_ROWS, Shown, ShownTable

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.ops.base import AnyOperation

    ColumnsOf: TypeAlias = Callable[[AnyOperation], Container[str]]

_SHOWN = ("kernel", "status", "latency_ms", "tflops")
DATASET = FileKind("dataset of ckh", is_dataset)
_FEWEST_TIMES = 2  # to compare


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Shown):
    """Measured (problem, kernel) pairs.

    Args:
        frame: one row per pair, with the operation's columns in order and index 0 to n-1. A nullable integer column
            that holds nulls is float64 with NaN.
        metadata: provenance of the rows: `sources` (name, format, sha256 of every input file) and `runs` (device,
            compiler and flags that each run of ckh bench recorded). Serializable as JSON.
        op_type: name of the operation; by default that of the rows.
        split_by: columns that make the cross-validation groups, with the architecture; by default the operation's.
    """

    frame: pd.DataFrame
    metadata: dict[str, Any] = field(default_factory=lambda: {key: [] for key in METADATA_KEYS})
    op_type: str = ""
    split_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.op_type and len(self.frame):
            # A selection keeps the operation even if it is empty.
            object.__setattr__(self, "op_type", str(self.frame["op_type"].iloc[0]))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        op: str,
        arch: str | None = None,
        mapping: Mapping[str, str] | None = None,
        num_cus: int | None = None,
        strict: bool = False,
        peak_check: bool = True,
    ) -> Dataset:
        """Convert any table of measurements, one row per problem and kernel (docs/loop.md lists the columns).

        Args:
            frame: the rows: a data frame, what exports itself by Arrow's C stream (polars, pyarrow, DuckDB), a dict of
                columns or a list of dicts.
            op: the operation that was measured.
            arch: the architecture that was measured; may also come from the column `arch`.
            mapping: the operation's column -> the frame's column that holds its values.
            num_cus: compute units of the device, by default those in the architecture's file.
            strict: whether an unusable row is an error; else it is left out, with a warning.
            peak_check: whether times above the peak rates of their GPU are left out, with a warning, or refused if they
                are many.

        Raises:
            CkhError: columns are missing (the message names all of them), or rows are unusable.
        """
        from ckh.data.formats import ReadOptions

        options = ReadOptions(arch, strict, num_cus, op=op, mapping=mapping or {}, peak_check=peak_check)
        # Imported lazily: conversion is a layer above datasets.
        converted = cast("Callable[[], Callable[..., Dataset]]", lazily("ckh.data.conversion:dataset_of_frame"))
        return converted()(frame, options)

    @staticmethod
    def read(*paths: Path | str) -> Dataset:
        """Read Parquet files, or all Parquet files in a folder, like `read_dataset`.

        Raises:
            DataError: a file is unusable.
        """
        return read_dataset(*paths)

    @staticmethod
    def concat(*datasets: Dataset) -> Dataset:
        """Put the rows of datasets of one operation together, like `read_dataset` of several files.

        Raises:
            DataError: there is none, or a pair occurs twice, or operations or compiler flags differ.
        """
        with TemporaryDirectory(prefix="ckh-data-") as folder:
            paths = [Path(folder, f"{number}.parquet") for number in range(len(datasets))]
            for dataset, path in zip(datasets, paths, strict=True):
                write_dataset(dataset, path)
            return read_dataset(*paths)

    def write(self, path: Path | str, *, force: bool = False) -> None:
        """Write one Parquet file, atomically, like `write_dataset`.

        Args:
            path: the file.
            force: whether an existing dataset is replaced.

        Raises:
            UsageError: it exists and `force` is not set, or is no dataset.
            OutputError: it cannot be written.
        """
        check_output(Path(path), DATASET, force=force)
        write_dataset(self, path)

    def __repr__(self) -> str:
        return f"<ckh.Dataset {self._title}>"

    @property
    def _title(self) -> str:
        archs = f" on {', '.join(self.archs)}" if len(self.frame) else ""
        return f"{self.op_type or 'of no operation'}: {len(self.frame)} rows{archs}"

    def table(self) -> ShownTable:
        """The first rows: problem, kernel, status and times."""
        columns = ("problem", *(name for name in _SHOWN if name in self.frame))
        head = self.frame.head(MAX_ROWS)
        cells = head[list(columns[1:])].astype(object).where(head[list(columns[1:])].notna(), None)
        problems = self._problems(range(len(head)))
        rows = [(problem.canonical(), *row) for problem, row in zip(problems, cells.to_numpy().tolist(), strict=True)]
        left = len(self.frame) - len(head)
        return ShownTable(self._title, columns, rows, (f"and {left} more rows",) if left else ())

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of the rows."""
        copied: pd.DataFrame = self.frame.copy()
        return copied

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the rows by Arrow's C stream, e.g. to `polars.DataFrame(dataset)`."""
        import pyarrow as pa

        return pa.Table.from_pandas(self.frame, preserve_index=False).__arrow_c_stream__(requested_schema)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without cached values; the receiving machine looks the operation up by name."""
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}

    def __len__(self) -> int:
        return len(self.frame)

    def select(self, mask: NDArray[Any]) -> Dataset:
        """Select rows by a boolean mask or by indices; return the dataset itself if all are selected."""
        if mask.dtype == bool and mask.all():
            return self
        return replace(self, frame=self.frame.iloc[mask].reset_index(drop=True))

    def valid(self) -> Dataset:
        """Select the rows with a positive time and a correct result."""
        return self.select((self.frame["is_valid"] & (self.frame["latency_ms"] > 0)).to_numpy(dtype=bool))

    def winners(self) -> Dataset:
        """Select rows of winners: valid rows, and published winners without a time."""
        is_valid = self.frame["is_valid"] & (self.frame["latency_ms"] > 0)
        return self.select((is_valid | (self.frame["status"] == Status.CHOSEN)).to_numpy(dtype=bool))

    def blocks(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows as one table, with all or the named columns, as `formats.MeasuredRows` do."""
        import pyarrow as pa

        yield pa.Table.from_pandas(self.frame if names is None else self.frame[list(names)], preserve_index=False)

    def distinct(self, name: str) -> tuple[str, ...]:
        """Distinct values of a string column, sorted."""
        return tuple(sorted(map(str, self.frame[name].unique())))

    @cached_property
    def op(self) -> AnyOperation:
        """The operation of all rows."""
        return operation(self.op_type)

    @cached_property
    def problem_ids(self) -> NDArray[np.int64]:
        """Index of each row's problem, 0, 1, … in order of appearance.

        Two rows have the same index if and only if all identity columns and the architecture agree, and the run if the
        operation is measured by others alone: times of their runs never compare.
        """
        columns = (*self.op.problems.identity, "arch", *self.op.apart)
        return numbering.group_numbers(self.frame, [name for name in columns if name in self.frame])

    @cached_property
    def is_won(self) -> NDArray[np.bool_]:
        """Mask of problems without times to compare, of which at most winners are known; shape (problems,)."""
        is_timed = (self.frame["is_valid"] & (self.frame["latency_ms"] > 0)).to_numpy(dtype=bool)
        return np.bincount(self.problem_ids[is_timed], minlength=len(self.first_rows)) < _FEWEST_TIMES

    @cached_property
    def split_ids(self) -> NDArray[np.int64]:
        """Index of each row's cross-validation group, by `split_by` and the architecture."""
        return numbering.group_numbers(self.frame, (*(self.split_by or self.op.problems.split_by), "arch"))

    @cached_property
    def first_rows(self) -> NDArray[np.int64]:
        """Index of the first row of each problem; `first_rows[problem_ids]` is a row's representative."""
        return np.unique(self.problem_ids, return_index=True)[1].astype(np.int64)

    def problem(self, i: int) -> Any:
        """The problem of row `i`."""
        return self._problems([i])[0]

    def problems(self) -> list[Any]:
        """Distinct problems: `problems()[problem_ids[i]]` is the problem of row `i`."""
        return self._all_problems

    def contests(self) -> list[Any]:
        """Distinct problems, each limited to what its rows show that was tried if no source states it."""
        if (limited := self.op.problems.tried) is None:
            return self.problems()
        groups = zip(self.problems(), self.frame.groupby(self.problem_ids), strict=True)
        return [
            problem if rows["run_id"].iloc[0] in self._stated else limited(problem, rows)
            for problem, (_, rows) in groups
        ]

    @cached_property
    def _stated(self) -> dict[str, dict[str, Any]]:
        """Run -> column of kernels -> the values, or the last text, that its tuner tried, as its source states it."""
        sources = [source for source in self.metadata.get("sources", ()) if "tried" in source]
        return {f"{source['name']}:{source['sha256'][:12]}": source["tried"] for source in sources}

    def tried(self, row: int, pool: Sequence[Any], kernels: NDArray[np.intp]) -> NDArray[np.intp]:
        """Select among the indices of kernels in a pool those that the tuner of a row's run tried."""
        for name, values in self._stated.get(str(self.frame["run_id"].iloc[row]), {}).items():
            column = column_of(pool, name)[kernels]
            kernels = kernels[column <= values if isinstance(values, str) else np.isin(column, values)]
        return kernels

    @cached_property
    def _all_problems(self) -> list[Any]:
        return self._problems(self.first_rows)

    @property
    def archs(self) -> tuple[str, ...]:
        """Names of the architectures, sorted."""
        return self.distinct("arch")

    @property
    def arch(self) -> str:
        """Name of the only architecture.

        Raises:
            DataError: the rows come from several architectures, or there are none.
        """
        if len(self.archs) != 1:
            raise DataError(
                f"the dataset must have one architecture, not {len(self.archs)}: {', '.join(self.archs)}",
                "select the rows of one",
                code="mixed-data",
            )
        return self.archs[0]

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the directions, sorted; empty for an operation without directions."""
        return self.distinct("variant") if self.op.has_directions else ()

    @property
    def num_cus(self) -> int:
        """Compute units of the measured device; 0 if they are not known, or rows differ."""
        counts = self.frame["hw_num_cus"].dropna().unique()
        return int(counts[0]) if len(counts) == 1 else 0

    def hardware(self) -> dict[str, int | NDArray[np.int64]]:
        """Hardware profile by name (`num_cus`, …): an integer if all rows agree, else one value per row.

        Raises:
            DataError: a value is missing.
        """
        known = {}
        for name in HARDWARE:
            values = self.frame[f"hw_{name}"].to_numpy()
            if not len(values) or np.isnan(values.astype(np.float64)).any():
                message = f"column hw_{name} has missing values"
                raise DataError(message, "convert the data again with --arch", code="bad-column")
            whole = values.astype(np.int64)
            known[name] = int(whole[0]) if (whole == whole[0]).all() else whole
        return known

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of all rows in order, independent of library versions and compression."""
        digest = ContentDigest(len(self.frame))
        for column in self.op.training.columns:
            digest.add(column, tables.chunks_of(self.frame, column, "the dataset"))
        return digest.hexdigest()

    def _problems(self, rows: Sequence[int] | NDArray[np.int64]) -> list[Any]:
        part = self.frame.iloc[list(rows)][list(self.op.problems.identity)]
        return [self.op.problems.of_row(row) for row in part.to_dict("records")]


def make_dataset(frame: pd.DataFrame, metadata: dict[str, Any] | None = None, where: str = "the rows") -> Dataset:
    """Build a validated dataset from a frame with at least the required columns."""
    table = tables.conform(tables.from_pandas(frame, where), where)
    tables.check_values(table, where)
    made = tables.to_pandas(table)
    return Dataset(made) if metadata is None else Dataset(made, metadata)


def read_dataset(
    *paths: Path | str, columns: ColumnsOf | None = None, predictions: bool = False, narrow: bool = False
) -> Dataset:
    """Read Parquet files, or all Parquet files in a folder.

    The rows of each file are verified against its checksum; a file without a checksum gives a warning.

    Args:
        paths: files and folders.
        columns: names of an operation's columns to keep in addition to the identity columns; all by default. Strings
            are then categorical. All columns are validated.
        predictions: whether rows predicted by a model are accepted; these are not measurements.
        narrow: whether integers use the narrowest type; arithmetic on them may then overflow.

    Raises:
        DataError: a file is missing, not a dataset of this schema version, damaged or empty, a value is invalid, the
            checksum does not match, or a (problem, kernel) pair of one architecture occurs twice; or rows are
            predictions and `predictions` is not set.
    """
    return joined(open_files(paths, predictions=predictions), columns, narrow=narrow)


def joined(files: Sequence[DatasetFile], columns: ColumnsOf | None = None, *, narrow: bool = False) -> Dataset:
    """Load the rows of files into memory; see `read_dataset` for `columns` and `narrow`."""
    op = files[0].op
    dataset = Dataset(_frame(files, op, columns, narrow=narrow), merged_metadata(files), op.name)
    refuse_duplicates(dataset, files)
    return dataset


def open_files(paths: Sequence[Path | str], *, predictions: bool = False) -> list[DatasetFile]:
    """Open and verify files, which must be of one operation."""
    files = [DatasetFile(file) for path in paths for file in _files(path_of(path, "a dataset's path"))]
    if not files:
        raise DataError("no dataset given", code="missing-option")
    tables.one_operation(file.op for file in files)
    for file in files:
        file.verify(predictions=predictions)
    return files


def merged_metadata(files: Sequence[DatasetFile]) -> dict[str, Any]:
    """Merge the provenance of files, without duplicates."""
    merged: dict[str, list[Any]] = {key: [] for key in METADATA_KEYS}
    for key, records in merged.items():
        for file in files:
            records += [record for record in file.metadata[key] if record not in records]
    if len(files) > 1:
        refuse_mixed_flags(merged["runs"])
    return merged


def refuse_mixed_flags(runs: Iterable[dict[str, Any]]) -> None:
    """Refuse runs of `ckh bench` on GPUs of one architecture that compiled their kernels with different flags."""
    first: dict[str, dict[str, Any]] = {}
    for run in runs:
        if run.get("device_kind") != "hip":  # also runs that other programs recorded
            continue
        earlier = first.setdefault(run["arch"], run)
        if differing := sorted(set(run["flags"]).symmetric_difference(earlier["flags"])):
            raise DataError(
                f"the kernels of runs {earlier['run_id']} and {run['run_id']} on {run['arch']} were compiled with "
                f"different flags: {', '.join(differing)}",
                "their times are of different code: keep them in separate datasets, or measure again",
                code="mixed-flags",
            )


def names_read(op: AnyOperation, columns: ColumnsOf | None) -> frozenset[str]:
    """Names of the columns to read: `columns` and the identity columns; all by default."""
    kept = op.column_names() if columns is None else columns(op)
    always = (*op.problems.identity, "op_type", "arch", "kernel", *op.apart)
    return frozenset(name for name in op.column_names() if name in kept or name in always)


def write_dataset(dataset: Dataset, path: Path | str) -> None:
    """Write a dataset as one Parquet file, atomically.

    Units and meanings are stored as column metadata; schema and ckh version, sources, runs and the meaning of a time as
    file metadata.
    """
    table = tables.conform(tables.from_pandas(dataset.frame, "the dataset"), "the dataset")
    blocks = (table.slice(start, BLOCK_ROWS) for start in range(0, len(dataset), BLOCK_ROWS))
    save_blocks(Path(path), dataset.op, blocks, dataset.metadata, dataset.content_hash)


def save_blocks(
    path: Path, op: AnyOperation, blocks: Iterable[pa.Table], metadata: dict[str, Any], content_sha256: str
) -> None:
    """Write blocks of rows as one Parquet file, atomically."""
    with open_output(path) as file:
        write_parquet(file, op, blocks, metadata, content_sha256)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    paths = sorted(path.glob("*.parquet"))
    if not paths:
        raise DataError(f"no *.parquet file in {path}", "make one with ckh convert", code="no-file")
    return paths


def _frame(files: Sequence[DatasetFile], op: AnyOperation, columns: ColumnsOf | None, *, narrow: bool) -> pd.DataFrame:
    """Concatenate the columns of files one at a time, to bound memory."""
    import pandas as pd
    import pyarrow as pa

    names, series = names_read(op, columns), {}
    for column in op.training.columns:
        if column.name in names:
            chunks = [chunk for file in files for chunk in file.column(column)]
            series[column.name] = tables.series_of(
                pa.chunked_array(chunks), is_category=columns is not None, narrow=narrow
            )
    frame: pd.DataFrame = pd.DataFrame(series, copy=False)
    return frame


def refuse_duplicates(dataset: Dataset, files: Sequence[DatasetFile]) -> None:
    """Refuse files with duplicate pairs."""
    repeated = numbering.repeated_pairs(dataset.problem_ids, dataset.frame["kernel"])
    if repeated.any():
        row, where = int(repeated.argmax()), ", ".join(str(file.path) for file in files)
        raise DataError(
            f"{where}: {int(repeated.sum())} (problem, kernel) pairs occur twice, "
            f"e.g. {dataset.frame['kernel'][row]} on {dataset.problem(row).canonical()}",
            "merge the inputs with ckh convert",
            code="duplicate-rows",
        )


def share_of(text: str | None, option: str) -> float:
    """Parse the share of a hold-out, such as 20%; 0 without one."""
    if text is None:
        return 0.0
    number, is_percent = text.removesuffix("%"), text.endswith("%")
    try:
        share = float(number) / (100 if is_percent else 1)
    except ValueError:
        share = float("nan")
    if not 0 < share < 1:
        raise UsageError(f"{option} {text!r} is not a share of the problems", f"e.g. {option} 20%", code="out-of-range")
    return share


def split_off(dataset: Dataset, share: float, seed: int = 42) -> tuple[Dataset, Dataset]:
    """Split a dataset at random into rows to train on and a hold-out, by whole layers, as cross-validation does."""
    groups = np.random.default_rng(seed).permutation(np.unique(dataset.split_ids))
    count = max(1, round(share * len(groups)))
    if count >= len(groups):
        raise DataError(f"a hold-out of {share:.0%} leaves none of {len(groups)} problems", code="few-problems")
    is_held = np.isin(dataset.split_ids, groups[:count])
    return dataset.select(~is_held), dataset.select(is_held)


def holdout_path(path: Path) -> Path:
    """File of the hold-out beside a model or a dataset."""
    return path.with_name(f"{path.name.removesuffix('.parquet')}-holdout.parquet")
