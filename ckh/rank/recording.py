"""Formulas recorded as steps: what NumPy would do to a problem's numbers is written down, to be done again faster.

A `Recorded` stands for an array that a problem's numbers enter; NumPy hands every operation on it to it. What no such
number enters stays an ordinary array, and becomes a constant where it meets a recorded one. All values are two-axis
arrays: classes of variants by tiles, either of which may be one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Array, Columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Shape = tuple[int, int]


class RecordingError(TypeError):
    """A formula does what cannot be recorded."""


class Number(IntEnum):
    """Kinds of numbers, the weakest first."""

    TRUTH = 0
    WHOLE = 1
    REAL = 2


INPUT, CONSTANT, COPY, WHERE, TRUNCATE = "input", "constant", "copy", "where", "truncate"
_T, _W, _R = Number
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
    ("negative", _W): ("negative", _W),
    ("bitwise_and", _W): ("whole_and", _W),
    ("divide", _W): ("divide", _R),
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
    """Steps, each after its operands.

    Attributes:
        steps: every distinct step.
        constants: every distinct constant.
    """

    steps: list[Step] = field(default_factory=list)
    constants: list[NDArray[np.float64]] = field(default_factory=list)
    _numbers: dict[Step, int] = field(default_factory=dict)
    _known: dict[tuple[Shape, bytes], int] = field(default_factory=dict)

    def input(self, index: int) -> Recorded:
        """A number of the problem's."""
        return Recorded(self, self._step(INPUT, (index,), (1, 1)), _R)

    def number_of(self, value: Any) -> int:
        """The step of a recorded or ordinary array.

        Raises:
            RecordingError: it is text, or has more than two axes.
        """
        if isinstance(value, Recorded):
            return value.number
        array = np.atleast_2d(np.asarray(value))
        if array.dtype.kind not in "biuf" or array.ndim > 2:  # noqa: PLR2004
            raise RecordingError(f"{array.dtype} of shape {array.shape} beside a problem's numbers")
        array = array.astype(np.float64)
        key = (array.shape[0], array.shape[1]), array.tobytes()
        if key not in self._known:
            self._known[key] = len(self.constants)
            self.constants.append(array)
        return self._step(CONSTANT, (self._known[key],), key[0])

    def apply(self, name: str, operands: Sequence[Any]) -> Recorded:
        """What NumPy's function of this name makes of recorded and ordinary arrays.

        Raises:
            RecordingError: it cannot be recorded.
        """
        kind = max(map(_kind, operands))
        rule = _RULES.get((name, kind))
        if rule is None:
            if len(operands) > 1 or kind != _R:
                raise RecordingError(f"{name} of {kind.name}")
            rule = name, _R  # NumPy computes it
        return self.record(rule[0], operands, rule[1])

    def record(self, operation: str, operands: Sequence[Any], kind: Number) -> Recorded:
        """A step of an operation; arrays are broadcast."""
        numbers = tuple(self.number_of(operand) for operand in operands)
        classes, tiles = zip(*(self.steps[number].shape for number in numbers), strict=True)
        shape = max(classes), max(tiles)
        if not ({*classes} <= {1, shape[0]} and {*tiles} <= {1, shape[1]}):
            raise RecordingError("arrays that do not fit")
        return Recorded(self, self._step(operation, numbers, shape), kind)

    def _step(self, operation: str, operands: tuple[int, ...], shape: Shape) -> int:
        step = Step(operation, operands, shape)
        if step not in self._numbers:
            self._numbers[step] = len(self.steps)
            self.steps.append(step)
        return self._numbers[step]


def _kind(value: Any) -> Number:
    if isinstance(value, Recorded):
        return value.kind
    if isinstance(value, int) and not isinstance(value, bool):
        return _T  # as weak as in NumPy: the other operand says what it is
    code = np.asarray(value).dtype.kind
    return {"b": _T, "i": _W, "u": _W}.get(code, _R)


class Recorded(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that a problem's numbers enter."""

    __slots__ = ("kind", "number", "recording")
    __hash__ = None  # type: ignore[assignment] # `==` gives an array

    def __init__(self, recording: Recording, number: int, kind: Number) -> None:
        self.recording = recording
        self.number = number
        self.kind = kind

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Record what NumPy would compute."""
        if options or method != "__call__" or ufunc.nout != 1 or getattr(np, ufunc.__name__, None) is not ufunc:
            raise RecordingError(f"{ufunc.__name__}.{method}")
        return self.recording.apply(ufunc.__name__, inputs)

    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        """The same for functions that are no ufuncs."""
        return _call(func, args, kwargs)

    def __array__(self, *_args: Any, **_options: Any) -> Any:
        """Refuse to become numbers."""
        self._refuse()

    def _refuse(self, *_args: Any) -> Any:
        raise RecordingError("a problem's numbers are needed")

    __bool__ = __int__ = __float__ = __index__ = __len__ = __iter__ = __getitem__ = _refuse

    def __getattr__(self, name: str) -> Any:
        """Refuse what else an array has, but for what NumPy asks of any object."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise RecordingError(name)

    def astype(self, dtype: Any) -> Recorded:
        """The same as another kind of number."""
        kind = _kind(np.zeros(1, dtype))
        if kind == _T and self.kind != _T:
            raise RecordingError("numbers as truths")
        if kind == _W and self.kind == _R:
            return self.recording.record(TRUNCATE, [self], _W)
        return Recorded(self.recording, self.number, kind)


class _Several(tuple):  # type: ignore[type-arg]
    """Arrays, some of them recorded, to be reduced to one."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "reduce" or options.get("axis", 0) != 0:
            raise RecordingError(f"{ufunc.__name__}.{method} of several arrays")
        result, *others = inputs[0]
        for other in others:
            result = ufunc(result, other)
        return result

    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        return _call(func, args, kwargs)


def _where(condition: Any, yes: Any, no: Any) -> Any:
    if not isinstance(condition, Recorded) and np.size(condition) == 1:
        return yes if np.all(condition) else no
    kinds = [_R if type(value) is int else _kind(value) for value in (yes, no)]
    if _kind(condition) != _T or _W in kinds:
        raise RecordingError("np.where of such numbers")
    recording = next(one.recording for one in (condition, yes, no) if isinstance(one, Recorded))
    return recording.record(WHERE, [condition, yes, no], max(kinds))


def _select(conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0.0) -> Any:
    result = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        any_recorded = any(isinstance(one, Recorded) for one in (condition, choice, result))
        result = (_where if any_recorded else np.where)(condition, choice, result)
    return result


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.select: _select,
    np.prod: lambda several, axis: np.multiply.reduce(several, axis=axis),
    np.broadcast_arrays: lambda *several: _Several(several),
}


def _call(func: Any, args: Any, kwargs: Any) -> Any:
    if func not in _FUNCTIONS:
        raise RecordingError(func.__name__)
    return _FUNCTIONS[func](*args, **kwargs)


class RecordedColumns(Columns):
    """Columns of which some are recorded.

    Args:
        recorded: the recorded ones; they cannot be had raw.
        given: the other raw columns.
        derived: formulas of intermediate quantities, by name.
        defaults: values of raw columns that may be missing.
    """

    def __init__(
        self,
        recorded: Mapping[str, Recorded],
        given: Mapping[str, Array],
        derived: Mapping[str, Callable[[Columns], Array]],
        defaults: Mapping[str, float | str],
    ) -> None:
        super().__init__(given, derived, defaults)
        self._recorded = recorded

    def _find(self, name: str) -> Array:
        return self._recorded[name] if name in self._recorded and name not in self._derived else super()._find(name)

    def raw(self, name: str) -> Array:
        """A given column as it is.

        Raises:
            RecordingError: it is recorded.
        """
        if name in self._recorded:
            raise RecordingError(f"the raw column {name}")
        return super().raw(name)
