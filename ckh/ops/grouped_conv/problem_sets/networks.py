"""The convolution layers of real networks, derived from their block tables.

Every network is a function that walks its architecture and records each convolution in execution order, with
duplicates, at batch 1. Fully connected classifiers are not convolutions; squeeze-and-excitation layers and ConvNeXt's
pointwise layers are (1x1). Sources: torchvision's definitions, except U-Net (Ronneberger 2015 with padding).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Sequence


Sizes = tuple[int, ...]


@dataclass(slots=True)
class Net:
    """State of walking a network: the current tensor and the convolutions recorded so far.

    Forks share `layers`, so that branches record into the same list.
    """

    channels: int
    spatial: Sizes
    layers: list[ConvProblem] = field(default_factory=list)

    def fork(self) -> Net:
        """Start a branch here."""
        return Net(self.channels, self.spatial, self.layers)

    def conv(
        self, k: int, taps: int | Sizes = 1, stride: int | Sizes = 1, *, pad: int | None = None, groups: int = 1
    ) -> Net:
        """Record a convolution to `k` channels and continue with its output; `pad` None keeps the size ("same")."""
        ndim = len(self.spatial)
        f, s = _each(taps, ndim), _each(stride, ndim)
        p = tuple(t // 2 for t in f) if pad is None else _each(pad, ndim)
        axes = "dhw"[-ndim:]
        sizes: dict[str, Any] = {f"{axis}i": size for axis, size in zip(axes, self.spatial, strict=True)}
        sizes |= {"zyx"["dhw".index(axis)]: t for axis, t in zip(axes, f, strict=True)}
        sizes |= {f"stride_{axis}": t for axis, t in zip(axes, s, strict=True)}
        sizes |= {f"pad_{axis}": t for axis, t in zip(axes, p, strict=True)}
        layer = ConvProblem(Direction.FORWARD, 1, self.channels, k, groups, ndim=ndim, **sizes)
        self.layers.append(layer)
        self.channels = k
        self.spatial = (layer.do, layer.ho, layer.wo)[-ndim:]
        return self

    def pool(self, taps: int, stride: int, pad: int = 0) -> Net:
        """Shrink the image like a pooling layer."""
        self.spatial = tuple((size + 2 * pad - taps) // stride + 1 for size in self.spatial)
        return self

    def squeeze_excite(self, squeezed: int) -> Net:
        """Record the two 1x1 convolutions on the pooled 1x1 image."""
        Net(self.channels, (1,) * len(self.spatial), self.layers).conv(squeezed).conv(self.channels)
        return self


def _each(value: int | Sizes, ndim: int) -> Sizes:
    return value if isinstance(value, tuple) else (value,) * ndim


def resnet_bottleneck(depths: Sequence[int], groups: int, width: int) -> list[ConvProblem]:
    """ResNet/ResNeXt with bottlenecks, stride on the 3x3 (v1.5); `width` is the first stage's inner width."""
    net = Net(3, (224, 224)).conv(64, 7, 2).pool(3, 2, 1)
    for stage, depth in enumerate(depths):
        inner, outer = width << stage, 256 << stage
        for block in range(depth):
            stride = 2 if stage and not block else 1
            if not block:
                net.fork().conv(outer, 1, stride)
            net.conv(inner).conv(inner, 3, stride, groups=groups).conv(outer)
    return net.layers


def resnet50() -> list[ConvProblem]:
    """ResNet-50 v1.5."""
    return resnet_bottleneck((3, 4, 6, 3), 1, 64)


def resnext50() -> list[ConvProblem]:
    """ResNeXt-50 32x4d."""
    return resnet_bottleneck((3, 4, 6, 3), 32, 128)


def vgg16() -> list[ConvProblem]:
    """VGG-16's thirteen 3x3 layers."""
    net = Net(3, (224, 224))
    for k, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            net.conv(k, 3)
        net.pool(2, 2)
    return net.layers


def unet() -> list[ConvProblem]:
    """U-Net, one input channel, 256x256, padded; an up-convolution is the bwd_data of a 2x2 stride-2 layer."""
    net, widths = Net(1, (256, 256)), (64, 128, 256, 512)
    for k in widths:
        net.conv(k, 3).conv(k, 3).pool(2, 2)
    net.conv(1024, 3).conv(1024, 3)
    for k in reversed(widths):
        up = Net(k, tuple(2 * size for size in net.spatial), net.layers)
        up.fork().conv(2 * k, 2, 2, pad=0)
        up.channels = 2 * k
        net = up.conv(k, 3).conv(k, 3)
    return net.conv(2).layers


def convnext_tiny() -> list[ConvProblem]:
    """ConvNeXt-T: 7x7 depthwise and two pointwise layers per block."""
    net = Net(3, (224, 224)).conv(96, 4, 4, pad=0)
    for stage, depth in enumerate((3, 3, 9, 3)):
        width = 96 << stage
        if stage:
            net.conv(width, 2, 2, pad=0)
        for _ in range(depth):
            net.conv(width, 7, groups=width).conv(4 * width).conv(width)
    return net.layers


def densenet121() -> list[ConvProblem]:
    """DenseNet-121: growth 32, bottleneck 128."""
    net = Net(3, (224, 224)).conv(64, 7, 2).pool(3, 2, 1)
    blocks = (6, 12, 24, 16)
    for index, depth in enumerate(blocks):
        for _ in range(depth):
            net.fork().conv(128).conv(32, 3)
            net.channels += 32
        if index < len(blocks) - 1:
            net.conv(net.channels // 2).pool(2, 2)
    return net.layers


def _inception_block(net: Net, *branches: Sequence[tuple[int, int | Sizes]], reduce: bool = False) -> Net:
    """Parallel chains of (channels, taps); `reduce`: each chain's last layer has stride 2 and no padding."""
    ends = []
    for branch in branches:
        end = net.fork()
        for index, (k, taps) in enumerate(branch):
            down = reduce and index == len(branch) - 1
            end.conv(k, taps, 2, pad=0) if down else end.conv(k, taps)
        ends.append(end)
    channels = sum(end.channels for end in ends) + (net.channels if reduce else 0)
    return Net(channels, ends[0].spatial, net.layers)


def inception_v3() -> list[ConvProblem]:
    """Inception-v3 at 299x299, without the auxiliary head."""
    net = Net(3, (299, 299)).conv(32, 3, 2, pad=0).conv(32, 3, pad=0).conv(64, 3).pool(3, 2)
    net.conv(80).conv(192, 3, pad=0).pool(3, 2)
    row, column = (1, 7), (7, 1)
    for pooled in (32, 64, 64):
        net = _inception_block(net, ((64, 1),), ((48, 1), (64, 5)), ((64, 1), (96, 3), (96, 3)), ((pooled, 1),))
    net = _inception_block(net, ((384, 3),), ((64, 1), (96, 3), (96, 3)), reduce=True)
    for c in (128, 160, 160, 192):
        twice = ((c, 1), (c, column), (c, row), (c, column), (192, row))
        net = _inception_block(net, ((192, 1),), ((c, 1), (c, row), (192, column)), twice, ((192, 1),))
    factored = ((192, 1), (192, row), (192, column), (192, 3))
    net = _inception_block(net, ((192, 1), (320, 3)), factored, reduce=True)
    for _ in range(2):
        for stem in (net.fork().conv(384), net.fork().conv(448).conv(384, 3)):
            stem.fork().conv(384, (1, 3))
            stem.fork().conv(384, (3, 1))
        net.fork().conv(320)
        net.fork().conv(192)
        net.channels = 320 + 4 * 384 + 192
    return net.layers


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
    """Round as in the MobileNet papers: to a multiple of 8, never below 90 %."""
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


# Frames x height x width. Published clips are 16x112x112; smaller ones of the same networks suit a CPU.
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
    """R(2+1)D-18: each 3x3x3 is a 1x3x3 and a 3x1x1, with as many weights as the 3x3x3 has."""
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
