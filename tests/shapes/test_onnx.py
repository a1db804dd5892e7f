"""Shapes of ONNX models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckh.shapes
from ckh.cli import run
from ckh.errors import DataError, ExitCode, UsageError
from ckh.shapes.layers import RunOptions
from ckh.shapes.problems import shapes_of
from ckh.text.log import begin_result
from tests.refusals import expect_error, expect_refusal

onnx = pytest.importorskip("onnx", reason="the package onnx is absent: pip install onnx")
ReferenceEvaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator


def light(name: str) -> str:
    """A real network without weights, from the tests of the package onnx."""
    return str(Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx")


def save(
    path: Path,
    nodes: list[Any],
    inputs: dict[str, list[Any]],
    weights: dict[str, tuple[int, ...]],
    stated: dict[str, list[Any]] | None = None,
) -> str:
    """Save an fp32 model with the given nodes, inputs, zero weights and stated shapes."""
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = make.make_graph(
        nodes,
        "graph",
        [make.make_tensor_value_info(name, kind, sizes) for name, sizes in inputs.items()],
        [make.make_tensor_value_info("out", kind, None)],
        [onnx.numpy_helper.from_array(np.zeros(sizes, np.float32), name) for name, sizes in weights.items()],
        value_info=[make.make_tensor_value_info(name, kind, sizes) for name, sizes in (stated or {}).items()],
    )
    opsets = [make.make_opsetid("", onnx.defs.onnx_opset_version()), make.make_opsetid("com.microsoft", 1)]
    onnx.save(make.make_model(graph, opset_imports=opsets), str(path))
    return str(path)


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    """A node."""
    return onnx.helper.make_node(kind, inputs.split(), [output], name=output, **attributes)


def test_real_networks() -> None:
    """ResNet-50 has 53 convolutions and a classifier, AlexNet's are grouped, ShuffleNet's depthwise."""
    result = ckh.shapes.read(light("resnet50"))
    assert sum(item.count for item in result if item.op == "grouped_conv") == 53
    (classifier,) = (item.problem for item in result if item.op != "grouped_conv")
    assert classifier.canonical() == "gemm_multi_d_fp32_rcr_m1_n1000_k2048_add_v"
    assert sum(item.flops for item in result) == pytest.approx(2 * 4.09e9, rel=1e-3)  # as torchvision states
    assert {item.problem.g for item in ckh.shapes.read(light("bvlc_alexnet")) if item.op == "grouped_conv"} == {1, 2}
    assert any(1 < item.problem.g == item.problem.c for item in ckh.shapes.read(light("shufflenet"), op="grouped_conv"))


def test_open_sizes(tmp_path: Path) -> None:
    """An open batch is --batch, other sizes are --tokens; a shared weight makes one product of a batch."""
    nodes = [
        node("MatMul", "x w", "fc"),
        node("Transpose", "fc", "t", perm=[0, 2, 1]),
        node("MatMul", "fc t", "out"),
    ]
    path = save(tmp_path / "model.onnx", nodes, {"x": ["batch", "seq", 64]}, {"w": (64, 128)})
    weighted = ckh.shapes.read(path, batch=(2,), tokens={16: 3, 32: 1})
    assert [(item.problem.m, item.count) for item in weighted] == [(32, 3), (64, 1), (32, 1), (16, 3)]
    result = ckh.shapes.read(path, batch=(2,), tokens=(16, 32))
    assert [(item.problem.canonical(), item.count) for item in result] == [
        ("gemm_fp32_rrr_m32_n128_k64_splitk1", 1),
        ("gemm_batched_fp32_rrr_b2_m16_n16_k128_splitk1", 1),
        ("gemm_fp32_rrr_m64_n128_k64_splitk1", 1),
        ("gemm_batched_fp32_rrr_b2_m32_n32_k128_splitk1", 1),
    ]


@pytest.mark.parametrize(
    ("a", "b", "transposes", "layout"),
    [
        ((8, 64), (64, 128), {}, "rrr"),
        ((8, 64), (128, 64), {"transB": 1}, "rcr"),
        ((64, 8), (64, 128), {"transA": 1}, "crr"),
        ((64, 8), (128, 64), {"transA": 1, "transB": 1}, "ccr"),
    ],
)
def test_gemm(tmp_path: Path, a: tuple[int, int], b: tuple[int, int], transposes: dict[str, int], layout: str) -> None:
    """Transposes of Gemm are layouts."""
    path = save(tmp_path / "model.onnx", [node("Gemm", "x w", "out", **transposes)], {"x": list(a)}, {"w": b})
    (result,) = ckh.shapes.read(path)
    assert result.problem.canonical() == f"gemm_fp32_{layout}_m8_n128_k64_splitk1"


def test_convolutions(tmp_path: Path) -> None:
    """Strides, dilations, groups and padding are read, also "same" padding; 1D is an image of height 1."""
    attributes = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 2, 1, 2], "group": 4}
    nodes = [
        node("Conv", "x w", "a", **attributes),
        node("Conv", "x w", "b", auto_pad="SAME_UPPER", group=4),
        node("Conv", "y v", "c", pads=[1, 1]),
        node("LSTM", "x u", "out"),
    ]
    weights = {"w": (16, 2, 3, 3), "v": (6, 5, 3), "u": (8, 4, 2, 2)}
    path = save(tmp_path / "model.onnx", nodes, {"x": [2, 8, 20, 20], "y": [2, 5, 30]}, weights)
    shapes = shapes_of([path])
    first, second, third = (problem.problem for problem in shapes.problems)
    assert (first.stride_h, first.stride_w, first.dilation_w, first.pad_h, first.pad_w, first.g) == (2, 1, 2, 1, 2, 4)
    assert (second.pad_h, second.pad_w, second.ho, second.wo) == (1, 1, 20, 20)
    assert (third.hi, third.wi, third.y, third.x, third.pad_h, third.pad_w) == (1, 30, 1, 3, 0, 1)
    assert shapes.left_out == {"LSTM": 1}


@pytest.mark.parametrize(
    ("x", "w", "attributes", "sizes", "outputs"),
    [
        ((8, 8, 1000), (8, 8, 3), {"pads": [1024, 0], "dilations": [512]}, (1, 2024, 0, 0), (1, 1000)),
        ((1, 4, 7, 7), (4, 4, 4, 4), {"auto_pad": "SAME_UPPER"}, (8, 8, 1, 1), (7, 7)),
        ((1, 4, 7, 7), (4, 4, 4, 4), {"auto_pad": "SAME_LOWER"}, (8, 8, 1, 1), (7, 7)),
        ((1, 4, 4, 4), (4, 4, 2, 2), {"pads": [0, 0, 1, 1]}, (5, 5, 0, 0), (4, 4)),
        ((1, 4, 9, 8), (4, 4, 3, 3), {"pads": [1, 0, 1, 3], "strides": [2, 2]}, (9, 11, 1, 0), (5, 5)),
    ],
)
def test_asymmetric_padding(
    tmp_path: Path,
    x: tuple[int, ...],
    w: tuple[int, ...],
    attributes: dict[str, Any],
    sizes: tuple[int, ...],
    outputs: tuple[int, int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The longer side is part of the input, so that output sizes and operations are the model's."""
    begin_result()
    path = save(tmp_path / "model.onnx", [node("Conv", "x w", "out", **attributes)], {"x": list(x)}, {"w": w})
    (result,) = ckh.shapes.read(path)
    conv = result.problem
    assert (conv.hi, conv.wi, conv.pad_h, conv.pad_w, conv.ho, conv.wo) == (*sizes, *outputs)
    assert "asymmetric" in capsys.readouterr().err
    assert conv.flops == 2 * x[0] * outputs[0] * outputs[1] * int(np.prod(w))


@pytest.mark.parametrize(
    ("x", "w", "attributes", "sizes", "outputs"),
    [
        ((1, 16, 32, 32), (16, 8, 4, 4), {"strides": [2, 2], "pads": [1] * 4}, (64, 64, 1, 1), (64, 64)),
        (
            (1, 16, 8, 4),
            (16, 4, 3, 3),
            {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]},
            (16, 8, 1, 1),
            (16, 8),
        ),
        ((1, 6, 5, 5), (6, 2, 3, 3), {"strides": [2, 1], "pads": [0, 1, 1, 1], "group": 3}, (11, 5, 0, 1), (10, 5)),
        ((1, 6, 5), (6, 2, 3), {"dilations": [4], "output_padding": [3]}, (1, 13, 0, 0), (1, 16)),
    ],
)
def test_transposed_convolutions(
    tmp_path: Path,
    x: tuple[int, ...],
    w: tuple[int, ...],
    attributes: dict[str, Any],
    sizes: tuple[int, ...],
    outputs: tuple[int, int],
) -> None:
    """A transposed convolution is backward data with C and K exchanged; the evaluator of ONNX has the output's size.

    One side of an asymmetric padding is cropped from the image, and rows beyond the stride are not computed.
    """
    path = save(tmp_path / "model.onnx", [node("ConvTranspose", "x w", "out", **attributes)], {"x": list(x)}, {"w": w})
    (result,) = ckh.shapes.read(path)
    conv, groups = result.problem, attributes.get("group", 1)
    assert (str(conv.variant), conv.n, conv.c, conv.k, conv.g) == ("bwd_data", x[0], w[1] * groups, x[1], groups)
    assert (conv.hi, conv.wi, conv.pad_h, conv.pad_w) == sizes
    assert (conv.ho, conv.wo) == ((1, *x[2:])[-2:])
    assert conv.flops == 2 * int(np.prod(x)) * int(np.prod(w[1:]))
    if groups == 1 and "dilations" not in attributes:  # which the evaluator does not compute
        (own,) = ReferenceEvaluator(path).run(None, {"x": np.zeros(x, np.float32)})
        assert (1, *own.shape[2:])[-2:] == outputs


def test_open_channels_are_those_of_the_filter(tmp_path: Path) -> None:
    """Neither tokens nor the batch set them, whatever their name; the batch sets the images."""
    for size in ("num_channels", "n_channels", "batch", None):
        nodes = [node("Relu", "x", "a"), node("Conv", "a w", "out", group=2)]
        path = save(tmp_path / "model.onnx", nodes, {"x": ["images", size, 9, 9]}, {"w": (8, 3, 3, 3)})
        result = ckh.shapes.read(path, batch=(1, 4))
        assert [(item.problem.n, item.problem.c, item.problem.hi) for item in result] == [(1, 6, 9), (4, 6, 9)]


@pytest.mark.parametrize(
    ("x", "before", "names"),
    [
        (["batch", "channels", "height", "width"], [], ["height, width"]),
        ([1, 3, None, 9], [], ["x[2]"]),
        (["n", "h", "w", 3], [("Transpose", {"perm": [0, 3, 1, 2]})], ["h, w"]),
        (["n", 3, "time"], [("Cast", {"to": 1}), ("Relu", {})], ["time"]),
    ],
)
def test_open_sizes_of_images(
    tmp_path: Path, x: list[Any], before: list[tuple[str, dict[str, Any]]], names: list[str]
) -> None:
    """Sizes of images that the file leaves open are no tokens: `image` states them all, else they are named."""
    nodes, last = [], "x"
    for number, (kind, attributes) in enumerate(before):
        nodes.append(node(kind, last, last := f"t{number}", **attributes))
    nodes.append(node("Conv", f"{last} w", "out"))
    path = save(tmp_path / "model.onnx", nodes, {"x": x}, {"w": (8, 3, *[3] * (len(x) - 2))})
    for image in ((), (8, 9, 7, 6)):
        with expect_refusal(DataError, "missing-field", path, *names, "'x'", "--image"):
            ckh.shapes.read(path, image=image)
    sizes = (20, 30)[: len(names[0].split(","))]
    (result,) = ckh.shapes.read(path, batch=(2,), image=sizes)
    assert tuple(size for size in (result.problem.hi, result.problem.wi) if size not in (1, 9)) == sizes
    assert result.problem.c == 3


@pytest.mark.parametrize(("channels", "taps", "stride"), [("num_channels", 3, 1), (3, 7, 2)])
def test_options_for_open_sizes(
    tmp_path: Path, channels: str | int, taps: int, stride: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """--image and --batch are the open sizes of images; without them the file and its open sizes are named."""
    stem = node("Conv", "pixels w", "out", strides=[stride] * 2)
    inputs = {"pixels": ["images", channels, "height", "width"]}
    path = save(tmp_path / "model.onnx", [stem], inputs, {"w": (8, 3, taps, taps)})
    assert run(["shapes", path]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "missing-field", path, "height, width", "--image")
    assert run(["shapes", path, "--image", "224x160", "--batch", "3", "--json"]) == ExitCode.OK
    (shape,) = json.loads(capsys.readouterr().out)["problems"]
    tail = f"f{taps}x{taps}_s{stride}x{stride}_p0x0_d1x1"
    assert shape["problem"] == f"conv_forward_fp32_nhwgc_2d_n3_c3_k8_g1_i224x160_{tail}"


def test_a_convolution_of_tokens(tmp_path: Path) -> None:
    """The length of a sequence that a product computes, as in Mamba, is tokens also for a convolution over it."""
    nodes = [
        node("MatMul", "x v", "a"),
        node("Transpose", "a", "t", perm=[0, 2, 1]),
        node("Conv", "t w", "out", group=6, pads=[3, 0]),
    ]
    path = save(tmp_path / "model.onnx", nodes, {"x": ["batch", "seq", 16]}, {"v": (16, 6), "w": (6, 1, 4)})
    conv = ckh.shapes.read(path, op="grouped_conv", tokens=(32,))[0].problem
    assert (conv.n, conv.c, conv.wi, conv.wo) == (1, 6, 35, 32)


@pytest.mark.parametrize("stated", [[1, 9, 7, 7], [1, 8, 9, 9], ["batch", 8, "height", 8]])
def test_output_sizes_are_those_of_the_file(tmp_path: Path, stated: list[Any]) -> None:
    """A convolution whose output channels or sizes are not those that the file states is refused, with both."""
    nodes = [node("Conv", "x w", "a"), node("Relu", "a", "out")]
    inputs: dict[str, list[Any]] = {"x": [1, 4, 9, 9]}
    weights: dict[str, tuple[int, ...]] = {"w": (8, 4, 3, 3)}
    path = save(tmp_path / "model.onnx", nodes, inputs, weights, {"a": stated})
    with expect_refusal(DataError, "impossible-problem", "node a", "8x7x7"):
        ckh.shapes.read(path)
    path = save(tmp_path / "model.onnx", nodes, inputs, weights, {"a": ["batch", 8, "height", 7]})
    assert len(ckh.shapes.read(path)) == 1


def test_channels_of_input_and_filter(tmp_path: Path) -> None:
    """A filter for other channels than the input's is refused, with both."""
    path = save(tmp_path / "model.onnx", [node("Conv", "x w", "out")], {"x": [1, 4, 9, 9]}, {"w": (8, 3, 3, 3)})
    with expect_refusal(DataError, "impossible-problem", "out", 4, 3):
        ckh.shapes.read(path)


def test_nodes_that_are_not_read(tmp_path: Path) -> None:
    """Nodes that may multiply, of any domain, are counted as left out; others are not named."""
    helper = onnx.helper
    nodes = [
        helper.make_node("MatMulNBits", ["x", "q"], ["a"], domain="com.microsoft"),
        node("Einsum", "x", "b", equation="ij->ji"),
        node("Softmax", "b", "c"),
        node("Attention", "heads heads heads", "d"),
        node("MatMul", "x w", "out"),
    ]
    inputs = {"x": [4, 8], "heads": [1, 2, 16, 8]}
    path = save(tmp_path / "model.onnx", nodes, inputs, {"w": (8, 2), "q": (2, 8)})
    left_out = shapes_of([path]).left_out
    assert (left_out["MatMulNBits"], left_out["Attention"], [*left_out.values()]) == (1, 1, [1, 1, 1])


def test_nodes_of_onnx_runtime(tmp_path: Path) -> None:
    """Fused and channels-last nodes are the products and convolutions they compute, and shapes go on behind them."""
    ms = {"domain": "com.microsoft"}
    nodes = [
        node("FusedConv", "x w", "a", pads=[1] * 4, activation="Relu", **ms),
        node("Transpose", "a", "t", perm=[0, 2, 3, 1]),
        node("NhwcConv", "t v", "b", strides=[2, 2], kernel_shape=[3, 3], **ms),
        node("BiasGelu", "b c", "d", **ms),
        node("NhwcFusedConv", "d q", "h", kernel_shape=[1, 1], **ms),
        node("Reshape", "h size", "f"),
        node("FusedGemm", "f s", "g", activation="Relu", transA=1, **ms),
        node("GemmFastGelu", "g r", "out", **ms),
    ]
    weights = {"w": (8, 3, 3, 3), "v": (16, 3, 3, 8), "c": (16,), "q": (4, 16, 1, 1), "s": (9, 5), "r": (5, 6)}
    path = save(tmp_path / "model.onnx", nodes, {"x": [1, 3, 7, 7]}, weights)
    model = onnx.load(path)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([9, 4]), "size"))
    onnx.save(model, path)
    shapes = shapes_of([path])
    convolutions = [item.problem for item in shapes.problems if item.op == "grouped_conv"]
    sizes = [(conv.c, conv.k, conv.hi, conv.ho, conv.y) for conv in convolutions]
    assert sizes == [(3, 8, 7, 7, 3), (8, 16, 7, 3, 3), (16, 4, 3, 3, 1)]
    assert [item.problem.canonical() for item in shapes.problems[3:]] == [
        "gemm_fp32_crr_m4_n5_k9_splitk1",
        "gemm_fp32_rrr_m4_n6_k5_splitk1",
    ]
    assert not shapes.left_out


@pytest.mark.parametrize(("quantised", "dtypes"), [("xw", ["int8", "int8"]), ("w", ["fp32", "fp32"])])
def test_quantised_graphs(tmp_path: Path, quantised: str, dtypes: list[str]) -> None:
    """Operands that are dequantised from 8 bits keep their type, if both are; weights alone are not enough."""
    nodes = []
    for name in "xw":
        nodes.append(node("QuantizeLinear", f"{name} scale {name}0", f"{name}q"))
        nodes.append(node("DequantizeLinear", f"{name}q scale {name}0", f"{name}d"))
        nodes.append(node("Identity", f"{name}d" if name in quantised else name, f"{name}i"))
    nodes += [node("Conv", "xi wi", "a"), node("Flatten", "a", "b"), node("ConvTranspose", "xi wi", "out")]
    path = save(tmp_path / "model.onnx", nodes, {"x": [1, 4, 5, 5]}, {"w": (4, 4, 3, 3), "scale": ()})
    model = onnx.load(path)
    for name, kind in (("x0", np.uint8), ("w0", np.int8)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((), kind), name))
    onnx.save(model, path)
    assert [item.problem.dtype for item in ckh.shapes.read(path)] == dtypes


def test_nodes_of_inner_graphs(tmp_path: Path) -> None:
    """Products in the branches of If and the body of Loop are named with their owner; without any, nothing is."""
    make, kind = onnx.helper, onnx.TensorProto
    y = [make.make_tensor_value_info("y", kind.FLOAT, None)]
    inner = [make.make_graph([node(name, "x w", "y")], name, [], y) for name in ("MatMul", "Add")]
    own = [
        make.make_tensor_value_info("step", kind.INT64, []),
        make.make_tensor_value_info("go", kind.BOOL, []),
        make.make_tensor_value_info("state", kind.FLOAT, [8, 8]),
    ]
    ends = [make.make_tensor_value_info("on", kind.BOOL, []), make.make_tensor_value_info("y", kind.FLOAT, [8, 8])]
    steps = [node("Identity", "go", "on"), node("MatMul", "state w", "z"), node("Conv", "z w", "y")]
    nodes = [
        make.make_node("If", ["is"], ["a"], then_branch=inner[0], else_branch=inner[1]),
        make.make_node("If", ["is"], ["b"], then_branch=inner[1], else_branch=inner[1]),
        make.make_node("Loop", ["", "is", "x"], ["c"], body=make.make_graph(steps, "body", own, ends)),
        node("MatMul", "x w", "out"),
    ]
    path = save(tmp_path / "model.onnx", nodes, {"x": [8, 8], "is": []}, {"w": (8, 8)})
    assert shapes_of([path]).left_out == {"MatMul in If": 1, "MatMul in Loop": 1, "Conv in Loop": 1}


@pytest.mark.parametrize(
    ("equation", "a", "b", "problem"),
    [
        ("ij,jk->ik", (4, 8), (8, 2), "gemm_fp32_rrr_m4_n2_k8_splitk1"),
        ("bij, jk -> bik", (2, 16, 32), (32, 64), "gemm_fp32_rrr_m32_n64_k32_splitk1"),
        ("ij,kj->ki", (4, 8), (2, 8), "gemm_fp32_rcr_m2_n4_k8_splitk1"),
        ("bhqd,bhkd->bhqk", (2, 3, 16, 8), (2, 3, 5, 8), "gemm_batched_fp32_rcr_b6_m16_n5_k8_splitk1"),
        ("...ik,...kj->...ij", (3, 4, 8), (1, 8, 2), "gemm_fp32_rrr_m12_n2_k8_splitk1"),
        ("...ik,...kj->...ij", (3, 4, 8), (7, 1, 8, 2), "gemm_batched_fp32_rrr_b7_m12_n2_k8_splitk1"),
        ("ij,j->i", (4, 8), (8,), "gemm_fp32_rrr_m4_n1_k8_splitk1"),
        ("abcd,cde->abe", (2, 3, 4, 5), (4, 5, 6), "gemm_fp32_rrr_m6_n6_k20_splitk1"),
    ],
)
def test_einsum(tmp_path: Path, equation: str, a: tuple[int, ...], b: tuple[int, ...], problem: str) -> None:
    """A sum over shared axes is a product or a batch of them; NumPy counts as many operations."""
    path = save(tmp_path / "model.onnx", [node("Einsum", "x w", "out", equation=equation)], {"x": list(a)}, {"w": b})
    (result,) = ckh.shapes.read(path)
    assert result.problem.canonical() == problem
    text = np.einsum_path(equation, np.zeros(a), np.zeros(b), optimize=False)[1]
    (counted,) = (line.split(":")[1] for line in text.splitlines() if "Naive FLOP count" in line)
    assert result.flops == pytest.approx(float(counted), rel=1e-3)


@pytest.mark.parametrize(
    ("a", "b", "attributes", "problem"),
    [
        ((2, 4, 8), (8, 3), {}, "gemm_fp32_rrr_m8_n3_k8_splitk1"),
        ((2, 4, 8), (2, 3, 8), {"transB": 1}, "gemm_batched_fp32_rcr_b2_m4_n3_k8_splitk1"),
        ((2, 8, 4), (2, 8, 3), {"transA": 1}, "gemm_batched_fp32_crr_b2_m4_n3_k8_splitk1"),
        ((4, 2, 8), (2, 8, 3), {"transBatchA": 1}, "gemm_batched_fp32_rrr_b2_m4_n3_k8_splitk1"),
        (
            (8, 2, 4),
            (3, 2, 8),
            dict.fromkeys(("transA", "transBatchA", "transB", "transBatchB"), 1),
            "gemm_batched_fp32_ccr_b2_m4_n3_k8_splitk1",
        ),
    ],
)
def test_fused_products(
    tmp_path: Path, a: tuple[int, ...], b: tuple[int, ...], attributes: dict[str, int], problem: str
) -> None:
    """FusedMatMul transposes matrices, and batches with rows; the product behind it has its rows."""
    nodes = [
        node("FusedMatMul", "x w", "a", domain="com.microsoft", alpha=0.5, **attributes),
        node("MatMul", "a v", "out"),
    ]
    path = save(tmp_path / "model.onnx", nodes, {"x": list(a)}, {"w": b, "v": (3, 5)})
    result = ckh.shapes.read(path)
    assert {item.problem.canonical() for item in result} == {problem, "gemm_fp32_rrr_m8_n5_k3_splitk1"}


@pytest.mark.parametrize("equation", ["ij,jk->i", "ii,ij->ij", "ij,jk,kl->il", "ij,jk", "ij->ij"])
def test_einsums_that_are_no_products(tmp_path: Path, equation: str) -> None:
    """Sums of one operand, diagonals, three operands and no stated result are counted as left out."""
    nodes = [
        node("Einsum", "x w v"[: 2 * max(1, equation.count(",")) + 1], "a", equation=equation),
        node("MatMul", "x w", "out"),
    ]
    path = save(tmp_path / "model.onnx", nodes, {"x": [8, 8]}, {"w": (8, 8), "v": (8, 8)})
    shapes = shapes_of([path])
    assert (len(shapes.problems), sum(shapes.left_out.values())) == (1, 1)


def test_local_functions(tmp_path: Path) -> None:
    """Nodes of the model's own functions are read."""
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    opsets = [make.make_opsetid("", 21), make.make_opsetid("own", 1)]
    block = make.make_function("own", "Block", ["x", "w"], ["y"], [node("Conv", "x w", "y")], opsets[:1])
    graph = make.make_graph(
        [make.make_node("Block", ["x", "w"], ["out"], domain="own")],
        "graph",
        [make.make_tensor_value_info("x", kind, [1, 3, 9, 9])],
        [make.make_tensor_value_info("out", kind, None)],
        [onnx.numpy_helper.from_array(np.zeros((8, 3, 3, 3), np.float32), "w")],
    )
    onnx.save(make.make_model(graph, functions=[block], opset_imports=opsets), str(tmp_path / "model.onnx"))
    shapes = shapes_of([str(tmp_path / "model.onnx")])
    assert [(item.problem.c, item.problem.k) for item in shapes.problems] == [(3, 8)]
    assert not shapes.left_out


def test_a_truncated_model(tmp_path: Path) -> None:
    """A truncated model, or random bytes, is damaged and never a crash."""
    whole = Path(light("resnet50")).read_bytes()
    path = tmp_path / "model.onnx"
    for size in (1, 100, 3000, len(whole) - 1):
        path.write_bytes(whole[:size])
        with expect_refusal(DataError, "damaged", path):
            ckh.shapes.read(str(path))
    path.write_bytes(np.random.default_rng(1).bytes(5000))
    with expect_refusal(DataError, "damaged", path):
        ckh.shapes.read(str(path))


def test_a_value_dependent_shape(tmp_path: Path) -> None:
    """A shape that cannot be inferred is left out; if strict, it is named."""
    nodes = [
        node("Conv", "x w", "a"),
        node("NonZero", "a", "b"),
        node("Cast", "b", "c", to=1),
        node("MatMul", "c v", "out"),
    ]
    path = save(tmp_path / "model.onnx", nodes, {"x": [1, 3, 9, 9]}, {"w": (8, 3, 3, 3), "v": (7, 5)})
    with expect_refusal(DataError, "missing-field", "model.onnx", "'c'"):
        ckh.shapes.read(path, strict=True)
    shapes = shapes_of([path], RunOptions())
    assert [problem.op for problem in shapes.problems] == ["grouped_conv"]
    assert sum(shapes.account.bad.values()) == 1


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"strides": [2]}, "bad-field"),
        ({"strides": [0, 1]}, "out-of-range"),
        ({"dilations": [1, 2**40]}, "out-of-range"),
        ({"pads": [1, 1]}, "bad-field"),
        ({"group": 3}, "impossible-problem"),
        ({"strides": [1, 1], "dilations": [9, 9]}, "impossible-problem"),
    ],
)
def test_impossible_convolutions(tmp_path: Path, attributes: dict[str, Any], code: str) -> None:
    """An invalid convolution is left out, or refused with its node if strict."""
    nodes = [node("Conv", "x w", "a", **attributes), node("MatMul", "y v", "out")]
    inputs = {"x": [1, 4, 9, 9], "y": [2, 8]}
    path = save(tmp_path / "model.onnx", nodes, inputs, {"w": (8, 4, 3, 3), "v": (8, 8)})
    with expect_refusal(DataError, code, "node a"):
        ckh.shapes.read(path, strict=True)
    assert [item.op for item in ckh.shapes.read(path)] == ["gemm_universal"]


def test_unsupported_operators(tmp_path: Path) -> None:
    """Convolutions of four dimensions are counted as skipped."""
    nodes = [node("Conv", "x w", "a"), node("MatMul", "y v", "out")]
    inputs = {"x": [1, 4, 5, 5, 5, 5], "y": [2, 8]}
    path = save(tmp_path / "model.onnx", nodes, inputs, {"w": (8, 4, 3, 3, 3, 3), "v": (8, 8)})
    shapes = shapes_of([path])
    assert len(shapes.problems) == 1
    assert list(shapes.left_out.values()) == [1]


def test_sizes_of_zero(tmp_path: Path) -> None:
    """A model with a size of 0 is refused, with the node."""
    path = save(tmp_path / "model.onnx", [node("MatMul", "x w", "out")], {"x": [0, 64]}, {"w": (64, 8)})
    with expect_refusal(DataError, "out-of-range", "out", "m", 0):
        ckh.shapes.read(path)


@pytest.mark.parametrize("exists", [True, False])
def test_external_data_is_not_opened(exists: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights need no values; a shape that is stored outside the model's folder is an error of one line."""
    if exists:
        (tmp_path / "outside.bin").write_bytes(np.array([4, 6], np.int64).tobytes())
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "model.onnx"
    save(path, [node("Reshape", "x s", "r"), node("MatMul", "r w", "out")], {"x": [1, 3, 8]}, {"w": (6, 2), "s": (2,)})
    model = onnx.load(str(path))
    for tensor in model.graph.initializer:
        tensor.data_type = onnx.TensorProto.INT64 if tensor.name == "s" else tensor.data_type
        tensor.ClearField("raw_data")
        onnx.external_data_helper.set_external_data(_with_bytes(tensor), "../outside.bin", 0, 16)
        tensor.ClearField("raw_data")
    onnx.save(model, str(path))
    assert run(["shapes", str(path)]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "missing-field", path, "'r'")


def _with_bytes(tensor: Any) -> Any:
    """A tensor with bytes, without which the package refuses to mark its data as external."""
    tensor.raw_data = b"0"
    return tensor


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the extra is named."""
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with expect_refusal(UsageError, "not-installed", "onnx"):
        ckh.shapes.read(light("resnet50"))
