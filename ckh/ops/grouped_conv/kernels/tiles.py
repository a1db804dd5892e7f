"""The ten tiles of AMD's grouped-convolution tile engine, the tiles for RDNA, and the tile triples of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.errors import UsageError

if TYPE_CHECKING:
    from ckh.archs import ArchSpec, Triple
    from ckh.ops.grouped_conv.kernel import ConvKernel


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


def tile_of(kernel: ConvKernel) -> Triple:
    """Block tile M, N, K."""
    return kernel.tile_m, kernel.tile_n, kernel.tile_k


def wave_of(kernel: ConvKernel) -> Triple:
    """Waves per block along M, N, K; `UsageError` if the kernel's name omits them."""
    return _known(kernel, "waves", kernel.wave_m, kernel.wave_n, kernel.wave_k)


def warp_tile_of(kernel: ConvKernel) -> Triple:
    """Tile of one matrix instruction M, N, K; `UsageError` if the kernel's name omits it."""
    return _known(kernel, "warp tile", kernel.warp_tile_m, kernel.warp_tile_n, kernel.warp_tile_k)


def vectors_of(kernel: ConvKernel) -> Triple:
    """Vector widths of A, B, C in elements; `UsageError` if the kernel's name omits them."""
    return _known(kernel, "vector widths", kernel.vector_a, kernel.vector_b, kernel.vector_c)


def _known(kernel: ConvKernel, what: str, m: int | None, n: int | None, k: int | None) -> Triple:
    if m is None or n is None or k is None:
        raise UsageError(
            f"the kernel {kernel.pipeline} {tile_of(kernel)} has no {what}",
            "give its complete name",
            code="incomplete-kernel",
        )
    return m, n, k
