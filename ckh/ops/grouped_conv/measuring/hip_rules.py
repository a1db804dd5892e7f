"""The `hip` device: convolution kernels as CK Tile translation units, and what CK Tile's headers lack for them.

Features of the headers are detected; what these, or ckh's templates in `templates/ck_tile`, lack is refused with the
reason, never replaced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import (
    LABEL,
    LABEL_BYTES,
    LDS_TRANSPOSES,
    PIPELINE_HEADERS,
    TRANSPOSED_ACCESS_BYTES,
    Interface,
    share_of_thread,
    template_parameters,
    transposing_warp_gemms,
    unlike,
    warp_gemms,
)
from ckh.bench.codegen.unit import UnsupportedKernelError, translation_unit
from ckh.kernels.declaration import by
from ckh.kernels.judging import RuleBook, given
from ckh.kernels.pipelines import PIPELINES, Scheduler, wave_group_reason, wave_groups_of
from ckh.kernels.table import SIZES, TRIPLES
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.kernels.variants import FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0, FILTER3X3
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ckh.archs import ArchSpec, Triple
    from ckh.bench.codegen.ck_tile import Headers
    from ckh.kernels.judging import Rule
    from ckh.ops.grouped_conv.kernel import ConvKernel

_FOLDER = Path("ck_tile/ops/grouped_convolution")
_UTILS = _FOLDER / "utils/grouped_convolution_utils.hpp"
_KERNELS = {
    Direction.FORWARD: _FOLDER / "kernel/grouped_convolution_forward_kernel.hpp",
    Direction.BWD_DATA: _FOLDER / "kernel/grouped_convolution_backward_data_kernel.hpp",
    Direction.BWD_WEIGHT: _FOLDER / "kernel/grouped_convolution_backward_weight_kernel.hpp",
}
_LAYOUTS = "NDimSpatial_ ConvSpecialization_ InLayout_ WeiLayout_ DsLayout_ OutLayout_"
_OPTIONS = f"{_LAYOUTS} VectorSizeA_ VectorSizeB_ VectorSizeC_ NumGroupsToMerge_ EnableSplitImage_"
_TRAITS = "GroupedConvTraits"
# Template parameters that ckh's headers pass.
_STATED = {
    Interface.MID_2025: _LAYOUTS,
    Interface.LATE_2025: _OPTIONS,
    Interface.CURRENT: f"{_OPTIONS} ExplicitGemm_",
}
# Members that current convolutions may require of a pipeline; not every pipeline of the same tree has them.
_NEEDED = re.compile(r"Pipeline_?::(Async|LargeTensors)\b")
_FIRST_PIECE = "pieces[0].block_start"  # set when a split image is one piece unless the launch states otherwise
_SPLITS_K = re.compile(r"IsSplitKSupported\s*=\s*true")
# Support checks of a kernel: one channel per group with this specialization, and widths that divide the channels.
_ONE_CHANNEL = re.compile(r"::Filter3x3\)\s*\{\s*if\(ConvC != 1\)\s*\{\s*return false;")
_DIVIDES_CHANNELS = re.compile(r"if\(ConvC % \S*VectorSize([ABC])\b")
_MERGES = re.compile(r"GemmBatch\s*=[^;]*NumGroups")  # fewer GEMMs than groups
# A kernel's branch for two LDS buffers, which does not compile: tile windows have no such member.
_BROKEN_WINDOWS = re.compile(r"windows\.at\(I0\)\.get_length\(")
# Convolutions of late 2025 pass a pipeline one window per operand; some pipelines only take tuples.
_SINGLE_WINDOWS = re.compile(
    r"!is_detected<is_tuple, ADramBlockWindowTmp>[^{}]*"
    r"operator\(\)\(const ADramBlockWindowTmp& \w+,\s*const BDramBlockWindowTmp&"
)
_TAKES_TUPLES = "takes only tuples of windows, their convolutions pass single windows"
_LACKS_MEMBERS = "lacks members that their convolutions require"
# An epilogue without a stated block has waves along M and N, and no second wave group.
_EPILOGUE = Path("ck_tile/ops/epilogue/cshuffle_epilogue.hpp")
_STATED_BLOCK = "kBlockSize_"
_GROUPED = {row.name for row in PIPELINES.values() if row.wave_groups}
_NO_GROUPS = "needs an epilogue with a second wave group, which they do not have"
_POLICY = Path("ck_tile/ops/gemm/pipeline/gemm_universal_pipeline_ag_bg_cr_policy.hpp")
_LOADS_TRANSPOSED = "is_a_load_tr"
_Directions = frozenset[Direction]
_FORWARD, _BWD_WEIGHT = frozenset({Direction.FORWARD}), frozenset({Direction.BWD_WEIGHT})


@dataclass(frozen=True, slots=True)
class ConvHeaders:
    """Features of CK Tile's headers for convolutions."""

    common: Headers  # features shared by all kernels
    directions: _Directions  # that have a kernel
    unlike: str = ""  # how the convolutions' traits differ from the interface's; empty if they agree
    incomplete: Mapping[str, str] = field(default_factory=dict)
    """The pipelines that convolutions cannot be built with -> reason."""
    interwave: frozenset[str] = frozenset()  # the pipelines that have this scheduler in convolutions
    warp_gemms: frozenset[tuple[str, Triple]] = frozenset()
    """CK Tile's element type of A and B, and the tile, of every matrix instruction; empty: unknown."""
    transposing: frozenset[tuple[str, Triple, int]] | None = None
    """For headers whose pipelines use LDS transpose where available, the matrix instructions that support it -> number
    of LDS accesses of a lane; None for other headers."""
    two_buffers: _Directions = frozenset(Direction)  # whose kernels pass a pipeline two LDS buffers
    merging: _Directions = frozenset()  # groups
    splitting: _Directions = frozenset()  # K
    split_images: _Directions = frozenset()
    explicit: _Directions = frozenset()  # a 1x1 filter is computed as an explicit GEMM
    two_stages: _Directions = frozenset()
    one_channel: Mapping[Direction, str] = field(default_factory=dict)
    """The directions that support one channel per group only with the specialization for 3x3 filters -> the operands
    whose vector width must divide it."""


def detect_conv(headers: Headers) -> ConvHeaders:
    """Detect the features of headers for convolutions; an unreadable header counts as absent."""
    kernels = {direction: text for direction, file in _KERNELS.items() if (text := headers.text(file))}
    traits = template_parameters(headers.text(_UTILS), _TRAITS)
    common = ConvHeaders(
        common=headers,
        directions=frozenset(kernels),
        unlike=unlike(_TRAITS, _UTILS, traits, tuple(_STATED[headers.interface].split())),
        interwave=headers.interwave,
        warp_gemms=warp_gemms(headers),
        two_buffers=frozenset(direction for direction, text in kernels.items() if not _BROKEN_WINDOWS.search(text)),
        one_channel={
            direction: "".join(_DIVIDES_CHANNELS.findall(text))
            for direction, text in kernels.items()
            if _ONE_CHANNEL.search(text)
        },
    )
    if headers.interface is Interface.CURRENT:
        return _current(common, kernels)
    common = replace(
        common,
        merging=frozenset(direction for direction, text in kernels.items() if _MERGES.search(text)),
        splitting=frozenset(direction for direction, text in kernels.items() if _SPLITS_K.search(text)),
    )
    return _late(common) if headers.interface is Interface.LATE_2025 else common


def _late(common: ConvHeaders) -> ConvHeaders:
    headers = common.common
    texts = {name: headers.text(PIPELINE_HEADERS[name]) for name in headers.pipelines}
    taking_tuples = {name: _TAKES_TUPLES for name, text in texts.items() if not _SINGLE_WINDOWS.search(text)}
    has_groups = _STATED_BLOCK in template_parameters(headers.text(_EPILOGUE), "CShuffleEpilogueProblem")
    return replace(
        common,
        incomplete=taking_tuples | ({} if has_groups else dict.fromkeys(_GROUPED & texts.keys(), _NO_GROUPS)),
        # Its block GEMM has the scheduler.
        interwave=common.interwave | {"basic_v1"},
        transposing=transposing_warp_gemms(headers) if _LOADS_TRANSPOSED in headers.text(_POLICY) else None,
        split_images=_FORWARD,
        two_stages=_BWD_WEIGHT,
    )


def _current(common: ConvHeaders, kernels: dict[Direction, str]) -> ConvHeaders:
    texts = {name: common.common.text(PIPELINE_HEADERS[name]) for name in common.common.pipelines}
    needed = {member for text in kernels.values() for member in _NEEDED.findall(text)}
    has = {name: all(re.search(rf"\b{member}\s*=", text) for member in needed) for name, text in texts.items()}
    return replace(
        common,
        incomplete={name: _LACKS_MEMBERS for name, is_complete in has.items() if not is_complete},
        merging=_FORWARD | _BWD_WEIGHT,
        splitting=frozenset(Direction) - _FORWARD,
        split_images=_FORWARD if _FIRST_PIECE in kernels.get(Direction.FORWARD, "") else frozenset(),
        explicit=_FORWARD | _BWD_WEIGHT,
        two_stages=_BWD_WEIGHT,
    )


def found_words(headers: ConvHeaders) -> dict[str, tuple[str, ...]]:
    """Describe the features: the pipelines of each direction, and the directions that have an option."""
    common = headers.common
    options = {
        "merged groups": headers.merging,
        "split K": headers.splitting,
        "split images": headers.split_images,
        "explicit GEMM": headers.explicit,
        "two stages": headers.two_stages,
    }
    usable = common.pipelines - headers.incomplete.keys()
    pipelines = {
        direction: usable - (frozenset() if direction in headers.two_buffers else common.double_buffered)
        for direction in Direction
    }
    return {
        **{
            str(direction): tuple(sorted(names))
            for direction, names in pipelines.items()
            if direction in headers.directions
        },
        **{what: tuple(sorted(map(str, directions))) for what, directions in options.items()},
        "differs": (headers.unlike,) if headers.unlike else (),
    }


_LANES, _FP32_SIDES = 64, (16, 32)
_MAX_FP32_ATOMIC = 4  # elements
# Operands in which K is not contiguous, since late 2025.
_TRANSPOSED = {Direction.FORWARD: "", Direction.BWD_DATA: "B", Direction.BWD_WEIGHT: "AB"}
ELEMENTS = {"fp16": "ck_tile::half_t", "bf16": "ck_tile::bf16_t", "fp32": "float"}
_OF_2025 = frozenset({Interface.MID_2025, Interface.LATE_2025})

rule = RuleBook().rule


@rule
def _parts(is_complete: bool, dtype: str, variant: Direction, pipeline: str, *, headers: ConvHeaders) -> Iterator[str]:
    if not is_complete:
        yield "the kernel has missing parameters: only complete kernels can be built"
    if dtype not in ELEMENTS:
        yield f"dtype {dtype} is not one of {', '.join(ELEMENTS)}"
    if variant not in headers.directions:
        yield f"{headers.common} have no {variant} kernel"
    if pipeline not in headers.common.pipelines:
        yield f"{headers.common} have no pipeline {pipeline}"
    elif pipeline in headers.incomplete:
        yield f"{pipeline} of {headers.common} {headers.incomplete[pipeline]}"


@rule
def _other_parts(
    pads: tuple[bool, bool, bool],
    epilogue: str | None,
    layout: str | None,
    streamk: str | None,
    *,
    headers: ConvHeaders,
) -> Iterator[str]:
    if not all(pads):
        yield "CK Tile's convolutions are always padded in m, n and k"
    if epilogue not in {None, "cshuffle"}:
        yield f"{headers.common} have no epilogue {epilogue}"
    if layout not in {None, *CONV_LAYOUTS.values()}:
        yield f"{headers.common} have no layout {layout}"
    if streamk is not None:
        yield "stream-K kernels are not emitted"


@rule
def _buffers(
    variant: Direction, pipeline: str, scheduler: Scheduler, double_smem_buffer: bool, *, headers: ConvHeaders
) -> Iterator[str]:
    """LDS buffers, and options that depend on them."""
    common = headers.common
    if pipeline not in common.pipelines:
        return  # rejected by _parts
    is_double = pipeline in common.double_buffered
    # In the current interface the flag also applies to the epilogue, which then shuffles one tile of a wave at a time.
    is_pipelines = common.interface in _OF_2025
    if double_smem_buffer != is_double and (is_pipelines or is_double):
        yield f"{pipeline} of {common} takes {'two LDS buffers' if is_double else 'one LDS buffer'}"
    elif is_double and variant in headers.directions - headers.two_buffers:
        yield f"{variant} kernels of {common} do not compile with two LDS buffers"
    if scheduler is Scheduler.INTERWAVE and pipeline not in headers.interwave:
        yield f"{pipeline} of {common} is not interwave"


@rule
def _options(
    variant: Direction,
    num_groups_to_merge: int,
    split_image: bool,
    explicit_gemm: bool | None,
    two_stage: bool,
    split_k: int,
    *,
    headers: ConvHeaders,
) -> Iterator[str]:
    # Option -> whether the kernel uses it, and the directions that have it.
    options = {
        "merged groups": (num_groups_to_merge != 1, headers.merging),
        "split images": (split_image, headers.split_images),
        "explicit GEMM": (bool(explicit_gemm), headers.explicit),
        "second stage": (two_stage, headers.two_stages),
        "split of K": (split_k != 1, headers.splitting),
    }
    for what, (is_used, directions) in options.items():
        if is_used and variant not in directions:
            whose = f"{variant} kernels of {headers.common}" if directions else str(headers.common)
            yield f"{whose} have no {what}"


@rule
def _atomics(
    arch: ArchSpec,
    dtype: str,
    two_stage: bool,
    split_k: int,
    tile: Triple,
    wave: Triple,
    warp_tile: Triple,
    vectors: Triple,
    *,
    headers: ConvHeaders,
) -> Iterator[str]:
    """Refuse parts of K in fp32 that the epilogue stores in vectors too wide for `amd_buffer_atomic_add_impl`.

    The width is that of CK Tile's CShuffleEpilogue: at most the elements that a thread has of a shuffled tile.
    """
    if split_k == 1 or not (two_stage or dtype == "fp32") or headers.common.interface is Interface.CURRENT:
        return
    width, elements = vectors[2] or 1, max(warp_tile[0] * warp_tile[1] // arch.wavefront_size, 1)
    repeats = max(min(width // elements, tile[0] // (warp_tile[0] * wave[0])), 1)
    if min(width, elements * repeats) > _MAX_FP32_ATOMIC:
        yield f"{headers.common} adds at most {_MAX_FP32_ATOMIC} fp32 elements atomically, not {width}"


@rule
def _waves(
    is_complete: bool, pipeline: str, wave: Triple, num_wave_groups: int, *, headers: ConvHeaders
) -> Iterator[str]:
    if is_complete and (reason := wave_group_reason(pipeline, wave, num_wave_groups)):
        yield reason
    elif wave[2] != 1 and not wave_groups_of(pipeline) and headers.common.interface in _OF_2025:
        # The block GEMM supports waves along M and N only: others read beyond the tile in LDS.
        yield f"{pipeline} of {headers.common} has no waves along K"


@rule
def _one_channel(
    variant: Direction, specialization: str | None, num_groups_to_merge: int, vectors: Triple, *, headers: ConvHeaders
) -> Iterator[str]:
    """Vector widths of a kernel for one channel per group that must divide it, and cannot."""
    if specialization != FILTER3X3 or num_groups_to_merge != 1:
        return
    divide = headers.one_channel.get(variant, "")
    widths = zip("ABC", vectors, strict=True)
    wide = [f"{width} elements of {operand}" for operand, width in widths if operand in divide and (width or 1) > 1]
    if wide:
        few = f"{variant} kernels of {headers.common} for 3x3 filters take one channel per group"
        yield f"{few}, too few for vectors of {' and '.join(wide)}"


@rule
def _together(
    variant: Direction, explicit_gemm: bool | None, num_groups_to_merge: int, split_image: bool, *, headers: ConvHeaders
) -> Iterator[str]:
    """Features that the headers have, but not in combination."""
    if explicit_gemm and variant in headers.explicit:
        if num_groups_to_merge != 1:
            yield f"explicit GEMMs of {headers.common} have no merged groups"
        if split_image:
            yield f"explicit GEMMs of {headers.common} have no split images"


@rule
def _instructions(dtype: str, warp_tile: Triple, *, headers: ConvHeaders) -> Iterator[str]:
    m, n, k = warp_tile
    # Matrix instructions for fp32, ckh's and CK Tile's, have a K that is a multiple of this.
    is_emitted = dtype == "fp32" and m == n and m in _FP32_SIDES and k % (_LANES // m) == 0
    if headers.warp_gemms and not is_emitted and (ELEMENTS[dtype], warp_tile) not in headers.warp_gemms:
        yield f"{headers.common} have no {by(warp_tile)} matrix instruction for {dtype}"


@rule
def _loads(
    arch: ArchSpec,
    variant: Direction,
    pipeline: str,
    tile: Triple,
    wave: Triple,
    vectors: Triple,
    *,
    headers: ConvHeaders,
) -> Iterator[str]:
    """Tiles that cannot be loaded."""
    if headers.common.interface is Interface.CURRENT:
        return  # distributes tiles differently
    transposed = _transposed(variant, headers)
    groups = wave_groups_of(pipeline)
    for operand, rows, width in zip("AB", tile, vectors, strict=False):
        lines, extent = (tile[2], rows) if operand in transposed else (rows, tile[2])
        if not share_of_thread(arch, wave, lines, extent, width or 1, groups.count if groups else 1):
            what = f"{lines} lines of {extent} elements of {operand}"
            yield f"{headers.common} cannot spread {what} over a block's threads"


@rule
def _transposition(
    arch: ArchSpec, variant: Direction, dtype: str, warp_tile: Triple, *, headers: ConvHeaders
) -> Iterator[str]:
    """Operands that LDS cannot transpose for a matrix instruction."""
    if not _transposed(variant, headers) or headers.transposing is None or arch.name != LDS_TRANSPOSES:
        return
    _, n, k = warp_tile
    accesses = n * k * DTYPE_BYTES[dtype] / arch.wavefront_size / TRANSPOSED_ACCESS_BYTES
    if (ELEMENTS[dtype], warp_tile, accesses) not in headers.transposing:
        instruction = f"{by(warp_tile)} matrix instruction for {dtype}"
        yield f"{headers.common} have no {instruction} whose operands {arch.name} transposes in LDS"


_CHOICES = (_parts, _other_parts, _buffers, _options, _atomics, _waves, _one_channel, _together)
_GEOMETRY = (_instructions, _loads, _transposition)  # for kernels that passed the rules before


def rules_of(headers: ConvHeaders) -> tuple[Rule, ...]:
    """Return the rules for these headers; each assumes that the rules before it passed."""
    return given((*_CHOICES, *_GEOMETRY), headers=headers)


def missing(kernel: ConvKernel, headers: ConvHeaders, arch: ArchSpec) -> list[str]:
    """Return what the headers, or ckh's templates for them, lack for a kernel; empty if buildable."""
    choices, geometry = given(_CHOICES, headers=headers), given(_GEOMETRY, headers=headers)
    reasons = [reason for choice in choices for reason in choice(kernel, arch)]
    return reasons or [reason for check in geometry for reason in check(kernel, arch)]


def _transposed(variant: Direction, headers: ConvHeaders) -> str:
    return _TRANSPOSED[variant] if headers.common.interface is Interface.LATE_2025 else ""


_SPECIALIZATIONS = {
    "default": "Default",
    FILTER1X1_PAD0: "Filter1x1Pad0",
    FILTER1X1_STRIDE1_PAD0: "Filter1x1Stride1Pad0",
    FILTER3X3: "Filter3x3",
}
_INTEGERS = (
    *(*SIZES, *TRIPLES["vectors"]),
    *("num_groups_to_merge", "num_wave_groups", "split_k", "block_per_cu"),
)
_BOOLEANS = ("double_smem_buffer", "split_image", "two_stage", "explicit_gemm")


def emit(kernel: ConvKernel, headers: ConvHeaders, arch: ArchSpec) -> str:
    """Return the C++ source of one kernel for an architecture."""
    reasons = missing(kernel, headers, arch)
    if reasons:
        raise UnsupportedKernelError("; ".join(reasons))
    specialization = _SPECIALIZATIONS[str(kernel.specialization)]
    lines = [
        f'inline constexpr char label[{LABEL_BYTES}] = "{LABEL}{kernel_name(kernel)}";',
        f"using Element = {ELEMENTS[kernel.dtype]};",
        f"inline constexpr int ndim_spatial = {kernel.ndim_spatial};",
        f"inline constexpr Variant variant = Variant::{kernel.variant};",
        f"inline constexpr Pipeline pipeline = Pipeline::{kernel.pipeline};",
        f"inline constexpr auto scheduler = ck_tile::GemmPipelineScheduler::{str(kernel.scheduler).capitalize()};",
        f"inline constexpr auto specialization = ck_tile::ConvolutionSpecialization::{specialization};",
        *(f"inline constexpr ck_tile::index_t {name} = {getattr(kernel, name)};" for name in _INTEGERS),
        *(f"inline constexpr bool {name} = {str(bool(getattr(kernel, name))).lower()};" for name in _BOOLEANS),
    ]
    return translation_unit("vocabulary.hpp", lines, f"{headers.common.interface}.hpp", "abi.hpp")
