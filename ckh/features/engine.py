"""The feature engine: features are declared once, as data, and one loop computes the matrix.

A declaration has a feature's name, unit and formula over columns. Extraction, `feature_spec.json`, the documentation
and the partial evaluation in ranking use it; the dependencies of a feature are traced.

Raw columns that each feature reads are recorded by name while its formula runs, not traced as symbols: a formula may
process strings and kernel columns in any way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import DataError, ModelError
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Formula = Callable[["Columns"], Any]

Array = Any  # a NumPy array of any type: formulas mix floats, integers and booleans


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: `formula` maps columns to an array that broadcasts over the rows."""

    name: str
    unit: str
    formula: Callable[[Columns], Array]


class Columns:
    """Columns by name: given ones, and quantities derived from them, each computed once.

    Given numeric columns are converted to float64. Columns of one row are broadcast.
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
        """Return the column as float64, or the result of its formula."""
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> Array:
        if name in self._derived:
            return self._derived[name](self)
        return np.asarray(self.raw(name), dtype=np.float64)

    def raw(self, name: str) -> Array:
        """Return a raw column, or its default."""
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
        """Encode a string column as numbers; `otherwise` is used for strings not in the table."""
        texts, inverse = np.unique(self.raw(name).astype(str), return_inverse=True)
        return np.array([table.get(text, otherwise) for text in texts], dtype=np.float64)[inverse]


@dataclass(frozen=True, slots=True)
class FeatureEngine:
    """The features of an operation."""

    op_type: str
    features: tuple[Feature, ...]  # all declarations, in order; a model uses those named in its spec
    categorical: tuple[str, ...]  # names of the categorical features
    derived: Mapping[str, Callable[[Columns], Array]]  # formulas of intermediate quantities
    defaults: Mapping[str, float | str]  # values of columns that may be missing
    kernel_columns: frozenset[str] = frozenset()
    """Raw columns of kernels; the others are of problems, or of the hardware (`hw_…`)."""
    encodings: tuple[int, ...] = (0,)
    """Versions of the encoding that models may have, ckh's own first: incremented when the values of a feature change
    without a change of its name."""
    further: tuple[Feature, ...] = ()  # features that only models of other programs name

    def extended(
        self,
        op_type: str,
        features: tuple[Feature, ...],
        categorical: tuple[str, ...] = (),
        derived: Mapping[str, Callable[[Columns], Array]] = MappingProxyType({}),
        kernel_columns: frozenset[str] = frozenset(),
    ) -> FeatureEngine:
        """Return the features of another operation: these, followed by further ones; `derived` may replace formulas."""
        return replace(
            self,
            op_type=op_type,
            features=(*self.features, *features),
            categorical=(*self.categorical, *categorical),
            derived={**self.derived, **derived},
            kernel_columns=self.kernel_columns | kernel_columns,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all features, in order."""
        return tuple(feature.name for feature in self.features)

    def select(self, names: Sequence[str]) -> tuple[Feature, ...]:
        """Select features by name, in this order."""
        known = {feature.name: feature for feature in (*self.features, *self.further)}
        if missing := [name for name in names if name not in known]:
            raise ModelError(f"unknown features {', '.join(missing)}", "train the model again", code="unknown-feature")
        return tuple(known[name] for name in names)

    def matrix(
        self, columns: Mapping[str, Array], hardware: Mapping[str, Array], names: Sequence[str] | None = None
    ) -> NDArray[np.float64]:
        """Compute feature values, shape (rows, features)."""
        chosen = self.features if names is None else self.select(names)
        return self._values(columns, hardware, [feature.formula for feature in chosen])

    def quantities(
        self, columns: Mapping[str, Array], hardware: Mapping[str, Array], names: Sequence[str]
    ) -> NDArray[np.float64]:
        """Compute derived quantities or raw columns by name, shape (rows, names)."""
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


def raw(name: str) -> Formula:
    """A column or quantity, unchanged."""
    return lambda c: c[name]


def log2_of(name: str) -> Formula:
    """Base-2 logarithm of a quantity, which is raised to at least 1."""
    return lambda c: np.log2(np.maximum(c[name], 1))


def product(*names: str) -> Formula:
    """The product of quantities."""

    def formula(c: Columns) -> Any:
        quantity = c[names[0]]
        for name in names[1:]:
            quantity = quantity * c[name]
        return quantity

    return formula


def ratio(above: str, below: str) -> Formula:
    """Quotient of quantities; the divisor is raised to at least 1."""
    return lambda c: c[above] / np.maximum(c[below], 1)


def pieces(size: str, piece: str) -> Formula:
    """Number of pieces that cover a size."""
    return lambda c: np.ceil(c[size] / np.maximum(c[piece], 1))


def fill(size: str, piece: str) -> Formula:
    """Utilization of whole pieces by a size."""
    return lambda c: c[size] / (np.ceil(c[size] / np.maximum(c[piece], 1)) * np.maximum(c[piece], 1))


def remainder(size: str, piece: str) -> Formula:
    """Part of a size beyond whole pieces."""
    return lambda c: np.mod(c[size], np.maximum(c[piece], 1))


class WatchedColumns(Columns):
    """Columns that record reads. Formulas are expressions over arrays: what they read does not depend on values."""

    def __init__(self, engine: FeatureEngine, given: Mapping[str, Array]) -> None:
        super().__init__(given, engine.derived, engine.defaults)
        self.reads: dict[str, frozenset[str]] = {}  # raw columns that a column or quantity reads
        self._open: list[set[str]] = [set()]

    def __getitem__(self, name: str) -> Array:
        """Return a column and record the read."""
        if name not in self.reads:
            self._open.append(set())
            super().__getitem__(name)
            self.reads[name] = frozenset(self._open.pop())
        self._open[-1] |= self.reads[name]
        return super().__getitem__(name)

    def raw(self, name: str) -> Array:
        """Return a raw column and record the read."""
        self._open[-1].add(name)
        return super().raw(name)

    def of_feature(self, feature: Feature) -> frozenset[str]:
        """Return the raw columns that a feature reads."""
        self._open.append(set())
        feature.formula(self)
        return frozenset(self._open.pop())


def columns_read(
    engine: FeatureEngine, features: Sequence[Feature], given: Mapping[str, Array]
) -> tuple[list[frozenset[str]], dict[str, frozenset[str]]]:
    """Raw columns that each feature reads, and those read by every quantity that they use."""
    columns = WatchedColumns(engine, given)
    return [columns.of_feature(feature) for feature in features], columns.reads


class Depends(StrEnum):
    """Kind of the columns that a feature is computed from."""

    PROBLEM = "problem"
    KERNEL = "kernel"
    BOTH = "both"
    HARDWARE = "hardware"


class _AnyColumns(WatchedColumns):
    """Columns of any name, with a placeholder value that is both text and a number."""

    def raw(self, name: str) -> Array:
        """Return a placeholder and record the read."""
        self._open[-1].add(name)
        return np.array(["1"])


def dependence(engine: FeatureEngine, names: Sequence[str]) -> list[Depends]:
    """Dependence of features on problem, kernel and hardware, by the raw columns that their formulas read."""
    columns = _AnyColumns(engine, {})
    return [_kind(columns.of_feature(feature), engine.kernel_columns) for feature in engine.select(names)]


def _kind(reads: frozenset[str], of_kernel: frozenset[str]) -> Depends:
    of_problem = {name for name in reads - of_kernel if not name.startswith("hw_")}
    if reads & of_kernel:
        return Depends.BOTH if of_problem else Depends.KERNEL
    return Depends.PROBLEM if of_problem else Depends.HARDWARE
