"""The parts of the C interface that follow from Python's tables: enumerations, fields of problems, defaults."""

from __future__ import annotations

import textwrap
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from ckh.export.groups import CONV, DIRECTIONS, DTYPES, ProblemKind, conv_kind, gemm_kind
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS, ConvProblem

if TYPE_CHECKING:
    from collections.abc import Iterable

_LINE = 120


def names_header() -> str:
    """The header ckh_names.h: codes of directions, types and layouts, and the sizes of problems with their defaults."""
    from ckh.ops.gemm_universal.problem import GemmProblem

    conv, gemm = conv_kind(), gemm_kind()
    conv_defaults, gemm_defaults = _defaults(ConvProblem), _defaults(GemmProblem)
    chosen = {
        "CKH_CONV_DTYPE": field_value(conv, "dtype", conv_defaults["dtype"]),
        "CKH_CONV_NDIM": str(min(CONV_LAYOUTS)),
        "CKH_GEMM_DTYPE": field_value(gemm, "dtype", gemm_defaults["dtype"]),
        "CKH_GEMM_LAYOUT": field_value(gemm, "layout", gemm_defaults["layout"]),
    }
    parts = [
        "/* Names of what problems are, and their sizes in order, with defaults: from the tables of ckh. */",
        _enum("CKH_", DIRECTIONS, "CKH_DIRECTIONS"),
        _enum("CKH_", DTYPES, "CKH_DTYPES"),
        _enum("CKH_LAYOUT_", conv.layouts, "CKH_LAYOUTS"),
        _enum("CKH_GEMM_", gemm.layouts[1:], "CKH_GEMM_LAYOUTS"),
        _wrapped("enum { " + ", ".join(f"{name} = {value}" for name, value in chosen.items()) + " };"),
        _sizes(conv, conv_defaults),
        _sizes(gemm, gemm_defaults),
    ]
    return "\n".join(parts) + "\n"


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
    return _wrapped(f"enum {{ {members} }};")


def _wrapped(text: str, end: str = "") -> str:
    lines = textwrap.wrap(text, _LINE - len(end), subsequent_indent="  ", break_long_words=False)
    return f"{end}\n".join(lines)


def _defaults(problem: type) -> dict[str, Any]:
    return {one.name: one.default for one in fields(problem) if one.default is not MISSING}


def _sizes(kind: ProblemKind, defaults: dict[str, Any]) -> str:
    sizes = " ".join(f"X({name},\u00a0{defaults.get(name, 0)})" for name in kind.sizes.values())
    return _wrapped(f"#define CKH_{kind.name.upper()}_SIZES(X) {sizes}", " \\").replace("\u00a0", " ")
