"""The feature engine: features are declared once, as data, and one loop over them makes a matrix.

A declaration says a feature's name, unit and its formula over columns. It drives extraction, `feature_spec.json`, the
documentation, and what ranking may treat as constant for one problem; what a feature depends on is traced.

The terms whose sum is a kernel's time: they hold for sizes that were never measured, where trees are constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import DataError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

Array = Any  # a NumPy array of any type; formulas mix floats, integers and booleans


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: `formula` maps columns to an array that broadcasts over the rows."""

    name: str
    unit: str
    formula: Callable[[Columns], Array]


class Columns:
    """Columns by name: what was given, and quantities derived from it, each computed once.

    Given numeric columns arrive as float64. Columns of one row broadcast against the others.

    Args:
        given: raw columns.
        derived: formulas of intermediate quantities, by name.
        defaults: values of raw columns that may be missing.
    """

    def __init__(
        self,
        given: Mapping[str, Array],
        derived: Mapping[str, Callable[[Columns], Array]],
        defaults: Mapping[str, float | str],
    ) -> None:
        self._given = given
        self._derived = derived
        self._defaults = defaults
        self._known: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        """The column as float64, or as the formula gives it.

        Raises:
            DataError: it is neither given, nor derived, nor has it a default.
        """
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> Array:
        if name in self._derived:
            return self._derived[name](self)
        return np.asarray(self.raw(name), dtype=np.float64)

    def raw(self, name: str) -> Array:
        """A given column as it is, or its default.

        Raises:
            DataError: it is not given and has no default.
        """
        if name in self._given:
            return np.atleast_1d(np.asarray(self._given[name]))
        if name in self._defaults:
            return np.array([self._defaults[name]])
        raise DataError(
            f"missing column {name!r}",
            "convert the data again, or name the column so",
            code="missing-column",
        )

    def codes(self, name: str, table: Mapping[str, float], otherwise: float) -> Array:
        """A text column as numbers; `otherwise` stands for text that the table lacks."""
        values, inverse = np.unique(self.raw(name).astype(str), return_inverse=True)
        return np.array([table.get(value, otherwise) for value in values], dtype=np.float64)[inverse]


@dataclass(frozen=True, slots=True)
class FeatureEngine:
    """The features of an operation.

    Attributes:
        op_type: the operation.
        features: all declarations, in order; a model uses those that its spec names.
        categorical: names of the features that are categories.
        derived: formulas of intermediate quantities.
        defaults: values of columns that may be missing.
        kernel_columns: the raw columns that are a kernel's; the others are a problem's, or the hardware's (`hw_…`).
        encoding_version: changes when a feature's values change under the same name.
    """

    op_type: str
    features: tuple[Feature, ...]
    categorical: tuple[str, ...]
    derived: Mapping[str, Callable[[Columns], Array]]
    defaults: Mapping[str, float | str]
    kernel_columns: frozenset[str] = frozenset()
    encoding_version: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all features, in order."""
        return tuple(feature.name for feature in self.features)

    def select(self, names: Sequence[str]) -> tuple[Feature, ...]:
        """The features of these names, in this order.

        Raises:
            ModelError: the engine lacks some.
        """
        known = {feature.name: feature for feature in self.features}
        if missing := [name for name in names if name not in known]:
            raise ModelError(f"unknown features {', '.join(missing)}", "train the model anew", code="unknown-feature")
        return tuple(known[name] for name in names)

    def matrix(
        self, columns: Mapping[str, Array], hardware: Mapping[str, Array], names: Sequence[str] | None = None
    ) -> NDArray[np.float64]:
        """Feature values, shape (rows, features).

        Args:
            columns: raw columns by name, each of one row or of all rows.
            hardware: the hardware profile by name (`schema.HARDWARE`), numbers or one value per row.
            names: which features, in this order; all of them by default.

        Raises:
            DataError: a column that a feature needs is missing.
            ModelError: a name is unknown.
        """
        chosen = self.features if names is None else self.select(names)
        return self._values(columns, hardware, [feature.formula for feature in chosen])

    def quantities(
        self, columns: Mapping[str, Array], hardware: Mapping[str, Array], names: Sequence[str]
    ) -> NDArray[np.float64]:
        """Derived quantities or raw columns by name, shape (rows, names).

        Raises:
            DataError: one is neither derived nor given.
        """
        return self._values(columns, hardware, [lambda lazy, name=name: lazy[name] for name in names])  # type: ignore[misc]

    def _values(
        self,
        columns: Mapping[str, Array],
        hardware: Mapping[str, Array],
        formulas: Sequence[Callable[[Columns], Array]],
    ) -> NDArray[np.float64]:
        given = {**columns, **{f"hw_{name}": value for name, value in hardware.items()}}
        lazy = Columns(given, self.derived, self.defaults)
        rows = max((len(np.atleast_1d(column)) for column in columns.values()), default=0)
        matrix = np.empty((len(formulas), rows))
        for row, formula in zip(matrix, formulas, strict=True):
            row[:] = formula(lazy)
        by_row: NDArray[np.float64] = matrix.T
        return by_row


@dataclass(frozen=True, slots=True)
class TimeLaw:
    """Terms whose sum, each times a coefficient of the kernel that is not negative, is about the kernel's time.

    Attributes:
        terms: names of columns that an engine derives, none ever negative; a constant is always one more.
        shared: names of columns of kernels, none negative, by which coefficients of like kernels differ: of a family
            each is about a sum of these, each times a factor that is not negative; a constant is always one more.
        varied: problems of other sizes around given ones: raw columns of problems by name, shape (problems,), and a
            source of random numbers -> the same columns.
    """

    terms: tuple[str, ...]
    shared: tuple[str, ...]
    varied: Callable[[Mapping[str, NDArray[Any]], np.random.Generator], dict[str, NDArray[Any]]]
