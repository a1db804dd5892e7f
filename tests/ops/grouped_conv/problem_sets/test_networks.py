"""Networks compared with published figures."""

from __future__ import annotations

import pytest

from ckh.ops.grouped_conv.problem_sets import NETWORKS

# Published multiply-adds in G; if they include the classifier, its share is well below the tolerance.
GMACS = {
    "resnet50": 4.09,
    "resnext50": 4.23,
    "mobilenet-v2": 0.300,
    "mobilenet-v3-large": 0.217,
    "efficientnet-b0": 0.39,
    "shufflenet-v2": 0.145,
    "vgg16": 15.47,
    "densenet121": 2.83,
    "inception-v3": 5.71,
    "convnext-tiny": 4.46,
    "r3d18": 40.70,
    "r2plus1d18": 40.52,
}

# Published weights in millions less the classifier's; normalisation and biases are within the tolerance.
MILLION_WEIGHTS = {
    "resnet50": 25.56 - 2.05,
    "resnext50": 25.03 - 2.05,
    "mobilenet-v2": 3.50 - 1.28,
    "mobilenet-v3-large": 5.48 - 2.51,
    "efficientnet-b0": 5.29 - 1.28,
    "shufflenet-v2": 2.28 - 1.03,
    "vgg16": 138.36 - 123.64,
    "densenet121": 7.98 - 1.03,
    "convnext-tiny": 28.59 - 0.77,
    "unet": 31.03,
    "r3d18": 33.37 - 0.21,
    "r2plus1d18": 31.51 - 0.21,
}


@pytest.mark.parametrize("name", GMACS)
def test_multiply_adds_match_published_ones(name: str) -> None:
    """A network's layers, with duplicates, do the published work within 3 %."""
    assert sum(layer.flops for layer in NETWORKS[name]()) / 2e9 == pytest.approx(GMACS[name], rel=0.03)


@pytest.mark.parametrize("name", MILLION_WEIGHTS)
def test_weights_match_published_ones(name: str) -> None:
    """A network's filters hold the published number of weights within 3 %."""
    weights = sum(p.k * p.c_per_group * p.z * p.y * p.x for p in NETWORKS[name]())
    assert weights / 1e6 == pytest.approx(MILLION_WEIGHTS[name], rel=0.03)
