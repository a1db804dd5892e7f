"""`ConvKernel`: all compile-time parameters of a grouped-convolution kernel."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.kernels.name_grammar import EPILOGUES, NUMBER, PIPELINE, NameGrammar, by, either, three_sizes
from ckh.kernels.pipelines import Scheduler
from ckh.kernels.table import TiledKernel
from ckh.ops.grouped_conv.kernels.variants import DEFAULT_SPECIALIZATION, SPECIALIZATIONS, STREAMK_STRATEGIES
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS
from ckh.problems import (
    DTYPE_BYTES,
    Direction,
)

if TYPE_CHECKING:
    import re


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


OPERATION = "grouped_conv"
DIRECTION_TOKENS: dict[str, Direction] = {
    "fwd": Direction.FORWARD,
    "bwd_data": Direction.BWD_DATA,
    "bwd_weight": Direction.BWD_WEIGHT,
}
DEFAULT_VECTORS = (4, 8, 8)
_LAYOUTS = ("nwgc", "nhwgc", "ndhwgc", "gnwc", "gnhwc", "gndhwc", "ngcw", "ngchw", "ngcdhw")


_HEAD = (
    ("operation", OPERATION),
    ("direction", rf"_(?P<direction>{either([*DIRECTION_TOKENS, *Direction])})"),
    ("dtype", rf"_(?P<dtype>{either(DTYPE_BYTES)})"),
)
_FULL = (
    ("layout", rf"_(?P<layout>{either(_LAYOUTS)})"),
    ("number of dimensions", r"_(?P<ndim>[123])d"),
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("epilogue", rf"_(?P<epilogue>{either(EPILOGUES)})"),
    ("scheduler", rf"_(?P<scheduler>{either(Scheduler)})"),
    ("tile", three_sizes("tile")),
    ("waves", three_sizes("wave")),
    ("warp tile", three_sizes("warp_tile")),
    ("vector widths", rf"(?:_vec(?P<vector_a>{NUMBER})_(?P<vector_b>{NUMBER})_(?P<vector_c>{NUMBER}))?"),
    ("blocks per CU", rf"(?:_bpc(?P<bpc>{NUMBER}))?"),
    ("wave groups", rf"(?:_wg(?P<wg>{NUMBER}))?"),
    ("merged groups", rf"(?:_gm(?P<gm>{NUMBER}))?"),
    ("double smem buffer", r"(?P<dsb>_dsb)?"),
    ("two stages", r"(?P<two_stage>_2stage)?"),
    ("specialization", rf"(?:_(?P<specialization>{either(SPECIALIZATIONS)}))?"),
    ("explicit GEMM", r"(?P<explicit_gemm>_explicit_gemm)?"),
    ("stream-K", rf"(?:_streamk_(?P<streamk>{either(STREAMK_STRATEGIES)}))?"),
    ("persistence", r"(?P<persistent>_persistent)?"),
    ("split image", r"(?P<si>_large_tensor)?"),
    ("padding", r"(?:_pad(?P<pad_m>[01])(?P<pad_n>[01])(?P<pad_k>[01]))?"),
    ("split of K", rf"(?:_splitk(?P<split_k>{NUMBER}))?"),
)
_SHORT = (
    ("number of dimensions", r"_(?P<ndim>[123])d"),
    ("tile", three_sizes("tile")),
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("scheduler", rf"(?:_(?P<scheduler>{either(Scheduler)}))?"),
    ("merged groups", rf"(?:_gm(?P<gm>{NUMBER}))?"),
    ("double smem buffer", r"(?P<dsb>_dsb)?"),
    ("split image", r"(?P<si>_si)?"),
    ("two stages", r"(?P<two_stage>_2stage)?"),
)
# A short name has its number of dimensions where a full name has its layout.
GRAMMAR = NameGrammar("kernel name", _HEAD, _FULL, _SHORT)


_TOKEN_OF_DIRECTION = {direction: token for token, direction in DIRECTION_TOKENS.items()}


def kernel_name(kernel: ConvKernel) -> str:
    """Return the complete name; `parse_kernel_name` returns exactly this kernel."""
    name = _full_name(kernel, f"_bpc{kernel.block_per_cu}" if kernel.block_per_cu != 1 else "")
    return f"{name}_splitk{kernel.split_k}" if kernel.split_k != 1 else name


def amd_full_name(kernel: ConvKernel) -> str:
    """Return the name of AMD's code generator: ckh's without blocks per CU and split of K.

    Its newer generation deduces the blocks per CU; the split is a launch argument.
    """
    return _full_name(kernel, "")


def amd_short_name(kernel: ConvKernel) -> str:
    """Return the name in the `kernel` column of AMD's CSV files, without waves, warp tile, vectors, layout, padding."""
    gm = f"_gm{kernel.num_groups_to_merge}" if kernel.num_groups_to_merge != 1 else ""
    flags = ((kernel.double_smem_buffer, "_dsb"), (kernel.split_image, "_si"), (kernel.two_stage, "_2stage"))
    return (
        f"{OPERATION}_{kernel.variant}_{kernel.dtype}_{kernel.ndim_spatial}d_{by(kernel.tile)}"
        f"_{kernel.pipeline}_{kernel.scheduler}{gm}" + "".join(token for is_set, token in flags if is_set)
    )


@lru_cache(maxsize=8192)
def parse_kernel_name(text: str) -> ConvKernel:
    """Parse ckh's names, AMD's full names and AMD's short names.

    Fields that a short name omits are `None`. A short name without a scheduler is intrawave: AMD omits the scheduler
    where no other is possible, and its parser does the same.
    """
    match, is_short = GRAMMAR.match(text)
    if is_short:
        return ConvKernel(**_from_both(match, Scheduler(match["scheduler"] or Scheduler.INTRAWAVE)))
    return _from_full(match)


@lru_cache(maxsize=8192)
def _full_name(kernel: ConvKernel, block_per_cu: str) -> str:
    _require_nameable(kernel)
    vectors = kernel.vectors
    pads = kernel.pads
    tokens = (
        ("_vec" + "_".join(map(str, vectors)), vectors != DEFAULT_VECTORS),
        (block_per_cu, True),
        (f"_wg{kernel.num_wave_groups}", kernel.num_wave_groups != 1),
        (f"_gm{kernel.num_groups_to_merge}", kernel.num_groups_to_merge != 1),
        ("_dsb", kernel.double_smem_buffer),
        ("_2stage", kernel.two_stage),
        (f"_{kernel.specialization}", kernel.specialization != DEFAULT_SPECIALIZATION),
        ("_explicit_gemm", kernel.explicit_gemm),
        (f"_streamk_{kernel.streamk}", kernel.streamk is not None),
        ("_persistent", kernel.streamk_persistent),
        ("_large_tensor", kernel.split_image),
        ("_pad" + "".join(str(int(bool(pad))) for pad in pads), not all(pads)),
    )
    return (
        f"{OPERATION}_{_TOKEN_OF_DIRECTION[kernel.variant]}_{kernel.dtype}_{kernel.layout}_{kernel.ndim_spatial}d"
        f"_{kernel.pipeline}_{kernel.epilogue}_{kernel.scheduler}"
        f"_{by(kernel.tile)}_{by(kernel.wave)}_{by(kernel.warp_tile)}"
    ) + "".join(token for token, is_written in tokens if is_written)


def _require_nameable(kernel: ConvKernel) -> None:
    if not kernel.is_complete:
        raise UsageError(
            f"{amd_short_name(kernel)} is incomplete and has no complete name",
            "AMD's short names omit parameters: such kernels can be ranked, but not built",
            code="incomplete-kernel",
        )
    if not PIPELINE.fullmatch(kernel.pipeline):
        raise UsageError(f"unknown pipeline {kernel.pipeline!r}", code="unknown-name")
    for what, value, known in (
        ("epilogue", kernel.epilogue, EPILOGUES),
        ("specialization", kernel.specialization, SPECIALIZATIONS),
        ("stream-K strategy", kernel.streamk, (None, *STREAMK_STRATEGIES)),
    ):
        if value not in known:
            raise UsageError(
                f"unknown {what} {value!r}", "one of " + ", ".join(filter(None, known)), code="unknown-name"
            )


def _from_full(match: re.Match[str]) -> ConvKernel:
    sizes: dict[str, Any] = {
        **{f"{what}_{axis}": int(match[f"{what}_{axis}"]) for what in ("wave", "warp_tile") for axis in "mnk"},
        **{
            f"vector_{operand}": int(match[f"vector_{operand}"] or default)
            for operand, default in zip("abc", DEFAULT_VECTORS, strict=True)
        },
        **{f"pad_{axis}": match[f"pad_{axis}"] != "0" for axis in "mnk"},
    }
    return ConvKernel(
        **_from_both(match, Scheduler(match["scheduler"])),
        **sizes,
        layout=match["layout"],
        epilogue=match["epilogue"],
        num_wave_groups=int(match["wg"] or 1),
        explicit_gemm=match["explicit_gemm"] is not None,
        specialization=match["specialization"] or DEFAULT_SPECIALIZATION,
        block_per_cu=int(match["bpc"] or 1),
        streamk=match["streamk"],
        streamk_persistent=match["persistent"] is not None,
        split_k=int(match["split_k"] or 1),
    )


def _from_both(match: re.Match[str], scheduler: Scheduler) -> dict[str, Any]:
    """Return the fields that every name has."""
    return {
        "variant": DIRECTION_TOKENS.get(match["direction"]) or Direction(match["direction"]),
        "dtype": match["dtype"],
        "ndim_spatial": int(match["ndim"]),
        **{f"tile_{axis}": int(match[f"tile_{axis}"]) for axis in "mnk"},
        "pipeline": match["pipeline"],
        "scheduler": scheduler,
        "num_groups_to_merge": int(match["gm"] or 1),
        "double_smem_buffer": match["dsb"] is not None,
        "split_image": match["si"] is not None,
        "two_stage": match["two_stage"] is not None,
    }
