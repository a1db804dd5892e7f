"""`GemmKernel`: all compile-time parameters of a GEMM kernel."""

from __future__ import annotations

from dataclasses import dataclass

from ckh.kernels.pipelines import Scheduler  # noqa: TC001 - `filter.field_types` evaluates the types
from ckh.kernels.table import TiledKernel
from ckh.ops.gemm_universal.problem import OP_TYPE

NATIVE_WIDTH = 0
GROUP_FIELDS: tuple[str, ...] = ("dtype", "layout")


@dataclass(frozen=True, slots=True, order=True)
class GemmKernel(TiledKernel):
    """A GEMM kernel with all compile-time parameters.

    Attributes:
        dtype: element type of A and B.
        layout: of A, B and C, one of `GEMM_LAYOUTS`.
        tile_m: block tile in elements; likewise `tile_n`, `tile_k`.
        pipeline: how tiles of A and B are staged.
        scheduler: how the waves of a block are scheduled.
        wave_m: waves per block along M (AMD's data call them `warp_m`); likewise `wave_n`, `wave_k`.
        warp_tile_m: tile of one matrix instruction; likewise `warp_tile_n`, `warp_tile_k`.
        epilogue: how C is written.
        pad_m: whether the kernel supports an M that is not a multiple of its tile; likewise `pad_n`, `pad_k`.
        persistent: whether only as many blocks are launched as the device holds, each looping over tiles.
        vector_a: vector width of loads of A in elements, 0: derived from the tile (`vectors.native_widths`); likewise
            `vector_b` and, for stores, `vector_c`.
        suffix: rest of a name after all parts that the grammar knows. AMD's parser skips it; ckh keeps it, since it
            denotes a different kernel.

    A field is `None` only if the kernel was parsed from a short name that omits it.
    """

    op_type = OP_TYPE  # first part of names; subclasses are kernels of other operations
    group_fields = GROUP_FIELDS  # problems of a group have one pool

    dtype: str
    layout: str
    tile_m: int
    tile_n: int
    tile_k: int
    pipeline: str
    scheduler: Scheduler
    wave_m: int | None = None
    wave_n: int | None = None
    wave_k: int | None = None
    warp_tile_m: int | None = None
    warp_tile_n: int | None = None
    warp_tile_k: int | None = None
    epilogue: str | None = None
    pad_m: bool | None = None
    pad_n: bool | None = None
    pad_k: bool | None = None
    persistent: bool | None = None
    vector_a: int | None = None
    vector_b: int | None = None
    vector_c: int | None = None
    suffix: str = ""

    @property
    def is_complete(self) -> bool:
        """True if no field is missing, so that the kernel can be built."""
        return not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the missing fields."""
        return tuple([name for name in self.__dataclass_fields__ if getattr(self, name) is None])
