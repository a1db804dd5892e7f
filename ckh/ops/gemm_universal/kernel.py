"""`GemmKernel`: all compile-time parameters of a GEMM kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.kernels.scheduler import Scheduler  # noqa: TC001 - `filter.field_types` evaluates the types
from ckh.ops.gemm_universal.problem import OP_TYPE

if TYPE_CHECKING:
    from ckh.archs import Triple

NATIVE_WIDTH = 0
GROUP_FIELDS: tuple[str, ...] = ("dtype", "layout")


@dataclass(frozen=True, slots=True, order=True)
class GemmKernel:
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

    @property
    def tile(self) -> Triple:
        """Block tile M, N, K."""
        return self.tile_m, self.tile_n, self.tile_k

    @property
    def wave(self) -> Triple:
        """Waves per block along M, N, K; `UsageError` if the kernel's name omits them."""
        return self._known("waves", self.wave_m, self.wave_n, self.wave_k)

    @property
    def warp_tile(self) -> Triple:
        """Tile of one matrix instruction M, N, K; `UsageError` if the kernel's name omits it."""
        return self._known("warp tile", self.warp_tile_m, self.warp_tile_n, self.warp_tile_k)

    @property
    def vectors(self) -> Triple:
        """Vector widths of A, B, C, 0 for native; `UsageError` if the kernel's name omits them."""
        return self._known("vector widths", self.vector_a, self.vector_b, self.vector_c)

    @property
    def pads(self) -> tuple[bool | None, bool | None, bool | None]:
        """Padding along M, N, K."""
        return self.pad_m, self.pad_n, self.pad_k

    def _known(self, what: str, m: int | None, n: int | None, k: int | None) -> Triple:
        if m is None or n is None or k is None:
            raise UsageError(
                f"the kernel {self.pipeline} {self.tile} has no {what}",
                "give its complete name",
                code="incomplete-kernel",
            )
        return m, n, k
