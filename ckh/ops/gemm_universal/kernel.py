"""`GemmKernel`: all compile-time parameters of a GEMM kernel, and its names.

ckh uses AMD's full name, which has every compile-time parameter; vector widths only where they are not native:

    gemm_universal_{dtype}_{layout}_{pipeline}_{epilogue}_{scheduler}_{pad M}_{pad N}_{pad K}_{persistent}_
    {tile}_{waves}_{warp tile}[_vecA_B_C][_suffix]

AMD's other names are parsed too: names that begin with `gemm_`, and the short names of its benchmark tables,
`gemm_universal_{dtype}_{layout}_{tile}_{pipeline}_{scheduler}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from ckh.errors import UsageError
from ckh.kernels.name_grammar import EPILOGUES, NUMBER, PIPELINE, NameGrammar, by, either, three_sizes
from ckh.kernels.pipelines import Scheduler
from ckh.kernels.table import TRIPLES, TiledKernel
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, OP_TYPE
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping


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
        vector_a: vector width of loads of A in elements, 0: derived from the tile (`native_widths`); likewise
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


K = TypeVar("K", bound=GemmKernel)
_FLAG = {"True": True, "1": True, "False": False, "0": False}
_FLAG_WORDS = "|".join(_FLAG)


# 0 is the native width.
_WIDTHS = "_".join(f"(?P<vector_{operand}>0|{NUMBER})" for operand in "abc")
_KIND = (
    ("dtype", rf"_(?P<dtype>{either(DTYPE_BYTES)})"),
    ("layout", rf"_(?P<layout>{either(GEMM_LAYOUTS)})"),
)
_FULL = (
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("epilogue", rf"_(?P<epilogue>{either(EPILOGUES)})"),
    ("scheduler", rf"_(?P<scheduler>{either(Scheduler)})"),
    *((f"padding of {axis.upper()}", rf"_(?P<pad_{axis}>{_FLAG_WORDS})") for axis in "mnk"),
    ("persistence", rf"_(?P<persistent>{_FLAG_WORDS})"),
    ("tile", three_sizes("tile")),
    ("waves", three_sizes("wave")),
    ("warp tile", three_sizes("warp_tile")),
    # A width other than a number or "native" is not parsed as a suffix either.
    ("vector widths", rf"(?:_vecnative|_vec{_WIDTHS}(?=_|$)|(?!_vec|\d))"),
    ("suffix", r"(?P<suffix>(?:_[A-Za-z0-9.\-]{1,64}){0,8})"),
)
_SHORT = (
    ("tile", three_sizes("tile")),
    ("pipeline", rf"_(?P<pipeline>{PIPELINE.pattern})"),
    ("scheduler", rf"_(?P<scheduler>{either(Scheduler)})"),
)


def flag(text: str) -> bool:
    """Parse a truth value of a name; AMD's parser treats 1 as false, which is wrong."""
    return _FLAG[text]


def kernel_name(kernel: GemmKernel) -> str:
    """Return the complete name; `parse_kernel_name` returns exactly this kernel."""
    if missing := kernel.missing:
        raise UsageError(
            f"{short_name(kernel)} has no complete name, it lacks " + ", ".join(missing), code="incomplete-kernel"
        )
    if not PIPELINE.fullmatch(kernel.pipeline):
        raise UsageError(f"unknown pipeline {kernel.pipeline!r}", code="unknown-name")
    if kernel.epilogue not in EPILOGUES:
        raise UsageError(f"unknown epilogue {kernel.epilogue!r}", "one of " + ", ".join(EPILOGUES), code="unknown-name")
    return "".join(text(kernel) for _, text in NAME_PARTS)


def _flags(kernel: GemmKernel) -> str:
    return "".join(f"_{bool(value)}" for value in (*kernel.pads, kernel.persistent))


def _widths_and_suffix(kernel: GemmKernel) -> str:
    vectors = kernel.vectors
    widths = "_vec" + "_".join(map(str, vectors)) if vectors != (NATIVE_WIDTH,) * 3 else ""
    return widths + kernel.suffix


# The parts of a complete name, each with the fields that it states; the first states all others.
NAME_PARTS: tuple[tuple[tuple[str, ...], Callable[[GemmKernel], str]], ...] = (
    ((), lambda kernel: f"{kernel.op_type}_{kernel.dtype}_{kernel.layout}"),
    (("pipeline", "epilogue", "scheduler"), lambda kernel: f"_{kernel.pipeline}_{kernel.epilogue}_{kernel.scheduler}"),
    ((*TRIPLES["pads"], "persistent"), _flags),
    (TRIPLES["tile"], lambda kernel: f"_{by(kernel.tile)}"),
    (TRIPLES["wave"], lambda kernel: f"_{by(kernel.wave)}"),
    (TRIPLES["warp_tile"], lambda kernel: f"_{by(kernel.warp_tile)}"),
    ((*TRIPLES["vectors"], "suffix"), _widths_and_suffix),
)


def short_name(kernel: GemmKernel) -> str:
    """Return AMD's short name, without waves, warp tile, epilogue, padding, persistence and vector widths."""
    return f"{kernel.op_type}_{kernel.dtype}_{kernel.layout}_{by(kernel.tile)}_{kernel.pipeline}_{kernel.scheduler}"


def parser_of(
    kind: type[K], operation: str, own: Callable[[re.Match[str]], Mapping[str, Any]] = lambda _match: {}
) -> Callable[[str], K]:
    """Return the parser of an operation's kernel names: ckh's names, AMD's full names and AMD's short names.

    Fields that a short name omits are `None`. A full name without vector widths has native ones, as AMD defines. The
    parser raises `DataError` for a text that is not a kernel name; the message states which part is invalid.

    Args:
        kind: the class of the kernels.
        operation: pattern of the first part of names, one group if it has alternatives.
        own: fields of the class that a match of this pattern states.
    """
    # A short name has its tile where a full name has its pipeline.
    grammar = NameGrammar("GEMM kernel name", (("operation", operation), *_KIND), _FULL, _SHORT)

    @lru_cache(maxsize=16384)
    def parse(text: str) -> K:
        match, is_short = grammar.match(text)
        return kind(**_fields(match, is_short=is_short), **own(match))

    return parse


def _fields(match: re.Match[str], *, is_short: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {name: match[name] for name in ("dtype", "layout", "pipeline")}
    fields |= {"scheduler": Scheduler(match["scheduler"])} | _sizes(match, "tile")
    if not is_short:
        fields |= _sizes(match, "wave") | _sizes(match, "warp_tile")
        fields |= {f"vector_{operand}": int(match[f"vector_{operand}"] or NATIVE_WIDTH) for operand in "abc"}
        fields |= {name: flag(match[name]) for name in ("pad_m", "pad_n", "pad_k", "persistent")}
        fields |= {"epilogue": match["epilogue"], "suffix": match["suffix"]}
    return fields


parse_kernel_name = parser_of(GemmKernel, r"gemm(?:_universal)?")


def _sizes(match: re.Match[str], what: str) -> dict[str, int]:
    return {f"{what}_{axis}": int(match[f"{what}_{axis}"]) for axis in "mnk"}
