"""A group's pool of candidates, its plans, and its features as expressions over the sizes of a problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import ModelError
from ckh.export.operations import Number
from ckh.export.symbols import Graph, SymbolicColumns
from ckh.rank.grid import GridColumns, Source
from ckh.rank.plan import make_plan
from ckh.rank.pool import Kind, Pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.features.engine import Columns, Feature
    from ckh.learn.artifact import Model
    from ckh.ops.base import Kernel, Problem
    from ckh.rank.packed import PackedForest
    from ckh.rank.plan import Plan
    from ckh.rank.pool import Placed


@dataclass(frozen=True, slots=True)
class Output:
    """A feature's expression.

    Attributes:
        feature: its name.
        place: where its values go: a constant, or rows over the tiles.
        number: its node in the graph.
    """

    feature: str
    place: Placed
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class GroupPool:
    """What is exported of a pool.

    Attributes:
        pool: the pool.
        plans: how each forest ranks it.
        graph: the expressions that `outputs` point into.
        outputs: the features that sizes enter, or that are one number.
    """

    pool: Pool
    plans: tuple[Plan, ...]
    graph: Graph
    outputs: tuple[Output, ...]

    @property
    def constants(self) -> int:
        """How many features are one number for a problem."""
        return sum(output.place.kind == Kind.CONSTANT for output in self.outputs)

    @property
    def rows(self) -> int:
        """How many rows over the tiles a problem has."""
        return sum(output.place.rows for output in self.outputs if output.place.kind != Kind.CONSTANT)

    @property
    def classes(self) -> tuple[int, ...]:
        """Number of classes of each partition of the variants."""
        return tuple(int(row.max()) + 1 for row in self.pool.partitions)


def make_pool(model: Model, forests: Sequence[PackedForest], kernels: Sequence[Kernel], example: Problem) -> GroupPool:
    """Prepare the kernels of a group for a model's forests.

    Args:
        model: the model.
        forests: its forests that are exported.
        kernels: the kernels of the group.
        example: any problem of it. What it has besides sizes, all problems of the group have.

    Raises:
        ModelError: a feature cannot be exported.
    """
    spec = model.spec
    columns = spec.op.problem_features([example])
    sizes = [name for name in spec.op.sizes if name in columns]
    texts = {name: np.asarray(column).ravel()[0] for name, column in columns.items() if name not in sizes}
    pool = _TracedPool(
        replace(spec.engine, defaults={**spec.engine.defaults, **texts}),
        spec.feature_names,
        model.hardware,
        spec.op.kernel_features(tuple(kernels), spec.encoding),
        {name: columns[name] for name in sizes},
        _nodes(forests, len(spec.feature_names)),
    )
    graph, outputs = pool.trace(sizes)
    return GroupPool(pool, tuple(make_plan(forest, pool) for forest in forests), graph, outputs)


def _nodes(forests: Sequence[PackedForest], inputs: int) -> Any:
    nodes = np.zeros(inputs, np.int64)
    for forest in forests:
        np.add.at(nodes, forest.families[:, 0], forest.family_nodes())
    return nodes


class _TracedPool(Pool):
    """A pool whose formulas can be written down instead of being computed."""

    def trace(self, sizes: Sequence[str]) -> tuple[Graph, tuple[Output, ...]]:
        """Expressions of the features that C must compute.

        Args:
            sizes: the columns of sizes, in the order of their numbers.

        Raises:
            ModelError: a formula cannot be exported.
        """
        graph = Graph(self.tiles)
        symbols = {name: graph.size(index) for index, name in enumerate(sizes)}
        problem = SymbolicColumns(symbols, self._hardware, self._engine.derived, self._engine.defaults)
        grids = self._grids(problem)
        outputs = []
        for feature, place in zip(self._features, self.placed, strict=True):
            if place.kind == Kind.CONSTANT or place.is_dynamic:
                columns = problem if place.kind == Kind.CONSTANT else grids[place.partition]
                graph.partition = place.partition
                outputs.append(Output(feature.name, place, _number(graph, feature, columns)))
        return graph, tuple(outputs)

    def _grids(self, problem: Columns) -> Mapping[int, Columns]:
        """Columns over tiles, by partition, -1 standing for none; as `Pool` makes them for numbers."""
        of_problem = Source(problem, self._kernel_columns, None)
        of_tile = Source(self._tile_columns, self._needed | self._variant_names, (-1,))
        pure = GridColumns(self._engine, self._reads, [of_problem, of_tile])
        shared = Source(pure, self._variant_names, None)
        grids: dict[int, Columns] = {-1: pure}
        for partition, columns in self._classes.values():
            of_class = Source(columns, self._needed | self._tile_names, (-1, 1))
            grids[partition] = GridColumns(self._engine, self._reads, [of_problem, of_tile, of_class, shared])
        return grids


def _number(graph: Graph, feature: Feature, columns: Columns) -> int:
    try:
        return graph.number_of(feature.formula(columns), Number.REAL)
    except ModelError as error:
        raise ModelError(f"the feature {feature.name}: {error.message}", error.hint) from error
