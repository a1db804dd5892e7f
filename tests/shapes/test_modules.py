"""Shapes of PyTorch modules."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import ckh.shapes
from ckh.cli import run
from ckh.errors import DataError, ExitCode, UsageError
from ckh.shapes.layers import Convolution
from ckh.shapes.modules import traced
from ckh.text.log import begin_result
from tests.refusals import expect_error, expect_refusal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FACTORY = """
import torch

def net():
    print("hello")
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8, 4)
    return torch.nn.Sequential(*layers), torch.empty(2, 3, 3, 3)

def alone():
    return torch.nn.Linear(4, 4)

def ends():
    raise SystemExit(1)
"""


def test_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PyTorch the extra is named."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with expect_refusal(UsageError, "not-installed", "torch"):
        ckh.shapes.of(object())


@pytest.fixture
def torch() -> Any:
    """PyTorch."""
    return pytest.importorskip("torch", reason="PyTorch is absent: pip install torch")


def test_linear_layers(torch: Any) -> None:
    """A linear layer is a product with its weight transposed; its parameters are unchanged."""
    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 8, bias=False)).to(torch.bfloat16)
    result = ckh.shapes.of(module, torch.empty(4, 16, 64, dtype=torch.bfloat16))
    assert [(item.layers, item.problem.canonical()) for item in result] == [
        (("0",), "gemm_multi_d_bf16_rcr_m64_n32_k64_add_v"),
        (("1",), "gemm_bf16_rcr_m64_n8_k32_splitk1"),
    ]
    assert module[0].weight.device.type == "cpu"


def test_convolutions(torch: Any) -> None:
    """Convolutions have strides and groups, in one, two and three dimensions."""
    x = torch.empty(2, 8, 16, 16).to(memory_format=torch.channels_last)
    module = torch.nn.Conv2d(8, 16, (3, 1), stride=2, padding=(1, 0), dilation=2, groups=4)
    (result,) = ckh.shapes.of(module, x)
    problem = result.problem
    assert (problem.g, problem.y, problem.x, problem.stride_h, problem.dilation_w) == (4, 3, 1, 2, 2)
    (result,) = ckh.shapes.of(torch.nn.Conv1d(4, 4, 3, padding=1), torch.empty(2, 4, 30))
    assert (result.problem.hi, result.problem.wi, result.problem.y, result.problem.x) == (1, 30, 1, 3)
    (result,) = ckh.shapes.of(torch.nn.Conv3d(4, 4, 3), torch.empty(2, 4, 5, 6, 7))
    assert (result.problem.di, result.problem.hi, result.problem.wi) == (5, 6, 7)


@pytest.mark.parametrize(
    ("kernel", "options", "size", "outputs"),
    [
        (3, {"padding": (1, 0), "stride": 2}, 9, (6, 5, 4)),
        (4, {"padding": "same"}, 7, (6, 7, 7)),
        ((2, 3), {"dilation": 2}, 12, (6, 10, 8)),
    ],
)
@pytest.mark.filterwarnings("ignore:Using padding")
def test_output_sizes_are_those_of_the_call(
    torch: Any, kernel: Any, options: dict[str, Any], size: int, outputs: tuple[int, ...]
) -> None:
    """Channels and sizes of a convolution's output are compared with those of the call."""
    module, x = torch.nn.Conv2d(4, 6, kernel, **options), torch.empty(2, 4, size, size)
    stated: list[Sequence[int | None]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Convolution, "require_output", lambda _, sizes: stated.append(tuple(sizes)))
        (result,) = (item.problem for item in ckh.shapes.of(module, x))
    assert stated == [(result.k, result.ho, result.wo)] == [outputs]


def test_a_convolution_with_another_output() -> None:
    """Other channels, sizes or dimensions than those of the source are refused; unknown ones are not compared."""
    shape = Convolution(2, 4, 6, (1, 12), (1, 3), stride=(1, 2), pad=(0, 1))
    for same in ([6, 1, 6], [6, 6], [6, None], [None, 6]):
        shape.require_output(same)
    for other in ([5, 6], [6, 7], [6, 1, 1, 6], []):
        with expect_refusal(UsageError, "impossible-problem", 6):
            shape.require_output(other)


def test_a_real_module(torch: Any) -> None:
    """A transformer layer has four products, without attention, and its switch is restored."""
    module = torch.nn.TransformerEncoderLayer(64, 4, dim_feedforward=256, batch_first=True).eval()
    result = ckh.shapes.of(module, torch.empty(2, 16, 64))
    flops = {item.layers[0]: 0 for item in result}
    for shape in result:
        flops[shape.layers[0]] += shape.flops
    rows = 2 * 16
    assert flops == {
        "self_attn": 2 * rows * 64 * (3 * 64 + 64),
        "linear1": 2 * rows * 64 * 256,
        "linear2": 2 * rows * 256 * 64,
    }
    assert traced(module, [torch.empty(2, 16, 64)])[1] == {"attention": 1}
    assert torch.backends.mha.get_fastpath_enabled()


def test_batched_and_scaled_products(torch: Any) -> None:
    """A batch of products is one problem, which is none of other operations; a scaled product is AITER's."""

    class Products(torch.nn.Module):  # type: ignore[misc]
        def forward(self, a: Any, b: Any, c: Any) -> Any:
            item = torch.ones((), device=a.device)
            torch._scaled_mm(c, c.t(), scale_a=item, scale_b=item, out_dtype=torch.bfloat16)
            return torch.bmm(a, b.transpose(1, 2))

    inputs = (torch.empty(3, 8, 16), torch.empty(3, 32, 16), torch.empty(16, 64, dtype=torch.float8_e4m3fn))
    result = {item.problem.canonical(): item.count for item in ckh.shapes.of(Products(), *inputs)}
    assert result == {
        "aiter_gemm_a8w8_fp8_cu0_m16_n16_k64": 1,
        "gemm_batched_fp32_rcr_b3_m8_n32_k16_splitk1": 1,
    }
    (only,) = ckh.shapes.of(Products(), *inputs, op="gemm_universal")
    assert (only.problem.m, only.count) == (16, 1)


def test_products_of_two_types_are_left_out(torch: Any) -> None:
    """E4M3 by E5M2 is neither fp8 nor bf8."""

    class Product(torch.nn.Module):  # type: ignore[misc]
        def forward(self, a: Any, b: Any) -> Any:
            item = torch.ones((), device=a.device)
            torch._scaled_mm(a, b.t(), scale_a=item, scale_b=item, out_dtype=torch.bfloat16)
            return torch.mm(torch.empty(8, 16, device=a.device), torch.empty(16, 32, device=a.device))

    types = (torch.float8_e4m3fn, torch.float8_e5m2)
    result = ckh.shapes.of(Product(), *(torch.empty(16, 64, dtype=dtype) for dtype in types))
    assert [item.problem.canonical() for item in result] == ["gemm_fp32_rrr_m8_n32_k16_splitk1"]


def test_scales_of_a_product(torch: Any) -> None:
    """Scales by row and by blocks of 128 are two families; products with others are left out."""

    class Product(torch.nn.Module):  # type: ignore[misc]
        def forward(self, a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
            return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.bfloat16)

    operands = [torch.empty(size, 256, dtype=torch.float8_e4m3fn) for size in (64, 512)]
    for family, *sizes in (("a8w8", (64, 1), (1, 512)), ("a8w8_blockscale", (64, 2), (2, 4))):
        (result,) = ckh.shapes.of(Product(), *operands, *map(torch.empty, sizes))
        assert result.problem.family == family
    layers, left_out = traced(Product(), [*operands, torch.empty(64, 2), torch.empty(2, 512)])
    assert (layers, list(left_out.values())) == ([], [1])


@pytest.mark.parametrize(
    ("options", "size", "sizes"),
    [
        ({"stride": 2, "padding": 1, "output_padding": 1}, (128, 128), (256, 256)),
        ({"stride": (3, 1), "groups": 2, "bias": False}, (5, 6), (15, 8)),
        ({"dilation": 4, "output_padding": (3, 0)}, (5, 6), (13, 14)),
    ],
)
def test_transposed_convolutions(
    torch: Any, options: dict[str, Any], size: tuple[int, int], sizes: tuple[int, int]
) -> None:
    """A transposed convolution is backward data, with C and K exchanged, and its output's rows within the stride."""
    module, x = torch.nn.ConvTranspose2d(8, 4, 3, **options), torch.empty(2, 8, *size)
    (result,) = ckh.shapes.of(module, x)
    conv, groups = result.problem, options.get("groups", 1)
    assert (str(conv.variant), conv.n, conv.c, conv.k, conv.g) == ("bwd_data", 2, 4, 8, groups)
    assert (conv.hi, conv.wi, conv.ho, conv.wo) == (*sizes, *size)
    assert conv.flops == 2 * x.numel() * 4 // groups * 9
    with torch.device("meta"):
        image, weight, gradient = torch.empty(2, 4, *sizes), torch.empty(8, 4 // groups, 3, 3), torch.empty(2, 8, *size)
    lists = {name: options.get(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))}
    assert torch.nn.grad.conv2d_input(image.shape, weight, gradient, *lists.values(), groups).shape == image.shape


def test_a_transposed_convolution_of_one_dimension(torch: Any) -> None:
    """A vocoder's layer is an image of height 1."""
    module = torch.nn.ConvTranspose1d(64, 32, 16, stride=8, padding=4)
    (result,) = ckh.shapes.of(module, torch.empty(1, 64, 200))
    conv = result.problem
    assert (conv.c, conv.k, conv.hi, conv.wi, conv.x, conv.stride_w, conv.pad_w) == (32, 64, 1, 1600, 16, 8, 4)


def test_products_of_other_operators(torch: Any) -> None:
    """Products of integers and vectors are problems; other operators that multiply are named."""

    class Products(torch.nn.Module):  # type: ignore[misc]
        def forward(self, rows: Any, experts: Any, ends: Any) -> Any:
            aten = torch.ops.aten
            whole = rows.to(torch.int8)
            torch._int_mm(whole, whole.t())
            torch.mv(rows, rows[0])
            aten.addmv(rows[:, 0], rows, rows[0])
            torch._grouped_mm(rows.t(), rows, offs=ends)
            torch._grouped_mm(experts, experts)
            return torch.addbmm(experts[0], experts, experts)

    bf16 = torch.bfloat16
    inputs = torch.empty(40, 64, dtype=bf16), torch.empty(3, 64, 64, dtype=bf16), torch.empty(3, dtype=torch.int32)
    result = ckh.shapes.of(Products(), *inputs)
    assert {item.problem.canonical(): item.count for item in result} == {
        "gemm_int8_rcr_m40_n40_k64_splitk1": 1,
        "gemm_bf16_rrr_m40_n1_k64_splitk1": 2,
        "gemm_batched_bf16_rrr_b3_m64_n64_k64_splitk1": 1,
    }
    assert result.left_out == {"aten._grouped_mm along N or K": 1, "aten.addbmm": 1}


@pytest.mark.parametrize(("rows", "ms"), [(40, "10x4"), (42, "11x2+10x2"), (3, "1x3+0")])
def test_experts_of_a_grouped_product(rows: int, ms: str, torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows with a matrix per expert are one problem of groups; offsets have no values, so that rows spread evenly."""

    class Experts(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.gate_up = torch.nn.Parameter(torch.empty(4, 96, 64, dtype=torch.bfloat16))
            self.down = torch.nn.Parameter(torch.empty(4, 48, 64, dtype=torch.bfloat16))

        def forward(self, x: Any, ends: Any) -> Any:
            inner = torch._grouped_mm(x, self.gate_up.transpose(1, 2), offs=ends)
            return torch._grouped_mm(inner[:, :48].contiguous(), self.down, offs=ends)

    begin_result()
    inputs = torch.empty(rows, 64, dtype=torch.bfloat16), torch.empty(4, dtype=torch.int32)
    result = ckh.shapes.of(Experts(), *inputs)
    assert [(item.problem.canonical(), item.flops) for item in result] == [
        (f"gemm_grouped_bf16_rcr_m{ms}_n96_k64_splitk1", 2 * rows * 96 * 64),
        (f"gemm_grouped_bf16_rrr_m{ms}_n64_k48_splitk1", 2 * rows * 64 * 48),
    ]
    assert "evenly over 4 groups" in capsys.readouterr().err
    with expect_refusal(DataError, "no-problems", "--op gemm_grouped"):
        ckh.shapes.of(Experts(), *inputs, op="gemm_universal")


def test_a_lazy_module(torch: Any) -> None:
    """A parameter without a size is named; after a call the module is traced."""
    module = torch.nn.Sequential(torch.nn.LazyConv2d(32, 3))
    with expect_refusal(UsageError, "bad-module", "0.weight"):
        ckh.shapes.of(module, torch.empty(1, 16, 8, 8))
    module(torch.empty(1, 16, 8, 8))
    (result,) = ckh.shapes.of(module, torch.empty(1, 16, 8, 8))
    assert (result.problem.c, result.problem.k, result.problem.hi) == (16, 32, 8)


def test_the_same_network_by_its_table(torch: Any) -> None:
    """VGG-16's convolutions, built with PyTorch, equal those of the built-in network."""
    layers: list[Any] = []
    channels = 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers.append(torch.nn.Conv2d(channels, width, 3, padding=1))
            channels = width
        layers.append(torch.nn.MaxPool2d(2))
    result = ckh.shapes.of(torch.nn.Sequential(*layers).half(), torch.empty(4, 3, 224, 224, dtype=torch.half))
    ready = ckh.shapes.read("vgg16", batch=(4,), default_dtype="fp16")
    assert {(item.problem, item.count) for item in result} == {(item.problem, item.count) for item in ready}


def test_a_value_dependent_module(torch: Any) -> None:
    """A module that depends on values cannot be traced, which is an error."""

    class Looks(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x if x.sum().item() > 0 else -x

    with expect_refusal(UsageError, "bad-module", "Looks"):
        ckh.shapes.of(Looks(), torch.ones(3))


def test_factories(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--torch calls a function in the current folder; its output stays separate, and its errors are one line."""
    (tmp_path / "my_factory.py").write_text(FACTORY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run(["shapes", "--torch", "my_factory:net"]) == ExitCode.OK
    printed = capsys.readouterr()
    assert [line.split(",")[:3] for line in printed.out.splitlines()[1:]] == [
        ["grouped_conv", "1", "0"],
        ["gemm_multi_d", "1", "2"],
    ]
    assert "hello" in printed.err
    for name in ("my_factory:alone", "my_factory:ends", "my_factory:nothing", "no_such_module:f"):
        assert run(["shapes", "--torch", name]) == ExitCode.USAGE
        expect_error(capsys.readouterr().err, "bad-module", name)
    monkeypatch.delitem(sys.modules, "my_factory")
