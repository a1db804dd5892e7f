"""Checksum of a dataset's content: SHA-256 of its rows, independent of library versions and compression.

It is computed column by column, so that a file of any length is verified with one column in memory.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from ckh.schema import (
    CALLING,
    CARD_COLUMNS,
    EARLIER_NAMES,
    GROUPS,
    LAUNCHING,
    REPEATED,
    RESOURCE_NAMES,
    SCHEMA_VERSION,
    WHERE_WHEN,
    WORKSPACE,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.schema import Column

# A renamed column is hashed under its former name, so that existing checksums stay valid.
_DIGESTED = {name: earlier for earlier, name in EARLIER_NAMES.items()}
_SINCE = frozenset(
    {*RESOURCE_NAMES, CALLING, *REPEATED, *WHERE_WHEN, *LAUNCHING, *CARD_COLUMNS, WORKSPACE.name, GROUPS.name}
)


class ContentDigest:
    """Checksum of `rows` rows; every column of the schema must be added in order.

    Columns added to the schema later (`_SINCE`) are skipped where empty, so that older datasets keep their checksum.
    """

    def __init__(self, rows: int) -> None:
        self._digest = hashlib.sha256(f"ckh dataset {SCHEMA_VERSION} {rows}\n".encode())

    def add(self, column: Column, chunks: Iterable[pa.Array]) -> None:
        """Add a column by its values in row order; the chunk boundaries do not matter.

        The chunks are iterated several times.
        """
        if column.name in _SINCE and all(chunk.null_count == len(chunk) for chunk in chunks):
            return
        if column.type == "string":
            self._add_name(column)
            self._add_texts(chunks)
            return
        if column.name in _SINCE and all(_is_empty(chunk).all() for chunk in chunks):
            return
        self._add_name(column)
        rest = np.zeros(0, dtype=bool)
        for chunk in chunks:
            empty = np.concatenate([rest, _is_empty(chunk)])
            rest = empty[len(empty) // 8 * 8 :]
            self._digest.update(np.packbits(empty[: len(empty) - len(rest)]).data)
        self._digest.update(np.packbits(rest).data)
        kind = "<f8" if column.type == "float64" else "<i8"
        for chunk in chunks:
            self._digest.update(np.ascontiguousarray(_numbers(chunk), dtype=kind).data)

    def hexdigest(self) -> str:
        """Return the checksum of the added columns."""
        return self._digest.hexdigest()

    def _add_name(self, column: Column) -> None:
        name = _DIGESTED.get(column.name, column.name)
        self._digest.update(f"{name} {column.type}\n".encode())

    def _add_texts(self, chunks: Iterable[pa.Array]) -> None:
        """Hash each row's index among the distinct strings in order of appearance, -1 for null, then the strings."""
        import pandas as pd

        known: dict[str | None, int] = {None: -1}
        for chunk in chunks:
            encoded = chunk if hasattr(chunk, "dictionary") else chunk.dictionary_encode()
            texts = [*encoded.dictionary.to_pylist(), None]
            codes = encoded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
            if not known.keys() >= set(texts):
                for place in pd.unique(codes):
                    known.setdefault(texts[place], len(known) - 1)
            # A dictionary entry that no row refers to is not numbered, and its index is never used.
            numbers = np.array([known.get(text, -1) for text in texts], dtype="<i8")
            self._digest.update(numbers[codes].data)
        del known[None]
        self._digest.update(json.dumps(list(known)).encode())


def _is_empty(chunk: pa.Array) -> NDArray[np.bool_]:
    """Mask of values that are null or NaN."""
    distinct = chunk.dictionary if hasattr(chunk, "dictionary") else chunk
    if not chunk.null_count and not distinct.null_count and str(distinct.type) not in {"double", "float", "halffloat"}:
        return np.zeros(len(chunk), dtype=bool)
    numpy: NDArray[np.bool_] = _plain(chunk).is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return numpy


def _plain(chunk: pa.Array) -> pa.Array:
    """Decode a dictionary-encoded array."""
    return chunk.cast(chunk.type.value_type) if hasattr(chunk, "dictionary") else chunk


def _numbers(chunk: pa.Array) -> NDArray[np.generic]:
    """Values with nulls replaced by 0."""
    import pyarrow as pa

    chunk = _plain(chunk)
    if pa.types.is_null(chunk.type):
        return np.zeros(len(chunk))
    filled = chunk.fill_null(pa.scalar(0).cast(chunk.type)) if chunk.null_count else chunk
    values: NDArray[np.generic] = filled.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        return np.where(np.isnan(values), 0.0, values)
    return values
