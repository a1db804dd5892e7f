"""Compact facts about the kernels of a prepared pool: the kind of each, and their encoded names."""

from __future__ import annotations

import zlib
from array import array
from binascii import a2b_base64, b2a_base64
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_KINDS = 256  # the kind of a kernel is stored in a byte
_FIRST_WORD, _LAST_WORD = 1, 255  # of the bytes that represent words; 0 pads a record


class KernelKind(NamedTuple):
    """Properties shared by kernels of a pool, as far as an answer prints them."""

    lack: int  # index of the reason why the headers cannot build them; -1 if they can
    family: str  # if the model has no measurements of it; else empty
    is_estimated: bool
    is_compiled: bool
    is_timed: bool


def kind_facts(kind_of: Sequence[KernelKind], judged_by: Sequence[int]) -> dict[str, Any]:
    """Encode the facts of a pool's kernels, given their kinds and the indices of the rules that refuse them."""
    numbers: dict[KernelKind, int] = {}
    kinds = [numbers.setdefault(kind, len(numbers)) for kind in kind_of]
    if len(numbers) > _MOST_KINDS:
        raise ModelError(f"there are kernels of {len(numbers)} kinds")
    of_kernel = list(zip(judged_by, kinds, strict=True))
    first = dict(zip(reversed(of_kernel), range(len(of_kernel) - 1, -1, -1), strict=True))
    alike = sorted((first[item], item[1], count) for item, count in Counter(of_kernel).items())
    return {
        "kinds": list(numbers),
        "kind_of": packed(bytes(kinds)),
        "alike": [packed(array("i", column).tobytes()) for column in zip(*alike, strict=True)],
    }


def packed(content: bytes) -> str:
    """Compress bytes to text."""
    return b2a_base64(zlib.compress(content)).decode()


def unpacked(text: str) -> bytes:
    """Decompress `packed` text."""
    return zlib.decompress(a2b_base64(text))


def encode_names(names: Sequence[str]) -> tuple[list[str], list[bytes]]:
    """Encode names as records of equal length: one byte per word, if there are few enough distinct words."""
    parts = [name.split("_") for name in names]
    number_of = {word: number for number, word in enumerate(dict.fromkeys(chain(*parts)), _FIRST_WORD)}
    if is_short := len(number_of) <= _LAST_WORD:
        result = [bytes([number_of[word] for word in part]) for part in parts]
    else:
        result = [name.encode() for name in names]
    length = max(map(len, result), default=0)
    return list(number_of) if is_short else [], [item.ljust(length, b"\0") for item in result]


def decode_name(record: bytes, words: Sequence[str]) -> str:
    """Decode a record of `encode_names`."""
    content = record.rstrip(b"\0")
    return "_".join([words[number - _FIRST_WORD] for number in content]) if words else content.decode()
