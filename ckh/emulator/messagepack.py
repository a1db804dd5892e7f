"""MessagePack as far as the metadata of AMD GPU code objects uses it (https://msgpack.org, format specification)."""

from __future__ import annotations

from typing import Any

# What a first byte says: integers from 0, then maps, lists and texts of a size that it holds, then other types.
_MAP, _LIST, _TEXT, _OTHER, _NEGATIVE = 0x80, 0x90, 0xA0, 0xC0, 0xE0
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_UNSIGNED, _SIGNED, _INTEGERS_END = 0xCC, 0xD0, 0xD4
# First bytes of texts, lists and maps whose size follows, and in how many bytes.
_TEXTS, _LISTS, _MAPS = {0xD9: 1, 0xDA: 2, 0xDB: 4}, {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}
_MOST_DEPTH = 32


def unpack(data: bytes) -> Any:
    """The value that data begin with.

    Raises:
        ValueError: they are cut off, too deep, or of a type that code objects do not use.
    """
    try:
        return _value(data, 0, 0)[0]
    except (IndexError, TypeError, UnicodeDecodeError) as error:  # TypeError: a key that is a list or a map
        raise ValueError("damaged MessagePack") from error


def _value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """A value, and where it ends."""
    if depth > _MOST_DEPTH:
        raise ValueError("MessagePack that is too deep")
    kind = data[at]
    at += 1
    if kind < _MAP:
        return kind, at
    if kind >= _NEGATIVE:
        return kind - 0x100, at
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], at
    if _UNSIGNED <= kind < _INTEGERS_END:
        size = 1 << (kind & 3)
        return int.from_bytes(_bytes(data, at, size), "big", signed=kind >= _SIGNED), at + size
    return _sized(data, kind, at, depth)


def _sized(data: bytes, kind: int, at: int, depth: int) -> tuple[Any, int]:
    if _TEXT <= kind < _OTHER or kind in _TEXTS:
        count, at = _count(data, kind & 31, at, _TEXTS.get(kind, 0))
        return _bytes(data, at, count).decode(), at + count
    if kind < _LIST or kind in _MAPS:
        count, at = _count(data, kind & 15, at, _MAPS.get(kind, 0))
        flat, at = _values(data, 2 * count, at, depth)
        return dict(zip(flat[::2], flat[1::2], strict=True)), at
    if kind < _TEXT or kind in _LISTS:
        count, at = _count(data, kind & 15, at, _LISTS.get(kind, 0))
        return _values(data, count, at, depth)
    raise ValueError(f"MessagePack type {kind:#x}")


def _count(data: bytes, inside: int, at: int, size: int) -> tuple[int, int]:
    return (int.from_bytes(_bytes(data, at, size), "big"), at + size) if size else (inside, at)


def _values(data: bytes, count: int, at: int, depth: int) -> tuple[list[Any], int]:
    values = []
    for _ in range(count):
        value, at = _value(data, at, depth + 1)
        values.append(value)
    return values, at


def _bytes(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError("MessagePack that is cut off")
    return data[at : at + size]
