"""Tracing of Python's checks of a problem to decision trees over its sizes, by running all paths with symbolic sizes.

Where Python needs the result of a comparison of sizes, one outcome is chosen, and the run is repeated with the other.
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
    """A calculation: a number, the size with an index, or an operation on expressions."""

    op: str  # "number", "size", a name in `_ARITHMETIC` or, for a condition, a comparison
    operands: tuple[Any, ...]  # integers for the first two, else expressions


@dataclass(frozen=True, slots=True)
class Branch:
    """A decision: the trees for a true and a false condition."""

    condition: Expression
    yes: Tree
    no: Tree


Text = tuple[str | Expression, ...]  # words, interleaved with values
Tree = Branch | bool | Text  # ends with a boolean, or the reason for a refusal

_ZERO = Expression("number", (0,))
_ARITHMETIC = {"add": "plus", "subtract": "less", "multiply": "times", "floor_divide": "over", "remainder": "modulo"}
# The comparison that decides, and the required outcome.
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
    """A symbol that is an integer to problems that check the types of their sizes."""

    __slots__ = ()

    @property  # type: ignore[misc] # assignable on `object`
    def __class__(self) -> type:
        return int


class _Path(Recorder):
    """One run: the conditions it decided on, and their outcomes."""

    def __init__(self, answers: tuple[bool, ...]) -> None:
        self.answers = list(answers)
        self.decided: list[Expression] = []
        self._written: list[Expression] = []

    def size(self, index: int) -> Symbol:
        """Return the symbol of a problem's size, given its index."""
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
        """Decide whether a number is not 0."""
        return not self._decide(Expression("==", (symbol.node, _ZERO)))

    def text(self, symbol: Symbol) -> str:
        """Return a placeholder for a value in a text."""
        self._written.append(symbol.node)
        return f"{_MARK}{len(self._written) - 1}{_MARK}"

    def parsed(self, words: str) -> Text:
        """Replace the placeholders in a text by their values."""
        parts = words.split(_MARK)  # alternating words and placeholders
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
    """Trace the expression of an integer."""
    path = _Path(())
    expression = _expression(compute(path.size))
    if path.decided:
        raise FormulaError("a quantity that depends on a decision cannot be compiled")
    return expression


def decisions(compute: Callable[[Callable[[int], Symbol]], bool | str], answers: tuple[bool, ...] = ()) -> Tree:
    """Trace all paths to a result: a boolean, or a text, which may contain sizes."""
    path = _Path(answers)
    result = compute(path.size)
    tree: Tree = path.parsed(result) if isinstance(result, str) else bool(result)
    for at in range(len(path.decided) - 1, len(answers) - 1, -1):
        otherwise = decisions(compute, (*path.answers[:at], False))
        if tree != otherwise:
            tree = Branch(path.decided[at], tree, otherwise)
    return tree
