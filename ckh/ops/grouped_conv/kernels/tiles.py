"""The ten tiles of AMD's grouped-convolution tile engine, and the tiles for RDNA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckh.archs import ArchSpec, Triple


@dataclass(frozen=True, slots=True)
class ConvTile:
    """A block tile with its waves, the tile of one matrix instruction and the vector widths.

    Triples are M, N, K and for `vectors` A, B, C.
    """

    tile: Triple
    wave: Triple
    warp_tile: Triple
    vectors: Triple = (4, 8, 8)


CONV_TILES: tuple[ConvTile, ...] = (
    ConvTile((16, 64, 64), (1, 4, 1), (16, 16, 16)),
    ConvTile((32, 64, 64), (2, 2, 1), (16, 16, 16)),
    ConvTile((64, 64, 64), (4, 1, 1), (16, 16, 16)),
    ConvTile((32, 128, 64), (1, 4, 1), (32, 32, 16)),
    ConvTile((64, 128, 64), (2, 2, 1), (32, 32, 16)),
    ConvTile((128, 128, 64), (4, 4, 1), (32, 32, 16)),
    ConvTile((16, 64, 128), (1, 4, 1), (16, 16, 32)),
    ConvTile((32, 64, 128), (2, 2, 1), (16, 16, 32)),
    ConvTile((64, 64, 128), (4, 1, 1), (16, 16, 32)),
    ConvTile((128, 64, 128), (8, 2, 1), (16, 16, 32)),
)

_WMMA = (16, 16, 16)  # RDNA's matrix instruction for 16-bit elements, of a wave of 32 threads
# For blocks of eight waves. 128x128x32 with waves 4x2x1 is the tile of CK's examples; AMD has no public list.
RDNA_TILES: tuple[ConvTile, ...] = (
    ConvTile((32, 64, 32), (2, 4, 1), _WMMA),
    ConvTile((64, 64, 32), (2, 4, 1), _WMMA),
    ConvTile((64, 64, 64), (4, 2, 1), _WMMA),
    ConvTile((64, 128, 32), (2, 4, 1), _WMMA),
    ConvTile((128, 64, 32), (4, 2, 1), _WMMA),
    ConvTile((128, 64, 64), (4, 2, 1), _WMMA),
    ConvTile((128, 128, 32), (4, 2, 1), _WMMA),
    ConvTile((128, 128, 64), (4, 2, 1), _WMMA),
    ConvTile((128, 256, 32), (2, 4, 1), _WMMA),
    ConvTile((256, 128, 32), (4, 2, 1), _WMMA),
)


def tiles_of(arch: ArchSpec) -> tuple[ConvTile, ...]:
    """The tiles of an architecture's candidates."""
    return RDNA_TILES if arch.architecture == "rdna" else CONV_TILES
