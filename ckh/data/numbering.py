"""Numbering of rows by their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

_INT64_LIMIT = 2**62


def group_numbers(frame: Mapping[str, Any] | pd.DataFrame, columns: Sequence[str]) -> NDArray[np.int64]:
    """Number the rows by their combination of values: 0, 1, … in order of appearance.

    The frame's columns are accessed one at a time.
    """
    import pandas as pd

    def coded() -> Iterator[tuple[NDArray[np.int64], int]]:
        for name in columns:
            codes, distinct = pd.factorize(frame[name], use_na_sentinel=False)
            yield codes, len(distinct)

    return combined_numbers(coded())


def combined_numbers(columns: Iterable[tuple[NDArray[np.integer[Any]], int]]) -> NDArray[np.int64]:
    """Number the rows by their combination of codes: 0, 1, … in order of appearance.

    Each column is given by the codes of the rows and their exclusive upper bound.
    """
    import pandas as pd

    combined, count = np.zeros(1, dtype=np.int64), 1
    for codes, below in columns:
        if count * max(below, 1) > _INT64_LIMIT:
            combined, seen = pd.factorize(combined)
            count = len(seen)
        combined = combined * below + codes
        count *= max(below, 1)
    numbers: NDArray[np.int64] = pd.factorize(combined)[0].astype(np.int64, copy=False)
    return numbers


def first_rows(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the first row of each number, where numbers are 0, 1, … in order of appearance."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(numbers), prepend=-1))


def repeated_pairs(problem_ids: NDArray[np.int64], kernel_names: pd.Series) -> NDArray[np.bool_]:
    """Mask of rows whose (problem, kernel) pair occurs in an earlier row."""
    import pandas as pd

    codes, names = pd.factorize(kernel_names)
    repeated: NDArray[np.bool_] = pd.Series(problem_ids * max(len(names), 1) + codes).duplicated().to_numpy()
    return repeated


class Numbering:
    """Numbers of combinations of values over any number of tables: 0, 1, … in order of appearance.

    Iteration yields the combinations in that order.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self._numbers: dict[tuple[Any, ...], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._numbers)

    def of(self, table: pa.Table) -> NDArray[np.int64]:
        """Number each row of a table."""
        arrays = []
        for name in self.columns:
            array = table[name].combine_chunks() if table[name].num_chunks != 1 else table[name].chunk(0)
            arrays.append(array if hasattr(array, "dictionary") else array.dictionary_encode())
        # Columns with a shared dictionary index are combined once.
        codes = {address_of(array.indices): _codes(array) for array in arrays}
        here = combined_numbers(codes.values())
        first = first_rows(here)
        columns = []
        for array in arrays:
            texts = [*array.dictionary.to_pylist(), None]
            columns.append([texts[code] for code in codes[address_of(array.indices)][0][first].tolist()])
        numbers = [self._numbers.setdefault(values, len(self._numbers)) for values in zip(*columns, strict=True)]
        of_rows: NDArray[np.int64] = np.array(numbers, dtype=np.int64)[here]
        return of_rows


def _codes(array: pa.DictionaryArray) -> tuple[NDArray[np.int32], int]:
    """Return the indices of values, with the highest for null, and their exclusive upper bound."""
    count = len(array.dictionary)
    return array.indices.fill_null(count).to_numpy(), count + 1


def address_of(array: pa.Array) -> tuple[int | None, ...]:
    """Offset and addresses of an array's buffers, which arrays that share them have in common."""
    return (array.offset, *(part if part is None else part.address for part in array.buffers()))
