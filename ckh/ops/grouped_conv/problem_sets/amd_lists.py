"""AMD's lists of training and validation problems as it publishes them, hold-out layers included.

Sources, in the tile engine of Composable Kernel: `forward_training` with `forward_training_miopen`,
`validation_holdout`, and `{bwd_data,bwd_weight}_test_validation`. `amd_validation.csv` has the 300 entries of the
validation list in their order. `amd_miopen_shapes.csv` has 299 of 300 shapes from MIOpen: one has a 3x3 filter on an
unpadded 1x1 input, which is invalid. Both repeat a few problems. The synthetic part of AMD's training lists is
`amd_families`. The two files: Copyright (c) Advanced Micro Devices, Inc., MIT licence.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ckh.ops.grouped_conv.problem_sets import amd_families
from ckh.ops.grouped_conv.problem_sets.files import read_problems
from ckh.ops.grouped_conv.problem_sets.grids import Filter, Grid
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.ops.grouped_conv.problem import ConvProblem

VALIDATION_FILE = Path(__file__).with_name("amd_validation.csv")
MIOPEN_FILE = Path(__file__).with_name("amd_miopen_shapes.csv")

# N, C, K, height and width, filter. AMD has the same ten for both backward directions.
_BACKWARD_VALIDATION = (
    (4, 64, 128, 32, 3),
    (8, 256, 64, 14, 1),
    (16, 128, 128, 28, 3),
    (8, 512, 256, 7, 3),
    (32, 64, 64, 56, 3),
    (16, 512, 256, 14, 1),
    (4, 32, 64, 112, 3),
    (8, 128, 256, 32, 3),
    (2, 64, 64, 28, 3),
    (16, 256, 128, 14, 3),
)


def training(variant: Direction) -> Iterator[ConvProblem]:
    """AMD's training problems of a direction, with repetitions, as forward fp32 problems; forward: MIOpen's first."""
    if variant is Direction.FORWARD:
        yield from read_problems(MIOPEN_FILE)
    for name in amd_families.FAMILIES:
        yield from amd_families.family(name, variant)


def validation(variant: Direction) -> Iterator[ConvProblem]:
    """AMD's validation problems of a direction, as forward fp32 problems."""
    if variant is Direction.FORWARD:
        yield from read_problems(VALIDATION_FILE)
        return
    for n, c, k, size, taps in _BACKWARD_VALIDATION:
        yield from Grid((size,), ((c, k, 1),), (n,), (Filter(taps),)).problems()
