"""Python's checks of a problem as decisions over its sizes: run with symbols for sizes, along every path.

Where Python must know whether one size is less than another, the answer is chosen, and the run is repeated with the
other answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.ranking.layout import Number
from ckh.ranking.symbolic import FormulaError, Recorder, Symbol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Expression:
    """A calculation: a number, the size of a number, or an operation on others.

    Attributes:
        op: "number", "size", a name in `_ARITHMETIC` or, for what is true or false, a comparison.
        operands: integers for the first two, else expressions.
    """

    op: str
    operands: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """A decision: what follows if a condition holds, and if not."""

    condition: Expression
    yes: Tree
    no: Tree


Text = tuple[str | Expression, ...]  # words, and values that stand between them
Tree = Branch | bool | Text  # ends with whether something is so, or why it is not

_ZERO = Expression("number", (0,))
_ARITHMETIC = {"add": "plus", "subtract": "less", "multiply": "times", "floor_divide": "over", "remainder": "modulo"}
# The comparison that decides, and whether it must hold.
_COMPARISONS = {
    "equal": ("==", True),
    "not_equal": ("==", False),
    "less": ("<", True),
    "greater_equal": ("<", False),
    "greater": (">", True),
    "less_equal": (">", False),
}
_MARK = "\0"


class _Size(Symbol):
    """A symbol that passes for an integer where a problem checks the types of its sizes."""

    __slots__ = ()

    @property  # type: ignore[misc] # of `object` it can be assigned
    def __class__(self) -> type:
        return int


class _Path(Recorder):
    """One run: the conditions that it decided on, and the answers that it got."""

    def __init__(self, answers: tuple[bool, ...]) -> None:
        self.answers = list(answers)
        self.decided: list[Expression] = []
        self._written: list[Expression] = []

    def size(self, index: int) -> Symbol:
        """The size of this number of the problem."""
        return self._symbol(Expression("size", (index,)))

    def apply(self, name: str, operands: Sequence[Any]) -> Symbol | bool:
        """Record arithmetic; decide comparisons."""
        parts = tuple(map(_expression, operands))
        if name == "negative":
            name, parts = "subtract", (_ZERO, *parts)
        if name in _ARITHMETIC:
            return self._symbol(Expression(_ARITHMETIC[name], parts))
        if name not in _COMPARISONS:
            raise FormulaError(f"{name} of a problem's sizes cannot be compiled")
        relation, must_hold = _COMPARISONS[name]
        return self._decide(Expression(relation, parts)) is must_hold

    def truth(self, symbol: Symbol) -> bool:
        """Whether a number is not 0."""
        return not self._decide(Expression("==", (symbol.node, _ZERO)))

    def text(self, symbol: Symbol) -> str:
        """The mark that stands in a text for a value."""
        self._written.append(symbol.node)
        return f"{_MARK}{len(self._written) - 1}{_MARK}"

    def parsed(self, words: str) -> Text:
        """A text with its values in place of their marks."""
        parts = words.split(_MARK)  # words and marks in turns
        text = (self._written[int(part)] if place % 2 else part for place, part in enumerate(parts))
        return tuple(part for part in text if part != "")

    def _symbol(self, expression: Expression) -> Symbol:
        return _Size(self, expression, Number.INTEGER)

    def _decide(self, condition: Expression) -> bool:
        if condition in self.decided:
            return self.answers[self.decided.index(condition)]
        self.decided.append(condition)
        if len(self.decided) > len(self.answers):
            self.answers.append(True)
        return self.answers[len(self.decided) - 1]


def _expression(value: Any) -> Expression:
    if isinstance(value, Symbol):
        node: Expression = value.node
        return node
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormulaError(f"a rule that calculates with a problem's sizes and {value!r} cannot be compiled")
    return Expression("number", (value,))


def value_of(compute: Callable[[Callable[[int], Symbol]], Any]) -> Expression:
    """The expression of an integer.

    Args:
        compute: computes it from a function that gives the size of a number.

    Raises:
        FormulaError: it depends on a decision, or needs the value of a size.
    """
    path = _Path(())
    found = _expression(compute(path.size))
    if path.decided:
        raise FormulaError("a quantity that depends on a decision cannot be compiled")
    return found


def decisions(compute: Callable[[Callable[[int], Symbol]], bool | str], answers: tuple[bool, ...] = ()) -> Tree:
    """All paths to an answer: whether something is so, or a text, which may have sizes in it.

    Args:
        compute: computes the answer from a function that gives the size of a number.
        answers: those to the first conditions.

    Raises:
        FormulaError: the answer needs the value of a size.
    """
    path = _Path(answers)
    found = compute(path.size)
    tree: Tree = path.parsed(found) if isinstance(found, str) else bool(found)
    for at in range(len(path.decided) - 1, len(answers) - 1, -1):
        other = decisions(compute, (*path.answers[:at], False))
        if tree != other:
            tree = Branch(path.decided[at], tree, other)
    return tree
