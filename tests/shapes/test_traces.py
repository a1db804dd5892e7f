"""Shapes in traces of PyTorch's profiler, and in graphs of hipDNN."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

import ckh.shapes
from ckh.errors import DataError
from ckh.shapes.problems import shapes_of
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

BF16 = "c10::BFloat16"
FORWARD = "conv_forward_bf16_nhwgc_2d_n8_c64_k32_g2_i56x56_f3x3_s2x2_p1x1_d1x1"


def event(op: str, dims: list[Any], inputs: list[str], strides: list[Any] | None = None) -> dict[str, Any]:
    """An event with the fields that `record_shapes=True` adds."""
    args = {"External id": 7, "Concrete Inputs": inputs, "Input type": [BF16] * len(dims), "Input Dims": dims}
    return {"ph": "X", "cat": "cpu_op", "name": f"aten::{op}", "ts": 1.5, "dur": 10, "args": args} | (
        {} if strides is None else {"args": args | {"Input Strides": strides}}
    )


X, W, DY = [8, 64, 56, 56], [32, 32, 3, 3], [8, 32, 28, 28]
LISTS = ["[2, 2]", "[1, 1]", "[1, 1]"]
CONVOLUTION = event("convolution", [X, W, [], [], [], [], [], [], []], ["", "", "", *LISTS, "False", "[0, 0]", "2"])
INSIDE = event(
    "miopen_convolution", [X, W, [], [], [], [], []], ["", "", "", "[1, 1]", "[2, 2]", "[1, 1]", "2", "False", "True"]
)


def backward(mask: str) -> dict[str, Any]:
    """The backward pass of the same convolution, of which the mask has the wanted gradients."""
    inputs = ["", "", "", "[32]", *LISTS, "False", "[0, 0]", "2", mask]
    return event("convolution_backward", [DY, X, W, *[[]] * 8], inputs)


def read(tmp_path: Path, events: list[dict[str, Any]], indent: int | None = None) -> Any:
    """Shapes of a trace with these events."""
    path = tmp_path / "trace.json"
    document = {"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": events, "traceName": "t"}
    path.write_text(json.dumps(document, indent=indent), encoding="utf-8")
    return shapes_of([str(path)])


def counts(shapes: Any) -> dict[str, int]:
    """Canonical text -> count."""
    return {item.problem.canonical(): item.count for item in shapes.problems}


@pytest.mark.parametrize("indent", [None, 1])
def test_operators_count_once(indent: int | None, tmp_path: Path) -> None:
    """Products and convolutions by their calls, not the operators around them or inside; gradients by their mask."""
    linear = event("linear", [[16, 64], [128, 64], []], ["", "", ""])
    product = event("addmm", [[128], [16, 64], [64, 128]], [""] * 3, [[1], [64, 1], [1, 64]])
    batch = event("bmm", [[4, 16, 64], [4, 64, 8]], ["", ""], [[1024, 64, 1], [512, 8, 1]])
    kernel = {"ph": "X", "cat": "kernel", "name": "Cijk_Ailk", "args": {"grid": [1, 1, 1]}}
    events = [linear, product, kernel, CONVOLUTION, INSIDE, product, CONVOLUTION, INSIDE, batch]
    shapes = read(tmp_path, [*events, backward("[True, False, True]"), backward("[False, True, False]")], indent)
    assert counts(shapes) == {
        "gemm_multi_d_bf16_rcr_m16_n128_k64_add_v": 2,
        FORWARD: 2,
        "gemm_batched_bf16_rrr_b4_m16_n8_k64_splitk1": 1,
        FORWARD.replace("forward", "bwd_data"): 1,
        FORWARD.replace("forward", "bwd_weight"): 1,
    }


def test_a_trace_of_kernels_of_miopen_alone(tmp_path: Path) -> None:
    """The inner operator counts where no outer one was recorded; of one dimension it is of height 1."""
    flat = event("convolution", [[2, 4, 100], [8, 4, 5]], ["", "", "", "[3]", "[2]", "[1]", "False", "[0]", "1"])
    assert counts(read(tmp_path, [INSIDE, flat, INSIDE])) == {
        FORWARD: 2,
        "conv_forward_bf16_nhwgc_2d_n2_c4_k8_g1_i1x100_f1x5_s1x3_p0x2_d1x1": 1,
    }


def test_events_without_sizes_are_counted(tmp_path: Path) -> None:
    """Convolutions without recorded lists are left out; a broken trace is refused."""
    shapes = read(tmp_path, [event("convolution", [X, W, []], []), CONVOLUTION])
    assert sorted(shapes.left_out.values()) == [1]
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"name": "a"}, {"name": ' + "1" * 100, encoding="utf-8")
    with expect_refusal(DataError, "no-problems", path):
        ckh.shapes.read(str(path))


def test_transposed_convolutions_are_backward_data(tmp_path: Path) -> None:
    """PyTorch states 64 inputs of 56x56 and, by filter, stride and output padding, 32 outputs of 112x112."""
    x, w, dy = [8, 64, 56, 56], [64, 16, 3, 3], [8, 32, 112, 112]
    lists = [*LISTS, "True", "[1, 1]", "2"]
    forward = event("convolution", [x, w, *[[]] * 7], ["", "", "", *lists])
    backward = event("convolution_backward", [dy, x, w, *[[]] * 8], ["", "", "", "[32]", *lists, "[True, True, False]"])
    text = "conv_{}_bf16_nhwgc_2d_n8_c32_k64_g2_i112x112_f3x3_s2x2_p1x1_d1x1"
    assert counts(read(tmp_path, [forward, forward, backward])) == {
        text.format("bwd_data"): 2,
        text.format("forward"): 1,
        text.format("bwd_weight"): 1,
    }


@pytest.mark.slow
def test_a_long_trace_takes_constant_memory(tmp_path: Path) -> None:
    """20 MB with 40,000 calls of one convolution and other events take less than 8 MB."""
    noise = json.dumps({"ph": "X", "name": "Memcpy", "args": {"bytes": 1024, "stream": "s" * 250}})
    text = ",\n".join([json.dumps(CONVOLUTION), noise] * 20_000)
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents": [{text}]}}', encoding="utf-8")
    assert path.stat().st_size > 10e6
    tracemalloc.start()
    result = ckh.shapes.read(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [item.count for item in result] == [20_000]
    assert peak < 8e6


def graph(kind: str, inputs: dict[str, int], outputs: dict[str, int], **changes: Any) -> dict[str, Any]:
    """A graph of hipDNN with one node."""
    sizes = {1: X, 2: W, 3: DY, 4: [3, 16, 64], 5: [3, 64, 8]}
    tensors = [
        {"uid": uid, "dims": dims, "strides": [*dims[1:], 1], "data_type": "half", "virtual": False}
        for uid, dims in sizes.items()
    ]
    parameters = {"pre_padding": [1, 1], "post_padding": [1, 1], "stride": [2, 2], "dilation": [1, 1]}
    node = {
        "name": "",
        "type": f"{kind}Attributes",
        "parameters": parameters | changes,
        "inputs": {f"{name}_tensor_uid": uid for name, uid in inputs.items()},
        "outputs": {f"{name}_tensor_uid": uid for name, uid in outputs.items()},
    }
    return {"nodes": [node], "tensors": tensors}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (graph("ConvolutionFwd", {"x": 1, "w": 2}, {"y": 3}), FORWARD),
        (graph("ConvolutionBwd", {"dy": 3, "w": 2}, {"dx": 1}), FORWARD.replace("forward", "bwd_data")),
        (graph("ConvolutionWrw", {"dy": 3, "x": 1}, {"dw": 2}), FORWARD.replace("forward", "bwd_weight")),
        (
            graph("ConvolutionFwd", {"x": 1, "w": 2}, {"y": 3}, post_padding=[0, 0]),
            FORWARD.replace("i56x56", "i57x57").replace("p1x1", "p0x0"),
        ),
        (graph("Matmul", {"a": 4, "b": 5}, {"c": 9}), "gemm_batched_bf16_rrr_b3_m16_n8_k64_splitk1"),
    ],
)
def test_graphs_of_hipdnn(document: dict[str, Any], text: str, tmp_path: Path) -> None:
    """Convolutions of each direction, with asymmetric padding as a padded input, and batches of products."""
    path = tmp_path / "graph.json"
    for times in (1, 2):
        path.write_text(json.dumps({**document, "nodes": document["nodes"] * times}), encoding="utf-8")
        assert counts(shapes_of([str(path)])) == {text.replace("bf16", "fp16"): times}


def test_stated_outputs_are_those_of_the_operands(tmp_path: Path) -> None:
    """A gradient in a trace, and a tensor of a graph, of other sizes than the convolution has are refused with both."""
    gradient = backward("[True, False, False]")
    gradient["args"]["Input Dims"][0] = [8, 32, 27, 28]
    with expect_refusal(DataError, "impossible-problem", "32x28x28", "32x27x28"):
        read(tmp_path, [gradient])
    path = tmp_path / "graph.json"
    for kind, given, made in (("Fwd", {"x": 1, "w": 2}, {"y": 3}), ("Wrw", {"dy": 3, "x": 1}, {"dw": 2})):
        document = graph(f"Convolution{kind}", given, made)
        document["tensors"][2]["dims"] = [8, 16, 28, 28]
        path.write_text(json.dumps(document), encoding="utf-8")
        with expect_refusal(DataError, "impossible-problem", path, "32x28x28", "16x28x28"):
            ckh.shapes.read(str(path))


def test_other_nodes_of_a_graph_are_counted(tmp_path: Path) -> None:
    """With their type; a graph that lacks a field is refused."""
    document = graph("ConvolutionFwd", {"x": 1, "w": 2}, {"y": 3})
    document["nodes"] += [{"type": "PointwiseAttributes", "inputs": {"in_0_tensor_uid": 3}, "outputs": {}}] * 2
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert [*shapes_of([str(path)]).left_out.values()] == [2]
    del document["nodes"][0]["parameters"]["stride"]
    path.write_text(json.dumps(document), encoding="utf-8")
    with expect_refusal(DataError, "bad-field", path, "stride"):
        ckh.shapes.read(str(path))
