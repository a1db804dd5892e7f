"""The operations of programs, read from csrc/ckh_operations.h, where they stand once for both languages."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache

from ckh.ranking.layout import CSRC, lists


class Number(IntEnum):
    """Kinds of numbers, the weakest first."""

    TRUTH = 0
    INTEGER = 1
    REAL = 2


Kinds = tuple[Number, ...]

_LINE = re.compile(r"^OPERATION(\d)\((\w+), ((?:[TIR], )+)", re.MULTILINE)
_KINDS = dict(zip("TIR", Number, strict=True))
# Of integers and truths these give what they give of the same real numbers.
ALWAYS_REAL = frozenset({"divide", "sqrt", "exp", "exp2", "log", "log2", "log1p", "expm1", "maximum", "minimum"})
ON_TRUTHS = frozenset({"logical_and", "logical_or", "logical_not"})


@cache
def operations() -> dict[tuple[str, Kinds], tuple[int, Number]]:
    """NumPy's name and the kinds of the operands -> the operation's number, and the kind of its result."""
    first = len(lists()["LEAVES"])
    text = (CSRC / "ckh_operations.h").read_text(encoding="utf-8")
    found: dict[tuple[str, Kinds], tuple[int, Number]] = {}
    for number, (count, name, letters) in enumerate(_LINE.findall(text), first):
        *operands, result = (_KINDS[letter] for letter in letters.split(", ")[:-1])
        assert len(operands) == int(count), name
        found[name, tuple(operands)] = number, result
    return found
