"""Symbolic tracing: operations of Python and NumPy on a problem's sizes are recorded instead of computed.

A `Symbol` represents a value that depends on a problem's sizes; Python and NumPy dispatch every operation on it to its
`Recorder`. Formulas of features are recorded as a graph (`ckh.ranking.program`), rules of problems as decisions
(`ckh.export.decisions`). Values independent of sizes are computed as usual, and become constants when combined with a
symbol. Values of formulas are two-axis arrays: classes of variants by tiles, either of which may be one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import ModelError
from ckh.features.engine import Array, Columns
from ckh.ranking.layout import Number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray


class FormulaError(ModelError):
    """A formula that cannot be compiled to a program."""

    default_code = "bad-formula"


_KINDS = {"b": Number.TRUTH, "i": Number.INTEGER, "u": Number.INTEGER, "f": Number.REAL}  # by NumPy's code
_MOST_AXES = 2


def _refuse(*_args: Any, **_options: Any) -> Any:
    """Refuse a conversion to a concrete value."""
    raise FormulaError("a formula or rule that needs the values of a problem's sizes cannot be compiled")


def _call(_self: Any, function: Any, _types: Any, arguments: Any, options: Any) -> Any:
    """Apply a NumPy function other than a ufunc to symbols."""
    if function not in _FUNCTIONS:
        raise FormulaError(f"NumPy's {function.__name__} of a problem's sizes cannot be compiled")
    return _FUNCTIONS[function](*arguments, **options)


class Recorder(ABC):
    """Records operations on symbols. Operations not implemented are refused."""

    __slots__ = ()

    @abstractmethod
    def apply(self, name: str, operands: Sequence[Any]) -> Any:
        """Record a NumPy function, or an operator of Python, by name."""

    def truth(self, symbol: Symbol) -> bool:  # noqa: ARG002
        """Decide whether a symbol is true."""
        raise FormulaError("a formula decides by a problem's sizes", "use np.where")

    where: Callable[..., Symbol] = _refuse
    cast: Callable[..., Symbol] = _refuse
    text: Callable[..., str] = _refuse


class Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """A number or array that depends on a problem's sizes."""

    __slots__ = ("kind", "node", "recorder")
    __array_function__ = _call

    def __init__(self, recorder: Recorder, node: Any, kind: Number) -> None:
        self.recorder = recorder
        self.node = node
        self.kind = kind

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Record a ufunc."""
        if options or method != "__call__" or ufunc.nout != 1 or getattr(np, ufunc.__name__, None) is not ufunc:
            raise FormulaError(f"{ufunc.__name__}.{method} of a problem's sizes cannot be compiled")
        return self.recorder.apply(ufunc.__name__, inputs)

    def __bool__(self) -> bool:
        """Decide the truth value, if decisions are recorded."""
        return self.recorder.truth(self)

    def __str__(self) -> str:
        """Return a placeholder for the value, if texts are recorded."""
        return self.recorder.text(self)

    def __format__(self, form: str) -> str:
        """Return a placeholder, in the default format only."""
        return _refuse() if form else str(self)

    __array__ = __int__ = __float__ = __index__ = __round__ = _refuse
    __len__ = __iter__ = __getitem__ = __hash__ = __repr__ = _refuse

    def __getattr__(self, name: str) -> Any:
        """Refuse other attributes of arrays, except those that NumPy looks up on any object."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise FormulaError(f"an array's {name} of a problem's sizes cannot be compiled")

    def astype(self, dtype: Any) -> Symbol:
        """Convert to another kind of number."""
        return self.recorder.cast(self, kind_of(np.zeros(1, dtype)))


def kind_of(value: Any) -> Number:
    """Return the kind of a symbol, array or number."""
    if isinstance(value, Symbol):
        return value.kind
    code = np.asarray(value).dtype.kind
    if code not in _KINDS:
        raise FormulaError("text beside a problem's sizes cannot be compiled")
    return _KINDS[code]


def constant(value: Any) -> NDArray[np.float64]:
    """Convert an array or number to float64, shape (classes or 1, tiles or 1)."""
    array = np.atleast_2d(value)
    kind = kind_of(array)
    values = array.astype(np.float64)
    if array.ndim > _MOST_AXES:
        raise FormulaError(f"an array of shape {array.shape} cannot be compiled")
    if kind == Number.INTEGER and not np.array_equal(values.astype(array.dtype), array):
        raise FormulaError("integers beyond 2^53 cannot be compiled")
    return values


class _Several(tuple):  # type: ignore[type-arg]
    """Several arrays, some of them symbols, to be reduced to one."""

    __slots__ = ()
    __array_function__ = _call

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "reduce" or options not in ({}, {"axis": 0}):
            raise FormulaError(f"{ufunc.__name__}.{method} of several arrays cannot be compiled")
        return reduce(ufunc, inputs[0])


def _where(condition: Any, yes: Any, no: Any) -> Any:
    """`np.where`; a constant condition selects immediately."""
    symbols = [operand for operand in (condition, yes, no) if isinstance(operand, Symbol)]
    if not symbols:
        return np.where(condition, yes, no)
    if not isinstance(condition, Symbol):
        if np.all(condition):
            return yes
        if not np.any(condition):
            return no
    return symbols[0].recorder.where(condition, yes, no)


def _select(conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0) -> Any:
    selected = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        selected = _where(condition, choice, selected)
    return selected


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.select: _select,
    np.prod: lambda several, axis=None: np.multiply.reduce(several, axis=axis),
    np.clip: lambda value, low, high: np.minimum(np.maximum(value, low), high),
    np.broadcast_arrays: lambda *several: _Several(several),
}


class SymbolicColumns(Columns):
    """Columns of which some are symbols."""

    def __init__(
        self,
        symbols: Mapping[str, Symbol],
        given: Mapping[str, Array],
        derived: Mapping[str, Callable[[Columns], Array]],
        defaults: Mapping[str, float | str],
    ) -> None:
        super().__init__(given, derived, defaults)
        self._symbols = symbols

    def _find(self, name: str) -> Array:
        return self._symbols[name] if name in self._symbols and name not in self._derived else super()._find(name)

    def raw(self, name: str) -> Array:
        """Return a raw column."""
        if name in self._symbols:
            raise FormulaError(f"the raw column {name} cannot be compiled")
        return super().raw(name)
