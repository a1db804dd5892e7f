"""Evaluate a model's forests on pools of kernels, prepared once per pool."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ckh.features.engine import Feature
from ckh.kernels.pools import TIMED_NAME, read_timed
from ckh.kernels.table import KernelTable
from ckh.ranking.evaluator import Ranker
from ckh.ranking.packed import with_input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.features.engine import FeatureEngine
    from ckh.learn.models.spec import ModelSpec
    from ckh.ops.base import Kernel, Problem
    from ckh.ranking.packed import PackedForest

LEAD_FEATURE = "not_measured"
_POOLS = 64  # prepared pools to cache
_Value = TypeVar("_Value")


class Remembered(Generic[_Value]):
    """Thread-safe LRU cache."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Any, _Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> _Value | None:
        """The value of a hashable key, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Any, value: _Value) -> None:
        """Store a value; evicts the least recently used."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)


@dataclass(frozen=True, slots=True)
class MeasuredLead:
    """The lead in score that kernels need over those with times in the training data; 0: none."""

    lead: float
    timed: frozenset[Any]

    @classmethod
    def read(cls, folder: Path, spec: ModelSpec) -> MeasuredLead:
        """Read the lead of a model; none for another architecture than the measured one."""
        path = folder / TIMED_NAME
        timed = read_timed(path, spec.op.kernels.parse) if path.is_file() else None
        if timed is None or timed.arch != spec.arch:
            return cls(0.0, frozenset())
        return cls(timed.lead, frozenset(timed.kernels))

    def before(self, forest: PackedForest, *, is_added: bool) -> PackedForest:
        """Put its input before a forest's inputs, with a tree that subtracts it from the scores (`is_added`)."""
        return with_input(forest, LEAD_FEATURE, is_added=is_added, step=-self.lead) if self.lead else forest

    def of(self, kernels: Sequence[Kernel]) -> NDArray[np.float64]:
        """Lead that each kernel needs, shape (kernels,)."""
        lead = np.full(len(kernels), self.lead)
        if isinstance(kernels, KernelTable):
            known = kernels.numbers_of(list(self.timed))
            lead[known[known >= 0]] = 0.0
        else:
            lead[[number for number, kernel in enumerate(kernels) if kernel in self.timed]] = 0.0
        return lead


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """Inputs of a model's scores."""

    engine: FeatureEngine
    names: tuple[str, ...]
    of_kernels: Callable[[Sequence[Kernel], Problem], Mapping[str, Any]]  # for problems of the kind of this one
    of_problem: Callable[[Problem], Mapping[str, Any]]
    further_sizes: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: ModelSpec) -> ModelInputs:
        """Inputs of a model of the operation's features."""
        return cls(
            engine=spec.engine,
            names=spec.feature_names,
            of_kernels=lambda kernels, _: spec.op.kernels.features(kernels, spec.encoding),
            of_problem=lambda problem: spec.op.problems.features([problem]),
        )

    def with_lead(self, lead: MeasuredLead) -> ModelInputs:
        """Put the lead that each kernel needs before the other inputs, if there is one."""
        if not lead.lead:
            return self
        feature = Feature(LEAD_FEATURE, "score", lambda c: c[LEAD_FEATURE])
        return replace(
            self,
            engine=self.engine.extended(self.engine.op_type, (feature,), kernel_columns=frozenset({LEAD_FEATURE})),
            names=(LEAD_FEATURE, *self.names),
            of_kernels=lambda kernels, example: {**self.of_kernels(kernels, example), LEAD_FEATURE: lead.of(kernels)},
        )


class PoolScorer:
    """Scores pools of kernels for problems."""

    def __init__(
        self,
        spec: ModelSpec,
        inputs: Callable[[], ModelInputs],
        hardware: Mapping[str, Any],
        targets: Sequence[str],
        forest: Callable[[str], PackedForest],
    ) -> None:
        self._spec = spec
        self._inputs = inputs
        self._hardware = hardware
        self._targets = tuple(targets)
        self._forest = forest
        # Keyed by id; the stored pool keeps the id from being reused.
        self._rankers: Remembered[tuple[Sequence[Kernel], Ranker]] = Remembered(_POOLS)

    def predictions(
        self, problems: Sequence[Problem], pool: Sequence[Kernel], targets: int | None = None
    ) -> NDArray[np.float64]:
        """Predict targets of each kernel, shape (targets, problems, kernels)."""
        columns = self._spec.op.problems.features(problems)
        return self._ranker(pool, columns, problems[0]).scores(columns, targets)

    def some(
        self, problems: Sequence[Problem], pool: Sequence[Kernel], kernels: NDArray[np.intp], target: int
    ) -> NDArray[np.float64]:
        """Predict a target of selected kernels of each problem, identical to `predictions`."""
        columns = self._spec.op.problems.features(problems)
        return self._ranker(pool, columns, problems[0]).some(columns, kernels, target)

    def _ranker(self, pool: Sequence[Kernel], columns: Mapping[str, Any], example: Problem) -> Ranker:
        known = self._rankers.get(id(pool))
        if known is not None:
            return known[1]
        inputs = self._inputs()
        made = Ranker(
            [self._forest(target) for target in self._targets],
            inputs.engine,
            inputs.names,
            self._hardware,
            inputs.of_kernels(pool, example),
            {name: column[:1] for name, column in columns.items()},
            [target in self._spec.log_targets for target in self._targets],
        )
        self._rankers.put(id(pool), (pool, made))
        return made
