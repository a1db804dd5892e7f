"""Vector widths of a kernel's loads and stores.

Source: the native widths that CK Tile's GEMM policies choose, as restated in AMD's `feature_engine_vec`.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH
from ckh.ops.gemm_universal.problem import contiguous_axes, output_dtype
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from ckh.archs import ArchSpec, Triple
    from ckh.ops.gemm_universal.kernel import GemmKernel

MAX_VECTOR_BYTES = 16
_LOAD_BYTES = (16, 8, 4, 2)
# Loads narrower than this many bytes are only tried as single elements.
_NARROW = 8


class Loads(NamedTuple):
    """Facts that the vector widths of a complete kernel depend on."""

    dtype: str
    layout: str
    tile: Triple
    wave: Triple
    warp_tile: Triple
    epilogue: str
    vectors: Triple


def native_widths(kernel: GemmKernel | Loads, arch: ArchSpec) -> Triple:
    """Return the native vector widths, in elements, of A, B and C for the tile of a complete kernel."""
    stored = store_width(kernel.epilogue, kernel.dtype, kernel.wave[1], kernel.warp_tile[1])
    return (*load_widths(kernel.dtype, kernel.layout, kernel.tile, kernel.wave, arch), stored)


def load_widths(dtype: str, layout: str, tile: Triple, wave: Triple, arch: ArchSpec) -> tuple[int, int]:
    """Return the native vector widths of loads of A and B, in elements."""
    a_axis, b_axis, _ = contiguous_axes(layout)
    m, n, k = tile
    threads = prod(wave) * arch.wavefront_size
    return (
        _load_width(dtype, m * k // threads, m if a_axis == "m" else k),
        _load_width(dtype, n * k // threads, n if b_axis == "n" else k),
    )


def effective_widths(kernel: GemmKernel | Loads, arch: ArchSpec) -> Triple:
    """Return the widths that the kernel uses: the stated ones, else the native ones."""
    a, b, c = (
        native if own == NATIVE_WIDTH else own
        for own, native in zip(kernel.vectors, native_widths(kernel, arch), strict=True)
    )
    return a, b, c


def _load_width(dtype: str, per_thread: int, extent: int) -> int:
    """Return the widest load that divides the tile's contiguous extent and the number of elements per thread."""
    element = DTYPE_BYTES[dtype]
    for size in _LOAD_BYTES:
        width = int(size / element)
        if (size >= _NARROW or element >= size) and width and extent % width == 0 and per_thread % width == 0:
            return width
    return 1


def store_width(epilogue: str | None, dtype: str, wave_n: int, warp_tile_n: int) -> int:
    """Return the store width of C: every layout here has a row-major C, which only the cshuffle epilogue vectorizes."""
    if epilogue != "cshuffle":
        return 1
    return min(warp_tile_n * wave_n, int(MAX_VECTOR_BYTES / DTYPE_BYTES[output_dtype(dtype)]))
