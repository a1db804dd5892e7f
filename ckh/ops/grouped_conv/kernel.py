"""`ConvKernel`: all compile-time parameters of a grouped-convolution kernel, and its names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from ckh.errors import DataError, UsageError
from ckh.kernels.declaration import (
    EPILOGUES,
    NUMBER,
    PIPELINE_TOKEN,
    NameForms,
    TiledKernel,
    Token,
    count,
    fields_of,
    mark,
    named,
    sizes,
    usual_values,
    word,
)
from ckh.kernels.pipelines import INSTANCE_PIPELINES, Scheduler, blocks_per_cu
from ckh.kernels.table import SIZES, TRIPLES
from ckh.ops.grouped_conv.kernels.variants import DEFAULT_SPECIALIZATION, SPECIALIZATIONS, STREAMK_STRATEGIES
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS
from ckh.problems import DTYPE_BYTES, Direction, dtype_name

OPERATION = "grouped_conv"
DIRECTIONS: dict[str, Direction] = {
    "fwd": Direction.FORWARD,
    "bwd_data": Direction.BWD_DATA,
    "bwd_weight": Direction.BWD_WEIGHT,
    **{str(direction): direction for direction in Direction},
}
_LAYOUTS = ("nwgc", "nhwgc", "ndhwgc", "gnwc", "gnhwc", "gndhwc", "ngcw", "ngchw", "ngcdhw")

_CK_TILES = ("Forward", "BackwardData", "BackwardWeight")  # words for the directions in texts of instances
_DIRECTION = word("direction", DIRECTIONS, DIRECTIONS.__getitem__)
_TOKENS = {direction: token for token, direction in reversed(DIRECTIONS.items())}
_SCHEDULER = word("scheduler", Scheduler, Scheduler)
_DEFAULT_VECTORS = (4, 8, 8)
_VECTORS = Token(
    "vector widths",
    f"(?:_vec(?P<>{NUMBER})_(?P<>{NUMBER})_(?P<>{NUMBER}))?",
    lambda *widths: "_vec" + "_".join(map(str, widths)) if widths != _DEFAULT_VECTORS else "",
    int,
    int,
    absent=_DEFAULT_VECTORS,
)
_PADS = Token(
    "padding",
    "(?:_pad(?P<>[01])(?P<>[01])(?P<>[01]))?",
    lambda *pads: "" if all(pads) else "_pad" + "".join(str(int(bool(pad))) for pad in pads),
    lambda text: text == "1",
    bool,
    absent=(True, True, True),
)


def _option(token: Token, absent: str | None) -> Token:
    """Return a token that complete names omit for one value."""
    return replace(
        token,
        pattern=f"(?:{token.pattern})?",
        write=lambda value: "" if value == absent else f"_{value}",
        absent=(absent,),
    )


_STREAMK = replace(
    word("stream-K", STREAMK_STRATEGIES),
    pattern=f"(?:_streamk_(?P<>{'|'.join(STREAMK_STRATEGIES)}))?",
    write=lambda strategy: "" if strategy is None else f"_streamk_{strategy}",
    absent=(None,),
)


@dataclass(frozen=True, slots=True, order=True)
class ConvKernel(TiledKernel):
    """A grouped-convolution kernel with all parameters.

    Tiles are in elements of the implicit GEMM; `wave_*` is waves per block; `warp_tile_*` is the tile of one matrix
    instruction; `vector_*` is the vector width in elements of loads of A and B and of stores of C; `split_k` is the
    number of parts of the reduction that blocks add atomically, a parameter of the launch. A field is `None` only if
    the kernel was parsed from a short name of AMD's that omits it.
    """

    op_type = OPERATION

    variant: Direction = field(
        metadata=named(replace(_DIRECTION, write=lambda variant: f"_{_TOKENS[variant]}", short=_DIRECTION))
    )
    dtype: str = field(metadata=named(word("dtype", DTYPE_BYTES)))
    ndim_spatial: int = field(metadata=named(Token("number of dimensions", "_(?P<>[123])d", "_{}d".format, int, int)))
    tile_m: int = field(metadata=named(sizes("tile")))
    tile_n: int
    tile_k: int
    pipeline: str = field(metadata=named(PIPELINE_TOKEN))
    # AMD's short names omit the scheduler where no other is possible, and AMD's parser does the same.
    scheduler: Scheduler = field(
        metadata=named(
            replace(
                _SCHEDULER,
                short=replace(_SCHEDULER, pattern=f"(?:{_SCHEDULER.pattern})?", absent=(Scheduler.INTRAWAVE,)),
            )
        )
    )
    wave_m: int | None = field(default=None, metadata=named(sizes("waves")))
    wave_n: int | None = None
    wave_k: int | None = None
    warp_tile_m: int | None = field(default=None, metadata=named(sizes("warp tile")))
    warp_tile_n: int | None = None
    warp_tile_k: int | None = None
    vector_a: int | None = field(default=None, metadata=named(_VECTORS))
    vector_b: int | None = None
    vector_c: int | None = None
    layout: str | None = field(default=None, metadata=named(word("layout", _LAYOUTS)))
    epilogue: str | None = field(default=None, metadata=named(word("epilogue", EPILOGUES)))
    double_smem_buffer: bool = field(default=False, metadata=named(mark("double smem buffer", "dsb")))
    split_image: bool = field(
        default=False, metadata=named(replace(mark("split image", "large_tensor"), short=mark("split image", "si")))
    )
    num_groups_to_merge: int = field(default=1, metadata=named(count("merged groups", "gm")))
    num_wave_groups: int = field(default=1, metadata=named(count("wave groups", "wg")))
    two_stage: bool = field(default=False, metadata=named(mark("two stages", "2stage")))
    explicit_gemm: bool | None = field(default=None, metadata=named(mark("explicit GEMM", "explicit_gemm")))
    specialization: str | None = field(
        default=None, metadata=named(_option(word("specialization", SPECIALIZATIONS), DEFAULT_SPECIALIZATION))
    )
    pad_m: bool | None = field(default=None, metadata=named(_PADS))
    pad_n: bool | None = None
    pad_k: bool | None = None
    block_per_cu: int | None = field(default=None, metadata=named(count("blocks per CU", "bpc")))
    streamk: str | None = field(default=None, metadata=named(_STREAMK))
    streamk_persistent: bool = field(default=False, metadata=named(mark("persistence", "persistent")))
    split_k: int = field(default=1, metadata=named(count("split of K", "splitk")))

    @property
    def rounds_parts(self) -> bool:
        """True if parts of K are rounded to 16 bits before and after each addition, instead of added in float32."""
        return self.split_k > 1 and not self.two_stage and self.dtype in {"fp16", "bf16"}


def usual_fields(ndim_spatial: int) -> dict[str, Any]:
    """Return the fields of kernels whose complete names omit all that they may, channels last."""
    return {
        **usual_values(ConvKernel),
        "ndim_spatial": ndim_spatial,
        "layout": CONV_LAYOUTS[ndim_spatial],
        "epilogue": "cshuffle",
    }


# A short name has its number of dimensions where a full name has its layout.
NAMES = NameForms(
    ConvKernel,
    OPERATION,
    ("variant", "dtype"),
    (
        ("layout", "ndim_spatial", "pipeline", "epilogue", "scheduler"),
        ("tile", "wave", "warp_tile", "vectors", "block_per_cu", "num_wave_groups", "num_groups_to_merge"),
        ("double_smem_buffer", "two_stage", "specialization", "explicit_gemm", "streamk", "streamk_persistent"),
        ("split_image", "pads", "split_k"),
    ),
    (
        *("ndim_spatial", "tile", "pipeline", "scheduler"),
        *("num_groups_to_merge", "double_smem_buffer", "split_image", "two_stage"),
    ),
)
kernel_name, amd_short_name = NAMES.name, NAMES.short  # `parse_kernel_name` returns exactly a complete name's kernel
_INSTANCE = re.compile(rf"GroupedConvolution({'|'.join(_CK_TILES)})Kernel<([^<>]*)>(?:_splitk({NUMBER}))?")
# Parameters in the text of an instance of CK Tile; those of stream-K are of backward weight alone.
_PARAMETERS = (
    *("ndim_spatial", "specialization", "layout", "of_w", "of_d", "of_y", *TRIPLES["vectors"]),
    *("num_groups_to_merge", "split_image", "explicit_gemm", *SIZES, "dtype", "dtype_b", "pipeline", "scheduler"),
    *("double_smem_buffer", "num_wave_groups", "dtype_sum", "dtype_c", "dtype_d", "fused"),
    *("has_streamk", "streamk", "streamk_persistent"),
)


def parse_kernel_name(text: str) -> ConvKernel:
    """Parse ckh's names, AMD's full and short names, and the texts of CK Tile's instances, which a split may follow."""
    if (match := _INSTANCE.fullmatch(text)) is None:
        return NAMES.parse(text)
    said = dict(zip(_PARAMETERS, match[2].split(","), strict=False))
    try:
        kernel = _of_instance(dict(zip(_CK_TILES, Direction, strict=True))[match[1]], said)
        return NAMES.parse(NAMES.name(replace(kernel, split_k=int(match[3] or 1))))
    except (LookupError, ValueError, UsageError) as error:
        raise DataError(f"not an instance that ckh knows: {error}: {text[:200]}", code="bad-kernel") from error


def _of_instance(variant: Direction, said: dict[str, str]) -> ConvKernel:
    """The kernel of the parameters in an instance's text; what they do not state is as AMD's generator has it."""
    if said["of_d"] != "EmptyTuple" or said["fused"] != "PassThrough" or said["dtype"] != said["dtype_b"]:
        raise ValueError("a fused kernel, or one of mixed element types")
    known = {name.replace("_", ""): name for name in SPECIALIZATIONS}
    pipeline, has_streamk = INSTANCE_PIPELINES[said["pipeline"]], said.get("has_streamk") == "1"
    # Parts of 16 bits that single stores cannot add atomically are summed in float32 by a second kernel.
    is_in_parts = variant is Direction.BWD_WEIGHT and said["dtype"] != "fp32" and said["vector_c"] == "1"
    own: dict[str, Any] = {
        **{name: int(said[name]) for name in fields_of(ConvKernel, int) if name in said},
        **{name: said[name] == "1" for name in fields_of(ConvKernel, bool) if name in said},
        "layout": said["layout"].lower(),
        "pipeline": pipeline,
        "scheduler": Scheduler.INTERWAVE if said["scheduler"] == "Interwave" else Scheduler.INTRAWAVE,
        "specialization": known[said["specialization"].lower()],
        "streamk": {"1": "linear", "2": "tree"}[said["streamk"]] if has_streamk else None,
        "two_stage": is_in_parts and not has_streamk,
        "block_per_cu": blocks_per_cu(pipeline),
    }
    return ConvKernel(variant, dtype_name(said["dtype"]), **usual_fields(own["ndim_spatial"]) | own)


def amd_full_name(kernel: ConvKernel) -> str:
    """Return the name of AMD's code generator: ckh's without blocks per CU and split of K.

    Its newer generation deduces the blocks per CU; the split is a launch argument.
    """
    return NAMES.name(kernel, ("block_per_cu", "split_k"))
