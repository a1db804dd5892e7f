"""The parts of the C interface that follow from Python's tables: enumerations, fields of problems, defaults."""

from __future__ import annotations

import textwrap
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING

from ckh.export.groups import CONV, DIRECTIONS, DTYPES, ProblemKind, conv_kind, gemm_kind
from ckh.problems import CONV_LAYOUTS, ConvProblem

if TYPE_CHECKING:
    from collections.abc import Iterable

_LINE = 120


def header(template: str) -> str:
    """The public header."""
    conv, gemm = conv_kind(), gemm_kind()
    enums = [
        _enum("CKH_", DIRECTIONS, "CKH_DIRECTIONS"),
        _enum("CKH_", DTYPES, "CKH_DTYPES"),
        _enum("CKH_LAYOUT_", conv.layouts, "CKH_LAYOUTS"),
        _enum("CKH_GEMM_", gemm.layouts[1:], "CKH_GEMM_LAYOUTS"),
    ]
    text = template.replace("@ENUMS@", "\n".join(enums))
    for kind in (conv, gemm):
        text = text.replace(f"@{kind.name.upper()}_FIELDS@", _fields(kind))
    return text


def sizes_functions() -> str:
    """Functions that put a problem's sizes in order, and that set a problem to its defaults."""
    from ckh.ops.gemm_universal.problem import GemmProblem

    classes: dict[str, type] = {CONV: ConvProblem}
    return "\n".join(
        _sizes_function(kind) + _defaults_function(kind, classes.get(kind.name, GemmProblem))
        for kind in (conv_kind(), gemm_kind())
    )


def field_value(kind: ProblemKind, name: str, value: object) -> str:
    """What a field of a problem is in C.

    Args:
        kind: the kind of problem.
        name: the field in Python.
        value: its value there.
    """
    if name == "variant":
        return _constant("CKH_", str(value))
    if name == "dtype":
        return _constant("CKH_", str(value))
    if name == "layout":
        return _constant("CKH_LAYOUT_" if kind.name == CONV else "CKH_GEMM_", str(value))
    return str(value)


def _constant(prefix: str, name: str) -> str:
    return f"{prefix}{name.upper()}"


def _enum(prefix: str, names: Iterable[str], count: str) -> str:
    members = ", ".join([*(_constant(prefix, name) for name in names), count])
    return textwrap.fill(f"enum {{ {members} }};", _LINE, subsequent_indent="  ")


def _fields(kind: ProblemKind) -> str:
    names = list(kind.sizes.values())
    lines = [names[start : start + 8] for start in range(0, len(names), 8)]
    return "\n".join(f"  int64_t {', '.join(line)};" for line in lines)


def _sizes_function(kind: ProblemKind) -> str:
    lines = [f"  size[{index}] = problem->{name};" for index, name in enumerate(kind.sizes.values())]
    head = f"void ckh_{kind.name}_sizes(const ckh_{kind.name}_problem *problem, int64_t *size) {{"
    return "\n".join([head, *lines, "}\n\n"])


def _defaults_function(kind: ProblemKind, problem: type) -> str:
    defaults = {one.name: one.default for one in fields(problem) if one.default is not MISSING}
    values = {name: defaults.get(name, 0) for name in kind.sizes.values()}
    if kind.name == CONV:
        values = {"direction": "CKH_FORWARD", "layout": "CKH_LAYOUT_DEFAULT", "ndim": min(CONV_LAYOUTS)} | values
    else:
        values = {"layout": field_value(kind, "layout", defaults["layout"])} | values
    values["dtype"] = field_value(kind, "dtype", defaults["dtype"])
    lines = [f"  problem->{name} = {value};" for name, value in values.items()]
    head = f"void ckh_{kind.name}_defaults(ckh_{kind.name}_problem *problem) {{"
    return "\n".join([head, "  if (!problem) return;", *lines, "}\n"])
