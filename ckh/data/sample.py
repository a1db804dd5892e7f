"""Random sample of problems, with all of their rows, from a dataset too large for memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ckh.data.dataset import Dataset, joined, merged_metadata, names_read, open_files, refuse_duplicates
from ckh.data.numbering import Numbering
from ckh.data.parts import blocks_of, frame_of, rows_of_each, texts_numbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.data.dataset import ColumnsOf


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

    Memory holds one block, the drawn rows, and a few numbers per problem of the data.

    Args:
        paths: files and folders.
        most_rows: maximum number of rows to draw; all rows of at least one problem are always drawn.
        seed: random seed of the draw.
        columns: as for `read_dataset`.
        only: values of identity columns: only matching problems are drawn, if any match.

    Raises:
        DataError: as for `read_dataset`.
    """
    files = open_files(paths)
    op = files[0].op
    if sum(file.rows for file in files) <= most_rows:
        return joined(files, columns), None
    problems = Numbering((*op.problems.identity, "arch"))
    rows = rows_of_each(problems, files)
    is_wanted = _is_wanted(problems, only)
    is_drawn = _draw(rows, is_wanted, most_rows, seed)
    blocks = blocks_of(files, names_read(op, columns))
    tables = [texts_numbered(block.filter(pa.array(is_drawn[problems.of(block)]))) for block in blocks]
    dataset = Dataset(frame_of(pa.concat_tables(tables), narrow=False), merged_metadata(files), op.name)
    refuse_duplicates(dataset, files)
    return dataset, Drawn(len(dataset), int(is_drawn.sum()), int(rows[is_wanted].sum()), int(is_wanted.sum()))


def _is_wanted(problems: Numbering, only: Mapping[str, object]) -> NDArray[np.bool_]:
    """Mask of problems that match these values, shape (problems,); all True if none match."""
    places = [(problems.columns.index(name), value) for name, value in only.items() if name in problems.columns]
    values = np.array([all(problem[place] == value for place, value in places) for problem in problems], dtype=bool)
    return values if values.any() else ~values


def _draw(rows: NDArray[np.int64], is_wanted: NDArray[np.bool_], most: int, seed: int) -> NDArray[np.bool_]:
    """Mask of drawn problems, shape (problems,): as many as fit in `most` rows, at least one."""
    order = np.random.default_rng(seed).permutation(np.flatnonzero(is_wanted))
    count = int(np.searchsorted(np.cumsum(rows[order]), most, side="right"))
    values = np.zeros(len(rows), dtype=bool)
    values[order[: max(1, count)]] = True
    return values
