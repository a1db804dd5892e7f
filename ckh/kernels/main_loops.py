"""Tails of a kernel's main loop along K on a GPU: the number of tiles needed to reach all of them.

The loop begins after the tiles that a pipeline prefetches, its stages, and each remainder modulo their number is a
separate tail, with and without the loop.

Source: CK Tile's base pipelines (`BlockHasHotloop`, `TailHandler`).
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from ckh.files.jsonfields import Triple

_STEPS = 6  # twice the stages of every pipeline except mem
_MEM = "mem"
_SIMDS = 4  # per compute unit
_BYTES_IN_FLIGHT = 32768  # prefetched by mem per compute unit, within these limits of stages:
_FEWEST, _MOST = 2, 8


def loaded_ahead(pipeline: str, tile: Triple, waves: int, dtype: str) -> int:
    """Tiles along K that `mem` prefetches, equal to the number of tails of its loop; 0 for other pipelines.

    Args:
        pipeline: the kernel's pipeline.
        tile: block tile along M, N, K.
        waves: waves per block.
        dtype: element type of A and B.
    """
    if pipeline != _MEM:
        return 0
    m, n, k = tile
    block_bytes = _BYTES_IN_FLIGHT // max(1, _SIMDS // waves)
    stages = ceil(block_bytes / (int((m + n) * DTYPE_BYTES[dtype]) * k))
    return min(max(stages, _FEWEST), _MOST)


def most_steps(pipeline: str, tile: Triple, waves: int, dtype: str) -> int:
    """Largest number of tiles along K needed to reach all tails of a main loop (arguments as for `loaded_ahead`)."""
    return max(_STEPS, 2 * loaded_ahead(pipeline, tile, waves, dtype))
