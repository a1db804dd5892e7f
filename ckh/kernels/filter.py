"""Filters: conditions on the fields of a kernel, as text such as `pipeline == "compv4" and tile_m >= 64`.

A filter consists of comparisons of fields and literals (==, !=, <, <=, >, >=, also chained), `in` and `not in` with a
list of literals, boolean fields, `and`, `or`, `not` and parentheses. Literals are strings, integers, True, False and
None. It is parsed by Python's parser, but never executed as Python.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ckh.errors import UsageError
from ckh.strenum import StrEnum

K = TypeVar("K")
_Compare = Callable[[Any, Any], bool]
_Condition = Callable[[Any], bool]

MAX_LENGTH = 4000
MAX_DEPTH = 40
_SHOWN = 60

_WORDS: dict[type, str] = {str: "text", int: "an integer", bool: "true or false", NoneType: "None"}


@dataclass(frozen=True, slots=True)
class FieldType:
    """Types of a field or a literal: some of str, int, bool and NoneType; for an enum's field, its values."""

    types: frozenset[type]
    choices: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Return the types in words for a message."""
        return " or ".join(word for kind, word in _WORDS.items() if kind in self.types) or "of another type"

    def compares_with(self, other: FieldType) -> bool:
        """True if the types have values in common; None does not count, unless one of them has no other value."""
        shared = self.types & other.types
        return bool(shared - {NoneType}) or (bool(shared) and shared in (self.types, other.types))


def field_types(kind: type) -> dict[str, FieldType]:
    """Fields of a dataclass by name. A field of a type without literals has an empty set of types."""
    hints = get_type_hints(kind)
    return {field.name: _field_type(hints[field.name]) for field in fields(kind)}


def _field_type(hint: Any) -> FieldType:
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    enums = [member for member in members if isinstance(member, type) and issubclass(member, StrEnum)]
    types = {str if member in enums else member for member in members}
    return FieldType(frozenset(types & _WORDS.keys()), tuple(str(choice) for enum in enums for choice in enum))


def parse_filter(text: str, kind: type[K]) -> Callable[[K], bool]:
    """Compile a filter to a function of a dataclass instance.

    A field that is None equals only None, and is neither less nor greater than anything.
    """
    return _Reader(field_types(kind)).condition(_tree(text))


def _tree(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise UsageError(f"the filter is longer than {MAX_LENGTH} characters", code="bad-filter")
    if not text.strip():
        raise UsageError("the filter is empty", code="bad-filter")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns of dubious syntax, such as `1in (1, 2)`.
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, Warning) as error:
        problem = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(f"not a filter: {_shown(text)}: {problem}", code="bad-filter") from error
    except (RecursionError, MemoryError) as error:
        raise _too_deep() from error
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise _too_deep()
    return tree


def _too_deep() -> UsageError:
    return UsageError(f"the filter is nested more than {MAX_DEPTH} levels deep", code="bad-filter")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def _ordered(compare: _Compare) -> _Compare:
    return lambda a, b: a is not None and b is not None and compare(a, b)


_EQUALITIES: dict[type[ast.cmpop], _Compare] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_ORDERINGS: dict[type[ast.cmpop], _Compare] = {
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
}
_MEMBERSHIPS: dict[type[ast.cmpop], _Compare] = {
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}
_COMPARISONS = _EQUALITIES | _ORDERINGS | _MEMBERSHIPS


@dataclass(frozen=True, slots=True)
class _Operand:
    """A side of a comparison: its text, type and value; a list has items instead of a type."""

    text: str
    type: FieldType
    value: Callable[[Any], Any]
    items: tuple[_Operand, ...] | None = None


class _Reader:
    """Compiles the nodes of a filter to functions of an instance."""

    def __init__(self, types: dict[str, FieldType]) -> None:
        self._types = types

    def condition(self, node: ast.expr) -> _Condition:
        """Compile a boolean condition on an instance."""
        match node:
            case ast.BoolOp(op=ast.And(), values=nodes):
                parts = [self.condition(part) for part in nodes]
                return lambda instance: all(part(instance) for part in parts)
            case ast.BoolOp(values=nodes):
                parts = [self.condition(part) for part in nodes]
                return lambda instance: any(part(instance) for part in parts)
            case ast.UnaryOp(op=ast.Not(), operand=negated):
                part = self.condition(negated)
                return lambda instance: not part(instance)
            case ast.Compare():
                return self._comparisons(node)
            case _:
                return self._truth(node)

    def _truth(self, node: ast.expr) -> _Condition:
        operand = self._operand(node)
        if bool not in operand.type.types:
            raise UsageError(
                f"{operand.text} is {operand.type.words}, not true or false",
                "compare it with a value",
                code="filter-type",
            )
        return lambda instance: operand.value(instance) is True

    def _comparisons(self, node: ast.Compare) -> _Condition:
        operands = [self._operand(side) for side in (node.left, *node.comparators)]
        pairs = [
            (a.value, _comparison(type(op), a, b), b.value)
            for op, (a, b) in zip(node.ops, pairwise(operands), strict=True)
        ]
        return lambda instance: all(compare(a(instance), b(instance)) for a, compare, b in pairs)

    def _operand(self, node: ast.expr) -> _Operand:
        match node:
            case ast.Name(id=name):
                return _Operand(name, self._type(name), operator.attrgetter(name))
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                items = tuple(map(_literal, elements))
                values = tuple(item.value(None) for item in items)
                return _Operand("a list", FieldType(frozenset()), lambda _: values, items)
            case _:
                return _literal(node)

    def _type(self, name: str) -> FieldType:
        if name not in self._types:
            closest = get_close_matches(name, self._types, n=1, cutoff=0)
            raise UsageError(
                f"unknown field {_shown(name)}",
                f"did you mean {closest[0]}?" if closest else "",
                code="unknown-field",
            )
        return self._types[name]


def _literal(node: ast.expr) -> _Operand:
    match node:
        case ast.Constant(value=str(text)):
            return _Operand(_shown(text), FieldType(frozenset({str}), (text,)), lambda _: text)
        case ast.Constant(value=value) if type(value) in _WORDS:
            return _Operand(repr(value), FieldType(frozenset({type(value)})), lambda _: value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if type(value) is int:
            return _Operand(f"-{value}", FieldType(frozenset({int})), lambda _: -value)
        case _:
            raise UsageError(
                f"{_shown(ast.unparse(node))} is not supported in a filter",
                "write fields, literals, comparisons, in, and, or, not",
                code="bad-filter",
            )


def _comparison(op: type[ast.cmpop], left: _Operand, right: _Operand) -> _Compare:
    if op not in _COMPARISONS:
        raise UsageError("`is` is not supported in a filter", "write == or !=", code="bad-filter")
    if left.items is not None or (right.items is not None) is not (op in _MEMBERSHIPS):
        raise UsageError(
            f"{left.text} and {right.text} cannot be compared with this operator",
            'a list of literals is for the right side of `in`, as in: dtype in ("fp16", "bf16")',
            code="filter-type",
        )
    for operand in (right,) if right.items is None else right.items:
        _require_comparable(left, operand)
        for side in (left, operand) if op in _ORDERINGS else ():
            if int not in side.type.types:
                raise UsageError(f"{side.text} is {side.type.words}, which has no order", code="filter-type")
    return _COMPARISONS[op]


def _require_comparable(left: _Operand, right: _Operand) -> None:
    a, b = left.type, right.type
    if not a.compares_with(b):
        raise UsageError(f"{left.text} is {a.words}, {right.text} is {b.words}, not comparable", code="filter-type")
    if a.choices and b.choices and not set(a.choices) & set(b.choices):
        known = max(a.choices, b.choices, key=len)
        raise UsageError(f"{left.text} is never {right.text}", "it is one of " + ", ".join(known), code="filter-type")
