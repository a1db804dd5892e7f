"""Which raw columns each feature reads: found out by watching formulas, not by names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.features.engine import Array, Columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.features.engine import Feature, FeatureEngine


class TracedColumns(Columns):
    """Columns that note who reads what. Formulas are expressions over arrays: what they read depends on no value.

    Attributes:
        reads: raw columns behind each column or quantity that was asked for.
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


def trace(
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
    columns = TracedColumns(engine, given)
    return [columns.of_feature(feature) for feature in features], columns.reads
