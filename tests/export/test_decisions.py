"""Exported decisions agree with Python's functions."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import pytest

from ckh.errors import ModelError
from ckh.export.decisions import Branch, Expression, decisions, value_of
from ckh.export.programs import make_rules
from ckh.ranking.program import APPLIES, REFUSED
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.export.decisions import Tree

_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "plus": lambda a, b: a + b,
    "less": lambda a, b: a - b,
    "times": lambda a, b: a * b,
    "over": lambda a, b: a // b if b else 0,
    "modulo": lambda a, b: a % b if b else 0,
    "==": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}


def evaluate(expression: Expression, sizes: Sequence[int]) -> int:
    """The value of an expression."""
    if expression.op == "number":
        return int(expression.operands[0])
    if expression.op == "size":
        return sizes[int(expression.operands[0])]
    a, b = (evaluate(operand, sizes) for operand in expression.operands)
    return _OPERATORS[expression.op](a, b)


def follow(tree: Tree, sizes: Sequence[int]) -> bool | str:
    """The end of a chain of decisions: a truth value, or a text with its values."""
    while isinstance(tree, Branch):
        tree = tree.yes if evaluate(tree.condition, sizes) else tree.no
    if isinstance(tree, bool):
        return tree
    return "".join(part if isinstance(part, str) else str(evaluate(part, sizes)) for part in tree)


def _chain(a: Any, b: Any) -> bool:
    return bool(1 <= a <= 5 and b > 0)


def _smallest(a: Any, b: Any) -> bool:
    return bool(min(a, b, 7 - a) >= 2)


def _tuple(a: Any, b: Any) -> bool:
    return bool((a, b, 3) != (1, 2, 3))


def _rests(a: Any, b: Any) -> bool:
    return not a % 3 and -(-b // 4) * 4 - b != 2 and bool(a or b)


def _loop(a: Any, b: Any) -> bool:
    return all(value % step == 0 for value, step in ((a, 2), (b, 3), (a * b, 4)))


@pytest.mark.parametrize("function", [_chain, _smallest, _tuple, _rests, _loop])
def test_decision_chains_equal_the_functions(function: Callable[[Any, Any], bool]) -> None:
    """For all small sizes the chain of decisions ends with the function's result."""
    tree = decisions(lambda size: function(size(0), size(1)))
    rules = make_rules([[tree], [tree]])
    assert rules.begins[0] == rules.begins[1]
    for sizes in itertools.product(range(-3, 15), repeat=2):
        assert follow(tree, sizes) == function(*sizes)
        at = rules.begins[0]
        while at >= 0:
            condition, yes, no = rules.steps[at]
            after = yes if evaluate(rules.conditions[condition], sizes) else no
            assert after < at
            at = after
        assert (at == APPLIES) == function(*sizes)


def _words(a: Any, b: Any) -> bool | str:
    if a % 4:
        return f"A = {a} is not a multiple of 4" + (f", rest {a % 4}" if b > 2 else "")
    return b < 9 or ("" if b == 9 else f"{a + b} in all: too many")


def test_reasons_have_sizes_as_values() -> None:
    """Reasons are numbered texts with the values of the given problem."""
    tree = decisions(lambda size: _words(size(0), size(1)))
    rules = make_rules([[tree], [True]])
    assert rules.begins[1] == APPLIES
    assert len(rules.reasons) == 4
    for sizes in itertools.product(range(-3, 15), repeat=2):
        assert follow(tree, sizes) == _words(*sizes)
        at = rules.begins[0]
        while at >= 0:
            condition, yes, no = rules.steps[at]
            at = yes if evaluate(rules.conditions[condition], sizes) else no
        reason = True if at == APPLIES else follow(rules.reasons[REFUSED - at], sizes)
        assert reason == _words(*sizes)


@pytest.mark.parametrize("words", [lambda a: f"{a!r}", lambda a: f"{a:d}", chr, lambda a: "1" * a])
def test_sizes_are_not_baked_into_reasons(words: Callable[[Any], str]) -> None:
    """Only literal text is part of a reason."""
    with expect_refusal(ModelError, "bad-formula"):
        decisions(lambda size: words(size(0)))


def test_constant_conditions_need_no_decision() -> None:
    """Branches with equal results are merged."""
    assert decisions(lambda size: size(0) > 3 or size(0) <= 3) is True


def test_traced_values_equal_the_function() -> None:
    """An expression of sums, products, quotients and remainders."""
    value = value_of(lambda size: (2 * size(0) - 3) // size(1) + (7 - size(0)) % 5 * -size(1))
    for a, b in itertools.product(range(-4, 9), range(1, 6)):
        assert evaluate(value, (a, b)) == (2 * a - 3) // b + (7 - a) % 5 * -b


@pytest.mark.parametrize(
    "function",
    [
        lambda a: float(a) > 1,
        lambda a: a / 2 > 1,
        lambda a: a in {1, 2},
        lambda a: len(range(a)) > 2000,
        lambda a: math.gcd(a, 12) == 12,
        lambda a: a > 1.5,
    ],
)
def test_sizes_are_not_silently_made_constants(function: Callable[[Any], Any]) -> None:
    """Operations that would lose the expression are refused."""
    with expect_refusal(ModelError, "bad-formula"):
        decisions(lambda size: bool(function(size(0))))
    with pytest.raises(ModelError, match="decision"):
        value_of(lambda size: size(0) if size(0) > 1 else 0)
    with expect_refusal(ModelError, "bad-formula"):
        value_of(lambda size: math.gcd(size(0), 12))
