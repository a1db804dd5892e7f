"""Programs that C runs on a problem's sizes: features that depend on them, checks, and rules.

Formulas are traced once (`trace_program`); `write_program` writes a program to a model file as nodes for
csrc/ckh_interpret.c. The Python path, quick answers and exports all run it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.ranking.layout import ALWAYS_REAL, ON_TRUTHS, Number, numbers, operations, record
from ckh.ranking.pool import Kind
from ckh.ranking.symbolic import FormulaError, Recorder, Symbol, constant, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.ranking.layout import FileWriter
    from ckh.ranking.pool import Placed, Pool

    Rows = list[tuple[int, ...]]
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a formula."""

    kind: Number
    operation: int
    operands: tuple[int, ...]
    by_tile: bool = False
    partition: int = -1

    @property
    def is_leaf(self) -> bool:
        """True if it has no operand nodes."""
        return self.operation < len(numbers("LEAVES"))


@dataclass(slots=True, eq=False)
class Graph(Recorder):
    """All formulas over a pool."""

    tiles: int
    partition: int = -1
    nodes: list[Node] = field(default_factory=list)
    leaves: list[NDArray[np.float64]] = field(default_factory=list)
    literals: dict[bytes, int] = field(default_factory=dict)
    integers: dict[int, int] = field(default_factory=dict)
    _numbers: dict[Node, int] = field(default_factory=dict)
    _leaf_nodes: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def size(self, index: int) -> Symbol:
        """Return the symbol of a problem's size, given its index."""
        return self._symbol(self._add(self._leaf_node("SIZE", Number.REAL, index)))

    def apply(self, name: str, operands: Sequence[Any]) -> Symbol:
        """Apply a NumPy function by name to symbols, arrays and numbers."""
        kind = Number.TRUTH if name in ON_TRUTHS else max(map(kind_of, operands))
        if (name, (kind,) * len(operands)) not in operations() and name in ALWAYS_REAL:
            kind = Number.REAL
        return self._computed(name, [self.number_of(operand, kind) for operand in operands])

    def where(self, condition: Any, yes: Any, no: Any) -> Symbol:
        """Record a selection between numbers, promoted to a common kind."""
        kind = max(kind_of(yes), kind_of(no))
        chosen = [self.number_of(choice, kind) for choice in (yes, no)]
        return self._computed("where", [self.number_of(condition, Number.TRUTH), *chosen])

    def cast(self, symbol: Symbol, kind: Number) -> Symbol:
        """Convert a symbol to another kind of number."""
        return self._symbol(self.number_of(symbol, kind))

    def number_of(self, value: Any, kind: Number) -> int:
        """Return the node of a symbol, array or number, converted to a kind of number."""
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            return self._literal(value, kind)
        number = value.node if isinstance(value, Symbol) else self._cast(self._leaf(value), kind_of(value))
        return self._cast(number, kind)

    def _symbol(self, number: int) -> Symbol:
        return Symbol(self, number, self.nodes[number].kind)

    def _add(self, node: Node) -> int:
        """Return the index of a node, adding it if it is new."""
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
        operation = operations().get((name, tuple(part.kind for part in parts)))
        if operation is None:
            raise FormulaError(f"NumPy's {name} of such numbers is not an operation of programs")
        partitions = {part.partition for part in parts} - {-1}
        assert len(partitions) <= 1, "a formula is computed for one partition at a time"
        by_tile = any(part.by_tile for part in parts)
        number, kind = operation
        return self._symbol(self._add(Node(kind, number, tuple(operands), by_tile, max(partitions, default=-1))))

    def _leaf(self, value: Any) -> int:
        """Add an array as a leaf of real numbers, and return its node."""
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


APPLIES, REFUSED = -1, -2  # ends of decisions; lower numbers are further reasons
_OPERANDS = 3


@dataclass(frozen=True, slots=True)
class Output:
    """A feature: its location (a constant, or rows over the tiles), and its node."""

    place: Placed
    node: int


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The features that depend on sizes or are constants of the pool."""

    sizes: int
    graph: Graph
    outputs: tuple[Output, ...]
    classes: tuple[int, ...]

    @property
    def constants(self) -> int:
        """Number of features that are one number per problem."""
        return sum(output.place.kind == Kind.CONSTANT for output in self.outputs)

    @property
    def rows(self) -> int:
        """Number of rows over the tiles per problem."""
        return sum(output.place.rows for output in self.outputs if output.place.kind != Kind.CONSTANT)


@dataclass(slots=True, eq=False)
class Checks:
    """Calculations with a problem's sizes; by default every problem is valid."""

    integers: dict[int, int] = field(default_factory=dict)
    calculation: Rows = field(default_factory=list)
    comparison: Rows = field(default_factory=list)
    step: Rows = field(default_factory=list)
    conditions: int = 0
    begin: int = APPLIES
    flops: int = -1


def trace_program(pool: Pool, sizes: Sequence[str]) -> Program:
    """Trace the program of a pool."""
    graph = Graph(pool.tiles)
    symbols = {name: graph.size(index) for index, name in enumerate(sizes)}
    outputs = []
    for feature, place, columns in pool.columns(symbols):
        graph.partition = place.partition
        try:
            outputs.append(Output(place, graph.number_of(feature.formula(columns), Number.REAL)))
        except FormulaError as error:
            raise FormulaError(f"the feature {feature.name}: {error.message}", error.hint) from error
    classes = tuple(int(row.max()) + 1 for row in pool.partitions)
    return Program(len(sizes), graph, tuple(outputs), classes)


def write_program(writer: FileWriter, program: Program, checks: Checks) -> None:
    """Write a program's section: the nodes that its features need, and its checks."""
    graph = program.graph
    needed = _needed(program)
    number_of = {old: new for new, old in enumerate(needed)}
    integers = dict(checks.integers)
    nodes = []
    for old in needed:
        node = graph.nodes[old]
        operands = list(node.operands) if node.is_leaf else [number_of[operand] for operand in node.operands]
        if node.is_leaf and node.kind != Number.REAL:  # an integer
            integer = list(graph.integers)[operands[0]]
            operands = [integers.setdefault(integer, len(integers))]
        a, b, c = [*operands, *[0 if node.is_leaf else operands[0]] * (_OPERANDS - len(operands))]
        nodes.append(
            record("NODE", operation=node.operation, a=a, b=b, c=c, by_tile=node.by_tile, partition=node.partition)
        )
    writer.section(
        "PROGRAM",
        counts=record(
            "COUNTS",
            sizes=program.sizes,
            constants=program.constants,
            rows=program.rows,
            conditions=checks.conditions,
            begin=checks.begin,
            flops=checks.flops,
        ),
        shape=[record("SHAPE", classes=leaf.shape[0], by_tile=leaf.shape[1] > 1) for leaf in graph.leaves],
        classes=program.classes,
        node=nodes,
        literal=np.frombuffer(b"".join(graph.literals), "<f8"),
        number=list(integers),
        output=[
            record(
                "OUTPUT",
                node=number_of[output.node],
                is_row=output.place.kind != Kind.CONSTANT,
                place=output.place.row,
                count=output.place.rows,
            )
            for output in program.outputs
        ],
        calculation=checks.calculation,
        comparison=checks.comparison,
        step=checks.step,
    )


def _needed(program: Program) -> list[int]:
    """Return the nodes that features need, operands first."""
    needed = {output.node for output in program.outputs}
    for number in range(len(program.graph.nodes) - 1, -1, -1):
        node = program.graph.nodes[number]
        if number in needed and not node.is_leaf:
            needed.update(node.operands)
    return sorted(needed)
