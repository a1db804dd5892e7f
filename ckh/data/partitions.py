"""A dataset as a folder of Parquet files, each of so many rows and with a digest of its own."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from ckh.data import tables
from ckh.data.digest import ContentDigest
from ckh.data.written import write_parquet
from ckh.outputs import FolderKind, write_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ckh.ops.base import AnyOperation

_FIRST = "part-00000.parquet"
_NAME = re.compile(r"part-\d{5,}\.parquet")


def _owns(folder: Path) -> Callable[[str], bool] | None:
    """The test for the dataset's own files in a folder."""
    if not tables.is_dataset(folder / _FIRST):
        return None
    return lambda name: _NAME.fullmatch(name) is not None


PARTITIONED = FolderKind("partitioned dataset of ckh", _owns)


def save_partitions(
    out: Path, op: AnyOperation, blocks: Iterable[pa.Table], metadata: dict[str, Any], rows: int
) -> None:
    """Write blocks of rows as a folder of Parquet files of so many rows each, whole or not at all.

    The rows of one file at a time are in memory.

    Raises:
        OutputError: the folder cannot be written; what was there is as it was.
    """
    files = enumerate(_partitions(blocks, rows))
    write_folder(out, ((f"part-{number:05d}.parquet", _parquet(op, part, metadata)) for number, part in files))


def _partitions(blocks: Iterable[pa.Table], rows: int) -> Iterator[list[pa.Table]]:
    """Blocks that together have so many rows, the last ones fewer."""
    part: list[pa.Table] = []
    left = rows
    for block in blocks:
        start = 0
        while start < len(block):
            part.append(block.slice(start, left))
            start += len(part[-1])
            left -= len(part[-1])
            if not left:
                yield part
                part, left = [], rows
    if part:
        yield part


def _parquet(op: AnyOperation, blocks: Sequence[pa.Table], metadata: dict[str, Any]) -> bytes:
    digest = ContentDigest(sum(map(len, blocks)))
    for column in op.columns:
        digest.add(column, [chunk for block in blocks for chunk in block[column.name].chunks])
    file = io.BytesIO()
    write_parquet(file, op, blocks, metadata, digest.hexdigest())
    return file.getvalue()
