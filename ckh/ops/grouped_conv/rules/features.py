"""The kernels that use an option of CK Tile: on which tiles and with which pipelines each option is tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.ops.grouped_conv.rules.tables import HALF_DTYPES, PIPES, Pipe, triple
from ckh.problems import Direction

if TYPE_CHECKING:
    from ckh.archs import Triple


@dataclass(frozen=True, slots=True)
class KernelOption:
    """Options, and the tiles they are tried on; with the tiles' own pipelines unless some are given."""

    tiles: tuple[Triple, ...] = ()
    pipes: tuple[Pipe, ...] | None = None
    half_only: bool = False
    split_image: bool = False
    num_groups_to_merge: int = 1
    two_stage: bool = False
    explicit_gemm: bool = False
    streamk: str | None = None
    streamk_persistent: bool = False

    def is_for(self, dtype: str) -> bool:
        """True if kernels of the dtype use it."""
        return dtype in HALF_DTYPES or not self.half_only


PLAIN = KernelOption()


def _tiles(text: str) -> tuple[Triple, ...]:
    return tuple(triple(word, "x") for word in text.split())


_V1, _MEM, _ASYNC, _WAVELET = (PIPES[code] for code in ("v1", "mem", "async", "wav"))
_STREAMK_PIPES = (_V1, _MEM, _ASYNC)
_STREAMK_TILES = _tiles("16x16x32 16x32x64 32x16x64 64x16x64 64x64x64 128x32x32")
_TWO_STAGE_EXPLICIT_TILES = _tiles("16x16x64 16x32x64 16x64x64 32x16x64 64x16x64 128x16x64 256x16x64")
_EXPLICIT_TILES = _tiles(
    "16x16x64 16x32x64 16x64x64 16x128x64 16x256x64 32x16x64 64x16x64 128x16x64 128x128x64 256x16x64 256x256x32"
)
_SPLIT_IMAGE_TILES = _tiles("64x64x16 64x64x32 256x128x16 256x128x32")

FEATURES: dict[Direction, tuple[KernelOption, ...]] = {
    Direction.FORWARD: (
        KernelOption(_SPLIT_IMAGE_TILES, (_V1,), split_image=True),
        KernelOption(_tiles("64x16x16 128x32x32"), num_groups_to_merge=8),
        KernelOption(_tiles("64x16x16"), num_groups_to_merge=16),
        KernelOption(_tiles("64x16x16"), num_groups_to_merge=32),
    ),
    Direction.BWD_DATA: (KernelOption(_tiles("256x32x64"), (_WAVELET,), half_only=True, num_groups_to_merge=32),),
    Direction.BWD_WEIGHT: (
        KernelOption(_EXPLICIT_TILES, half_only=True, explicit_gemm=True),
        KernelOption(_tiles("16x16x32 64x64x64"), half_only=True, two_stage=True),
        KernelOption(_TWO_STAGE_EXPLICIT_TILES, half_only=True, two_stage=True, explicit_gemm=True),
        KernelOption(_tiles("32x32x32 32x64x32"), half_only=True, num_groups_to_merge=2, two_stage=True),
        KernelOption(_tiles("16x128x32 32x64x32 64x32x32"), half_only=True, num_groups_to_merge=4, two_stage=True),
        KernelOption(_tiles("16x256x32 32x128x32 128x32x32"), half_only=True, num_groups_to_merge=8, two_stage=True),
        KernelOption(_tiles("16x32x64 16x64x64 64x128x64"), (_ASYNC,), half_only=True, num_groups_to_merge=2),
        KernelOption(_STREAMK_TILES, _STREAMK_PIPES, streamk="tree"),
        KernelOption(_STREAMK_TILES, _STREAMK_PIPES, streamk="tree", streamk_persistent=True),
    ),
}
