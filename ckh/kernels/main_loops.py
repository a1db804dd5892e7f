"""The ends of a kernel's main loop along K on a GPU: how many tiles reach all of them.

The loop begins with the tile after those that a pipeline has loaded ahead, its stages, and each remainder by their
number is an end of its own, with and without the loop.

Source: CK Tile's base pipelines (`BlockHasHotloop`, `TailHandler`).
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from ckh.files.jsonfields import Triple

_STEPS = 6  # twice the stages of every pipeline but mem
_MEM = "mem"
_SIMDS = 4  # of a compute unit
_BYTES_IN_FLIGHT = 32768  # that mem loads ahead for a compute unit, as far as these stages go:
_FEWEST, _MOST = 2, 8


def loaded_ahead(pipeline: str, tile: Triple, waves: int, dtype: str) -> int:
    """Tiles along K that `mem` loads ahead, as many as its loop has ends; 0 for others, of which the tile says nothing.

    Args:
        pipeline: the kernel's.
        tile: of a block along M, N, K.
        waves: per block.
        dtype: of A and B.
    """
    if pipeline != _MEM:
        return 0
    m, n, k = tile
    block_bytes = _BYTES_IN_FLIGHT // max(1, _SIMDS // waves)
    stages = ceil(block_bytes / (int((m + n) * DTYPE_BYTES[dtype]) * k))
    return min(max(stages, _FEWEST), _MOST)


def most_steps(pipeline: str, tile: Triple, waves: int, dtype: str) -> int:
    """Tiles along K from one to which all ends of a kernel's main loop are reached (arguments as of `loaded_ahead`)."""
    return max(_STEPS, 2 * loaded_ahead(pipeline, tile, waves, dtype))
