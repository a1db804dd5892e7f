"""Requests of convolutions for MIOpen's solvers: as other convolutions, with a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.ops.grouped_conv.requested import OPTIONS, dimensions, in_words, pool, requested_convolution
from ckh.requested import Requested, SizeOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.ops.miopen_conv.problem import MiopenProblem

_LAYOUTS = {2: "nchw", 3: "ncdhw"}  # default layouts of problems
_OPTIONS = (*OPTIONS, SizeOption("layout", "Layout, e.g. nhwc", _LAYOUTS[2], str, spellings=()))
_DTYPE = "fp32"  # as MIOpenDriver's default: every database has most problems in fp32


def _problem(given: Mapping[str, Any], variant: str, dtype: str) -> MiopenProblem:
    from ckh.ops.miopen_conv.problem import from_convolution

    return from_convolution(requested_convolution(given, variant, dtype), given.get("layout", ""))


def _pool(given: Mapping[str, Any]) -> str:
    return f"{pool(given)} {given.get('layout', _LAYOUTS.get(dimensions(given)))}"


REQUESTED = Requested(_OPTIONS, _problem, in_words, has_directions=True, pool=_pool, default_dtype=_DTYPE)
