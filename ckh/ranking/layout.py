"""Layout of model files and operations of programs, read from the C headers shared by both languages."""

from __future__ import annotations

import re
import struct
import zlib
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

CSRC = Path(__file__).with_name("csrc")
HEADER = struct.Struct("<8sIIQII")  # magic, byte order, version, total bytes, CRC-32 of what follows, zero
VERSION = 6
_MAGIC, _BYTE_ORDER_MARK = b"CKHMODEL", 0x01020304
_ARRAY = struct.Struct("<II")
_DEFINE = re.compile(r"#define CKH_(\w+)\(X\)((?:[^\n]*\\\n)*[^\n]*)")
_ITEM = re.compile(r"X\((\w+)(?:, (\w+))?\)")
_NUMBERS = {"char": "u1", "int32_t": "<i4", "int64_t": "<i8", "uint32_t": "<u4", "uint64_t": "<u8", "double": "<f8"}
_RECORDS = {"ckh_group_record": "GROUP", "ckh_leaf": "LEAF"}  # records whose name differs from their type
_PAIRS = {"LEAF": ("<i8", 2)}


@cache
def lists() -> dict[str, tuple[tuple[str, str], ...]]:
    """All lists of the header: name and type of each entry; types are empty except in sections."""
    text = (CSRC / "ckh_layout.h").read_text(encoding="utf-8")
    return {name: tuple(_ITEM.findall(body)) for name, body in _DEFINE.findall(text)}


@cache
def numbers(name: str) -> dict[str, int]:
    """Names of a list -> their positions."""
    return {entry: place for place, (entry, _) in enumerate(lists()[name])}


def record(name: str, **fields: int) -> tuple[int, ...]:
    """Build a record from all its fields."""
    assert fields.keys() == numbers(name).keys(), f"{name} has other fields"
    return tuple(fields[field] for field in numbers(name))


class FileWriter:
    """Writes a model file, section by section."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def section(self, name: str, /, **arrays: Any) -> None:
        """Write the next section, with all its arrays."""
        wanted = lists()[f"{name}_ARRAYS"]
        assert arrays.keys() == {array for array, _ in wanted}, f"{name} has other arrays"
        for array, kind in wanted:
            self._add(arrays[array], *_entry(kind))

    def append(self, sections: bytes) -> None:
        """Append sections of another writer."""
        self._parts.append(sections)

    def body(self) -> bytes:
        """Return the sections."""
        return b"".join(self._parts)

    def content(self) -> bytes:
        """Return the whole file."""
        body = self.body()
        checksum = zlib.crc32(body)
        return HEADER.pack(_MAGIC, _BYTE_ORDER_MARK, VERSION, HEADER.size + len(body), checksum, 0) + body

    def _add(self, values: Any, dtype: str, fields: int) -> None:
        array = np.ascontiguousarray(values, dtype=dtype)
        size = array.itemsize * fields
        assert array.nbytes % size == 0, "an entry has other fields"
        self._parts += [_ARRAY.pack(size, array.nbytes // size), array.tobytes(), bytes(-array.nbytes % 8)]


def _entry(kind: str) -> tuple[str, int]:
    """Number type of an entry, and number of its fields."""
    if kind in _NUMBERS:
        return _NUMBERS[kind], 1
    name = _RECORDS.get(kind, kind.removeprefix("ckh_").upper())
    return _PAIRS.get(name) or ("<i4", len(lists()[name]))


class Number(IntEnum):
    """Kinds of numbers, in order of promotion."""

    TRUTH = 0
    INTEGER = 1
    REAL = 2


Kinds = tuple[Number, ...]

_LINE = re.compile(r"^OPERATION(\d)\((\w+), ((?:[TIR], )+)", re.MULTILINE)
_KINDS = dict(zip("TIR", Number, strict=True))
# These convert integers and booleans to real numbers first.
ALWAYS_REAL = frozenset({"divide", "sqrt", "exp", "exp2", "log", "log2", "log1p", "expm1", "maximum", "minimum"})
ON_TRUTHS = frozenset({"logical_and", "logical_or", "logical_not"})


@cache
def operations() -> dict[tuple[str, Kinds], tuple[int, Number]]:
    """NumPy's name and the kinds of the operands -> number of the operation, and kind of its result."""
    first = len(lists()["LEAVES"])
    text = (CSRC / "ckh_operations.h").read_text(encoding="utf-8")
    outcome: dict[tuple[str, Kinds], tuple[int, Number]] = {}
    for number, (count, name, letters) in enumerate(_LINE.findall(text), first):
        *operands, result = (_KINDS[letter] for letter in letters.split(", ")[:-1])
        assert len(operands) == int(count), name
        outcome[name, tuple(operands)] = number, result
    return outcome
