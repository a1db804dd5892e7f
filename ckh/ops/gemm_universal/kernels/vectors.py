"""Vector widths of a kernel's loads and stores.

Source: how CK Tile's GEMM policies choose widths when none is fixed, as AMD's `feature_engine_vec` restates it.
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
# Loads narrower than this many bytes are tried for one element only.
_NARROW = 8


class Loads(NamedTuple):
    """The facts that the vector widths of a complete kernel depend on."""

    dtype: str
    layout: str
    tile: Triple
    wave: Triple
    warp_tile: Triple
    epilogue: str
    vectors: Triple


def native_widths(kernel: GemmKernel | Loads, arch: ArchSpec) -> Triple:
    """Widths in elements of loads of A and B and of stores of C that the tile gives, for a complete kernel."""
    return (*load_widths(kernel.dtype, kernel.layout, kernel.tile, kernel.wave, arch), _store_width(kernel))


def load_widths(dtype: str, layout: str, tile: Triple, wave: Triple, arch: ArchSpec) -> tuple[int, int]:
    """Widths in elements of loads of A and B that the tile gives."""
    a_axis, b_axis, _ = contiguous_axes(layout)
    m, n, k = tile
    threads = prod(wave) * arch.wavefront_size
    return (
        _load_width(dtype, m * k // threads, m if a_axis == "m" else k),
        _load_width(dtype, n * k // threads, n if b_axis == "n" else k),
    )


def effective_widths(kernel: GemmKernel | Loads, arch: ArchSpec) -> Triple:
    """The widths that the kernel uses: its own, and the native one where it has none."""
    a, b, c = (
        native if own == NATIVE_WIDTH else own
        for own, native in zip(kernel.vectors, native_widths(kernel, arch), strict=True)
    )
    return a, b, c


def _load_width(dtype: str, per_thread: int, extent: int) -> int:
    """The widest load that divides both the tile's contiguous extent and what one thread has to load."""
    element = DTYPE_BYTES[dtype]
    for size in _LOAD_BYTES:
        width = int(size / element)
        if (size >= _NARROW or element >= size) and width and extent % width == 0 and per_thread % width == 0:
            return width
    return 1


def _store_width(kernel: GemmKernel | Loads) -> int:
    """Every layout here has a row-major C, which only the cshuffle epilogue writes in vectors."""
    if kernel.epilogue != "cshuffle":
        return 1
    most = int(MAX_VECTOR_BYTES / DTYPE_BYTES[output_dtype(kernel.dtype)])
    return min(kernel.warp_tile[1] * kernel.wave[1], most)
