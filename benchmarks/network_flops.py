"""FLOPs of torchvision's networks as `ckh shapes` lists them, against PyTorch's own count of the same call.

`torch.utils.flop_counter.FlopCounterMode` counts convolutions and products by formulas of its own. Both run the network
on the meta device, without weights. Needs `torch` and `torchvision`; the table is in network_flops.md.

    python benchmarks/network_flops.py
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from torch.utils.flop_counter import FlopCounterMode

from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.ops.grouped_conv.shaped import sizes_of
from ckh.problems import Direction
from ckh.shapes.layers import Convolution
from ckh.shapes.modules import traced

_IMAGE, _VIDEO = (2, 3, 224, 224), (1, 3, 16, 112, 112)
_NETWORKS = {
    **dict.fromkeys(("alexnet", "vgg16_bn", "squeezenet1_1", "googlenet", "inception_v3", "densenet121"), _IMAGE),
    **dict.fromkeys(("resnet18", "resnet50", "wide_resnet50_2", "resnext50_32x4d"), _IMAGE),
    **dict.fromkeys(("mobilenet_v2", "mobilenet_v3_large", "shufflenet_v2_x1_0", "mnasnet1_0"), _IMAGE),
    **dict.fromkeys(("efficientnet_b0", "efficientnet_v2_s", "convnext_tiny"), _IMAGE),
    **dict.fromkeys(("r3d_18", "r2plus1d_18", "mc3_18"), _VIDEO),
}
_OF_CONVOLUTIONS = "convolution"


def flops_of(shape: Any) -> int:
    """Count the operations of a listed convolution or product."""
    if isinstance(shape, Convolution):
        sizes: dict[str, Any] = {**sizes_of(shape)}
        return ConvProblem(Direction(shape.variant or Direction.FORWARD), **sizes).flops
    return 2 * getattr(shape, "batch", 1) * int(shape.m * shape.n * shape.k)


def counts(name: str, size: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Return FLOPs of convolutions and of products: as listed, and as PyTorch counts them."""
    options = {"aux_logits": False, "init_weights": False} if name in {"googlenet", "inception_v3"} else {}
    with torch.device("meta"):
        network = torchvision.models.get_model(name, weights=None, **options).eval()
        image = torch.empty(size)
    layers, _ = traced(network, (image,))
    listed = [0, 0]
    for layer in layers:
        listed[not isinstance(layer.shape, Convolution)] += layer.count * flops_of(layer.shape)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(image)
    counted = [0, 0]
    for operator, flops in counter.get_flop_counts()["Global"].items():
        counted[_OF_CONVOLUTIONS not in str(operator)] += flops
    return listed, counted


def main() -> None:
    """Print a row per network, and the number of those that agree."""
    print("| network | input | convolutions | products | convolutions, PyTorch | products, PyTorch | |")
    print("|---|---|---:|---:|---:|---:|---|")
    agreeing = 0
    for name, size in _NETWORKS.items():
        listed, counted = counts(name, size)
        agreeing += listed == counted
        numbers = " | ".join(f"{flops:,}" for flops in (*listed, *counted))
        print(f"| {name} | {'x'.join(map(str, size))} | {numbers} | {'equal' if listed == counted else 'DIFFER'} |")
    print(f"\n{agreeing} of {len(_NETWORKS)} networks agree.")


if __name__ == "__main__":
    main()
