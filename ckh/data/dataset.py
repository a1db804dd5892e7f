"""`Dataset`: measured rows with a complete identity, read from and written to Parquet."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ckh.data import numbering, tables
from ckh.data.digest import ContentDigest
from ckh.data.tables import BLOCK_ROWS
from ckh.data.written import write_parquet
from ckh.errors import DataError
from ckh.files.outputs import FileKind, open_output
from ckh.ops import operation
from ckh.ops.base import lazily
from ckh.schema import HARDWARE, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    import numpy as np
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.ops.base import AnyOperation

    ColumnsOf: TypeAlias = Callable[[AnyOperation], Container[str]]

DATASET = FileKind("dataset of ckh", tables.is_dataset)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Measured (problem, kernel) pairs.

    Args:
        frame: one row a pair, the columns of its operation in that order, index 0 to n-1. A nullable integer
            column that holds nulls is float64 with NaN.
        metadata: where the rows come from: `sources` (name, format, sha256 of every input file) and `runs` (what each
            run of ckh bench recorded about its device, compiler and flags). JSON-able.
        op_type: name of the operation; by default that of the rows.
    """

    frame: pd.DataFrame
    metadata: dict[str, Any] = field(default_factory=lambda: {key: [] for key in tables.METADATA_KEYS})
    op_type: str = ""

    def __post_init__(self) -> None:
        if not self.op_type and len(self.frame):
            # What is selected from these rows is of the same operation, even if it is nothing.
            object.__setattr__(self, "op_type", str(self.frame["op_type"].iloc[0]))

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        op: str,
        arch: str | None = None,
        mapping: Mapping[str, str] | None = None,
        num_cus: int | None = None,
        skip_bad: bool = False,
    ) -> Dataset:
        """Convert any table of measurements, one row per problem and kernel (docs/loop.md has the columns).

        Args:
            frame: the rows.
            op: the operation, of which the rows are measurements.
            arch: the architecture that was measured; the column `arch` may say it.
            mapping: which column of the frame has the values of a column of the operation, ours -> theirs.
            num_cus: compute units of the device, by default those of the architecture's file.
            skip_bad: whether rows that cannot be used are left out, with a warning.

        Raises:
            CkhError: a column is missing, or rows cannot be used; the message names all of the former.
        """
        from ckh.data.formats import ReadOptions

        options = ReadOptions(arch, skip_bad, num_cus, op=op, mapping=mapping or {})
        # Conversion stands above datasets.
        converted = cast("Callable[[], Callable[..., Dataset]]", lazily("ckh.data.conversion:dataset_of_frame"))
        return converted()(frame, options)

    @staticmethod
    def read(*paths: Path | str) -> Dataset:
        """Read one or several Parquet files, or all those in a folder, as `read_dataset`.

        Raises:
            DataError: a file is unusable.
        """
        return read_dataset(*paths)

    def write(self, path: Path | str) -> None:
        """Write one Parquet file, atomically, as `write_dataset`.

        Raises:
            OutputError: it cannot be written.
        """
        write_dataset(self, path)

    def to_frame(self) -> pd.DataFrame:
        """A copy of the rows."""
        copied: pd.DataFrame = self.frame.copy()
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without derived values; the operation is looked up by name on the other machine."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def __len__(self) -> int:
        return len(self.frame)

    def select(self, mask: NDArray[Any]) -> Dataset:
        """Select rows by a boolean mask or by indices; returns the dataset itself if all are selected."""
        if mask.dtype == bool and mask.all():
            return self
        return replace(self, frame=self.frame.iloc[mask].reset_index(drop=True))

    def valid(self) -> Dataset:
        """Rows with a positive time of a right result."""
        return self.select((self.frame["is_valid"] & (self.frame["latency_ms"] > 0)).to_numpy(dtype=bool))

    def winners(self) -> Dataset:
        """Rows that say which kernel was best: valid ones, and those without a time that others chose."""
        is_valid = self.frame["is_valid"] & (self.frame["latency_ms"] > 0)
        return self.select((is_valid | (self.frame["status"] == Status.CHOSEN)).to_numpy(dtype=bool))

    @cached_property
    def op(self) -> AnyOperation:
        """The operation of all rows."""
        return operation(self.op_type)

    @cached_property
    def problem_ids(self) -> NDArray[np.int64]:
        """Index of each row's problem, 0, 1, … in order of appearance.

        Rows have the same number only if every identity column and the architecture agree.
        """
        return numbering.group_numbers(self.frame, (*self.op.problems.identity, "arch"))

    @cached_property
    def split_ids(self) -> NDArray[np.int64]:
        """Index of each row's cross-validation group, by the operation's `split_by` and the architecture."""
        return numbering.group_numbers(self.frame, (*self.op.problems.split_by, "arch"))

    @cached_property
    def first_rows(self) -> NDArray[np.int64]:
        """Index of the first row of each problem; `first_rows[problem_ids]` is a row's representative."""
        import numpy as np

        return np.unique(self.problem_ids, return_index=True)[1].astype(np.int64)

    def problem(self, i: int) -> Any:
        """The problem of row `i`."""
        return self._problems([i])[0]

    def problems(self) -> list[Any]:
        """The problems, so that `problems()[problem_ids[i]]` is the problem of row `i`."""
        return self._all_problems

    @cached_property
    def _all_problems(self) -> list[Any]:
        return self._problems(self.first_rows)

    @property
    def archs(self) -> tuple[str, ...]:
        """Names of the architectures, sorted."""
        return self._distinct("arch")

    @property
    def arch(self) -> str:
        """The one architecture.

        Raises:
            DataError: the rows come from several, or there are none.
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
        return self._distinct("variant") if self.op.has_directions else ()

    def hardware(self) -> dict[str, int | NDArray[np.int64]]:
        """Hardware profile by name (`num_cus`, …): an integer if all rows agree, else one value per row.

        Raises:
            DataError: a row has none.
        """
        return {name: self._hardware_values(f"hw_{name}") for name in HARDWARE}

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

    def _distinct(self, column: str) -> tuple[str, ...]:
        return tuple(sorted(self.frame[column].unique()))

    def _hardware_values(self, column: str) -> int | NDArray[np.int64]:
        import numpy as np

        values = self.frame[column].to_numpy()
        if not len(values) or np.isnan(values.astype(np.float64)).any():
            raise DataError(
                f"column {column} has missing values", "convert the data again with --arch", code="bad-column"
            )
        whole = values.astype(np.int64)
        return int(whole[0]) if (whole == whole[0]).all() else whole


def make_dataset(frame: pd.DataFrame, metadata: dict[str, Any] | None = None, where: str = "the rows") -> Dataset:
    """Make a checked dataset of a frame with at least the required columns.

    Raises:
        DataError: a column is missing or of the wrong type, or a value is impossible; names `where` and the column.
    """
    table = tables.conform(tables.from_pandas(frame, where), where)
    tables.check_values(table, where)
    made = tables.to_pandas(table)
    return Dataset(made) if metadata is None else Dataset(made, metadata)


def read_dataset(
    *paths: Path | str, columns: ColumnsOf | None = None, predictions: bool = False, narrow: bool = False
) -> Dataset:
    """Read one or several Parquet files, or all those in a folder.

    The rows of each are compared with the digest that was written with them; of a file without, a warning says that
    it was not verified.

    Args:
        paths: files and folders.
        columns: names of the columns to keep of an operation, besides those of identity; all by default. Texts are
            then categories. All are checked.
        predictions: whether rows that a model predicted are taken; they are no measurements.
        narrow: whether integers take as few bytes as they need; then nothing is to be computed with them.

    Raises:
        DataError: a file is missing, not a dataset of this schema version, damaged or empty, a value is impossible,
            its rows are not those that were written, or a (problem, kernel) pair of one architecture occurs twice; or
            rows are predictions, and these are not taken.
    """
    return joined(open_files(paths, predictions=predictions), columns, narrow=narrow)


def joined(files: Sequence[tables.DatasetFile], columns: ColumnsOf | None = None, *, narrow: bool = False) -> Dataset:
    """Load the rows of files into memory; `columns` and `narrow` as of `read_dataset`.

    Raises:
        DataError: a (problem, kernel) pair of one architecture occurs twice.
    """
    op = files[0].op
    dataset = Dataset(_frame(files, op, columns, narrow=narrow), merged_metadata(files), op.name)
    refuse_duplicates(dataset, files)
    return dataset


def open_files(paths: Sequence[Path | str], *, predictions: bool = False) -> list[tables.DatasetFile]:
    """Open and verify the files of one operation in paths.

    Raises:
        DataError: as of `read_dataset`, but for pairs that occur twice.
    """
    files = [tables.DatasetFile(file) for path in paths for file in _files(Path(path))]
    if not files:
        raise DataError("no dataset given", code="missing-option")
    tables.one_operation(file.op for file in files)
    for file in files:
        file.verify(predictions=predictions)
    return files


def merged_metadata(files: Sequence[tables.DatasetFile]) -> dict[str, Any]:
    """Merge the provenance of files, without duplicates."""
    found: dict[str, list[Any]] = {key: [] for key in tables.METADATA_KEYS}
    for key, items in found.items():
        for file in files:
            items += [item for item in file.metadata[key] if item not in items]
    return found


def names_read(op: AnyOperation, columns: ColumnsOf | None) -> frozenset[str]:
    """Names of the columns to read: these and the identity columns; all by default."""
    kept = op.column_names() if columns is None else columns(op)
    always = (*op.problems.identity, "op_type", "arch", "kernel")
    return frozenset(name for name in op.column_names() if name in kept or name in always)


def write_dataset(dataset: Dataset, path: Path | str) -> None:
    """Write a dataset as one Parquet file, atomically.

    Units and meanings are metadata of its columns; schema and ckh version, sources, runs and what a time means are
    metadata of the file.

    Raises:
        OutputError: the file cannot be written.
    """
    table = tables.conform(tables.from_pandas(dataset.frame, "the dataset"), "the dataset")
    blocks = (table.slice(start, BLOCK_ROWS) for start in range(0, len(dataset), BLOCK_ROWS))
    save_blocks(Path(path), dataset.op, blocks, dataset.metadata, dataset.content_hash)


def save_blocks(
    path: Path, op: AnyOperation, blocks: Iterable[pa.Table], metadata: dict[str, Any], content_sha256: str
) -> None:
    """Write blocks of rows as one Parquet file, atomically.

    Raises:
        DataError: the file cannot be written.
    """
    with open_output(path) as file:
        write_parquet(file, op, blocks, metadata, content_sha256)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.parquet"))
    if not found:
        raise DataError(f"no *.parquet file in {path}", "make one with ckh convert", code="no-file")
    return found


def _frame(
    files: Sequence[tables.DatasetFile], op: AnyOperation, columns: ColumnsOf | None, *, narrow: bool
) -> pd.DataFrame:
    """Concatenate the columns of files one at a time, to bound memory."""
    import pandas as pd
    import pyarrow as pa

    names, found = names_read(op, columns), {}
    for column in op.training.columns:
        if column.name in names:
            chunks = [chunk for file in files for chunk in file.column(column)]
            found[column.name] = tables.series_of(
                pa.chunked_array(chunks), is_category=columns is not None, narrow=narrow
            )
    frame: pd.DataFrame = pd.DataFrame(found, copy=False)
    return frame


def refuse_duplicates(dataset: Dataset, files: Sequence[tables.DatasetFile]) -> None:
    """Refuse files with duplicate pairs.

    Raises:
        DataError: there are such.
    """
    repeated = numbering.repeated_pairs(dataset.problem_ids, dataset.frame["kernel"])
    if repeated.any():
        row, where = int(repeated.argmax()), ", ".join(str(file.path) for file in files)
        raise DataError(
            f"{where}: {int(repeated.sum())} (problem, kernel) pairs occur twice, "
            f"e.g. {dataset.frame['kernel'][row]} on {dataset.problem(row).canonical()}",
            "merge the inputs with ckh convert",
            code="duplicate-rows",
        )


class DatasetRows:
    """A dataset as `formats.MeasuredRows`."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def blocks(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows as one table, with all or the named columns."""
        import pyarrow as pa

        frame = self._dataset.frame
        yield pa.Table.from_pandas(frame if names is None else frame[list(names)], preserve_index=False)

    def distinct(self, name: str) -> tuple[str, ...]:
        """The texts of a column, sorted."""
        return tuple(sorted({str(text) for text in self._dataset.frame[name].unique()}))
