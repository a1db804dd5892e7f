"""The grammar of kernel names: its tokens in order, each with the words for it in an error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ckh.errors import DataError
from ckh.kernels.config import Scheduler
from ckh.kernels.variants import SPECIALIZATIONS, STREAMK_STRATEGIES
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Iterable

OPERATION = "grouped_conv"
DIRECTION_TOKENS: dict[str, Direction] = {
    "fwd": Direction.FORWARD,
    "bwd_data": Direction.BWD_DATA,
    "bwd_weight": Direction.BWD_WEIGHT,
}
DEFAULT_VECTORS = (4, 8, 8)
# Pipelines by family, so that a new version needs no change here; anything wider would swallow the tokens after it.
PIPELINE = re.compile(
    r"basic(?:_async)?_v[0-9]{1,2}|comp_async|comp_tdm(?:_v[0-9]{1,2})?|compv[0-9]{1,2}|mem|preshufflev[0-9]{1,2}"
    r"|wavelet"
)
# A size or count in a name: above zero, in digits that nobody writes in two ways, and no more than hardware ever has.
NUMBER, MOST = "[1-9][0-9]{0,5}", 999_999

EPILOGUES = ("cshuffle", "default", "tdm")
_LAYOUTS = ("nwgc", "nhwgc", "ndhwgc", "gnwc", "gnhwc", "gndhwc", "ngcw", "ngchw", "ngcdhw")


def _either(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


def _sizes(name: str) -> str:
    return "_" + "x".join(rf"(?P<{name}_{axis}>{NUMBER})" for axis in "mnk")


_HEAD = (
    ("operation", OPERATION),
    ("direction", rf"_(?P<direction>{_either([*DIRECTION_TOKENS, *Direction])})"),
    ("dtype", rf"_(?P<dtype>{_either(DTYPE_BYTES)})"),
)
_FULL = (
    *_HEAD,
    ("layout", rf"_(?P<layout>{_either(_LAYOUTS)})"),
    ("number of dimensions", r"_(?P<ndim>[123])d"),
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("epilogue", rf"_(?P<epilogue>{_either(EPILOGUES)})"),
    ("scheduler", rf"_(?P<scheduler>{_either(Scheduler)})"),
    ("tile", _sizes("tile")),
    ("waves", _sizes("wave")),
    ("warp tile", _sizes("warp_tile")),
    ("vector widths", rf"(?:_vec(?P<vector_a>{NUMBER})_(?P<vector_b>{NUMBER})_(?P<vector_c>{NUMBER}))?"),
    ("blocks per CU", rf"(?:_bpc(?P<bpc>{NUMBER}))?"),
    ("wave groups", rf"(?:_wg(?P<wg>{NUMBER}))?"),
    ("merged groups", rf"(?:_gm(?P<gm>{NUMBER}))?"),
    ("double smem buffer", r"(?P<dsb>_dsb)?"),
    ("two stages", r"(?P<two_stage>_2stage)?"),
    ("specialization", rf"(?:_(?P<specialization>{_either(SPECIALIZATIONS)}))?"),
    ("explicit GEMM", r"(?P<explicit_gemm>_explicit_gemm)?"),
    ("stream-K", rf"(?:_streamk_(?P<streamk>{_either(STREAMK_STRATEGIES)}))?"),
    ("persistence", r"(?P<persistent>_persistent)?"),
    ("split image", r"(?P<si>_large_tensor)?"),
    ("padding", r"(?:_pad(?P<pad_m>[01])(?P<pad_n>[01])(?P<pad_k>[01]))?"),
    ("split of K", rf"(?:_splitk(?P<split_k>{NUMBER}))?"),
)
_SHORT = (
    *_HEAD,
    ("number of dimensions", r"_(?P<ndim>[123])d"),
    ("tile", _sizes("tile")),
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("scheduler", rf"(?:_(?P<scheduler>{_either(Scheduler)}))?"),
    ("merged groups", rf"(?:_gm(?P<gm>{NUMBER}))?"),
    ("double smem buffer", r"(?P<dsb>_dsb)?"),
    ("split image", r"(?P<si>_si)?"),
    ("two stages", r"(?P<two_stage>_2stage)?"),
)
_FULL_NAME = re.compile("".join(pattern for _, pattern in _FULL))
_SHORT_NAME = re.compile("".join(pattern for _, pattern in _SHORT))
# Where a full name has its layout, a short one has its number of dimensions.
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


def _complaint(text: str, parts: tuple[tuple[str, str], ...]) -> DataError:
    """Say which part of the grammar is the first that the text does not have."""
    understood = 0
    pattern = ""
    for part, token in parts:
        pattern += token
        match = re.match(pattern, text)
        if match is None:
            return DataError(f"not a kernel name: {text!r}, its {part} is missing or unknown")
        understood = match.end()
    return DataError(f"not a kernel name: {text!r}, its end {text[understood:]!r} is unknown")
