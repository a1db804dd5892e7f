"""The grammar of GEMM kernel names: its tokens in order, each with the words for it in an error."""

from __future__ import annotations

import re

from ckh.errors import DataError
from ckh.kernels.config import Scheduler
from ckh.kernels.name_grammar import EPILOGUES, NUMBER, PIPELINE
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.problems import DTYPE_BYTES

_FLAG = {"True": True, "1": True, "False": False, "0": False}
_FLAG_WORDS = "|".join(_FLAG)


def _either(*words: str) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


def _sizes(name: str) -> str:
    return "_" + "x".join(rf"(?P<{name}_{axis}>{NUMBER})" for axis in "mnk")


# 0 stands for the native width.
_WIDTHS = "_".join(f"(?P<vector_{operand}>0|{NUMBER})" for operand in "abc")
_HEAD = (
    ("operation", r"gemm(?:_universal)?"),
    ("dtype", rf"_(?P<dtype>{_either(*DTYPE_BYTES)})"),
    ("layout", rf"_(?P<layout>{_either(*GEMM_LAYOUTS)})"),
)
_FULL = (
    *_HEAD,
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("epilogue", rf"_(?P<epilogue>{_either(*EPILOGUES)})"),
    ("scheduler", rf"_(?P<scheduler>{_either(*Scheduler)})"),
    *((f"padding of {axis.upper()}", rf"_(?P<pad_{axis}>{_FLAG_WORDS})") for axis in "mnk"),
    ("persistence", rf"_(?P<persistent>{_FLAG_WORDS})"),
    ("tile", _sizes("tile")),
    ("waves", _sizes("wave")),
    ("warp tile", _sizes("warp_tile")),
    # A width that is no number, but for "native", is no suffix either.
    ("vector widths", rf"(?:_vecnative|_vec{_WIDTHS}(?=_|$)|(?!_vec|\d))"),
    ("suffix", r"(?P<suffix>(?:_[A-Za-z0-9.\-]{1,64}){0,8})"),
)
_SHORT = (
    *_HEAD,
    ("tile", _sizes("tile")),
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("scheduler", rf"_(?P<scheduler>{_either(*Scheduler)})"),
)
_FULL_NAME = re.compile("".join(pattern for _, pattern in _FULL))
_SHORT_NAME = re.compile("".join(pattern for _, pattern in _SHORT))
# Where a full name has its pipeline, a short one has its tile.
_LOOKS_SHORT = re.compile("".join(pattern for _, pattern in _HEAD) + r"_\d")


def match_name(text: str) -> tuple[re.Match[str], bool]:
    """The parts of a name, and whether it is a short one.

    Raises:
        DataError: the text is no name; the message says which part was not understood.
    """
    is_short = _LOOKS_SHORT.match(text) is not None
    match = (_SHORT_NAME if is_short else _FULL_NAME).fullmatch(text)
    if match is None:
        raise _complaint(text, _SHORT if is_short else _FULL)
    return match, is_short


def flag(text: str) -> bool:
    """A truth value as names write it; AMD's reader takes 1 for false, which it is not."""
    return _FLAG[text]


def _complaint(text: str, parts: tuple[tuple[str, str], ...]) -> DataError:
    """Say which part of the grammar is the first that the text does not have."""
    pattern, understood = "", 0
    for part, token in parts:
        pattern += token
        match = re.match(pattern, text)
        if match is None:
            return DataError(f"not a GEMM kernel name: {text!r}, its {part} is missing or unknown")
        understood = match.end()
    return DataError(f"not a GEMM kernel name: {text!r}, its end {text[understood:]!r} is unknown")
