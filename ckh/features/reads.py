"""Which raw columns each feature reads, by watching its formula.

Columns are watched by name, not traced as symbols: a formula may do anything with texts and with a kernel's columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.features.engine import Array, Columns
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.features.engine import Feature, FeatureEngine


class WatchedColumns(Columns):
    """Columns that note who reads what. Formulas are expressions over arrays: what they read depends on no value.

    Attributes:
        reads: raw columns behind each column or quantity that was requested.
    """

    def __init__(self, engine: FeatureEngine, given: Mapping[str, Array]) -> None:
        super().__init__(given, engine.derived, engine.defaults)
        self.reads: dict[str, frozenset[str]] = {}
        self._open: list[set[str]] = [set()]

    def __getitem__(self, name: str) -> Array:
        """As for any columns, noted."""
        if name not in self.reads:
            self._open.append(set())
            super().__getitem__(name)
            self.reads[name] = frozenset(self._open.pop())
        self._open[-1] |= self.reads[name]
        return super().__getitem__(name)

    def raw(self, name: str) -> Array:
        """As for any columns, noted."""
        self._open[-1].add(name)
        return super().raw(name)

    def of_feature(self, feature: Feature) -> frozenset[str]:
        """The raw columns that a feature reads."""
        self._open.append(set())
        feature.formula(self)
        return frozenset(self._open.pop())


def columns_read(
    engine: FeatureEngine, features: Sequence[Feature], given: Mapping[str, Array]
) -> tuple[list[frozenset[str]], dict[str, frozenset[str]]]:
    """The raw columns that each feature reads, and those behind every quantity that they read.

    Args:
        engine: the engine of the features.
        features: those to watch.
        given: raw columns of one row.

    Raises:
        DataError: a column is missing.
    """
    columns = WatchedColumns(engine, given)
    return [columns.of_feature(feature) for feature in features], columns.reads


class Depends(StrEnum):
    """The parts that a feature's value depends on."""

    PROBLEM = "problem"
    KERNEL = "kernel"
    BOTH = "both"
    HARDWARE = "hardware"


class _AnyColumns(WatchedColumns):
    """Columns of any name, of a value that is text and a number."""

    def raw(self, name: str) -> Array:
        """A stand-in, noted."""
        self._open[-1].add(name)
        return np.array(["1"])


def dependence(engine: FeatureEngine, names: Sequence[str]) -> list[Depends]:
    """The parts that features depend on, by the raw columns that their formulas read.

    Raises:
        ModelError: the engine lacks a feature.
    """
    columns = _AnyColumns(engine, {})
    return [_kind(columns.of_feature(feature), engine.kernel_columns) for feature in engine.select(names)]


def _kind(reads: frozenset[str], of_kernel: frozenset[str]) -> Depends:
    others = {name for name in reads - of_kernel if not name.startswith("hw_")}
    if reads & of_kernel:
        return Depends.BOTH if others else Depends.KERNEL
    return Depends.PROBLEM if others else Depends.HARDWARE


def describe(engine: FeatureEngine, names: Sequence[str]) -> list[dict[str, str]]:
    """Name, unit and dependence of features, for documents."""
    chosen = zip(engine.select(names), dependence(engine, names), strict=True)
    return [{"name": feature.name, "unit": feature.unit, "depends": str(depends)} for feature, depends in chosen]
