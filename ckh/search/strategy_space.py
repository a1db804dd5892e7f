"""A discrete space: the legal configurations of some parameters, their neighbourhoods, and lookup by values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter and its values, ascending; numbers are ordered, all other values (also bool) are categories."""

    name: str
    values: tuple[Any, ...]
    is_ordered: bool


class Space:
    """The legal configurations, numbered from 0 in the given order, as indices of values (`codes`)."""

    def __init__(self, names: Sequence[str], columns: Sequence[ArrayLike]) -> None:
        arrays = [np.asarray(column) for column in columns]
        if not arrays or len(arrays) != len(names) or len(set(names)) != len(names):
            raise DataError(
                "a search space needs one column for each of its parameters, whose names differ", code="bad-column"
            )
        if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 1 or not len(arrays[0]):
            raise DataError("the columns of a search space need one length, at least 1", code="bad-column")
        parameters = []
        codes = np.empty((len(arrays[0]), len(arrays)), dtype=np.int32)
        for i, (name, array) in enumerate(zip(names, arrays, strict=True)):
            values, codes[:, i] = _encode(name, array)
            parameters.append(Parameter(name, values, np.issubdtype(array.dtype, np.number)))
        codes.flags.writeable = False
        self.parameters = tuple(parameters)
        self.codes: NDArray[np.int32] = codes
        self._value_codes = [{value: code for code, value in enumerate(p.values)} for p in parameters]
        self._index = {row.tobytes(): index for index, row in enumerate(codes)}
        self._is_ordered = np.array([parameter.is_ordered for parameter in parameters])
        self._steps = np.array([max(len(parameter.values) - 1, 1) for parameter in parameters], dtype=np.float64)
        if len(self._index) < len(codes):
            raise DataError("the search space has duplicate configurations", code="duplicate-rows")

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in order."""
        return tuple(parameter.name for parameter in self.parameters)

    def config(self, index: int) -> dict[str, Any]:
        """Each parameter's value in a configuration."""
        row = self.codes[index]
        return {parameter.name: parameter.values[code] for parameter, code in zip(self.parameters, row, strict=True)}

    def find(self, config: Mapping[str, Any]) -> int | None:
        """Index of a configuration, or None if it is not legal."""
        if set(config) != set(self.names):
            raise DataError(f"a configuration needs the parameters {', '.join(self.names)}", code="bad-column")
        codes = [known.get(config[name]) for name, known in zip(self.names, self._value_codes, strict=True)]
        return None if None in codes else self.find_codes(np.array(codes, dtype=np.int32))

    def find_codes(self, codes: NDArray[np.int32]) -> int | None:
        """Index of a configuration given as value indices, shape (parameters,), or None if it is not legal."""
        return self._index.get(np.ascontiguousarray(codes, dtype=np.int32).tobytes())

    def neighbours(self, index: int) -> NDArray[np.int64]:
        """Legal configurations that differ from one in one parameter, ascending."""
        return np.flatnonzero(np.count_nonzero(self.codes != self.codes[index], axis=1) == 1)

    def distances(self, codes: NDArray[np.int32]) -> NDArray[np.float64]:
        """Distance of every configuration from one, legal or not.

        The first term is the number of different parameters. The second term, the share of the value range summed over
        ordered parameters, is less than one difference.
        """
        step = np.abs(self.codes - codes)
        share = np.where(self._is_ordered, step / self._steps, 0.0).sum(axis=1)
        return np.asarray(np.count_nonzero(step, axis=1) + share / (len(self.parameters) + 1))


def _encode(name: str, array: NDArray[Any]) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"parameter {name} lacks a value in some configuration", code="bad-column")
    try:
        values, codes = np.unique(array, return_inverse=True)
    except TypeError as error:
        raise DataError(f"the values of parameter {name} are of several kinds or missing", code="bad-column") from error
    return tuple(values.tolist()), codes
