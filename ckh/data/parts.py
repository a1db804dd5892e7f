"""Datasets too large for memory: in parts that each hold whole problems, or as a random sample of problems.

The parts of a large dataset are kept in unnamed files in the system's temporary folder.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ckh.data import tables
from ckh.data.dataset import Dataset, joined, merged_metadata, names_read, open_files, refuse_duplicates
from ckh.data.numbering import Numbering
from ckh.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.data.dataset import ColumnsOf
    from ckh.data.parquet import DatasetFile
    from ckh.ops.base import AnyOperation

PART_ROWS = 1 << 16  # a part is closed at the first problem boundary after this many rows
_MOST_PARTS = 256  # each is an open file


@dataclass(frozen=True, slots=True, eq=False)
class DatasetParts:
    """The rows of a dataset, by problems in order of appearance; re-iterable, one part at a time."""

    op: AnyOperation  # the operation of all rows
    reads: tuple[Callable[[], Dataset], ...]  # loader of each part

    def __iter__(self) -> Iterator[Dataset]:
        return (read() for read in self.reads)

    def select(self, masks: Sequence[NDArray[np.bool_]]) -> DatasetParts:
        """Select the rows by one mask per part; empty parts are removed."""
        kept = [(read, mask) for read, mask in zip(self.reads, masks, strict=True) if mask.any()]
        if len(self.reads) == 1 and kept:
            return in_memory(kept[0][0]().select(kept[0][1]))

        def selected(read: Callable[[], Dataset], bits: NDArray[np.uint8], count: int) -> Dataset:
            return read().select(np.unpackbits(bits, count=count).astype(bool))

        return replace(
            self,
            reads=tuple(
                read if mask.all() else partial(selected, read, np.packbits(mask), len(mask)) for read, mask in kept
            ),
        )

    def select_problems(self, kept: NDArray[np.bool_]) -> DatasetParts:
        """Select problems by a mask of shape (problems,)."""
        if kept.all():
            return self
        masks, start = [], 0
        for part in self:
            ids = part.problem_ids
            masks.append(kept[start + ids])
            start += int(ids.max()) + 1
        return self.select(masks)

    def whole(self) -> Dataset:
        """Load all rows into memory."""
        first, *others = parts = list(self)
        if not others:
            return first
        return replace(first, frame=_concatenated([part.frame for part in parts]))


def in_memory(dataset: Dataset) -> DatasetParts:
    """Wrap a dataset as a single part."""
    return DatasetParts(dataset.op, (lambda: dataset,))


def read_parts(*paths: Path | str, columns: ColumnsOf) -> DatasetParts:
    """Read Parquet files, or all Parquet files in a folder, in parts."""
    files = open_files(paths)
    op, rows = files[0].op, sum(file.rows for file in files)
    if rows <= PART_ROWS:
        return in_memory(joined(files, columns, narrow=True))
    problems = Numbering((*op.problems.identity, "arch"))
    counts = rows_of_each(problems, files)
    # Parts of about as many rows, of at least one problem each.
    part_of = np.unique((np.cumsum(counts) - counts) // max(PART_ROWS, rows // _MOST_PARTS), return_inverse=True)[1]
    parts = [_StoredPart() for _ in range(int(part_of.max()) + 1)]
    for block in blocks_of(files, names_read(op, columns)):
        part = part_of[problems.of(block)]
        for number in range(int(part.min()), int(part.max()) + 1):
            parts[number].add(block.filter(part == number))
    for stored_part in parts:
        stored_part.close()

    def read(part: _StoredPart) -> Dataset:
        dataset = Dataset(part.frame(), merged_metadata(files), op.name)
        refuse_duplicates(dataset, files)
        return dataset

    return DatasetParts(op, tuple(partial(read, part) for part in parts))


def rows_of_each(problems: Numbering, files: Sequence[DatasetFile]) -> NDArray[np.int64]:
    """Number of rows of each problem, shape (problems,); also numbers the problems."""
    counts = np.zeros(0, np.int64)
    for block in blocks_of(files, frozenset(problems.columns)):
        numbers = problems.of(block)
        counts = np.concatenate([counts, np.zeros(len(problems) - len(counts), np.int64)])
        counts += np.bincount(numbers, minlength=len(counts))
    return counts


def blocks_of(files: Sequence[DatasetFile], names: Container[str]) -> Iterator[pa.Table]:
    """Yield the rows of files in blocks, with the named columns."""
    return (block for file in files for block in file.blocks(names))


class _StoredPart:
    """Dictionary-encoded rows in a temporary file."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 # closed with this object
        self._writer: Any = None
        weakref.finalize(self, self._file.close)

    def add(self, table: pa.Table) -> None:
        """Write rows."""
        if not len(table):
            return
        numbered = texts_numbered(table)
        with _storage_errors():
            if self._writer is None:
                options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
                self._writer = pa.ipc.new_stream(self._file, numbered.schema, options=options)
            self._writer.write_table(numbered)

    def close(self) -> None:
        """Flush the remaining rows; no more can be added."""
        with _storage_errors():
            self._writer.close()
            self._file.flush()

    def frame(self) -> pd.DataFrame:
        """Load all rows, after `close`."""
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as stream:
            return frame_of(stream.read_all(), narrow=True)


def texts_numbered(table: pa.Table) -> pa.Table:
    """Dictionary-encode the string columns of a table and combine its chunks."""
    arrays = [column.dictionary_encode() if pa.types.is_string(column.type) else column for column in table.columns]
    return pa.table(arrays, names=table.column_names).combine_chunks()


def frame_of(table: pa.Table, *, narrow: bool) -> pd.DataFrame:
    """Convert a dictionary-encoded table to a frame; `narrow` as for `read_dataset`."""
    unified = table.unify_dictionaries()
    columns = {name: tables.series_of(unified[name], is_category=True, narrow=narrow) for name in unified.column_names}
    frame: pd.DataFrame = pd.DataFrame(columns)
    return frame


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write to {gettempdir()}: {error.strerror or error}",
            "parts of large datasets are kept there: set TMPDIR to a folder with more room",
            code="unwritable",
        ) from error


def _concatenated(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate frames; categories are the union."""
    from pandas.api.types import union_categoricals

    columns: dict[str, Any] = {}
    for name, kind in frames[0].dtypes.items():
        parts = [frame[name] for frame in frames]
        is_category = isinstance(kind, pd.CategoricalDtype)
        columns[str(name)] = union_categoricals(parts) if is_category else pd.concat(parts, ignore_index=True)
    concatenated: pd.DataFrame = pd.DataFrame(columns)
    return concatenated


@dataclass(frozen=True, slots=True)
class Drawn:
    """Numbers of rows and problems drawn, and their totals."""

    rows: int
    problems: int
    of_rows: int
    of_problems: int

    def __str__(self) -> str:
        """Return a sentence for messages."""
        return (
            f"{self.rows:,} rows of {self.problems:,} problems were drawn from the {self.of_rows:,} rows of "
            f"{self.of_problems:,} problems of the data"
        )


def read_sample(
    paths: Sequence[Path | str], most_rows: int, seed: int, columns: ColumnsOf, only: Mapping[str, object]
) -> tuple[Dataset, Drawn | None]:
    """Read a dataset as `read_dataset` does; if it is larger than `most_rows`, draw problems at random.

    All rows of at least one problem are drawn. With `only`, values of identity columns, only matching problems are
    drawn, if any match. Memory holds one block, the drawn rows, and a few numbers per problem of the data.
    """
    files = open_files(paths)
    op = files[0].op
    if sum(file.rows for file in files) <= most_rows:
        return joined(files, columns), None
    problems = Numbering((*op.problems.identity, "arch"))
    rows = rows_of_each(problems, files)
    places = [(problems.columns.index(name), value) for name, value in only.items() if name in problems.columns]
    matches = [all(problem[place] == value for place, value in places) for problem in problems]
    is_wanted = np.array(matches) | (not any(matches))
    order = np.random.default_rng(seed).permutation(np.flatnonzero(is_wanted))
    count = int(np.searchsorted(np.cumsum(rows[order]), most_rows, side="right"))
    is_drawn = np.zeros(len(rows), dtype=bool)
    is_drawn[order[: max(1, count)]] = True
    blocks = blocks_of(files, names_read(op, columns))
    drawn = [texts_numbered(block.filter(pa.array(is_drawn[problems.of(block)]))) for block in blocks]
    dataset = Dataset(frame_of(pa.concat_tables(drawn), narrow=False), merged_metadata(files), op.name)
    refuse_duplicates(dataset, files)
    return dataset, Drawn(len(dataset), int(is_drawn.sum()), int(rows[is_wanted].sum()), int(is_wanted.sum()))
