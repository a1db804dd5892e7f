"""PyTorch Inductor's own CK Tile instances in ckh's order, and stand-ins for CK's instances."""

from __future__ import annotations

import importlib.util
import json
import random
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.errors import ExitCode, UsageError
from ckh.export.to_python import BUILT_FOR
from ckh.integrations import inductor
from ckh.learn.analytic.estimate import estimated_us
from ckh.ops import operation
from ckh.ops.gemm_universal.consumers import INSTANCES as GEMMS
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.consumers import INSTANCES as CONVOLUTIONS
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.integrations.instances import CkGemm, CkOp, tiled
from tests.refusals import expect_error, expect_refusal, expect_warning

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is absent: pip install torch, 2.13 or later")
TILES = ((256, 256, 4, 4), (64, 64, 1, 1), (128, 128, 2, 2), (256, 128, 4, 2))  # M, N, and instructions of a wave


@dataclass
class CkConv:
    """A convolution instance of CK."""

    n_dim_spatial: int = 2
    a_element_dtype: str = "BF16"
    gemm_specialization: str = "GemmSpecialization::MNKPadding"
    block_size: int = 256
    m_per_block: int = 128
    n_per_block: int = 128
    k_per_block: int = 32
    m_per_xdl: int = 32
    n_per_xdl: int = 32
    m_xdl_per_wave: int = 2
    n_xdl_per_wave: int = 2
    a_block_transfer_src_scalar_per_vector: int = 8
    b_block_transfer_src_scalar_per_vector: int = 8
    cde_block_transfer_scalar_per_vector_n_per_block: int = 8
    block_gemm_pipeline_scheduler: str = "BlockGemmPipelineScheduler::Intrawave"
    block_gemm_pipeline_version: str = "BlockGemmPipelineVersion::v4"


@dataclass
class Template:
    """A template for a GEMM, or with steps for a convolution."""

    input_nodes: list[Any]
    stride: list[int] = field(default_factory=lambda: [2, 2])
    padding: list[int] = field(default_factory=lambda: [1, 1])
    dilation: list[int] = field(default_factory=lambda: [1, 1])
    groups: int = 1


def node(*size: Any) -> SimpleNamespace:
    """An input of a template."""
    return SimpleNamespace(get_layout=lambda: SimpleNamespace(size=size))


GEMM = Template([node(512, 4096), node(4096, 1024)])


def test_ck_gemms_are_translated() -> None:
    """Sizes, split, layout, tile, waves, instruction, pipeline and padding come from the instance's fields."""
    ck_op = CkOp(CkGemm(), 2)
    assert GEMMS.problem(GEMM, ck_op) == GemmProblem(512, 1024, 4096, "fp16", "rcr", split_k=2)
    kernel = GEMMS.kernel(GEMM, ck_op)
    assert (kernel.tile, kernel.wave, kernel.warp_tile) == ((128, 256, 64), (2, 2, 1), (32, 32, 16))
    assert (kernel.pipeline, str(kernel.scheduler), kernel.pads) == ("compv3", "intrawave", (True, True, False))


def test_ck_convolutions_are_translated() -> None:
    """Sizes come from both operands, steps and groups from the template."""
    template = Template([node(8, 64, 56, 48), node(128, 32, 3, 5)], groups=2)
    sizes: dict[str, Any] = {"n": 8, "c": 64, "k": 128, "g": 2, "hi": 56, "wi": 48, "y": 3, "x": 5}
    steps: dict[str, Any] = {"stride_h": 2, "stride_w": 2, "pad_h": 1, "pad_w": 1}
    wanted = ConvProblem(Direction.FORWARD, **sizes, **steps, dtype="bf16")
    assert CONVOLUTIONS.problem(template, CkConv()) == wanted
    kernel = CONVOLUTIONS.kernel(template, CkConv())
    assert kernel.is_complete
    assert (kernel.pipeline, kernel.double_smem_buffer, kernel.wave_m, kernel.vector_b) == ("compv4", True, 2, 8)
    op = operation("grouped_conv")
    assert op.kernels.parse(op.kernels.name(kernel)) == kernel


def test_without_measurements_the_estimate_orders(capsys: pytest.CaptureFixture[str]) -> None:
    """No model covers GEMMs of gfx90a: times are estimated, fastest first, which is reported."""
    ops = [tiled(*item) for item in TILES]
    inductor._SAID.clear()
    result = inductor.choose(GEMM, ops, arch="gfx90a")
    problem = GemmProblem(512, 1024, 4096, "fp16", "rcr")
    covered = operation("gemm_universal").problems.tiled
    assert covered is not None
    times = estimated_us(problem, covered(problem), [GEMMS.kernel(GEMM, item) for item in ops], load_arch("gfx90a"))
    assert len(set(times)) == len(ops)
    assert result == [ops[index] for index in np.argsort(times)]
    assert inductor.choose(GEMM, ops, top=2, arch="gfx90a") == result[:2]
    expect_warning(capsys.readouterr().err, "not-measured", "gemm_universal fp16 on gfx90a")


def test_a_shipped_model_orders_convolutions() -> None:
    """On gfx950 the model of CK Tile's forward bf16 convolutions ranks them, in any input order."""
    template = Template([node(8, 64, 56, 56), node(128, 64, 3, 3)])
    ops = [
        CkConv(m_per_block=m, n_per_block=n, m_xdl_per_wave=m // 64, n_xdl_per_wave=n // 64)
        for m in (64, 128, 256)
        for n in (64, 128, 256)
    ]
    result = inductor.choose(template, ops, arch="gfx950")
    shuffled = random.Random(1).sample(ops, len(ops))
    assert inductor.choose(template, shuffled, arch="gfx950") == result
    assert sorted(map(repr, result)) == sorted(map(repr, ops))
    assert result != ops


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_indistinguishable_kernels_share_a_rank(arch: str) -> None:
    """Kernels that differ in padding alone are one, to the estimate and to a model that knows padding.

    The first are different tiles, not one tile in all paddings.
    """
    words = ("Default", "MPadding", "NPadding", "MNKPadding")
    ops = [tiled(*item, gemm_specialization=f"GemmSpecialization::{word}") for item in TILES for word in words]
    first = inductor.choose(GEMM, ops, top=len(TILES), arch=arch)
    assert {(ck_op.op.m_per_block, ck_op.op.n_per_block) for ck_op in first} == {item[:2] for item in TILES}
    assert {ck_op.op.gemm_specialization.rpartition("::")[2] for ck_op in first} == {"Default"}


def test_unknown_kernels_keep_their_order() -> None:
    """With unknown sizes, and for instances with unknown values, the order is kept, after the known ones."""
    strange, good = CkOp(CkGemm(block_gemm_pipeline_version="v9"), 1), CkOp(CkGemm(), 1)
    assert inductor.choose(GEMM, [strange, good, strange], arch="gfx942") == [good, strange, strange]
    dynamic = Template([node("s0", 4096), node(4096, 1024)])
    assert inductor.choose(dynamic, [strange, good], arch="gfx942") == [strange, good]


@pytest.mark.parametrize(
    "broken",
    [
        {"kBatch": None},
        {"m_per_block": None},
        {"m_per_xdl": 0},
        {"block_gemm_pipeline_scheduler": None},
    ],
)
def test_an_unknown_instance_is_skipped(broken: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """An instance whose fields ckh cannot read comes last; the others are ranked as without it."""
    inductor._PASSED_OVER.clear()
    template = Template([node(4096, 4096), node(4096, 4096)])
    good = [tiled(*sizes) for sizes in TILES]
    split = broken.pop("kBatch", 1)
    strange = CkOp(CkGemm(**broken), split)
    assert inductor.choose(template, [strange, *good], arch="gfx942") == [
        *inductor.choose(template, good, arch="gfx942"),
        strange,
    ]
    assert capsys.readouterr().err.count("keep Inductor's order") <= 1


STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 70, 1.5, float("nan"), float("inf"), "", "x", "9" * 5000, b"x", [], {}, [1], object()),
    *("Row", "F16", "BlockGemmPipelineVersion::v3", "\x1b[31m", "\ud800", 3, 2, Template, int),
)


class Raising:
    """Every operation on it raises, including its text."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(Raising())

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError


def _strange_instance(draw: random.Random) -> Any:
    """An instance with one to three fields wrong or missing, or no instance at all."""
    if draw.random() < 0.1:
        return draw.choice([*STRANGE, Raising()])
    item: Any = draw.choice([CkGemm, CkConv])()
    for name in draw.sample(sorted(vars(item)), draw.choice((1, 1, 2, 3))):
        if draw.random() < 0.1:
            item.__dict__.pop(name)
        else:
            setattr(item, name, draw.choice([*STRANGE, Raising()]))
    return CkOp(item, draw.choice([1, 1, *STRANGE])) if isinstance(item, CkGemm) else item


def _strange_template(draw: random.Random) -> Template:
    value = draw.choice([512, 1, *STRANGE, Raising()])
    template = draw.choice(
        [
            Template([node(value, 4096), node(4096, 1024)]),
            Template([node(512, 4096)]),
            GEMM,
            Template([node(8, 64, 56, 48), node(128, 32, 3, 5)], groups=value),
        ]
    )
    return template if draw.random() < 0.9 else draw.choice([*STRANGE, Raising()])


@pytest.mark.slow
def test_any_instance_gives_an_order(capsys: pytest.CaptureFixture[str]) -> None:
    """400 lists with malformed instances come back complete, each with one warning; known ones are ranked."""
    draw, good = random.Random(7), [tiled(*sizes) for sizes in TILES]
    inductor._PASSED_OVER.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(400):
            template = GEMM if draw.random() < 0.5 else _strange_template(draw)
            given = [*good, *(_strange_instance(draw) for _ in range(3))]
            draw.shuffle(given)
            result = inductor.choose(template, given, arch=draw.choice(["gfx942", "gfx950"]))
            assert sorted(map(id, result)) == sorted(map(id, given))
    assert capsys.readouterr().err.count("keep Inductor's order") == 1


def test_a_gpu_must_be_known() -> None:
    """Without a GPU in the machine the architecture must be given."""
    with expect_refusal(UsageError, "no-gpu"):
        inductor.choose(GEMM, [CkOp(CkGemm(), 1)], arch="host")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--arch", "host"], "inductor has no kernels of Composable Kernel for host"),
        (["--arch", "gfx1100"], "inductor has no kernels of Composable Kernel for gfx1100"),
        (["--model", "aiter_moe_gfx942"], "inductor has no aiter_moe"),
        (["--model", "grouped_conv_forward_bf16_gfx950", "--arch", "gfx942"], "is for gfx950, not gfx942"),
    ],
)
def test_an_export_without_use_is_refused(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inductor would never request the order of such kernels; nothing is written."""
    result = [str(ROOT / "models" / word) if (ROOT / "models" / word).is_dir() else word for word in words]
    assert run(["export", "--to", "inductor", *result, "--out", str(tmp_path / "out")]) == ExitCode.USAGE
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_other_gpus_are_refused() -> None:
    """Calls from Python are refused likewise, before PyTorch is imported."""
    with expect_refusal(UsageError, "unsupported", "gfx1100"):
        inductor.install(arch="gfx1100")
    with expect_refusal(UsageError, "model-mismatch", "gfx950", "gfx942"):
        inductor.install(arch="gfx942", model=ROOT / "models" / "gemm_universal_fp8_gfx950")


@pytest.mark.skipif(HAS_TORCH, reason="PyTorch is here")
def test_a_missing_pytorch_is_reported() -> None:
    """One line names it."""
    with expect_refusal(UsageError, "not-installed", "PyTorch", "CKTileGemmTemplate"):
        inductor.install(arch="gfx942")


@pytest.fixture
def torch() -> Iterator[Any]:
    """PyTorch, without its own warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield pytest.importorskip("torch")


def gemm_template(torch: Any, m: int, n: int, k: int, dtype: str = "bfloat16") -> Any:
    """Inductor's template of CK Tile's GEMMs, A and B row-major."""
    from torch._inductor.codegen.rocm.ck_tile_universal_gemm_template import CKTileGemmTemplate
    from torch._inductor.ir import Buffer, FixedLayout

    def layout(rows: int, columns: int) -> Any:
        return FixedLayout(torch.device("cpu"), getattr(torch, dtype), [rows, columns], [columns, 1])

    inputs = [Buffer(name="x", layout=layout(m, k)), Buffer(name="w", layout=layout(k, n))]
    return CKTileGemmTemplate(inputs, layout(m, n))


@needs_torch
def test_every_instance_of_ck_tile_is_a_kernel(torch: Any) -> None:
    """All of PyTorch's instances are distinct complete kernels with the parameters that they state."""
    from torch._inductor.codegen.rocm.ck_tile_universal_gemm_template import ops

    template = gemm_template(torch, 512, 1024, 4096)
    kernels = [GEMMS.kernel(template, item) for item in ops()]
    assert len(ops()) >= 448
    assert all(kernel is not None and kernel.is_complete for kernel in kernels)
    assert len(set(kernels)) == len(ops())
    name = operation("gemm_universal").kernels.name
    for item, kernel in zip(ops(), kernels, strict=True):
        assert f"_{item.tile_m}x{item.tile_n}x{item.tile_k}_{item.warp_m}x{item.warp_n}x{item.warp_k}_" in name(kernel)
        assert item.pipeline.lower() in name(kernel)


@needs_torch
def test_architectures_match_inductor(torch: Any) -> None:
    """The list of architectures equals Inductor's."""
    from torch._inductor import config

    assert list(BUILT_FOR["inductor"]) == config.rocm.ck_supported_arch


@needs_torch
def test_inductor_uses_the_first_instance(torch: Any) -> None:
    """Installed, the template gives as many as it would sample, best first; uninstalled, it samples again."""
    from torch._inductor import config

    template = gemm_template(torch, 512, 1024, 4096, "bfloat16")
    everything = template.gen_ops()
    wanted = inductor.choose(template, everything, arch="gfx942")
    assert len(wanted) == len(everything) > 50
    with config.patch({"rocm.ck_tile_max_profiling_configs": 6}):
        drawn = template.gen_ops()
        undo = inductor.install(arch="gfx942")
        try:
            assert template.gen_ops() == wanted[:6]
            with pytest.raises(UsageError, match="already"):
                inductor.install(arch="gfx942")
        finally:
            undo()
        assert template.gen_ops() == drawn != wanted[:6]
    undo = inductor.install(top=3, arch="gfx942")
    try:
        assert template.gen_ops() == wanted[:3]
    finally:
        undo()
    assert len({(item.pipeline, item.tile_k, item.scheduler) for item in wanted[:3]}) == 3


@needs_torch
def test_no_instances_are_no_error(torch: Any) -> None:
    """PyTorch 2.13 has no float16 instance, and its sampling divides by zero; ckh's order avoids that."""
    from torch._inductor import config

    template = gemm_template(torch, 512, 1024, 4096, "float16")
    with config.patch({"rocm.ck_tile_max_profiling_configs": 6}):
        undo = inductor.install(arch="gfx942")
        try:
            assert len(template.gen_ops()) in (0, 6)
        finally:
            undo()


def test_an_export_pins_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exported module installs ckh's order with its own model; unknown options are refused."""
    out = tmp_path / "choices"
    model = ROOT / "models" / "grouped_conv_forward_bf16_gfx950"
    args = ["export", "--to", "inductor", "--arch", "gfx950", "--top", "4", "--out", str(out)]
    assert run([*args, "--model", str(model)]) == ExitCode.OK
    assert (out / "model" / "feature_spec.json").read_bytes() == (model / "feature_spec.json").read_bytes()
    code = (out / "ckh_inductor.py").read_text()
    called: list[dict[str, Any]] = []
    namespace = {"__file__": str(out / "ckh_inductor.py")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inductor, "install", lambda **given: called.append(given))
        exec(compile(code, "ckh_inductor.py", "exec"), namespace)  # noqa: S102 - what the export wrote
    assert called == [{"top": 4, "arch": "gfx950", "model": out / "model"}]
    template = Template([node(8, 64, 56, 56), node(128, 64, 3, 3)])
    ops = [CkConv(m_per_block=m, m_xdl_per_wave=m // 64) for m in (64, 128, 256)]
    assert inductor.choose(template, ops, arch="gfx950", model=out / "model") == inductor.choose(
        template, ops, arch="gfx950"
    )
    gemms = [tiled(*item) for item in TILES]
    assert inductor.choose(GEMM, gemms, arch="gfx950", model=out / "model") == gemms
    capsys.readouterr()
    assert run([*args, "--problems", "x.csv", "--force"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "inapplicable-option", "--problems", "--to inductor")
    assert run([*args, "--force", "--json"]) == ExitCode.OK
    assert not (out / "model").exists()
    assert "ckh_inductor.py" in json.loads(capsys.readouterr().out)["files"]
