"""Memory-efficient features of many rows, read in blocks of rows, as LightGBM does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.features.engine import FeatureEngine

BLOCK_ROWS = 1 << 14
_MOST_CODES = 1 << 16


class _Column:
    """Values of one feature, shape (rows,): two bytes each while there are few distinct values, else unchanged.

    Nothing is rounded: values are distinct if any bit differs.
    """

    def __init__(self, rows: int) -> None:
        self._codes: NDArray[np.uint16] | None = np.empty(rows, dtype=np.uint16)
        self._code_of: dict[int, int] = {}
        self._values = np.empty(0)

    def fill(self, start: int, values: NDArray[np.float64]) -> None:
        """Set the values of rows from `start`, which must not be set yet."""
        import pandas as pd

        stop = start + len(values)
        if self._codes is None:
            self._values[start:stop] = values
            return
        codes, bits = pd.factorize(values.view(np.int64))
        known = [self._code_of.setdefault(bit, len(self._code_of)) for bit in bits.tolist()]
        distinct = np.fromiter(self._code_of, dtype=np.int64, count=len(self._code_of)).view(np.float64)
        if len(distinct) <= _MOST_CODES:
            self._codes[start:stop] = np.array(known, dtype=np.uint16)[codes]
            self._values = distinct
            return
        plain = np.empty(len(self._codes))
        plain[:start], plain[start:stop] = self._values[self._codes[:start]], values
        self._values, self._codes, self._code_of = plain, None, {}

    def take(self, rows: Any) -> NDArray[np.float64]:
        """Return the values of rows."""
        return np.asarray(self._values[rows if self._codes is None else self._codes[rows]])


class FeatureMatrix:
    """Values of an engine's features, never held in memory as one float array."""

    def __init__(
        self,
        engine: FeatureEngine,
        columns: Mapping[str, NDArray[Any]],
        hardware: Mapping[str, int | NDArray[np.int64]],
        names: Sequence[str] | None = None,
    ) -> None:
        self._rows = len(next(iter(columns.values())))
        self._binned: tuple[int, Any] | None = None
        self._columns = [_Column(self._rows) for _ in (engine.names if names is None else names)]
        for start, block in feature_blocks(engine, columns, hardware, names):
            for column, values in zip(self._columns, block.T, strict=True):
                column.fill(start, np.ascontiguousarray(values))

    def __len__(self) -> int:
        return self._rows

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without bins; the receiving machine bins the rows again."""
        return {**self.__dict__, "_binned": None}

    def take(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the values of rows, shape (rows, features)."""
        return np.column_stack([column.take(rows) for column in self._columns])

    def lightgbm_data(self, rows: NDArray[np.int64], **arguments: Any) -> Any:
        """Convert rows to the `lightgbm.Dataset` that LightGBM builds from an array, but in blocks."""
        import lightgbm

        matrix = self

        class Rows(lightgbm.Sequence):
            batch_size = BLOCK_ROWS

            def __init__(self) -> None:
                self._start = self._stop = 0
                self._block = np.empty((0, 0))

            def __len__(self) -> int:
                return len(rows)

            def __getitem__(self, index: Any) -> NDArray[np.float64]:
                if isinstance(index, slice):
                    return matrix.take(rows[index])
                # LightGBM samples in ascending order. A view would keep its whole block alive.
                if not self._start <= index < self._stop:
                    self._start, self._stop = int(index), int(index) + BLOCK_ROWS
                    self._block = matrix.take(rows[self._start : self._stop])
                return np.array(self._block[index - self._start])

        class Data(lightgbm.Dataset):
            def get_params(self) -> dict[str, Any]:
                # LightGBM's own omits min_data_in_leaf, which controls feature pre-filtering, for data in blocks.
                return dict(self.params or {})

        return Data(Rows(), **arguments)

    def binned(self, order: NDArray[np.int64], parameters: dict[str, Any], **arguments: Any) -> Any:
        """Convert all rows in an order to a `lightgbm.Dataset` for taking subsets; the last result is cached."""
        least = parameters["min_child_samples"]
        if self._binned is None or self._binned[0] != least:
            none = np.zeros(len(order))  # subsets have their own labels
            data = self.lightgbm_data(order, label=none, params=parameters, **arguments).construct()
            data.params = {}  # subsets have their own parameters, too
            self._binned = least, data
        return self._binned[1]

    def predict(self, booster: Any, rows: NDArray[np.int64] | None = None, **parameters: Any) -> NDArray[np.float64]:
        """Predict with a LightGBM model for rows, or for all, shape (rows,)."""
        chosen = np.arange(self._rows) if rows is None else rows
        predicted = np.empty(len(chosen))
        for start in range(0, len(chosen), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            predicted[part] = booster.predict(self.take(chosen[part]), **parameters)
        return predicted


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """Widen the integers of a narrow dataset (`read_dataset`) to 64 bits for arithmetic."""
    return values.astype(np.int64, copy=False) if values.dtype.kind == "i" else values


def feature_blocks(
    engine: FeatureEngine,
    columns: Mapping[str, NDArray[Any]],
    hardware: Mapping[str, int | NDArray[np.int64]],
    names: Sequence[str] | None = None,
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield features of successive blocks of rows: index of the first row, and values of shape (rows, features)."""
    for start in range(0, len(next(iter(columns.values()))), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        profile = {name: number if isinstance(number, int) else number[part] for name, number in hardware.items()}
        yield start, engine.matrix({name: values[part] for name, values in columns.items()}, profile, names)
