"""`MoeChoice`: a kernel for one of the two products, or a pair of kernels whose tiles have the same number of rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple

from ckh.errors import DataError
from ckh.ops.aiter_moe.problem import BOTH, STAGE1, STAGE2

CK_TILE = "moe_cktile2stages_"  # prefix of the names of CK Tile's kernels
_JOINED = "+"
_PAIR = 2  # kernels of a joint choice
_N = "[1-9][0-9]{0,3}"  # a size
_CK = re.compile(
    rf"moe_ck2stages_gemm(?P<gemm>[12])_(?P<block>{_N})x(?P<tile>{_N}x{_N}x{_N})_(?P<wave>{_N}x{_N})"
    r"_(?P<kind>[A-Za-z0-9]+)_v(?P<version>[0-9])_Nswizzle[0-9]_(?:Quant[0-9]|no)_MulRoutedWeight[0-9](?:_\w+)?"
)
_CKTILE = re.compile(
    rf"{CK_TILE}gemm(?P<gemm>[12])_(?P<block>{_N})x(?P<tile>{_N}x{_N}x{_N})_(?P<wave>{_N}x{_N})"
    rf"_{_N}x{_N}x(?P<mfma_k>{_N})_(?P<per_cu>[0-9])perCU_\w+"
)


class _Part(NamedTuple):
    """A kernel of one product."""

    gemm: int
    block_m: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class MoeChoice:
    """Kernels for one or both products, and the parameters that their names state; 0 if absent.

    Attributes:
        name: AITER's name of a kernel, or both names joined by a plus.
        stage: the stage of its products.
        block_m: rows of a tile, shared by both products, as tokens are sorted for it.
        block1, block2: threads of a workgroup of the first and of the second product.
        tile_n1, tile_n2, tile_k1, tile_k2: tile of each.
        wave_m1, wave_m2, wave_n1, wave_n2: waves along M and N of each.
        version1, version2: versions of CK's pipelines.
        mfma_k1, mfma_k2: depth of the matrix instruction of CK Tile's kernels.
        per_cu1, per_cu2: workgroups per compute unit that CK Tile's kernels were compiled for.
    """

    name: str
    stage: str
    block_m: int
    block1: int
    tile_n1: int
    tile_k1: int
    wave_m1: int
    wave_n1: int
    version1: int
    mfma_k1: int
    per_cu1: int
    block2: int
    tile_n2: int
    tile_k2: int
    wave_m2: int
    wave_n2: int
    version2: int
    mfma_k2: int
    per_cu2: int


NUMBERS: tuple[str, ...] = tuple(field.name for field in fields(MoeChoice) if field.type == "int")
_NOTHING = (0,) * ((len(NUMBERS) - 1) // _PAIR)


@lru_cache(maxsize=65536)
def parse_choice(name: str) -> MoeChoice:
    """Parse the name of a choice."""
    parts = [_part(item) for item in name.split(_JOINED)]
    if len(parts) == 1:
        (item,) = parts
        numbers = (*item.numbers, *_NOTHING) if item.gemm == 1 else (*_NOTHING, *item.numbers)
        return MoeChoice(name, STAGE1 if item.gemm == 1 else STAGE2, item.block_m, *numbers)
    if len(parts) != _PAIR or [part.gemm for part in parts] != [1, 2]:
        raise DataError(f"not a kernel for each of two products: {name[:300]!r}", code="bad-kernel")
    first, second = parts
    if first.block_m != second.block_m:
        raise DataError(
            f"kernels with tiles of {first.block_m} and {second.block_m} rows are incompatible", code="bad-kernel"
        )
    return MoeChoice(name, BOTH, first.block_m, *first.numbers, *second.numbers)


def joint(first: str, second: str) -> str:
    """Return the name of a choice for both products."""
    return f"{first}{_JOINED}{second}"


def parts(name: str) -> tuple[MoeChoice, MoeChoice]:
    """Return the two kernels of a joint choice."""
    first, _, second = name.partition(_JOINED)
    return parse_choice(first), parse_choice(second)


def _part(name: str) -> _Part:
    match = _CK.fullmatch(name) or _CKTILE.fullmatch(name)
    if match is None:
        raise DataError(f"not a kernel of AITER's: {name[:160]!r}", code="bad-kernel")
    known = match.groupdict()
    tile_m, tile_n, tile_k = _sizes(match["tile"])
    wave_m, wave_n = _sizes(match["wave"])
    others = (int(known.get(item) or 0) for item in ("version", "mfma_k", "per_cu"))
    return _Part(int(match["gemm"]), tile_m, (int(match["block"]), tile_n, tile_k, wave_m, wave_n, *others))


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))
