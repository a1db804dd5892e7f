"""Formulas over columns as a graph: what NumPy would compute is recorded instead, each part once."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.ranking.layout import numbers
from ckh.ranking.operations import ALWAYS_REAL, ON_TRUTHS, Number, operations
from ckh.ranking.symbolic import FormulaError, Recorder, Symbol, constant, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a formula.

    Attributes:
        kind: what kind of number it is.
        operation: what is computed, by its number.
        operands: the nodes that it is computed of; of a size, leaf or literal: which one it is.
        by_tile: whether it differs by tile.
        partition: the partition by whose classes of variants it differs; -1 if by none.
    """

    kind: Number
    operation: int
    operands: tuple[int, ...]
    by_tile: bool = False
    partition: int = -1

    @property
    def is_leaf(self) -> bool:
        """True if it is not computed of other nodes."""
        return self.operation < len(numbers("LEAVES"))


@dataclass(slots=True, eq=False)
class Graph(Recorder):
    """All formulas over a pool.

    Attributes:
        tiles: number of tiles.
        partition: the partition whose classes are the rows of arrays that have several.
        nodes: every distinct node, after its operands.
        leaves: every distinct array of values that no size changes, shape (classes or 1, tiles or 1).
        literals: real numbers, by their bytes.
        integers: integers.
    """

    tiles: int
    partition: int = -1
    nodes: list[Node] = field(default_factory=list)
    leaves: list[NDArray[np.float64]] = field(default_factory=list)
    literals: dict[bytes, int] = field(default_factory=dict)
    integers: dict[int, int] = field(default_factory=dict)
    _numbers: dict[Node, int] = field(default_factory=dict)
    _leaf_nodes: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def size(self, index: int) -> Symbol:
        """The size of this number of the problem."""
        return self._symbol(self._add(self._leaf_node("SIZE", Number.REAL, index)))

    def apply(self, name: str, operands: Sequence[Any]) -> Symbol:
        """Apply NumPy's function of a name to symbols, arrays and numbers.

        Raises:
            FormulaError: there is no such operation.
        """
        kind = Number.TRUTH if name in ON_TRUTHS else max(map(kind_of, operands))
        if (name, (kind,) * len(operands)) not in operations() and name in ALWAYS_REAL:
            kind = Number.REAL
        return self._computed(name, [self.number_of(operand, kind) for operand in operands])

    def where(self, condition: Any, yes: Any, no: Any) -> Symbol:
        """A choice between numbers of the kind that both can be."""
        kind = max(kind_of(yes), kind_of(no))
        chosen = [self.number_of(one, kind) for one in (yes, no)]
        return self._computed("where", [self.number_of(condition, Number.TRUTH), *chosen])

    def cast(self, symbol: Symbol, kind: Number) -> Symbol:
        """The same as another kind of number."""
        return self._symbol(self.number_of(symbol, kind))

    def number_of(self, value: Any, kind: Number) -> int:
        """The node of a symbol, array or number as a kind of number.

        Raises:
            FormulaError: it is nothing that a program can compute.
        """
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            return self._literal(value, kind)
        number = value.node if isinstance(value, Symbol) else self._cast(self._leaf(value), kind_of(value))
        return self._cast(number, kind)

    def _symbol(self, number: int) -> Symbol:
        return Symbol(self, number, self.nodes[number].kind)

    def _add(self, node: Node) -> int:
        """The number of a node, which it gets if it has none."""
        if node not in self._numbers:
            self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return self._numbers[node]

    def _leaf_node(self, name: str, kind: Number, which: int, **differs: Any) -> Node:
        return Node(kind, numbers("LEAVES")[name], (which,), **differs)

    def _literal(self, value: float, kind: Number) -> int:
        if kind == Number.REAL:
            which = self.literals.setdefault(struct.pack("<d", value), len(self.literals))
            return self._add(self._leaf_node("REAL", kind, which))
        return self._add(self._leaf_node("INTEGER", kind, self.integers.setdefault(int(value), len(self.integers))))

    def _cast(self, number: int, kind: Number) -> int:
        own = self.nodes[number].kind
        return number if own == kind else self._computed(kind.name.lower(), [number]).node

    def _computed(self, name: str, operands: Sequence[int]) -> Symbol:
        parts = [self.nodes[number] for number in operands]
        found = operations().get((name, tuple(part.kind for part in parts)))
        if found is None:
            raise FormulaError(f"NumPy's {name} of such numbers is not an operation of programs")
        partitions = {part.partition for part in parts} - {-1}
        assert len(partitions) <= 1, "a formula is computed for one partition at a time"
        by_tile = any(part.by_tile for part in parts)
        return self._symbol(self._add(Node(found[1], found[0], tuple(operands), by_tile, max(partitions, default=-1))))

    def _leaf(self, value: Any) -> int:
        """The node of an array, as real numbers."""
        values = constant(value)
        classes, tiles = values.shape
        if tiles not in {1, self.tiles} or (classes > 1 and self.partition < 0):
            raise FormulaError(f"an array of shape {values.shape} fits no pool")
        partition = self.partition if classes > 1 else -1
        key = (values.shape, values.tobytes(), partition)
        if key not in self._leaf_nodes:
            which, differs = len(self.leaves), {"by_tile": tiles > 1, "partition": partition}
            self._leaf_nodes[key] = self._add(self._leaf_node("LEAF", Number.REAL, which, **differs))
            self.leaves.append(values)
        return self._leaf_nodes[key]
