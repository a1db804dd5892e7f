"""Networks compared with published figures."""

from __future__ import annotations

import pytest

from ckh.ops.grouped_conv.problem import parse_conv_problem
from ckh.ops.grouped_conv.problem_sets.holdout import NETWORKS, network

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

LAYERS = {
    "resnet50": (53, 23),
    "resnext50": (53, 24),
    "mobilenet-v2": (52, 30),
    "mobilenet-v3-large": (62, 44),
    "efficientnet-b0": (81, 46),
    "shufflenet-v2": (56, 16),
    "vgg16": (13, 9),
    "densenet121": (120, 66),
    "inception-v3": (94, 43),
    "convnext-tiny": (58, 16),
    "unet": (23, 19),
    "r3d18": (20, 11),
    "r2plus1d18": (37, 25),
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


@pytest.mark.parametrize("name", LAYERS)
def test_layer_counts(name: str) -> None:
    """A network has its known number of convolutions, and of distinct ones."""
    assert (len(NETWORKS[name]()), len(network(name))) == LAYERS[name]


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("resnet50", "n1_c3_k64_g1_i224x224_f7x7_s2x2_p3x3_d1x1"),
        ("resnet50", "n1_c512_k512_g1_i14x14_f3x3_s2x2_p1x1_d1x1"),
        ("resnext50", "n1_c1024_k1024_g32_i7x7_f3x3_s1x1_p1x1_d1x1"),
        ("mobilenet-v2", "n1_c576_k576_g576_i14x14_f3x3_s2x2_p1x1_d1x1"),
        ("mobilenet-v3-large", "n1_c960_k240_g1_i1x1_f1x1_s1x1_p0x0_d1x1"),
        ("efficientnet-b0", "n1_c672_k672_g672_i14x14_f5x5_s2x2_p2x2_d1x1"),
        ("shufflenet-v2", "n1_c58_k58_g58_i28x28_f3x3_s1x1_p1x1_d1x1"),
        ("inception-v3", "n1_c192_k192_g1_i17x17_f1x7_s1x1_p0x3_d1x1"),
        ("convnext-tiny", "n1_c768_k768_g768_i7x7_f7x7_s1x1_p3x3_d1x1"),
        ("unet", "n1_c512_k1024_g1_i32x32_f2x2_s2x2_p0x0_d1x1"),
    ],
)
def test_known_layers_are_included(name: str, layer: str) -> None:
    """A characteristic layer of the network is among its layers."""
    assert parse_conv_problem(f"conv_forward_fp32_nhwgc_2d_{layer}") in network(name)


def test_a_video_stem_strides_in_space_only() -> None:
    """R3D-18's stem is 3x7x7 with stride 1x2x2."""
    stem = "conv_forward_fp32_ndhwgc_3d_n1_c3_k64_g1_i16x112x112_f3x7x7_s1x2x2_p1x3x3_d1x1x1"
    assert network("r3d18")[0] == parse_conv_problem(stem)
