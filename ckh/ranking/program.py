"""Programs: what C computes from a problem's sizes: the features that depend on them, checks, and rules.

Formulas are traced once (`trace_program`); `write_program` puts a program into a model file as nodes for
csrc/ckh_interpret.c. The Python path, quick answers and exports all run it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ckh.ranking.graph import Graph
from ckh.ranking.layout import record
from ckh.ranking.operations import Number
from ckh.ranking.pool import Kind
from ckh.ranking.symbolic import FormulaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.ranking.layout import FileWriter
    from ckh.ranking.pool import Placed, Pool

    Rows = list[tuple[int, ...]]

APPLIES, REFUSED = -1, -2  # where decisions end; below, with further reasons
_OPERANDS = 3


@dataclass(frozen=True, slots=True)
class Output:
    """A feature: where its values go (a constant, or rows over the tiles), and its node."""

    place: Placed
    node: int


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The features that depend on sizes, or that are one number.

    Attributes:
        sizes: how many numbers a problem has.
        graph: what is computed.
        outputs: the features.
        classes: number of classes of each partition of the variants.
    """

    sizes: int
    graph: Graph
    outputs: tuple[Output, ...]
    classes: tuple[int, ...]

    @property
    def constants(self) -> int:
        """How many features are one number for a problem."""
        return sum(output.place.kind == Kind.CONSTANT for output in self.outputs)

    @property
    def rows(self) -> int:
        """How many rows over the tiles a problem has."""
        return sum(output.place.rows for output in self.outputs if output.place.kind != Kind.CONSTANT)


@dataclass(slots=True, eq=False)
class Checks:
    """Calculations with a problem's sizes; by default every problem is possible.

    Attributes:
        integers: numbers that calculations use, and their places.
        calculation, comparison, step: rows of these records; comparisons of rules come first.
        conditions: how many comparisons are those of rules.
        begin: the step where checking a problem begins.
        flops: the calculation of its operations; -1 if there is none.
    """

    integers: dict[int, int] = field(default_factory=dict)
    calculation: Rows = field(default_factory=list)
    comparison: Rows = field(default_factory=list)
    step: Rows = field(default_factory=list)
    conditions: int = 0
    begin: int = APPLIES
    flops: int = -1


def trace_program(pool: Pool, sizes: Sequence[str]) -> Program:
    """The program of a pool.

    Args:
        pool: the pool.
        sizes: the problem's columns of numbers, in the order in which C gets them.

    Raises:
        FormulaError: a formula does what no program can.
    """
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
        operands = list(node.operands) if node.is_leaf else [number_of[one] for one in node.operands]
        if node.is_leaf and node.kind != Number.REAL:  # an integer
            value = list(graph.integers)[operands[0]]
            operands = [integers.setdefault(value, len(integers))]
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
    """The nodes that features need, each after its operands."""
    needed = {output.node for output in program.outputs}
    for number in range(len(program.graph.nodes) - 1, -1, -1):
        node = program.graph.nodes[number]
        if number in needed and not node.is_leaf:
            needed.update(node.operands)
    return sorted(needed)
