"""Features of CK Tile's headers for convolutions, as far as they can be detected."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import (
    PIPELINE_HEADERS,
    Interface,
    template_parameters,
    transposing_warp_gemms,
    unlike,
    warp_gemms,
)
from ckh.kernels.pipelines import PIPELINES
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.archs import Triple
    from ckh.bench.codegen.ck_tile import Headers

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
    """Features of CK Tile's headers for convolutions.

    Attributes:
        common: features shared by all kernels.
        directions: the directions that have a kernel.
        unlike: how the convolutions' traits differ from the interface's; empty if they agree.
        incomplete: the pipelines that convolutions cannot be built with -> reason.
        interwave: the pipelines that have this scheduler in convolutions.
        warp_gemms: CK Tile's element type of A and B, and the tile, of every matrix instruction; empty: unknown.
        transposing: for headers whose pipelines use LDS transpose where available, the matrix instructions that support
            it -> number of LDS accesses of a lane; None for other headers.
        two_buffers: the directions whose kernels pass a pipeline two LDS buffers.
        merging: the directions that merge groups.
        splitting: the directions that split K.
        split_images: the directions that split images.
        explicit: the directions that compute a 1x1 filter as an explicit GEMM.
        two_stages: the directions that have a second stage.
        one_channel: the directions that support one channel per group only with the specialization for 3x3 filters ->
            the operands whose vector width must divide it.
    """

    common: Headers
    directions: _Directions
    unlike: str = ""
    incomplete: Mapping[str, str] = field(default_factory=dict)
    interwave: frozenset[str] = frozenset()
    warp_gemms: frozenset[tuple[str, Triple]] = frozenset()
    transposing: frozenset[tuple[str, Triple, int]] | None = None
    two_buffers: _Directions = frozenset(Direction)
    merging: _Directions = frozenset()
    splitting: _Directions = frozenset()
    split_images: _Directions = frozenset()
    explicit: _Directions = frozenset()
    two_stages: _Directions = frozenset()
    one_channel: Mapping[Direction, str] = field(default_factory=dict)


def detect_conv(headers: Headers) -> ConvHeaders:
    """Detect the features of headers for convolutions; an unreadable header counts as absent."""
    kernels = {item: text for item, file in _KERNELS.items() if (text := headers.text(file))}
    traits = template_parameters(headers.text(_UTILS), _TRAITS)
    common = ConvHeaders(
        common=headers,
        directions=frozenset(kernels),
        unlike=unlike(_TRAITS, _UTILS, traits, tuple(_STATED[headers.interface].split())),
        interwave=headers.interwave,
        warp_gemms=warp_gemms(headers),
        two_buffers=frozenset(item for item, text in kernels.items() if not _BROKEN_WINDOWS.search(text)),
        one_channel={
            item: "".join(_DIVIDES_CHANNELS.findall(text))
            for item, text in kernels.items()
            if _ONE_CHANNEL.search(text)
        },
    )
    if headers.interface is Interface.CURRENT:
        return _current(common, kernels)
    common = replace(
        common,
        merging=frozenset(item for item, text in kernels.items() if _MERGES.search(text)),
        splitting=frozenset(item for item, text in kernels.items() if _SPLITS_K.search(text)),
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
        item: usable - (frozenset() if item in headers.two_buffers else common.double_buffered) for item in Direction
    }
    return {
        **{str(item): tuple(sorted(pipelines[item])) for item in Direction if item in headers.directions},
        **{what: tuple(sorted(map(str, directions))) for what, directions in options.items()},
        "differs": (headers.unlike,) if headers.unlike else (),
    }
