"""Programs as data, which csrc/ckh_interpret.c runs: features, checks and rules without a compiler.

A program is what `ckh.export` writes as C, in arrays: nodes of expressions over real numbers for the features,
calculations with integers for the rules. Operations are numbered in the order of `operations`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.export.operations import CASTS, OPERATIONS
from ckh.export.programs import make_rules
from ckh.ranking.pool import Kind
from ckh.ranking.symbolic import Number

if TYPE_CHECKING:
    from ckh.export.graph import Node
    from ckh.export.groups import Group, ProblemKind
    from ckh.export.integers import Expression
    from ckh.export.model_file import ProgramData
    from ckh.export.pools import GroupPool
    from ckh.export.programs import Rules

Operation = tuple[str, tuple[Number, ...]]  # C with places for the operands, and what these are

_SIZE, _LEAF, _REAL, _INTEGER, _FIRST = range(5)
_CALCULATIONS = ("size", "number", "plus", "less", "times", "over", "modulo")
_COMPARISONS = ("==", "<", ">")
_FIELDS = {Number.REAL: "real", Number.INTEGER: "integer", Number.TRUTH: "integer"}
_OPERANDS = "ABC"
_INDENT = "    "


def operations() -> dict[Operation, Number]:
    """All operations of nodes, in the order of their numbers, and what they give."""
    found: dict[Operation, Number] = {}
    for (own, to), code in CASTS.items():
        found[code, (own,)] = to
    for (name, kind), (code, result) in OPERATIONS.items():
        count = sum(f"{{{place}}}" in code for place in range(len(_OPERANDS)))
        kinds = (Number.TRUTH, *[kind] * (count - 1)) if name == "where" else (kind,) * count
        found[code, kinds] = result
    return found


def operations_header() -> str:
    """The file csrc/ckh_operations.h."""
    lines = ["/* Made by ckh.quick.bytecode.operations_header: what each operation of a node computes. */"]
    for number, ((code, kinds), result) in enumerate(operations().items()):
        operands = [f"{letter}({_FIELDS[kind]})" for letter, kind in zip(_OPERANDS, kinds, strict=False)]
        lines.append(f"OPERATION({number}, {len(kinds)}, {_FIELDS[result]}, {code.format(*operands)})")
    return "\n".join(lines) + "\n"


def encode(made: GroupPool, kind: ProblemKind, group: Group, rules: Rules) -> ProgramData:
    """A group's program as data.

    Args:
        made: its pool, with the features as expressions.
        kind: of its problems.
        group: the group.
        rules: which of its candidates apply.
    """
    nodes = _Nodes(made)
    integers = _Integers(nodes.numbers)
    comparisons = [integers.comparison(condition) for condition in rules.conditions]
    check = make_rules([kind.check(group.example)])
    first = len(comparisons)
    comparisons += [integers.comparison(condition) for condition in check.conditions]
    steps = [(first + condition, yes, no) for condition, yes, no in check.steps]
    flops = integers.number_of(kind.flops(group.example))
    leaves = [leaf.values.shape for leaf in made.graph.leaves]
    counts = (len(kind.sizes), made.constants, made.rows, len(leaves), len(made.classes), len(rules.conditions))
    return [
        ((*counts, check.begins[0], flops), "i4"),
        ([classes for classes, _ in leaves], "i4"),
        ([tiles > 1 for _, tiles in leaves], "u1"),
        (made.classes, "i4"),
        (nodes.rows, "i4"),
        (nodes.literals, "f8"),
        (list(nodes.numbers), "i8"),
        (nodes.outputs, "i4"),
        (integers.rows, "i4"),
        (comparisons, "i4"),
        (steps, "i4"),
    ]


class _Nodes:
    """The nodes that outputs need, numbered anew."""

    def __init__(self, made: GroupPool) -> None:
        self._graph = made.graph
        self._codes = {operation: _FIRST + number for number, operation in enumerate(operations())}
        self._number: dict[int, int] = {}
        self.rows: list[tuple[int, ...]] = []
        self.literals: list[float] = []
        self.numbers: dict[int, int] = {}  # value -> place
        self.outputs = []
        for output in made.outputs:
            is_row = output.place.kind != Kind.CONSTANT
            self.outputs.append((self._add(output.number), int(is_row), output.place.row))

    def _add(self, number: int) -> int:
        """The new number of a node, after those of its operands."""
        if number not in self._number:
            waiting = [number]
            while waiting:
                last = waiting[-1]
                missing = [one for one in self._graph.nodes[last].operands if one not in self._number]
                waiting += missing
                if not missing:
                    waiting.pop()
                    if last not in self._number:
                        self.rows.append(self._row(self._graph.nodes[last]))
                        self._number[last] = len(self.rows) - 1
        return self._number[number]

    def _row(self, node: Node) -> tuple[int, ...]:
        tail = (int(node.by_tile), node.partition)
        if node.operands:
            kinds = tuple(self._graph.nodes[one].kind for one in node.operands)
            operands = [self._number[one] for one in node.operands]
            operands += [operands[0]] * (len(_OPERANDS) - len(operands))
            return (self._codes[node.code, kinds], *operands, *tail)
        what, _, rest = node.code.partition("[")
        if rest:
            return (_SIZE if what == "size" else _LEAF, int(rest.partition("]")[0]), 0, 0, *tail)
        if node.kind == Number.REAL:
            self.literals.append(float(node.code))
            return (_REAL, len(self.literals) - 1, 0, 0, *tail)
        return (_INTEGER, self.numbers.setdefault(int(node.code), len(self.numbers)), 0, 0, *tail)


class _Integers:
    """Calculations with sizes, each once."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self._numbers = numbers
        self._known: dict[Expression, int] = {}
        self.rows: list[tuple[int, int, int]] = []

    def number_of(self, expression: Expression) -> int:
        """The number of a calculation."""
        if expression not in self._known:
            operation = _CALCULATIONS.index(expression.op)
            if expression.op == "size":
                row = (operation, expression.operands[0], 0)
            elif expression.op == "number":
                value = int(expression.operands[0])
                row = (operation, self._numbers.setdefault(value, len(self._numbers)), 0)
            else:
                a, b = map(self.number_of, expression.operands)
                row = (operation, a, b)
            self.rows.append(row)
            self._known[expression] = len(self.rows) - 1
        return self._known[expression]

    def comparison(self, condition: Expression) -> tuple[int, int, int]:
        """A comparison of two calculations."""
        a, b = map(self.number_of, condition.operands)
        return _COMPARISONS.index(condition.op), a, b
