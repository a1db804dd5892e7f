"""Formulas recorded as steps: what NumPy would do to a problem's sizes is written down, to be done again faster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckh.ranking.symbolic import FormulaError, Number, Symbol, constant, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Shape = tuple[int, int]

INPUT, CONSTANT, COPY, WHERE, TRUNCATE = "input", "constant", "copy", "where", "truncate"
_T, _I, _R = Number
_ARITHMETIC = ("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "maximum", "minimum")
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
_LOGIC = {"bitwise_and": "and", "logical_and": "and", "bitwise_or": "or", "logical_or": "or"}
_NOT = {"invert": "not", "logical_not": "not"}
# NumPy's function and the kind of its operands -> the operation, and the kind of its result.
_RULES: dict[tuple[str, Number], tuple[str, Number]] = {
    **{(name, _R): (name, _R) for name in (*_ARITHMETIC, "negative", "ceil", "floor", "absolute")},
    **{(name, kind): (name, _T) for name in _COMPARISONS for kind in Number},
    **{(name, _T): (operation, _T) for name, operation in {**_LOGIC, **_NOT}.items()},
    ("isnan", _R): ("isnan", _T),
    ("negative", _I): ("negative", _I),
    ("bitwise_and", _I): ("whole_and", _I),
    ("divide", _I): ("divide", _R),
    ("divide", _T): ("divide", _R),
}
# Operations in the order of the numbers that the C part knows them by.
OPERATIONS = (
    *(COPY, *_ARITHMETIC, *_COMPARISONS),
    *("and", "or", "not", "negative", "ceil", "floor", "absolute", "isnan", WHERE, TRUNCATE, "whole_and"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is computed.

    Attributes:
        operation: one of `OPERATIONS`, INPUT, CONSTANT, or the name of a function of one number that NumPy computes.
        operands: the steps that it is computed from; of an input or constant: which one it is.
        shape: classes of variants, tiles.
    """

    operation: str
    operands: tuple[int, ...]
    shape: Shape


@dataclass(slots=True, eq=False)
class Recording:
    """Steps, each after its operands: the writer of symbols that stand for recorded arrays.

    Attributes:
        steps: every distinct step.
        constants: every distinct constant.
    """

    steps: list[Step] = field(default_factory=list)
    constants: list[NDArray[np.float64]] = field(default_factory=list)
    _numbers: dict[Step, int] = field(default_factory=dict)
    _known: dict[tuple[Shape, bytes], int] = field(default_factory=dict)

    def input(self, index: int) -> Symbol:
        """A number of the problem's."""
        return Symbol(self, self._step(INPUT, (index,), (1, 1)), _R)

    def number_of(self, value: Any) -> int:
        """The step of a symbol, array or number.

        Raises:
            FormulaError: it cannot be recorded.
        """
        if isinstance(value, Symbol):
            return value.number
        array = constant(value)
        key = (array.shape[0], array.shape[1]), array.tobytes()
        if key not in self._known:
            self._known[key] = len(self.constants)
            self.constants.append(array)
        return self._step(CONSTANT, (self._known[key],), key[0])

    def apply(self, name: str, operands: Sequence[Any]) -> Symbol:
        """As the rules say; what they do not name and takes one real number, NumPy computes."""
        kind = max(map(kind_of, operands))
        rule = _RULES.get((name, kind))
        if rule is None:
            if len(operands) > 1 or kind != _R:
                raise FormulaError(f"NumPy's {name} of such numbers cannot be recorded")
            rule = name, _R
        return self._recorded(rule[0], operands, rule[1])

    def where(self, condition: Any, yes: Any, no: Any) -> Symbol:
        """A choice by truths."""
        if kind_of(condition) != _T:
            raise FormulaError("NumPy's where of numbers as truths cannot be recorded")
        return self._recorded(WHERE, [condition, yes, no], max(kind_of(yes), kind_of(no)))

    def cast(self, symbol: Symbol, kind: Number) -> Symbol:
        """The same numbers, without their fractions if integers are wanted."""
        if kind == _T and symbol.kind != _T:
            raise FormulaError("numbers as truths cannot be recorded")
        if kind == _I and symbol.kind == _R:
            return self._recorded(TRUNCATE, [symbol], _I)
        return Symbol(self, symbol.number, kind)

    def _recorded(self, operation: str, operands: Sequence[Any], kind: Number) -> Symbol:
        """A step of an operation; arrays are broadcast."""
        numbers = tuple(self.number_of(operand) for operand in operands)
        classes, tiles = zip(*(self.steps[number].shape for number in numbers), strict=True)
        shape = max(classes), max(tiles)
        if not ({*classes} <= {1, shape[0]} and {*tiles} <= {1, shape[1]}):
            raise FormulaError("arrays that do not fit cannot be recorded")
        return Symbol(self, self._step(operation, numbers, shape), kind)

    def _step(self, operation: str, operands: tuple[int, ...], shape: Shape) -> int:
        step = Step(operation, operands, shape)
        if step not in self._numbers:
            self._numbers[step] = len(self.steps)
            self.steps.append(step)
        return self._numbers[step]
