"""Formulas over columns as expressions: what NumPy would compute is written down instead, each part once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.export.operations import ALWAYS_REAL, CASTS, ON_TRUTHS, OPERATIONS
from ckh.ranking.symbolic import FormulaError, Number, Symbol, constant, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression.

    Attributes:
        kind: what kind of number it is.
        code: C, with places for the operands; or what a leaf, size or literal is.
        operands: the nodes that it is made of, as numbers in the graph.
        by_tile: whether it differs by tile.
        partition: the partition by whose classes of variants it differs; -1 if by none.
    """

    kind: Number
    code: str
    operands: tuple[int, ...] = ()
    by_tile: bool = False
    partition: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """Values that no size enters: one, or one for each tile, class, or class and tile.

    Attributes:
        values: shape (classes or 1, tiles or 1).
    """

    values: NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Graph:
    """All expressions over a pool: the writer of symbols that stand for nodes.

    Attributes:
        tiles: number of tiles.
        partition: the partition whose classes are the rows of arrays that have several.
        nodes: every distinct node, after its operands.
        leaves: every distinct leaf.
    """

    tiles: int
    partition: int = -1
    nodes: list[Node] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    _numbers: dict[Node, int] = field(default_factory=dict)
    _leaf_nodes: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def size(self, index: int) -> Symbol:
        """The size of this number of the problem."""
        return self._symbol(self._add(Node(Number.REAL, f"size[{index}]")))

    def apply(self, name: str, operands: Sequence[Any]) -> Symbol:
        """As `OPERATIONS` says."""
        kind = Number.TRUTH if name in ON_TRUTHS else max(map(kind_of, operands))
        if (name, kind) not in OPERATIONS and name in ALWAYS_REAL:
            kind = Number.REAL
        if (name, kind) not in OPERATIONS:
            raise FormulaError(f"NumPy's {name} of a problem's sizes cannot be written in C")
        code, result = OPERATIONS[name, kind]
        return self._symbol(self._joined(result, code, [self.number_of(operand, kind) for operand in operands]))

    def where(self, condition: Any, yes: Any, no: Any) -> Symbol:
        """A choice between numbers of the kind that both can be."""
        kind = max(kind_of(yes), kind_of(no))
        chosen = [self.number_of(one, kind) for one in (yes, no)]
        code, result = OPERATIONS["where", kind]
        return self._symbol(self._joined(result, code, [self.number_of(condition, Number.TRUTH), *chosen]))

    def cast(self, symbol: Symbol, kind: Number) -> Symbol:
        """As `CASTS` says."""
        return self._symbol(self.number_of(symbol, kind))

    def number_of(self, value: Any, kind: Number) -> int:
        """The node of a symbol, array or number as a kind of number.

        Raises:
            FormulaError: it cannot be written in C.
        """
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            return self._add(Node(kind, _literal(value, kind)))
        number = value.number if isinstance(value, Symbol) else self._cast(self._leaf(value), kind_of(value))
        return self._cast(number, kind)

    def _symbol(self, number: int) -> Symbol:
        return Symbol(self, number, self.nodes[number].kind)

    def _add(self, node: Node) -> int:
        """The number of a node, which it gets if it has none."""
        if node not in self._numbers:
            self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return self._numbers[node]

    def _cast(self, number: int, kind: Number) -> int:
        own = self.nodes[number].kind
        return number if own == kind else self._joined(kind, CASTS[own, kind], [number])

    def _joined(self, kind: Number, code: str, numbers: Sequence[int]) -> int:
        parts = [self.nodes[number] for number in numbers]
        partitions = {part.partition for part in parts} - {-1}
        assert len(partitions) <= 1, "a formula is computed for one partition at a time"
        by_tile = any(part.by_tile for part in parts)
        return self._add(Node(kind, code, tuple(numbers), by_tile, max(partitions, default=-1)))

    def _leaf(self, value: Any) -> int:
        """The node of an array, as real numbers."""
        values = constant(value)
        classes, tiles = values.shape
        if tiles not in {1, self.tiles} or (classes > 1 and self.partition < 0):
            raise FormulaError(f"an array of shape {values.shape} cannot be written in C")
        by_tile, partition = tiles > 1, self.partition if classes > 1 else -1
        key = (values.shape, values.tobytes(), partition)
        if key not in self._leaf_nodes:
            at = "at" if by_tile else "0"
            if partition >= 0:
                at = "of_class * all + at" if by_tile else "of_class"
            code = f"leaf[{len(self.leaves)}][{at}]"
            self._leaf_nodes[key] = self._add(Node(Number.REAL, code, (), by_tile, partition))
            self.leaves.append(Leaf(values))
        return self._leaf_nodes[key]


def _literal(value: float, kind: Number) -> str:
    if kind != Number.REAL:
        return str(int(value))
    if math.isnan(value):
        return "NAN"
    return repr(float(value)) if math.isfinite(value) else ("INFINITY" if value > 0 else "-INFINITY")
