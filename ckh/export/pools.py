"""A group's pool of candidates, its plans, and its features as expressions over the sizes of a problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import ModelError
from ckh.export.graph import Graph
from ckh.ranking.plan import make_plan
from ckh.ranking.pool import Kind, Pool
from ckh.ranking.symbolic import FormulaError, Number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.features.engine import Columns, Feature
    from ckh.learn.artifact import Model
    from ckh.ops.base import Kernel, Problem
    from ckh.ranking.packed import PackedForest
    from ckh.ranking.plan import Plan
    from ckh.ranking.pool import Placed


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
    pool = Pool(
        replace(spec.engine, defaults={**spec.engine.defaults, **texts}),
        spec.feature_names,
        model.hardware,
        spec.op.kernel_features(tuple(kernels), spec.encoding),
        {name: columns[name] for name in sizes},
        _nodes(forests, len(spec.feature_names)),
    )
    graph = Graph(pool.tiles)
    outputs = _outputs(pool, graph, sizes)
    return GroupPool(pool, tuple(make_plan(forest, pool) for forest in forests), graph, outputs)


def _nodes(forests: Sequence[PackedForest], inputs: int) -> Any:
    nodes = np.zeros(inputs, np.int64)
    for forest in forests:
        np.add.at(nodes, forest.families[:, 0], forest.family_nodes())
    return nodes


def _outputs(pool: Pool, graph: Graph, sizes: Sequence[str]) -> tuple[Output, ...]:
    """The features that C must compute; `sizes` are the columns of sizes, in the order of their numbers."""
    symbols = {name: graph.size(index) for index, name in enumerate(sizes)}
    outputs = []
    for index, columns in pool.symbolic(symbols, {}):
        place = pool.placed[index]
        graph.partition = place.partition
        outputs.append(Output(pool.features[index].name, place, _number(graph, pool.features[index], columns)))
    return tuple(outputs)


def _number(graph: Graph, feature: Feature, columns: Columns) -> int:
    try:
        return graph.number_of(feature.formula(columns), Number.REAL)
    except FormulaError as error:
        raise ModelError(f"the feature {feature.name}: {error.message}", error.hint) from error
