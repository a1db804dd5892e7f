"""`GemmKernel`: all compile-time parameters of a GEMM kernel, and its names.

ckh uses AMD's full name, which has every compile-time parameter; vector widths only where they are not native:

    gemm_universal_{dtype}_{layout}_{pipeline}_{epilogue}_{scheduler}_{pad M}_{pad N}_{pad K}_{persistent}_
    {tile}_{waves}_{warp tile}[_vecA_B_C][_suffix]

AMD's other names are parsed too: names that begin with `gemm_`, and the short names of its benchmark tables,
`gemm_universal_{dtype}_{layout}_{tile}_{pipeline}_{scheduler}`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ckh.kernels.declaration import (
    EPILOGUES,
    NUMBER,
    PIPELINE_TOKEN,
    NameForms,
    TiledKernel,
    Token,
    flag,
    named,
    sizes,
    word,
)
from ckh.kernels.pipelines import Scheduler
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, OP_TYPE
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

NATIVE_WIDTH = 0
GROUP_FIELDS: tuple[str, ...] = ("dtype", "layout")

_WIDTH = f"(?P<>0|{NUMBER})"
_VECTORS = Token(
    "vector widths",
    # A width other than a number or "native" is not parsed as a suffix either.
    rf"(?:_vecnative|_vec{_WIDTH}_{_WIDTH}_{_WIDTH}(?=_|$)|(?!_vec|\d))",
    lambda *widths: "_vec" + "_".join(map(str, widths)) if widths != (NATIVE_WIDTH,) * 3 else "",
    int,
    int,
    absent=(NATIVE_WIDTH,) * 3,
)
_DIVIDES = "whether {} need not divide, 0 or 1"
_PARAMETER = "kernel parameter "


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
        vector_a: vector width of loads of A in elements, 0: derived from the tile (`native_widths`); likewise
            `vector_b` and, for stores, `vector_c`.
        suffix: rest of a name after all parts that the grammar knows. AMD's parser skips it; ckh keeps it, since it
            denotes a different kernel.

    A field is `None` only if the kernel was parsed from a short name that omits it.
    """

    op_type = OP_TYPE  # first part of names; subclasses are kernels of other operations
    group_fields = GROUP_FIELDS  # problems of a group have one pool

    dtype: str = field(metadata=named(word("dtype", DTYPE_BYTES)))
    layout: str = field(metadata=named(word("layout", GEMM_LAYOUTS)))
    tile_m: int = field(metadata=named(sizes("tile"), "block tile along {}"))
    tile_n: int
    tile_k: int
    pipeline: str = field(metadata=named(PIPELINE_TOKEN, _PARAMETER + "pipeline"))
    scheduler: Scheduler = field(metadata=named(word("scheduler", Scheduler, Scheduler), _PARAMETER + "scheduler"))
    wave_m: int | None = field(default=None, metadata=named(sizes("waves"), "waves per block along {}"))
    wave_n: int | None = None
    wave_k: int | None = None
    warp_tile_m: int | None = field(
        default=None, metadata=named(sizes("warp tile"), "tile of one matrix instruction along {}")
    )
    warp_tile_n: int | None = None
    warp_tile_k: int | None = None
    epilogue: str | None = field(default=None, metadata=named(word("epilogue", EPILOGUES), _PARAMETER + "epilogue"))
    pad_m: bool | None = field(default=None, metadata=named(flag("padding of M"), _DIVIDES))
    pad_n: bool | None = field(default=None, metadata=named(flag("padding of N"), _DIVIDES))
    pad_k: bool | None = field(default=None, metadata=named(flag("padding of K"), _DIVIDES))
    persistent: bool | None = field(default=None, metadata=named(flag("persistence"), _PARAMETER + "persistent"))
    vector_a: int | None = field(default=None, metadata=named(_VECTORS))
    vector_b: int | None = None
    vector_c: int | None = None
    suffix: str = field(
        default="", metadata=named(Token("suffix", r"(?P<>(?:_[A-Za-z0-9.\-]{1,64}){0,8})", "{}".format))
    )


K = TypeVar("K", bound=GemmKernel)
NAMES: dict[type[GemmKernel], NameForms[Any]] = {}


def parser_of(kind: type[K], operation: str, *own: str) -> Callable[[str], K]:
    """Declare the names of an operation's kernels, and return their parser.

    Args:
        kind: the class of the kernels.
        operation: pattern of the first part of names.
        own: fields of the class that names state after it.
    """
    complete = (
        ("pipeline", "epilogue", "scheduler"),
        ("pad_m", "pad_n", "pad_k", "persistent"),
        *(("tile",), ("wave",), ("warp_tile",), ("vectors", "suffix")),
    )
    names = NameForms(kind, operation, (*own, "dtype", "layout"), complete, ("tile", "pipeline", "scheduler"))
    NAMES[kind] = names
    return names.parse


parse_kernel_name = parser_of(GemmKernel, r"gemm(?:_universal)?")


def kernel_name(kernel: GemmKernel) -> str:
    """Return the complete name; `parse_kernel_name` returns exactly this kernel."""
    return NAMES[type(kernel)].name(kernel)


def short_name(kernel: GemmKernel) -> str:
    """Return AMD's short name, without waves, warp tile, epilogue, padding, persistence and vector widths."""
    return NAMES[type(kernel)].short(kernel)
