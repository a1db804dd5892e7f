"""The kernels of a prepared pool in brief: of which kind each is, and their names as words."""

from __future__ import annotations

import zlib
from binascii import b2a_base64
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_KINDS = 256  # a byte tells which a kernel is of
_FIRST_WORD = 1  # of the characters that stand for words; 0 ends a text


class KernelKind(NamedTuple):
    """Properties that kernels of a pool share, as far as an answer prints them.

    Attributes:
        lack: the number of the sentence that says what headers lack for them; -1: nothing.
        family: theirs if the model has no measurement of that; else empty.
        is_estimated: whether the estimate scores them.
        is_compiled: whether it knows what the compiler reported.
        is_timed: whether the model's training data have times of them.
    """

    lack: int
    family: str
    is_estimated: bool
    is_compiled: bool
    is_timed: bool


def kind_facts(kind_of: Sequence[KernelKind], judged_by: Sequence[int]) -> dict[str, Any]:
    """The facts of the kernels of a pool, given their kinds and the numbers of what refuses them.

    Raises:
        ModelError: they are of too many kinds.
    """
    numbers: dict[KernelKind, int] = {}
    kinds = [numbers.setdefault(kind, len(numbers)) for kind in kind_of]
    if len(numbers) > _MOST_KINDS:
        raise ModelError(f"there are kernels of {len(numbers)} kinds")
    alike = list(zip(judged_by, kinds, strict=True))
    first = dict(zip(reversed(alike), range(len(alike) - 1, -1, -1), strict=True))
    return {
        "kinds": list(numbers),
        "kind_of": b2a_base64(zlib.compress(bytes(kinds))).decode(),
        "alike": sorted([first[one], one[1], count] for one, count in Counter(alike).items()),
    }


def in_words(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The distinct words of names, and each name as a text of one character for each word."""
    parts = [name.split("_") for name in names]
    sign_of = {word: chr(_FIRST_WORD + number) for number, word in enumerate(dict.fromkeys(chain(*parts)))}
    return list(sign_of), ["".join([sign_of[word] for word in part]) for part in parts]


def named(text: str, words: Sequence[str]) -> str:
    """The name that is such a text of these words."""
    return "_".join([words[ord(sign) - _FIRST_WORD] for sign in text])
