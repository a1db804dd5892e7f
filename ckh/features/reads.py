"""Raw columns that each feature reads, recorded while its formula runs.

Columns are recorded by name, not traced as symbols: a formula may process strings and kernel columns in any way.
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
    """What a feature's value depends on."""

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
