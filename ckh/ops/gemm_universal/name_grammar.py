"""The grammar of GEMM kernel names: its tokens in order, each with the words for it in an error."""

from __future__ import annotations

from ckh.kernels.name_grammar import EPILOGUES, NUMBER, PIPELINE, NameGrammar, either, three_sizes
from ckh.kernels.scheduler import Scheduler
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.problems import DTYPE_BYTES

_FLAG = {"True": True, "1": True, "False": False, "0": False}
_FLAG_WORDS = "|".join(_FLAG)


# 0 stands for the native width.
_WIDTHS = "_".join(f"(?P<vector_{operand}>0|{NUMBER})" for operand in "abc")
_HEAD = (
    ("operation", r"gemm(?:_universal)?"),
    ("dtype", rf"_(?P<dtype>{either(DTYPE_BYTES)})"),
    ("layout", rf"_(?P<layout>{either(GEMM_LAYOUTS)})"),
)
_FULL = (
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("epilogue", rf"_(?P<epilogue>{either(EPILOGUES)})"),
    ("scheduler", rf"_(?P<scheduler>{either(Scheduler)})"),
    *((f"padding of {axis.upper()}", rf"_(?P<pad_{axis}>{_FLAG_WORDS})") for axis in "mnk"),
    ("persistence", rf"_(?P<persistent>{_FLAG_WORDS})"),
    ("tile", three_sizes("tile")),
    ("waves", three_sizes("wave")),
    ("warp tile", three_sizes("warp_tile")),
    # A width that is not a number, but for "native", is not a suffix either.
    ("vector widths", rf"(?:_vecnative|_vec{_WIDTHS}(?=_|$)|(?!_vec|\d))"),
    ("suffix", r"(?P<suffix>(?:_[A-Za-z0-9.\-]{1,64}){0,8})"),
)
_SHORT = (
    ("tile", three_sizes("tile")),
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("scheduler", rf"_(?P<scheduler>{either(Scheduler)})"),
)
# Where a full name has its pipeline, a short one has its tile.
GRAMMAR = NameGrammar("GEMM kernel name", _HEAD, _FULL, _SHORT)


def flag(text: str) -> bool:
    """A truth value as names write it; AMD's reader takes 1 for false, which it is not."""
    return _FLAG[text]
