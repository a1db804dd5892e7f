"""How CK Tile spreads the tile of an operand over a block's threads, which load it in vectors.

Source: CK Tile's encoding pattern of 2D tiles, thread-raked, as it was in 2025; later trees spread more.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckh.archs import ArchSpec, Triple

# Whose LDS transposes operands in which K is not contiguous, in accesses of so many bytes a lane.
LDS_TRANSPOSES = "gfx950"
TRANSPOSED_ACCESS_BYTES = 8


def share_of_thread(
    arch: ArchSpec, wave: Triple, lines: int, extent: int, width: int, wave_groups: int = 1
) -> tuple[int, int] | None:
    """Vectors that a thread loads of a tile, and their width; None if they cannot be spread evenly over the waves.

    Args:
        arch: whose waves they are.
        wave: waves per block along M, N, K.
        lines: of the tile.
        extent: elements of a line.
        width: elements of a vector.
        wave_groups: groups of waves that load in turn.
    """
    waves, lanes = prod(wave), arch.wavefront_size
    width = min(width, extent * lines // (waves * lanes))
    if width == 0 or extent % width or lanes % (extent // width):
        return None
    lines_at_once = lanes // (extent // width) * (waves // wave_groups)
    return None if lines_at_once == 0 or lines % lines_at_once else (lines // lines_at_once, width)
