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
_TOO_DEEP = f"the filter is nested more than {MAX_DEPTH} levels deep"

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
    return _condition(_tree(text), field_types(kind))


def _tree(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise _malformed(f"the filter is longer than {MAX_LENGTH} characters")
    if not text.strip():
        raise _malformed("the filter is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns of dubious syntax, such as `1in (1, 2)`.
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, Warning) as error:
        problem = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _malformed(f"not a filter: {_shown(text)}: {problem}") from error
    except (RecursionError, MemoryError) as error:
        raise _malformed(_TOO_DEEP) from error
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise _malformed(_TOO_DEEP)
    return tree


def _malformed(message: str, hint: str = "") -> UsageError:
    return UsageError(message, hint, code="bad-filter")


def _mistyped(message: str, hint: str = "") -> UsageError:
    return UsageError(message, hint, code="filter-type")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def _ordered(compare: _Compare) -> _Compare:
    return lambda a, b: a is not None and b is not None and compare(a, b)


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
_COMPARISONS = {ast.Eq: operator.eq, ast.NotEq: operator.ne} | _ORDERINGS | _MEMBERSHIPS


@dataclass(frozen=True, slots=True)
class _Operand:
    """A side of a comparison: its text, type and value; a list has items instead of a type."""

    text: str
    type: FieldType
    value: Callable[[Any], Any]
    items: tuple[_Operand, ...] | None = None


def _condition(node: ast.expr, types: dict[str, FieldType]) -> _Condition:
    """Compile a boolean condition on an instance with fields of these types."""
    match node:
        case ast.BoolOp(op=op, values=nodes):
            parts, joined = [_condition(part, types) for part in nodes], all if isinstance(op, ast.And) else any
            return lambda instance: joined(part(instance) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=negated):
            part = _condition(negated, types)
            return lambda instance: not part(instance)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = pairwise([_operand(side, types) for side in (left, *others)])
            pairs = [(a.value, _comparison(type(op), a, b), b.value) for op, (a, b) in zip(ops, sides, strict=True)]
            return lambda instance: all(compare(a(instance), b(instance)) for a, compare, b in pairs)
    operand = _operand(node, types)
    if bool not in operand.type.types:
        raise _mistyped(f"{operand.text} is {operand.type.words}, not true or false", "compare it with a value")
    return lambda instance: operand.value(instance) is True


def _operand(node: ast.expr, types: dict[str, FieldType]) -> _Operand:
    """Compile a field, a literal or a list of literals; without types, only a literal."""
    match node:
        case ast.Name(id=name) if name in types:
            return _Operand(name, types[name], operator.attrgetter(name))
        case ast.Name(id=name) if types:
            closest = get_close_matches(name, types, n=1, cutoff=0)[0]
            raise UsageError(f"unknown field {_shown(name)}", f"did you mean {closest}?", code="unknown-field")
        case ast.Tuple(elts=elements) | ast.List(elts=elements) if types:
            items = tuple(_operand(element, {}) for element in elements)
            values = tuple(item.value(None) for item in items)
            return _Operand("a list", FieldType(frozenset()), lambda _: values, items)
        case ast.Constant(value=str(text)):
            return _Operand(_shown(text), FieldType(frozenset({str}), (text,)), lambda _: text)
        case ast.Constant(value=value) if type(value) in _WORDS:
            return _Operand(repr(value), FieldType(frozenset({type(value)})), lambda _: value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if type(value) is int:
            return _Operand(f"-{value}", FieldType(frozenset({int})), lambda _: -value)
    hint = "write fields, literals, comparisons, in, and, or, not"
    raise _malformed(f"{_shown(ast.unparse(node))} is not supported in a filter", hint)


def _comparison(op: type[ast.cmpop], left: _Operand, right: _Operand) -> _Compare:
    if op not in _COMPARISONS:
        raise _malformed("`is` is not supported in a filter", "write == or !=")
    if left.items is not None or (right.items is not None) is not (op in _MEMBERSHIPS):
        hint = 'a list of literals is for the right side of `in`, as in: dtype in ("fp16", "bf16")'
        raise _mistyped(f"{left.text} and {right.text} cannot be compared with this operator", hint)
    for operand in (right,) if right.items is None else right.items:
        _require_comparable(left, operand)
        for side in (left, operand) if op in _ORDERINGS else ():
            if int not in side.type.types:
                raise _mistyped(f"{side.text} is {side.type.words}, which has no order")
    return _COMPARISONS[op]


def _require_comparable(left: _Operand, right: _Operand) -> None:
    a, b = left.type, right.type
    shared = a.types & b.types
    if not shared - {NoneType} and (not shared or shared not in (a.types, b.types)):  # None has no other in common
        raise _mistyped(f"{left.text} is {a.words}, {right.text} is {b.words}, not comparable")
    if a.choices and b.choices and not set(a.choices) & set(b.choices):
        known = max(a.choices, b.choices, key=len)
        raise _mistyped(f"{left.text} is never {right.text}", "it is one of " + ", ".join(known))
