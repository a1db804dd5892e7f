"""Grammars of kernel names: tokens in order, each a pattern with its description for errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ckh.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

# Pipelines by family, so that a new version needs no change here; a wider pattern would match the following tokens.
PIPELINE = re.compile(
    r"basic(?:_async)?_v[0-9]{1,2}|comp_async|comp_tdm(?:_v[0-9]{1,2})?|compv[0-9]{1,2}|mem|preshufflev[0-9]{1,2}"
    r"|wavelet|flatmm"
)
# A size or count in a name: positive, without leading zeros, and within hardware limits.
NUMBER, MOST = "[1-9][0-9]{0,5}", 999_999

EPILOGUES = ("cshuffle", "default", "tdm")

Token = tuple[str, str]


def either(words: Iterable[str]) -> str:
    """Pattern that matches one of the words, preferring longer ones."""
    return "|".join(sorted(words, key=len, reverse=True))


def three_sizes(name: str) -> str:
    """Pattern of `_MxNxK`, with groups named after `name`."""
    return "_" + "x".join(rf"(?P<{name}_{axis}>{NUMBER})" for axis in "mnk")


def by(sizes: Iterable[int]) -> str:
    """Format sizes as names have them: MxNxK."""
    return "x".join(map(str, sizes))


class NameGrammar:
    """Full and short names of an operation's kernels.

    Both begin with `head`, which only in a short name is followed by a digit.
    """

    def __init__(self, what: str, head: tuple[Token, ...], full: tuple[Token, ...], short: tuple[Token, ...]) -> None:
        self._what = what
        self._looks_short = re.compile(_pattern(head) + r"_\d")
        self._forms = tuple((re.compile(_pattern(tokens)), tokens) for tokens in (head + full, head + short))

    def match(self, text: str) -> tuple[re.Match[str], bool]:
        """Match a name; returns its parts, and whether it is a short name."""
        is_short = self._looks_short.match(text) is not None
        name, tokens = self._forms[is_short]
        match = name.fullmatch(text)
        if match is None:
            raise DataError(f"not a {self._what}: {text!r}, {_not_understood(text, tokens)}", code="bad-kernel")
        return match, is_short


def _pattern(tokens: tuple[Token, ...]) -> str:
    return "".join(pattern for _, pattern in tokens)


def _not_understood(text: str, tokens: tuple[Token, ...]) -> str:
    understood = 0
    for number, (token, _) in enumerate(tokens, 1):
        match = re.match(_pattern(tokens[:number]), text)
        if match is None:
            return f"its {token} is missing or unknown"
        understood = match.end()
    return f"its end {text[understood:]!r} is unknown"
