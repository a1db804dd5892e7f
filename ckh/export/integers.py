"""Python's own checks of a problem as decisions over its sizes: run with stand-ins for numbers, along every path.

A `Size` is an integer that writes down what is done with it. Where Python must know whether one is less than another,
the answer is chosen, and the run is repeated with the other answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Expression:
    """A calculation: a number, the size of a number, or an operation on others.

    Attributes:
        op: "number", "size", a name in `_OPERATORS` or, for what is true or false, a comparison.
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


# What stand-ins are to functions in C that do not call their methods, such as `range` and `math.gcd`. A run whose
# result differs with the other value has used one.
_HIDDEN = (1009, 720720)
_MARK = "\0"
_AS_NUMBER = "a rule needs the value of a problem's size and cannot be exported"


class _Path:
    """One run: the conditions that it decided on, and the answers that it got."""

    def __init__(self, answers: tuple[bool, ...], hidden: int) -> None:
        self.hidden = hidden
        self.answers = list(answers)
        self.decided: list[Expression] = []
        self._written: list[Expression] = []

    def decide(self, condition: Expression) -> bool:
        if condition in self.decided:
            return self.answers[self.decided.index(condition)]
        self.decided.append(condition)
        if len(self.decided) > len(self.answers):
            self.answers.append(True)
        return self.answers[len(self.decided) - 1]

    def mark(self, expression: Expression) -> str:
        """The mark that stands in a text for a value."""
        self._written.append(expression)
        return f"{_MARK}{len(self._written) - 1}{_MARK}"

    def parsed(self, words: str) -> Text:
        """A text with its values in place of their marks."""
        parts = words.split(_MARK)  # words and marks in turns
        text = (self._written[int(part)] if place % 2 else part for place, part in enumerate(parts))
        return tuple(part for part in text if part != "")


class Size(int):  # noqa: PLW1641 - it has no hash: see below
    """An integer of which only the expression is known. It must not become a plain number unnoticed."""

    path: _Path
    expression: Expression

    def __new__(cls, path: _Path, expression: Expression) -> Size:  # noqa: PYI034 - Self needs Python 3.11
        """Make one; its value as an int means nothing."""
        made = super().__new__(cls, path.hidden)
        made.path, made.expression = path, expression
        return made

    def _made(self, op: str, *operands: Any) -> Size:
        return Size(self.path, Expression(op, tuple(map(_expression, operands))))

    def _decided(self, op: str, other: Any) -> bool:
        return self.path.decide(Expression(op, (self.expression, _expression(other))))

    def __add__(self, other: int) -> Size:
        """Written down, as all below."""
        return self._made("plus", self, other)

    def __radd__(self, other: int) -> Size:
        return self._made("plus", other, self)

    def __sub__(self, other: int) -> Size:
        return self._made("less", self, other)

    def __rsub__(self, other: int) -> Size:
        return self._made("less", other, self)

    def __mul__(self, other: int) -> Size:
        return self._made("times", self, other)

    def __rmul__(self, other: int) -> Size:
        return self._made("times", other, self)

    def __floordiv__(self, other: int) -> Size:
        return self._made("over", self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return self._made("over", other, self)

    def __mod__(self, other: int) -> Size:
        return self._made("modulo", self, other)

    def __rmod__(self, other: int) -> Size:
        return self._made("modulo", other, self)

    def __neg__(self) -> Size:
        return self._made("less", 0, self)

    def __eq__(self, other: object) -> bool:
        return self._decided("==", other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: int) -> bool:
        return self._decided("<", other)

    def __ge__(self, other: int) -> bool:
        return not self < other

    def __gt__(self, other: int) -> bool:
        return self._decided(">", other)

    def __le__(self, other: int) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        return self != 0

    def __str__(self) -> str:
        return self.path.mark(self.expression)

    def __format__(self, form: str) -> str:
        return str(self) if not form else str(self._refuse())

    def _refuse(self, *_others: Any) -> Any:
        raise ModelError(_AS_NUMBER, code="not-exportable")

    __hash__ = __int__ = __index__ = __float__ = __truediv__ = __rtruediv__ = __pow__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __lshift__ = __rshift__ = __divmod__ = __abs__ = _refuse


def _expression(value: Any) -> Expression:
    if isinstance(value, Size):
        return value.expression
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(f"a rule compares a size with {value!r} and cannot be exported", code="not-exportable")
    return Expression("number", (value,))


def value_of(compute: Callable[[Callable[[int], Size]], Any]) -> Expression:
    """The expression of an integer.

    Args:
        compute: computes it from a function that gives the size of a number.

    Raises:
        ModelError: it depends on a decision, or uses a size as a plain number.
    """
    found, other = (_value(compute, hidden) for hidden in _HIDDEN)
    if found != other:
        raise ModelError(_AS_NUMBER, code="not-exportable")
    return found


def decisions(compute: Callable[[Callable[[int], Size]], bool | str]) -> Tree:
    """All ways to an answer: whether something is so, or a text, which may have sizes in it.

    Args:
        compute: computes the answer from a function that gives the size of a number.

    Raises:
        ModelError: the answer uses a size as a plain number.
    """
    found, other = (_explore(compute, (), hidden) for hidden in _HIDDEN)
    if found != other:
        raise ModelError(_AS_NUMBER, code="not-exportable")
    return found


def _value(compute: Callable[[Callable[[int], Size]], Any], hidden: int) -> Expression:
    path = _Path((), hidden)
    found = _expression(compute(lambda index: _size(path, index)))
    if path.decided:
        raise ModelError("a quantity depends on a decision and cannot be exported", code="not-exportable")
    return found


def _explore(compute: Callable[[Callable[[int], Size]], bool | str], answers: tuple[bool, ...], hidden: int) -> Tree:
    path = _Path(answers, hidden)
    found = compute(lambda index: _size(path, index))
    tree: Tree = path.parsed(found) if isinstance(found, str) else bool(found)
    for at in range(len(path.decided) - 1, len(answers) - 1, -1):
        other = _explore(compute, (*path.answers[:at], False), hidden)
        if tree != other:
            tree = Branch(path.decided[at], tree, other)
    return tree


def _size(path: _Path, index: int) -> Size:
    return Size(path, Expression("size", (index,)))
