"""3D networks on clips of frames, derived from their block tables as in `networks`.

Their published clips are 16x112x112. Smaller clips (frames x height x width) of the same networks suit a CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.ops.grouped_conv.problem_sets.networks import Net

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.problem import ConvProblem

Clip = tuple[int, int, int]
_WIDTHS = (64, 128, 256, 512)


def r3d18(clip: Clip) -> list[ConvProblem]:
    """R3D-18: ResNet-18 with 3x3x3 filters."""
    net = Net(3, clip).conv(64, (3, 7, 7), (1, 2, 2))
    for stage, width in enumerate(_WIDTHS):
        for block in range(2):
            stride = 2 if stage and not block else 1
            if stride > 1:
                net.fork().conv(width, 1, stride)
            net.conv(width, 3, stride).conv(width, 3)
    return net.layers


def r2plus1d18(clip: Clip) -> list[ConvProblem]:
    """R(2+1)D-18: each 3x3x3 is a 1x3x3 and a 3x1x1, with as many weights in between as the 3x3x3 had."""
    net = Net(3, clip).conv(45, (1, 7, 7), (1, 2, 2)).conv(64, (3, 1, 1))
    for stage, width in enumerate(_WIDTHS):
        for block in range(2):
            stride = 2 if stage and not block else 1
            middle = net.channels * width * 27 // (net.channels * 9 + 3 * width)
            if stride > 1:
                net.fork().conv(width, 1, stride)
            for step in (stride, 1):
                net.conv(middle, (1, 3, 3), (1, step, step)).conv(width, (3, 1, 1), (step, 1, 1))
    return net.layers
