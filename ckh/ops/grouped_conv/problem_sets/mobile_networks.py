"""Networks built from depthwise convolutions, derived from their block tables as in `networks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.ops.grouped_conv.problem_sets.networks import Net

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.problem import ConvProblem

# MobileNetV2: expansion, channels, repeats, stride.
_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)

# MobileNetV3-Large: filter, expanded channels, channels, squeeze-and-excite, stride.
_V3 = (
    (3, 16, 16, False, 1),
    (3, 64, 24, False, 2),
    (3, 72, 24, False, 1),
    (5, 72, 40, True, 2),
    (5, 120, 40, True, 1),
    (5, 120, 40, True, 1),
    (3, 240, 80, False, 2),
    (3, 200, 80, False, 1),
    (3, 184, 80, False, 1),
    (3, 184, 80, False, 1),
    (3, 480, 112, True, 1),
    (3, 672, 112, True, 1),
    (5, 672, 160, True, 2),
    (5, 960, 160, True, 1),
    (5, 960, 160, True, 1),
)

# EfficientNet-B0: expansion, filter, stride, channels, repeats.
_B0 = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def _inverted_residual(net: Net, expanded: int, out: int, taps: int, stride: int, *, squeezed: int = 0) -> None:
    if expanded != net.channels:
        net.conv(expanded)
    net.conv(expanded, taps, stride, groups=expanded)
    if squeezed:
        net.squeeze_excite(squeezed)
    net.conv(out)


def _multiple_of_8(channels: float) -> int:
    """Round as the MobileNet papers' code does: to a multiple of 8, never below 90 %."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def mobilenet_v2() -> list[ConvProblem]:
    """MobileNetV2, width 1.0."""
    net = Net(3, (224, 224)).conv(32, 3, 2)
    for expansion, out, repeats, stride in _V2:
        for block in range(repeats):
            _inverted_residual(net, expansion * net.channels, out, 3, 1 if block else stride)
    return net.conv(1280).layers


def mobilenet_v3_large() -> list[ConvProblem]:
    """MobileNetV3-Large, width 1.0."""
    net = Net(3, (224, 224)).conv(16, 3, 2)
    for taps, expanded, out, squeeze, stride in _V3:
        squeezed = _multiple_of_8(expanded / 4) if squeeze else 0
        _inverted_residual(net, expanded, out, taps, stride, squeezed=squeezed)
    return net.conv(960).layers


def efficientnet_b0() -> list[ConvProblem]:
    """EfficientNet-B0; a block squeezes to a quarter of its input channels."""
    net = Net(3, (224, 224)).conv(32, 3, 2)
    for expansion, taps, stride, out, repeats in _B0:
        for block in range(repeats):
            squeezed, expanded = net.channels // 4, expansion * net.channels
            _inverted_residual(net, expanded, out, taps, 1 if block else stride, squeezed=squeezed)
    return net.conv(1280).layers


def shufflenet_v2() -> list[ConvProblem]:
    """ShuffleNetV2, width 1.0."""
    net = Net(3, (224, 224)).conv(24, 3, 2).pool(3, 2, 1)
    for out, repeats in ((116, 4), (232, 8), (464, 4)):
        half = out // 2
        net.fork().conv(net.channels, 3, 2, groups=net.channels).conv(half)
        net = net.fork().conv(half).conv(half, 3, 2, groups=half).conv(half)
        for _ in range(repeats - 1):
            net.conv(half).conv(half, 3, groups=half).conv(half)
        net.channels = out
    return net.conv(1024).layers
