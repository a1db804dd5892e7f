"""Formulas over columns as expressions: what NumPy would compute is written down instead, each part once.

A `Symbol` stands for an array that a problem's sizes enter. NumPy hands operations on it to it; what no size enters
stays an ordinary array, which NumPy computes, and becomes a leaf where it meets a symbol.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import ModelError
from ckh.export.operations import ALWAYS_REAL, CASTS, ON_TRUTHS, OPERATIONS, Number
from ckh.features.engine import Columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray


_R, _I, _T = Number.REAL, Number.INTEGER, Number.TRUTH
_ORDER = list(Number)


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression.

    Attributes:
        kind: what kind of number it is.
        code: C, with places for the operands; or what a leaf, size or literal is.
        operands: the nodes that it is made of, as numbers in the graph.
        by_tile: whether it differs by tile.
        partition: the partition by whose classes of variants it differs; -1 if by none.
    """

    kind: Number
    code: str
    operands: tuple[int, ...] = ()
    by_tile: bool = False
    partition: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """Values that no size enters: one, or one for each tile, class, or class and tile.

    Attributes:
        values: shape (classes or 1, tiles or 1).
    """

    values: NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Graph:
    """All expressions over a pool.

    Attributes:
        tiles: number of tiles.
        partition: the partition whose classes are the rows of arrays that have several.
        nodes: every distinct node, after its operands.
        leaves: every distinct leaf.
    """

    tiles: int
    partition: int = -1
    nodes: list[Node] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    _numbers: dict[Node, int] = field(default_factory=dict)
    _leaf_nodes: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def size(self, index: int) -> Symbol:
        """The size of this number of the problem."""
        return Symbol(self, self.add(Node(_R, f"size[{index}]")))

    def add(self, node: Node) -> int:
        """The number of a node, which it gets if it has none."""
        if node not in self._numbers:
            self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return self._numbers[node]

    def apply(self, name: str, inputs: Iterable[Any]) -> Symbol:
        """What a function of NumPy's makes of symbols, arrays and numbers.

        Raises:
            ModelError: it cannot be written in C.
        """
        operands = list(inputs)
        chosen = operands[1:] if name == "where" else operands
        kind = _T if name in ON_TRUTHS else self._common(chosen)
        if (name, kind) not in OPERATIONS and name in ALWAYS_REAL:
            kind = _R
        if (name, kind) not in OPERATIONS:
            raise ModelError(f"NumPy's {name} of a problem's sizes cannot be exported")
        code, result = OPERATIONS[name, kind]
        numbers = [self.number_of(operand, kind) for operand in chosen]
        if name == "where":
            numbers.insert(0, self.number_of(operands[0], _T))
        return Symbol(self, self._joined(result, code, numbers))

    def number_of(self, value: Any, kind: Number | None = None) -> int:
        """The node of a symbol, array or number, cast to a kind if one is given."""
        number = value.number if isinstance(value, Symbol) else self._known(value, kind)
        own = self.nodes[number].kind
        if kind is None or own == kind:
            return number
        return self._joined(kind, CASTS[own, kind], [number])

    def _joined(self, kind: Number, code: str, numbers: list[int]) -> int:
        parts = [self.nodes[number] for number in numbers]
        partitions = {part.partition for part in parts} - {-1}
        assert len(partitions) <= 1, "a formula is computed for one partition at a time"
        by_tile = any(part.by_tile for part in parts)
        return self.add(Node(kind, code, tuple(numbers), by_tile, max(partitions, default=-1)))

    def _known(self, value: Any, kind: Number | None) -> int:
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            own = _kind_of(value) if kind is None else kind
            return self.add(Node(own, _literal(value, own)))
        array = np.asarray(value)
        own = _kind_of(array)
        values = np.atleast_2d(array).astype(np.float64)
        is_known = values.ndim == 2 and values.shape[1] in {1, self.tiles} and (len(values) == 1 or self.partition >= 0)  # noqa: PLR2004
        if not is_known:
            raise ModelError(f"an array of shape {array.shape} cannot be exported")
        if own == _I and not np.array_equal(values.astype(array.dtype), np.atleast_2d(array)):
            raise ModelError("integers beyond 2^53 cannot be exported")
        by_tile, partition = values.shape[1] > 1, self.partition if values.shape[0] > 1 else -1
        key = (values.shape, values.tobytes(), partition)
        if key not in self._leaf_nodes:
            at = "at" if by_tile else "0"
            if partition >= 0:
                at = "of_class * all + at" if by_tile else "of_class"
            self._leaf_nodes[key] = self.add(Node(_R, f"leaf[{len(self.leaves)}][{at}]", (), by_tile, partition))
            self.leaves.append(Leaf(values))
        return self.number_of(Symbol(self, self._leaf_nodes[key]), own)

    def _common(self, values: list[Any]) -> Number:
        kinds = [self.nodes[v.number].kind if isinstance(v, Symbol) else _kind_of(v) for v in values]
        return max(kinds, key=_ORDER.index)


def _kind_of(value: Any) -> Number:
    code = np.asarray(value).dtype.kind
    if code not in "biuf":
        raise ModelError("text beside a problem's sizes cannot be exported")
    return {"b": _T, "f": _R}.get(code, _I)


def _literal(value: float, kind: Number) -> str:
    if kind != _R:
        return str(int(value))
    if math.isnan(value):
        return "NAN"
    return repr(float(value)) if math.isfinite(value) else ("INFINITY" if value > 0 else "-INFINITY")


class Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that a problem's sizes enter: a node of a graph."""

    __slots__ = ("graph", "number")
    __hash__ = None  # type: ignore[assignment] # `==` gives a symbol

    def __init__(self, graph: Graph, number: int) -> None:
        self.graph = graph
        self.number = number

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Write down what NumPy would compute."""
        if options or method != "__call__":
            raise ModelError(f"NumPy's {ufunc.__name__}.{method} of a problem's sizes cannot be exported")
        return self.graph.apply(ufunc.__name__, inputs)

    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        """The same for functions that are no ufuncs."""
        return _call(func, args, kwargs)

    def __array__(self, *_args: Any, **_options: Any) -> Any:
        """Refuse to become numbers."""
        raise ModelError("a formula needs the values of a problem's sizes and cannot be exported")

    def __bool__(self) -> bool:
        """Refuse to be decided."""
        raise ModelError("a formula decides by a problem's sizes and cannot be exported; np.where can")

    def astype(self, dtype: Any) -> Symbol:
        """The same as another kind of number."""
        kind = _kind_of(np.zeros(1, dtype))
        return Symbol(self.graph, self.graph.number_of(self, kind))


class Symbols(tuple):  # type: ignore[type-arg]
    """Several arrays, some of them symbols, to be reduced to one."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Reduce them along the first axis, in order."""
        if method != "reduce" or options.get("axis", 0) != 0:
            raise ModelError(f"NumPy's {ufunc.__name__}.{method} of several arrays cannot be exported")
        result, *others = inputs[0]
        for other in others:
            result = ufunc(result, other)
        return result

    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        """The same for functions that are no ufuncs."""
        return _call(func, args, kwargs)


def _where(condition: Any, yes: Any, no: Any) -> Any:
    """A condition that is everywhere the same chooses here."""
    if not isinstance(condition, Symbol):
        if np.all(condition):
            return yes
        if not np.any(condition):
            return no
    symbols = [one for one in (condition, yes, no) if isinstance(one, Symbol)]
    return symbols[0].graph.apply("where", [condition, yes, no]) if symbols else np.where(condition, yes, no)


def _select(conditions: list[Any], choices: list[Any], default: Any = 0) -> Any:
    result = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        result = _where(condition, choice, result)
    return result


def _product(several: Symbols, axis: int | None = None) -> Any:
    return np.multiply.reduce(several, axis=axis)


def _clip(value: Any, low: Any, high: Any) -> Any:
    return np.minimum(np.maximum(value, low), high)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.select: _select,
    np.prod: _product,
    np.clip: _clip,
    np.broadcast_arrays: lambda *several: Symbols(several),
}


def _call(func: Any, args: Any, kwargs: Any) -> Any:
    if func not in _FUNCTIONS:
        raise ModelError(f"NumPy's {func.__name__} of a problem's sizes cannot be exported")
    return _FUNCTIONS[func](*args, **kwargs)


class SymbolicColumns(Columns):
    """Columns of a problem whose sizes are symbols.

    Args:
        sizes: symbols by column.
        given: the other columns.
        derived: formulas of intermediate quantities, by name.
        defaults: values of columns that are not given.
    """

    def __init__(
        self,
        sizes: Mapping[str, Symbol],
        given: Mapping[str, Any],
        derived: Mapping[str, Callable[[Columns], Any]],
        defaults: Mapping[str, float | str],
    ) -> None:
        super().__init__(given, derived, defaults)
        self._sizes = sizes

    def _find(self, name: str) -> Any:
        if name in self._sizes and name not in self._derived:
            return self._sizes[name]
        return super()._find(name)

    def raw(self, name: str) -> Any:
        """A size as a symbol, or a given column as it is."""
        return self._sizes[name] if name in self._sizes else super().raw(name)
