"""Tables of kernels: their fields as dictionary-encoded columns.

Kernels become objects when accessed, so that a million of them cost no more than their columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Codes = NDArray[np.intp]

K = TypeVar("K")
Axis = tuple[tuple[str, ...], list[tuple[Any, ...]]]  # names of fields, and their combinations of values

# Groups of fields, by the name of the group.
TRIPLES: dict[str, tuple[str, str, str]] = {
    **{name: (f"{name}_m", f"{name}_n", f"{name}_k") for name in ("tile", "wave", "warp_tile")},
    "vectors": ("vector_a", "vector_b", "vector_c"),
    "pads": ("pad_m", "pad_n", "pad_k"),
}
SIZES = (*TRIPLES["tile"], *TRIPLES["wave"], *TRIPLES["warp_tile"])
_TOGETHER = 1024  # kernels made at a time
_DENSE = 4  # up to this many possible combinations per kernel, distinct ones are found by marking


class KernelTable(Sequence[K], Generic[K]):
    """Complete kernels of one class."""

    def __init__(
        self, make: Callable[..., K], columns: Mapping[str, tuple[tuple[Any, ...], Codes | None]], length: int
    ) -> None:
        self._make = make
        self._columns = dict(columns)
        self._length = length
        self._objects: dict[int, K] = {}
        self.quantities: dict[Any, Any] = {}  # that rules derived from the columns
        self.read: set[str] = set()  # names of the columns that were read

    @classmethod
    def product(cls, make: Callable[..., K], axes: Sequence[Axis], **same: Any) -> KernelTable[K]:
        """Build all combinations of the rows of axes, in the order of `itertools.product`."""
        length = int(np.prod([len(rows) for _, rows in axes]))
        same = _defaults(make) | same
        columns: dict[str, tuple[tuple[Any, ...], Codes | None]] = {
            name: ((value,), None) for name, value in same.items()
        }
        after = length
        for names, rows in axes:
            after //= max(len(rows), 1)
            row_of = np.arange(length) // max(after, 1) % max(len(rows), 1)
            for name, values in zip(names, zip(*rows, strict=True) if rows else ((),) * len(names), strict=True):
                columns[name] = _coded_values(values, row_of)
        return cls(make, columns, length)

    @classmethod
    def of(cls, make: type[K], kernels: Sequence[K]) -> KernelTable[K]:
        """Build a table of existing kernels."""
        rows = np.arange(len(kernels))
        names = [field.name for field in fields(make)]  # type: ignore[arg-type] # every kernel is a dataclass
        columns = {name: _coded_values(tuple(getattr(kernel, name) for kernel in kernels), rows) for name in names}
        table = cls(make, columns, len(kernels))
        table._objects = dict(enumerate(kernels))
        return table

    def take(self, chosen: Codes) -> KernelTable[K]:
        """Select kernels by index."""
        columns = {
            name: (values, None if codes is None else codes[chosen]) for name, (values, codes) in self._columns.items()
        }
        return KernelTable(self._make, columns, len(chosen))

    def joined(self, other: KernelTable[K]) -> KernelTable[K]:
        """Append the kernels of another table of the same class."""
        if not len(other):
            return self
        columns: dict[str, tuple[tuple[Any, ...], Codes | None]] = {}
        for name, (values, codes) in self._columns.items():
            if name in TRIPLES:
                continue
            added, added_codes = other._columns[name]
            of_own = np.zeros(self._length, np.intp) if codes is None else codes
            of_other = np.zeros(other._length, np.intp) if added_codes is None else added_codes
            columns[name] = _coded_values((*values, *added), np.concatenate([of_own, of_other + len(values)]))
        return KernelTable(self._make, columns, self._length + other._length)

    def crossed(self, names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> KernelTable[K]:
        """Replace fields of each kernel by each of several combinations of values, kernel by kernel."""
        numbers = np.repeat(np.arange(self._length), len(rows))
        row_of = np.tile(np.arange(len(rows)), self._length)
        columns = {
            name: (values, None if codes is None else codes[numbers])
            for name, (values, codes) in self._columns.items()
            if name not in TRIPLES
        }
        columns |= {
            name: _coded_values(values, row_of) for name, values in zip(names, zip(*rows, strict=True), strict=True)
        }
        return KernelTable(self._make, columns, len(numbers))

    def numbers_of(self, kernels: Sequence[K], but: Sequence[str] = ()) -> NDArray[np.intp]:
        """Index of the first equal kernel for each of the given ones, ignoring the fields `but`; -1 without one."""
        names = [name for name in self._columns if name not in TRIPLES and name not in but]
        keys, sought = np.zeros(self._length, np.intp), np.zeros(len(kernels), np.intp)
        is_known = np.ones(len(kernels), np.bool_)
        for name in names:
            values, codes = self._columns[name]
            code_of = {value: code for code, value in enumerate(values)}
            own_codes = np.array([code_of.get(getattr(kernel, name), -1) for kernel in kernels], np.intp)
            is_known &= own_codes >= 0
            keys = keys * len(values) + (0 if codes is None else codes)
            sought = sought * len(values) + own_codes
        order = np.argsort(keys, kind="stable")
        place = np.searchsorted(keys[order], sought)
        number = order[np.minimum(place, max(self._length - 1, 0))] if self._length else np.zeros(len(kernels), np.intp)
        return (
            np.where(is_known & (place < self._length) & (keys[number] == sought), number, -1)
            if self._length
            else number - 1
        )

    def coded(self, name: str) -> tuple[tuple[Any, ...], Codes | None]:
        """Distinct values of a field or group of fields, and each kernel's index; None if all have the same value."""
        if name == "is_complete":
            return (True,), None
        if name not in self._columns and name in TRIPLES:
            parts = [self._columns[part] for part in TRIPLES[name]]
            combined, code = distinct([(codes, len(values)) for values, codes in parts], self._length)
            lists = ([values[i] for i in part] for (values, _), part in zip(parts, combined, strict=True))
            self._columns[name] = tuple(zip(*lists, strict=True)), code
        return self._columns[name]

    def column(self, name: str) -> NDArray[Any]:
        """Return the values of a field, shape (kernels,)."""
        values, codes = self.coded(name)
        self.read.add(name)
        if codes is None:
            return np.broadcast_to(np.array(values[0] if values else 0), self._length)
        return np.array(values)[codes]

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, number: int) -> K: ...

    @overload
    def __getitem__(self, number: slice) -> KernelTable[K]: ...

    def __getitem__(self, number: int | slice) -> K | KernelTable[K]:
        if isinstance(number, slice):
            return self.take(np.arange(self._length)[number])
        index = range(self._length)[number]
        if index not in self._objects:
            self._objects[index] = self._make(
                **{
                    name: values[0 if codes is None else codes[index]]
                    for name, (values, codes) in self._columns.items()
                    if name not in TRIPLES
                }
            )
        return self._objects[index]

    def __iter__(self) -> Iterator[K]:
        columns = {name: column for name, column in self._columns.items() if name not in TRIPLES}
        for start in range(0, self._length, _TOGETHER):
            numbers = range(start, min(start + _TOGETHER, self._length))
            decoded = [
                repeat(values[0], len(numbers))
                if codes is None
                else map(values.__getitem__, codes[numbers.start : numbers.stop].tolist())
                for values, codes in columns.values()
            ]
            for number, row in zip(numbers, zip(*decoded, strict=True), strict=True):
                if number not in self._objects:
                    self._objects[number] = self._make(**dict(zip(columns, row, strict=True)))
                yield self._objects[number]


def column_of(kernels: Sequence[Any], name: str) -> NDArray[Any]:
    """Return the values of a field of kernels, shape (kernels,)."""
    if isinstance(kernels, KernelTable):
        return kernels.column(name)
    return np.array([getattr(kernel, name) for kernel in kernels])


def distinct(
    columns: Sequence[tuple[Codes | None, int]], length: int, chosen: Codes | None = None
) -> tuple[list[list[int]], Codes]:
    """Return the codes of the distinct rows of coded columns, column by column, and the index of each row's."""
    count = length if chosen is None else len(chosen)
    key = np.zeros(count, np.intp)
    sizes = []
    for codes, size in columns:
        if codes is not None:
            key = key * size + (codes if chosen is None else codes[chosen])
        sizes.append(1 if codes is None else size)
    possible = int(np.prod(sizes, dtype=object)) if sizes else 1
    if possible <= _DENSE * count:
        is_there = np.zeros(possible, np.bool_)
        is_there[key] = True
        keys = np.flatnonzero(is_there)
        position = np.empty(possible, np.intp)
        position[keys] = np.arange(len(keys))
        code = position[key]
    else:
        keys, code = np.unique(key, return_inverse=True)
        code = code.reshape(-1)
    parts = []
    for size in reversed(sizes):
        parts.append((keys % size).tolist())
        keys = keys // size
    return parts[::-1], code


def _defaults(make: Any) -> dict[str, Any]:
    return {field.name: field.default for field in fields(make) if field.default is not MISSING}


def _coded_values(values: Sequence[Any], row_of: Codes) -> tuple[tuple[Any, ...], Codes | None]:
    numbers: dict[Any, int] = {}
    codes = [numbers.setdefault((type(value), value), len(numbers)) for value in values]
    distinct_values = tuple(value for _, value in numbers)
    return distinct_values, np.array(codes, np.intp)[row_of] if len(numbers) > 1 else None
