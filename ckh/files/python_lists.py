"""Problem lists in AMD's Python files, parsed from the syntax tree: files are never executed."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.files.untrusted import MIB, larger_than
from ckh.text.log import note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A syntax tree takes 170 to 400 times the memory of its text. 8,000 problems in AMD's notation fit; its files have 300.
MAX_SOURCE_BYTES = 2 * MIB
_MAX_BITS = 63  # Python refuses to print thousands of digits, and errors print the value


@dataclass(frozen=True, slots=True)
class WrittenForm:
    """How problems of an operation are written in Python."""

    example: str  # for an error
    calls: tuple[str, ...]  # names of the classes that are called with literal values
    fields: tuple[str, ...] = ()  # names of the positional values, in order; empty: all are keywords
    lists: tuple[str, ...] = ()  # words in the names of variables that hold lists of problems
    no_lists: tuple[str, ...] = ()  # words in the names of variables that hold other lists

    def is_list(self, name: str) -> bool:
        """True if a variable of this name holds a list of problems."""
        lower = name.lower()
        return any(word in lower for word in self.lists) and not any(word in lower for word in self.no_lists)


def written_problems(path: Path, text: str, form: WrittenForm) -> Iterator[tuple[int, dict[str, Any] | UsageError]]:
    """Problems in a Python file: the line of each and its values by AMD's names, or what is wrong with them."""
    nodes = sorted(_nodes(_tree(path, text), form), key=lambda node: (node.lineno, node.col_offset))
    read = [(node, _values(node, form)) for node in nodes]
    written = [(node, values) for node, values in read if values is not None]
    if not written:
        raise DataError(
            f"{path}: no {form.example} whose values are all numbers",
            "Python files are not executed: write a list that is computed to a .csv file, and give that",
            code="unknown-format",
        )
    if computed := [node.lineno for node, values in read if values is None]:
        note(f"{path}:{computed[0]}: problems with computed values are not read: {len(computed)} of {len(nodes)}")
    for node, values in written:
        yield node.lineno, _fault(node, values) or values


def _fault(node: ast.expr, values: dict[str, Any]) -> UsageError | None:
    if isinstance(node, ast.Call) and len(values) < len(node.args) + len(node.keywords):
        return UsageError("duplicate value", "omit one of them", code="duplicate-name")
    for name, value in values.items():
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            return UsageError(f"{name} has more than {_MAX_BITS} bits", "sizes are below 2^31", code="out-of-range")
    return None


def _tree(path: Path, text: str) -> ast.Module:
    if len(text) > MAX_SOURCE_BYTES:
        raise larger_than(path, MAX_SOURCE_BYTES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the syntax of strings
            return ast.parse(text)
    except SyntaxError as error:
        raise DataError(f"{path}:{error.lineno or 1}: not Python: {error.msg}", code="not-python") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise DataError(
            f"{path}: not a Python file that can be read: {str(error) or 'too deeply nested'}", code="not-python"
        ) from error


def _nodes(tree: ast.Module, form: WrittenForm) -> Iterator[ast.expr]:
    """Calls and list entries that are problems."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in form.calls:
            yield node
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.List):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(form.is_list(_name(target)) for target in targets):
                yield from (elt for elt in node.value.elts if isinstance(elt, ast.Tuple | ast.List))


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _values(node: ast.expr, form: WrittenForm) -> dict[str, Any] | None:
    """Values of a problem by name; None if a value has no name or is not a literal."""
    if isinstance(node, ast.Call):
        unnamed, named = node.args, [(keyword.arg, keyword.value) for keyword in node.keywords]
    else:
        assert isinstance(node, ast.Tuple | ast.List)
        unnamed, named = node.elts, []
        if len(unnamed) != len(form.fields):
            return None
    if len(unnamed) > len(form.fields):
        return None
    values: dict[str, Any] = {}
    for name, value in [*zip(form.fields, unnamed, strict=False), *named]:
        if name is None or not isinstance(value, ast.Constant | ast.UnaryOp):
            return None
        try:
            values[name] = ast.literal_eval(value)  # either a constant or a signed number
        except ValueError:
            return None
    return values
