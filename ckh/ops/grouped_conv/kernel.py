"""`ConvKernel`: all compile-time parameters of a grouped-convolution kernel."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter

from ckh.kernels.pipelines import Scheduler  # noqa: TC001 - `filter.field_types` evaluates the types
from ckh.kernels.table import TiledKernel
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS
from ckh.problems import Direction  # noqa: TC001 - likewise


@dataclass(frozen=True, slots=True, order=True)
class ConvKernel(TiledKernel):
    """A grouped-convolution kernel with all parameters.

    Tiles are in elements of the implicit GEMM; `wave_*` is waves per block; `warp_tile_*` is the tile of one matrix
    instruction; `vector_*` is the vector width in elements of loads of A and B and of stores of C; `split_k` is the
    number of parts of the reduction that blocks add atomically, a parameter of the launch. A field is `None` only if
    the kernel was parsed from a short name of AMD's that omits it.
    """

    variant: Direction
    dtype: str
    ndim_spatial: int
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
    vector_a: int | None = None
    vector_b: int | None = None
    vector_c: int | None = None
    layout: str | None = None
    epilogue: str | None = None
    double_smem_buffer: bool = False
    split_image: bool = False
    num_groups_to_merge: int = 1
    num_wave_groups: int = 1
    two_stage: bool = False
    explicit_gemm: bool | None = None
    specialization: str | None = None
    pad_m: bool | None = None
    pad_n: bool | None = None
    pad_k: bool | None = None
    block_per_cu: int | None = None
    streamk: str | None = None
    streamk_persistent: bool = False
    split_k: int = 1

    @property
    def is_complete(self) -> bool:
        """True if no field is missing, so that the kernel can be built."""
        return None not in _needed(self)


_needed = attrgetter(*(field.name for field in fields(ConvKernel) if field.name != "streamk"))


def default_layout(ndim_spatial: int) -> str:
    """The channels-last layout of CK Tile's grouped convolutions."""
    return CONV_LAYOUTS[ndim_spatial]
