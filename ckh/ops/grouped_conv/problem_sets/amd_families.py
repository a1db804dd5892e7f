"""AMD's published problems: families of training problems, coverage lists, training and validation lists.

`amd_grids.json` has them as grids: of each list, all combinations of depths (absent: 2D), sizes (a pair: height and
width), channels (C x K, or C x K x G), batches and filters. Filters are square, in 3D cubic; their padding is "same",
dilation * (taps - 1) / 2, unless stated.

Families, by direction. Sources: `{forward,bwd_data,bwd_weight}_synthetic_extended` of Composable Kernel's tile engine.
AMD's lists repeat problems (1,886, 1,650 and 2,225 entries); `family` yields them as often, this package keeps each
once. Decisions of ckh: bwd_weight's 3D problems are bwd_data's with the direction replaced, as in AMD's
`bwd_weight_3d`, and its further dilated grid (AMD's section 11) belongs to `dilated`.

Coverage lists of forward convolutions, `wide` and the `edge` cases. Sources: `generate_wide_coverage_conv.py` and
`generate_edge_dims_conv.py` of Composable Kernel's dispatcher. Both order their problems as here. AMD keeps only
problems with multiples of 8 channels per group: that drops all depthwise layers of its wide list, which therefore have
no grid here. The third generator, `generate_targeted_shapes_conv.py`, has no list of its own: it adds problems on which
a model was measured to be inaccurate.

Lists of training and validation problems as AMD publishes them, including hold-out layers. Sources, in the tile engine
of Composable Kernel: `forward_training` with `forward_training_miopen`, `validation_holdout`, and
`{bwd_data,bwd_weight}_test_validation` (the same ten problems for both directions). `amd_validation.csv` has the 300
entries of the validation list in order. `amd_miopen_shapes.csv` has 299 of 300 shapes from MIOpen: one has a 3x3 filter
on an unpadded 1x1 input, which is invalid. Both repeat a few problems. Their synthetic part is the families above. The
two CSV files: Copyright (c) Advanced Micro Devices, Inc., MIT licence.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.ops.grouped_conv.problem_sets.files import read_problems
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

VALIDATION_FILE = Path(__file__).with_name("amd_validation.csv")
MIOPEN_FILE = Path(__file__).with_name("amd_miopen_shapes.csv")
_GRIDS_FILE = Path(__file__).with_name("amd_grids.json")
FAMILIES = (
    *("small", "medium", "large", "asymmetric", "tiny-batch", "big-batch", "grouped", "depthwise", "strided"),
    *("dilated", "3d-dense", "3d-strided"),
)


@cache
def _grids() -> dict[str, list[dict[str, Any]]]:
    grids: dict[str, list[dict[str, Any]]] = json.loads(_GRIDS_FILE.read_text(encoding="utf-8"))
    return grids


def _problems(name: str) -> Iterator[ConvProblem]:
    """Yield the problems of a list's grids, with duplicates, forward and fp32."""
    for grid in _grids()[name]:
        channels = [(*map(int, text.split("x")), 1)[:3] for text in grid["channels"].split()]
        axes = (grid.get("depths", [None]), grid["sizes"], channels, grid["batches"], grid["filters"])
        for depth, size, (c, k, g), n, filter_ in product(*axes):
            taps, stride, dilation = filter_["taps"], filter_.get("stride", 1), filter_.get("dilation", 1)
            pad = filter_.get("padding", dilation * (taps - 1) // 2)
            height, width = size if isinstance(size, list) else (size, size)
            deep: dict[str, Any] = {}
            if depth is not None:
                deep = {"ndim": 3, "di": depth, "z": taps, "pad_d": pad, "dilation_d": dilation}
                deep["stride_d"] = filter_.get("stride_d", 1)
            plane = (n, c, k, g, height, width, taps, taps, stride, stride, pad, pad, dilation, dilation)
            yield ConvProblem(Direction.FORWARD, *plane, **deep)


def family(name: str, variant: Direction) -> Iterator[ConvProblem]:
    """Yield AMD's problems of one family for a direction, with duplicates, as forward fp32 problems."""
    yield from _problems(f"{name} {variant}")


def ordered(name: str) -> tuple[ConvProblem, ...]:
    """Return the distinct problems of a coverage list in AMD's order: by N, G, C, K, input and filter."""
    return tuple(sorted(set(_problems(name)), key=_amd_order))


def _amd_order(problem: ConvProblem) -> tuple[int, ...]:
    p = problem
    return (p.n, p.g, p.c, p.k, p.hi, p.wi, p.y, p.x, p.stride_h, p.stride_w, p.pad_h, p.pad_w)


def training(variant: Direction) -> Iterator[ConvProblem]:
    """Yield AMD's training problems of a direction, with duplicates, as forward fp32; forward: MIOpen's first."""
    if variant is Direction.FORWARD:
        yield from read_problems(MIOPEN_FILE)
    for name in FAMILIES:
        yield from family(name, variant)


def validation(variant: Direction) -> Iterator[ConvProblem]:
    """Yield AMD's validation problems of a direction, as forward fp32 problems."""
    yield from read_problems(VALIDATION_FILE) if variant is Direction.FORWARD else _problems("backward validation")
