"""The convolution layers of real networks, derived from their block tables.

Every network is a function that walks its architecture and records each convolution in the order it runs, with
repetitions, at batch 1. Fully connected classifiers are not convolutions; squeeze-and-excitation layers and ConvNeXt's
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
    """The tensor that flows through a network and the convolutions it met.

    Forks share `layers`, so branches record into the same list.
    """

    channels: int
    spatial: Sizes
    layers: list[ConvProblem] = field(default_factory=list)

    def fork(self) -> Net:
        """A branch that starts here."""
        return Net(self.channels, self.spatial, self.layers)

    def conv(
        self, k: int, taps: int | Sizes = 1, stride: int | Sizes = 1, *, pad: int | None = None, groups: int = 1
    ) -> Net:
        """Record a convolution to `k` channels and go on with its output; `pad` None keeps the size ("same")."""
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
        """Shrink the image as a pooling layer does."""
        self.spatial = tuple((size + 2 * pad - taps) // stride + 1 for size in self.spatial)
        return self

    def squeeze_excite(self, squeezed: int) -> Net:
        """The two 1x1 convolutions on the pooled 1x1 image."""
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
    """U-Net, one input channel, 256x256, padded; an up-convolution is the 2x2 stride-2 layer whose bwd_data it is."""
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
