"""Tails of a kernel's main loop along K on a GPU: the number of tiles needed to reach all of them, and which are alike.

The loop begins after the tiles that a pipeline prefetches, its stages, and each remainder modulo their number is a
separate tail, with and without the loop.

Source: CK Tile's base pipelines (`BlockHasHotloop`, `TailHandler`).
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from ckh.kernels.pipelines import PIPELINES
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from ckh.files.jsonfields import Triple

_STEPS = 6  # twice the stages of every pipeline except mem
_MEM = "mem"
_SIMDS = 4  # per compute unit
_BYTES_IN_FLIGHT = 32768  # prefetched by mem per compute unit, within these limits of stages:
_FEWEST, _MOST = 2, 8


def loaded_ahead(pipeline: str, tile: Triple, waves: int, dtype: str) -> int:
    """Tiles along K that `mem` prefetches, equal to the number of tails of its loop; 0 for other pipelines."""
    if pipeline != _MEM:
        return 0
    m, n, k = tile
    block_bytes = _BYTES_IN_FLIGHT // max(1, _SIMDS // waves)
    stages = ceil(block_bytes / (int((m + n) * DTYPE_BYTES[dtype]) * k))
    return min(max(stages, _FEWEST), _MOST)


def most_steps(pipeline: str, tile: Triple, waves: int, dtype: str) -> int:
    """Largest number of tiles along K needed to reach all tails of a main loop (arguments as for `loaded_ahead`)."""
    return max(_STEPS, 2 * loaded_ahead(pipeline, tile, waves, dtype))


def loop_of(pipeline: str, tile: Triple, waves: int, dtype: str) -> tuple[int, int]:
    """Return the tiles that are prefetched before a main loop, and its number of tails (arguments as above)."""
    if ahead := loaded_ahead(pipeline, tile, waves, dtype):
        return ahead, ahead
    row = PIPELINES.get(pipeline)
    return (0, 1) if row is None else (row.stages, row.tails)


def end_alike(loop: tuple[int, int], steps: int, others: int) -> bool:
    """True if a main loop of so many tiles along K runs and ends like one of the others.

    Kernels of the interfaces of 2025 know this at compile time, so all parts of a launch must be alike.
    """
    stages, tails = loop
    if stages == 0:
        return True
    if steps > stages and others > stages:
        return (steps - others) % tails == 0
    # Without the loop even pipelines with one tail distinguish odd and even numbers of tiles.
    return steps <= stages and others <= stages and (steps - others) % max(tails, 2) == 0
