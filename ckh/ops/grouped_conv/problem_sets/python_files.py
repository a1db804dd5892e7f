"""Problems in AMD's Python problem files, read from the syntax tree: nothing in a file is ever executed.

A problem is a call of `GroupedConvProblem` that has all its values written out by name, wherever it stands.
"""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.log import note
from ckh.untrusted import MIB, larger_than

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A syntax tree takes 170 to 400 times the memory of its text. 8,000 problems as AMD writes them fit; it has 300 a file.
MAX_SOURCE_BYTES = 2 * MIB
_MAX_BITS = 63  # Python refuses to print thousands of digits, and an error prints the value
_PROBLEM = "GroupedConvProblem"


def written_problems(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The problems written out in a Python file: the line of each and its values by AMD's names.

    Raises:
        DataError: the text is not Python, too large or too deeply nested, a value stands twice in a problem, or no
            problem is written out.
    """
    calls = sorted(_calls(_tree(path, text)), key=lambda call: (call.lineno, call.col_offset))
    written = [(call, values) for call in calls if (values := _values(call)) is not None]
    if not written:
        raise DataError(
            f"{path}: no {_PROBLEM}(N=..., C=..., ...) whose values are all numbers",
            "Python files are not executed: write a list that is computed to a .csv file, and give that",
        )
    if computed := [call.lineno for call in calls if _values(call) is None]:
        note(f"{path}:{computed[0]}: problems with computed values are not read: {len(computed)} of {len(calls)}")
    for call, values in written:
        if len(values) < len(call.keywords):
            raise DataError(f"{path}:{call.lineno}: a value stands there twice", "leave one of them out")
        for name, value in values.items():
            if isinstance(value, int) and value.bit_length() > _MAX_BITS:
                raise DataError(f"{path}:{call.lineno}: {name} has more than {_MAX_BITS} bits", "sizes are below 2^31")
        yield call.lineno, values


def _tree(path: Path, text: str) -> ast.Module:
    if len(text) > MAX_SOURCE_BYTES:
        raise larger_than(path, MAX_SOURCE_BYTES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of how its strings are written
            return ast.parse(text)
    except SyntaxError as error:
        raise DataError(f"{path}:{error.lineno or 1}: not Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{path}: not a Python file that can be read: {str(error) or 'too deeply nested'}") from error


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == _PROBLEM:
                yield node


def _values(call: ast.Call) -> dict[str, Any] | None:
    """The values of a call by name; None if one has no name or is not written out."""
    values: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None or not isinstance(keyword.value, ast.Constant | ast.UnaryOp):
            return None
        try:
            values[keyword.arg] = ast.literal_eval(keyword.value)  # of these two kinds: a constant or a signed number
        except ValueError:
            return None
    return None if call.args else values
