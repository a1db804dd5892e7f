"""Numbering of rows by their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

_INT64_LIMIT = 2**62


def group_numbers(frame: Mapping[str, Any] | pd.DataFrame, columns: Sequence[str]) -> NDArray[np.int64]:
    """Number of each row's combination of values: 0, 1, … in order of appearance.

    Columns are taken from the frame one after the other.
    """
    import numpy as np
    import pandas as pd

    combined = np.zeros(len(frame[columns[0]]), dtype=np.int64)
    count = 1
    for name in columns:
        codes, values = pd.factorize(frame[name], use_na_sentinel=False)
        if count * max(len(values), 1) > _INT64_LIMIT:
            combined, seen = pd.factorize(combined)
            count = len(seen)
        combined *= len(values)
        combined += codes
        count *= max(len(values), 1)
    numbers: NDArray[np.int64] = pd.factorize(combined)[0].astype(np.int64)
    return numbers


def repeated_pairs(problem_ids: NDArray[np.int64], kernel_names: pd.Series) -> NDArray[np.bool_]:
    """Which rows hold a (problem, kernel) pair that an earlier row holds."""
    import pandas as pd

    codes, names = pd.factorize(kernel_names)
    repeated: NDArray[np.bool_] = pd.Series(problem_ids * max(len(names), 1) + codes).duplicated().to_numpy()
    return repeated


class Numbering:
    """Numbers of combinations of values over any number of tables: 0, 1, … in order of appearance.

    Iterated, it gives the combinations in that order.

    Args:
        columns: names of the columns, whose values are numbered in the tables (dictionaries of Arrow).
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self._numbers: dict[tuple[Any, ...], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._numbers)

    def of(self, table: pa.Table) -> NDArray[np.int64]:
        """The number of each row."""
        import numpy as np

        arrays = [_encoded(table[name]) for name in self.columns]
        # Columns of one thing share their indices.
        distinct = {_address(array.indices): array.indices for array in arrays}
        codes = {str(place): array.fill_null(-1).to_numpy() for place, array in enumerate(distinct.values())}
        here = group_numbers(codes, list(codes))
        first = np.flatnonzero(np.diff(np.maximum.accumulate(here), prepend=-1))
        combinations = zip(*(array.take(first).to_pylist() for array in arrays), strict=True)
        numbers = [self._numbers.setdefault(values, len(self._numbers)) for values in combinations]
        found: NDArray[np.int64] = np.array(numbers, dtype=np.int64)[here]
        return found


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return array if hasattr(array, "dictionary") else array.dictionary_encode()


def _address(array: pa.Array) -> tuple[int | None, ...]:
    return (array.offset, *(part if part is None else part.address for part in array.buffers()))
