"""C for expressions: features, checks and rules, each distinct function once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ckh.export.integers import Branch, Expression
from ckh.export.operations import TYPES
from ckh.ranking.pool import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ckh.export.graph import Graph, Node
    from ckh.export.integers import Tree
    from ckh.export.pools import GroupPool, Output

_COMPARISONS = ("==", "<", ">")
_WIDE = 2**31


@dataclass(slots=True)
class Functions:
    """Functions by their bodies; equal ones are written once.

    Attributes:
        texts: the whole functions, in order.
    """

    texts: list[str] = field(default_factory=list)
    _names: dict[tuple[str, str], str] = field(default_factory=dict)

    def name_of(self, prefix: str, head: str, body: Iterable[str]) -> str:
        """The name of a function with this body, which is added unless there is one.

        Args:
            prefix: what its name begins with.
            head: what comes before the name, and the parameters, with `{}` for the name.
            body: its lines.
        """
        text = "\n".join(f"  {line}" for line in body)
        key = (prefix, text)
        if key not in self._names:
            count = sum(known == prefix for known, _ in self._names)
            self._names[key] = f"{prefix}_{count}"
            self.texts.append(f"{head.format(self._names[key])} {{\n{text}\n}}\n")
        return self._names[key]

    def number_of(self, prefix: str, text: str) -> int:
        """The same for data: how many of this prefix came before."""
        key = (prefix, text)
        if key not in self._names:
            count = sum(known == prefix for known, _ in self._names)
            self._names[key] = str(count)
            self.texts.append(text.replace("@", str(count)))
        return int(self._names[key])


class _Integers:
    """Calculations as constants of C, each computed once."""

    def __init__(self, known: dict[Expression, str] | None = None) -> None:
        self.known = dict(known or {})
        self.lines: list[str] = []

    def atom(self, expression: Expression) -> str:
        """A literal or name; what it needs is added to `lines`."""
        if expression.op == "number":
            value = int(expression.operands[0])
            return str(value) if abs(value) < _WIDE else f"INT64_C({value})"
        if expression.op == "size":
            return f"size[{expression.operands[0]}]"
        if expression not in self.known:
            a, b = map(self.atom, expression.operands)
            name = f"v{len(self.known)}"
            self.lines.append(f"const int64_t {name} = ckh_{expression.op}({a}, {b}, &overflow);")
            self.known[expression] = name
        return self.known[expression]

    def condition(self, expression: Expression) -> str:
        """A comparison."""
        assert expression.op in _COMPARISONS
        a, b = map(self.atom, expression.operands)
        return f"{a} {expression.op} {b}"


_OVERFLOW = "if (overflow) return CKH_ERROR_SIZE;"


def check_function(functions: Functions, tree: Tree) -> str:
    """A function that says whether sizes go together."""
    body = ["int overflow = 0;", "(void)self;", "(void)size;", "(void)overflow;", *_steps(tree, {})]
    return functions.name_of("check", "static int {}(const ckh_program *self, const int64_t *size)", body)


def _steps(tree: Tree, known: dict[Expression, str]) -> list[str]:
    if not isinstance(tree, Branch):
        return ["return CKH_OK;" if tree else "return CKH_ERROR_SIZE;"]
    integers = _Integers(known)
    condition = integers.condition(tree.condition)
    lines = [*integers.lines, *([_OVERFLOW] if integers.lines else [])]
    if isinstance(tree.yes, Branch) and not isinstance(tree.no, Branch):
        return [*lines, f"if (!({condition})) {_steps(tree.no, {})[0]}", *_steps(tree.yes, integers.known)]
    if not isinstance(tree.yes, Branch):
        return [*lines, f"if ({condition}) {_steps(tree.yes, {})[0]}", *_steps(tree.no, integers.known)]
    inner = [f"  {line}" for line in _steps(tree.yes, integers.known)]
    return [*lines, f"if ({condition}) {{", *inner, "}", *_steps(tree.no, integers.known)]


def decide_function(functions: Functions, conditions: Sequence[Expression]) -> str:
    """A function that says which conditions hold."""
    integers = _Integers()
    body = []
    for index, condition in enumerate(conditions):
        text = integers.condition(condition)
        body += [*integers.lines, f"condition[{index}] = {text};"]
        integers.lines = []
    head = "static int {}(const ckh_program *self, const int64_t *size, uint8_t *condition)"
    lines = ["int overflow = 0;", "(void)self;", "(void)size;", "(void)condition;", *body]
    return functions.name_of("decide", head, [*lines, "return overflow ? CKH_ERROR_SIZE : CKH_OK;"])


def flops_function(functions: Functions, flops: Expression) -> str:
    """A function that computes a problem's operations."""
    integers = _Integers()
    value = integers.atom(flops)
    head = "static int {}(const ckh_program *self, const int64_t *size, double *flops)"
    lines = ["int overflow = 0;", "(void)self;", *integers.lines, f"*flops = (double){value};"]
    return functions.name_of("flops", head, [*lines, "return overflow ? CKH_ERROR_SIZE : CKH_OK;"])


def features_function(functions: Functions, made: GroupPool) -> str:
    """A function that computes the features that a problem's sizes enter."""
    body = _Features(made).lines()
    head = (
        "static int {}(const ckh_program *self, const double *size, const double *const *leaf, size_t first,\n"
        "                      size_t tiles, size_t all, double *constants, double *rows)"
    )
    unused = [f"(void){name};" for name in ("self", "size", "leaf", "first", "tiles", "all", "constants", "rows")]
    return functions.name_of("features", head, [*unused, *body, "return CKH_OK;"])


class _Features:
    def __init__(self, made: GroupPool) -> None:
        self._graph: Graph = made.graph
        self._classes = made.classes
        self._constants = [output for output in made.outputs if output.place.kind == Kind.CONSTANT]
        self._rows = [output for output in made.outputs if output.place.kind != Kind.CONSTANT]
        self._names: dict[int, str] = {}
        self._needed = self._reached([output.number for output in made.outputs])

    def _reached(self, numbers: Iterable[int]) -> list[int]:
        found = set[int]()
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += self._graph.nodes[number].operands
        return sorted(found)

    def lines(self) -> list[str]:
        """The body: what is one number, then tile by tile what differs by tile, within that class by class."""
        lines = self._declared([n for n in self._needed if not self._graph.nodes[n].by_tile and self._of(n) < 0])
        lines += [self._stored(output, f"constants[{output.place.row}]") for output in self._constants]
        inner = self._declared([n for n in self._needed if self._graph.nodes[n].by_tile and self._of(n) < 0])
        pure = [output for output in self._rows if output.place.partition < 0]
        inner += [self._stored(output, f"rows[{output.place.row} * tiles + t]") for output in pure]
        for partition, classes in enumerate(self._classes):
            inner += self._by_class(partition, classes)
        if not self._rows:
            return lines
        return [
            *lines,
            "for (size_t t = 0; t < tiles; t++) {",
            "  const size_t at = first + t;",
            "  (void)at;",
            *(f"  {line}" for line in inner),
            "}",
        ]

    def _by_class(self, partition: int, classes: int) -> list[str]:
        outputs = [output for output in self._rows if output.place.partition == partition]
        if not outputs:
            return []
        inner = self._declared([n for n in self._needed if self._of(n) == partition])
        inner += [self._stored(output, f"rows[({output.place.row} + of_class) * tiles + t]") for output in outputs]
        return [f"for (size_t of_class = 0; of_class < {classes}; of_class++) {{", *(f"  {x}" for x in inner), "}"]

    def _of(self, number: int) -> int:
        return self._graph.nodes[number].partition

    def _declared(self, numbers: Iterable[int]) -> list[str]:
        lines = []
        for number in numbers:
            node = self._graph.nodes[number]
            text = node.code.format(*(self._names[operand] for operand in node.operands))
            if _is_atom(node):
                self._names[number] = text
            else:
                self._names[number] = f"v{len(self._names)}"
                lines.append(f"const {TYPES[node.kind]} {self._names[number]} = {text};")
        return lines

    def _stored(self, output: Output, target: str) -> str:
        return f"{target} = {self._names[output.number]}; /* {output.feature} */"


def _is_atom(node: Node) -> bool:
    """Whether it is a size or a literal."""
    return not node.operands and not node.code.startswith("leaf")
