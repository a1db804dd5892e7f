"""What CK Tile's headers have for convolutions, as far as it can be read in them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import PIPELINE_HEADERS
from ckh.bench.codegen.interfaces import Interface, template_parameters, unlike
from ckh.problems import Direction

if TYPE_CHECKING:
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
# The parameters that our headers state of it.
_STATED = {
    Interface.MID_2025: _LAYOUTS,
    Interface.LATE_2025: _OPTIONS,
    Interface.CURRENT: f"{_OPTIONS} ExplicitGemm_",
}
# What the current convolutions may ask a pipeline for; not every pipeline of their own tree has it.
_ASKED = re.compile(r"Pipeline_?::(Async|LargeTensors)\b")
_FIRST_PIECE = "pieces[0].block_start"  # set where a split image is one piece unless the launch says otherwise
_SPLITS_K = re.compile(r"IsSplitKSupported\s*=\s*true")
_MERGES = re.compile(r"GemmBatch\s*=[^;]*NumGroups")  # fewer GEMMs than groups
# Of a kernel's branch for two buffers in LDS, which does not compile: tile windows have no such member.
_BROKEN_WINDOWS = re.compile(r"windows\.at\(I0\)\.get_length\(")
# Convolutions of late 2025 give a pipeline one window for each operand; not all take less than a tuple.
_SINGLE_WINDOWS = re.compile(
    r"!is_detected<is_tuple, ADramBlockWindowTmp>[^{}]*"
    r"operator\(\)\(const ADramBlockWindowTmp& \w+,\s*const BDramBlockWindowTmp&"
)
_Directions = frozenset[Direction]
_FORWARD, _BWD_WEIGHT = frozenset({Direction.FORWARD}), frozenset({Direction.BWD_WEIGHT})


@dataclass(frozen=True, slots=True)
class ConvHeaders:
    """What CK Tile's headers have for convolutions.

    Attributes:
        common: what they have for all kernels.
        directions: those that have a kernel.
        unlike: how the convolutions' traits differ from the interface's; empty if they do not.
        incomplete: the pipelines that lack what the convolutions ask them for.
        two_buffers: the directions whose kernels give a pipeline two buffers in LDS.
        merging: those that merge groups.
        splitting: those that split K.
        split_images: those that split images.
        explicit: those that compute the GEMM of a 1x1 filter as one.
        two_stages: those that have a second stage.
    """

    common: Headers
    directions: _Directions
    unlike: str = ""
    incomplete: frozenset[str] = frozenset()
    two_buffers: _Directions = frozenset(Direction)
    merging: _Directions = frozenset()
    splitting: _Directions = frozenset()
    split_images: _Directions = frozenset()
    explicit: _Directions = frozenset()
    two_stages: _Directions = frozenset()


def detect_conv(headers: Headers) -> ConvHeaders:
    """What headers have for convolutions; what cannot be read is not there."""
    kernels = {one: text for one, file in _KERNELS.items() if (text := headers.text(file))}
    traits = template_parameters(headers.text(_UTILS), _TRAITS)
    common = ConvHeaders(
        common=headers,
        directions=frozenset(kernels),
        unlike=unlike(_TRAITS, _UTILS, traits, tuple(_STATED[headers.interface].split())),
        two_buffers=frozenset(one for one, text in kernels.items() if not _BROKEN_WINDOWS.search(text)),
    )
    if headers.interface is Interface.CURRENT:
        return _current(common, kernels)
    is_late = headers.interface is Interface.LATE_2025
    return replace(
        common,
        incomplete=_taking_tuples(headers) if is_late else frozenset(),
        merging=frozenset(one for one, text in kernels.items() if _MERGES.search(text)),
        splitting=frozenset(one for one, text in kernels.items() if _SPLITS_K.search(text)),
        split_images=_FORWARD if is_late else frozenset(),
        two_stages=_BWD_WEIGHT if is_late else frozenset(),
    )


def _current(common: ConvHeaders, kernels: dict[Direction, str]) -> ConvHeaders:
    texts = {name: common.common.text(PIPELINE_HEADERS[name]) for name in common.common.pipelines}
    asked = {member for text in kernels.values() for member in _ASKED.findall(text)}
    has = {name: all(re.search(rf"\b{member}\s*=", text) for member in asked) for name, text in texts.items()}
    return replace(
        common,
        incomplete=frozenset(name for name, is_complete in has.items() if not is_complete),
        merging=_FORWARD | _BWD_WEIGHT,
        splitting=frozenset(Direction) - _FORWARD,
        split_images=_FORWARD if _FIRST_PIECE in kernels.get(Direction.FORWARD, "") else frozenset(),
        explicit=_FORWARD | _BWD_WEIGHT,
        two_stages=_BWD_WEIGHT,
    )


def _taking_tuples(headers: Headers) -> frozenset[str]:
    """The pipelines that take tuples of windows only."""
    texts = {name: headers.text(PIPELINE_HEADERS[name]) for name in headers.pipelines}
    return frozenset(name for name, text in texts.items() if not _SINGLE_WINDOWS.search(text))
