"""The part of the C interface that follows from Python's tables: names and the fields of problems."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ckh.export.groups import Code, ProblemKind

_LINE = 120
_SPACE = "\u00a0"  # where no line ends
_TITLE = "/* Kinds of problems, and their fields in order, with defaults: from the tables of ckh. */"
_CODES = "/* X(name, default, least, end, place in the keys of groups, and what is added there) */"


def names_header(kinds: Sequence[ProblemKind]) -> str:
    """The header ckh_names.h: names of values, and the fields of problems with their defaults."""
    named = {code.end: code for kind in kinds for code in kind.codes if code.prefix}
    numbered = " ".join(f"X({kind.name}, {kind.name.upper()}, {kind.number})" for kind in kinds)
    parts = [_TITLE, *map(_enum, named.values()), f"#define CKH_KINDS(X) {numbered}", _CODES, *map(_fields, kinds)]
    return "\n".join(parts) + "\n"


def _enum(code: Code) -> str:
    members = ", ".join([*map(code.in_c, code.values), str(code.end)])
    return _wrapped(f"enum {{ {members} }};")


def _fields(kind: ProblemKind) -> str:
    defaults = kind.defaults()
    codes = (
        (code.name, code.in_c(defaults[code.field]), code.least, code.end, code.place, code.added)
        for code in kind.codes
    )
    sizes = ((name, defaults[name]) for name in kind.sizes.values())
    name = f"CKH_{kind.name.upper()}"
    comment = _wrapped(f"/* ckh_{kind.name}_problem: {kind.summary} */")
    return "\n".join([comment, _macro(f"{name}_CODES", codes), _macro(f"{name}_SIZES", sizes)])


def _macro(name: str, rows: Iterable[tuple[object, ...]]) -> str:
    calls = (f"X({', '.join(map(str, row))})".replace(" ", _SPACE) for row in rows)
    return _wrapped(f"#define {name}(X) {' '.join(calls)}", " \\").replace(_SPACE, " ")


def _wrapped(text: str, end: str = "") -> str:
    lines = textwrap.wrap(text, _LINE - len(end), subsequent_indent="  ", break_long_words=False)
    return f"{end}\n".join(lines)
