"""`ckh validate parity`: equal picks pass, broken exports of each consumer are detected, missing tools are reported."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cli import run
from ckh.errors import ExitCode
from ckh.integrations import inductor
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.integrations.instances import CkOp, tiled
from tests.learn.conftest import problems, saved
from tests.refusals import expect_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]
STUB = ROOT / "tests" / "export" / "dispatcher_stub"
CONV = ROOT / "models" / "grouped_conv_forward_bf16_gfx950"
needs_compiler = pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="no gcc and g++")


def compared(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, dict[str, Any]]:
    """Exit code and document of a call."""
    capsys.readouterr()
    code = run(["validate", "parity", "--json", *map(str, args)])
    return code, json.loads(capsys.readouterr().out)


def only(document: dict[str, Any]) -> dict[str, Any]:
    """The only consumer of a document."""
    (result,) = document["consumers"]
    return dict(result)


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model of the host in `model`, and a list of three problems."""
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "model")
    path = tmp_path / "list.txt"
    path.write_text("".join(f"{problem.canonical()}\n" for problem in problems()[2:5]), encoding="utf-8")
    return path


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("embed", [[], ["--embed"]])
def test_a_broken_c_export_is_detected(layers: Path, embed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Fresh and existing C pick as ckh does; with an export that names kernels wrongly every pick differs."""
    call = ("--problems", layers, "--model", "model", "--consumer", "c")
    if not embed:
        code, document = compared(capsys, *call)
        assert (code, document["passes"], only(document)["compared"]) == (ExitCode.OK, True, 3)
    assert run(["export", "--model", "model", "--to", "c", "--out", "out", *embed]) == ExitCode.OK
    code, document = compared(capsys, *call, "--export", "out")
    assert (code, only(document)["differences"]) == (ExitCode.OK, [])
    break_names(Path("out"))
    code, document = compared(capsys, *call, "--export", "out")
    assert code == ExitCode.GATE_FAILED
    assert len(only(document)["differences"]) == 3
    first = only(document)["differences"][0]
    assert first["problem"] == problems()[2].canonical()
    assert first["ckh"] != first["consumer"]
    assert not document["passes"]


def break_names(folder: Path) -> None:
    """Make exported C name each kernel by the previous one's name."""
    source = next(path for path in folder.glob("*.c") if NAMED in path.read_text())
    source.write_text(source.read_text().replace(NAMED, MOVED))


NAMED = "*ckh_kernel_name(const ckh_model *model, int32_t kernel) {"
MOVED = f"""{NAMED}
  kernel = kernel ? kernel - 1 : ckh_kernel_count(model) - 1;"""


@needs_compiler
@pytest.mark.slow
def test_a_broken_dispatcher_export_is_detected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """AMD's dispatcher selects ckh's first kernels; with a header that lists them backwards it selects others."""
    path = tmp_path / "layers.csv"
    path.write_text("N,C,K,Hi,Wi,Y,X,pad_h,pad_w\n4,64,128,56,56,3,3,1,1\n8,256,512,28,28,1,1,0,0\n")
    call = ("--problems", path, "--model", CONV, "--consumer", "ck-dispatcher", "--dispatcher", STUB)
    code, document = compared(capsys, *call)
    assert (code, only(document)["compared"], only(document)["differences"]) == (ExitCode.OK, 2, [])
    out = tmp_path / "out"
    assert run(["export", "--model", str(CONV), "--to", "ck-dispatcher", "--out", str(out)]) == ExitCode.OK
    header = out / f"{CONV.name}.hpp"
    text = header.read_text()
    broken = text.replace("names.push_back(name);", "names.insert(names.begin(), name);")
    assert broken != text
    header.write_text(broken)
    code, document = compared(capsys, *call, "--export", out)
    assert code == ExitCode.GATE_FAILED
    assert len(only(document)["differences"]) == 2


@needs_compiler
@pytest.mark.slow
def test_the_dispatcher_of_gemms_gets_identifiers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For GEMMs the first identifier is ckh's first kernel, without the operation's name."""
    path = tmp_path / "gemms.csv"
    path.write_text("m,n,k\n16,1024,4096\n2048,2048,2048\n")
    model = ROOT / "models" / "gemm_universal_fp8_gfx950"
    call = ("--problems", path, "--model", model, "--consumer", "ck-dispatcher", "--dispatcher", STUB)
    code, document = compared(capsys, *call)
    assert (code, only(document)["compared"], only(document)["differences"]) == (ExitCode.OK, 2, [])


def edit_cells(path: Path, name: str, value: str, row: int = 0) -> None:
    """Put a value into a column of a row of a table."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[row][name] = value
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "consumer"),
    [
        ("kernelName", "a8w8_bpreshuffle_128x16x32x512_16x16_16x16_32x4x1_32x4x1_1x16x1x8_4x4x1_1x1_intrawave_v1", ""),
        ("splitK", "1", "_splitk1"),
        ("M", "17", "no row"),
        ("cu_num", "80", "no row"),
        ("gfx", "gfx942", "no row"),
        ("q_dtype_w", "torch.int8", "no row"),
    ],
)
def test_a_broken_aiter_table_is_detected(
    name: str, value: str, consumer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row with another kernel, split or key differs from ckh's pick; the other rows, one padded to M, agree."""
    path, out = tmp_path / "a8w8_bpreshuffle_untuned_gemm.csv", tmp_path / "out"
    path.write_text("M,N,K\n16,9216,4096\n290,9216,4096\n")
    call = ("--problems", path, "--arch", "gfx950", "--consumer", "aiter")
    assert run(["export", "--to", "aiter", "--arch", "gfx950", "--problems", str(path), "--out", str(out)]) == 0
    code, document = compared(capsys, *call, "--export", out)
    assert (code, only(document)["differences"]) == (ExitCode.OK, [])
    edit_cells(out / "predicted" / path.name.replace("untuned", "tuned"), name, value)
    code, document = compared(capsys, *call, "--export", out)
    assert code == ExitCode.GATE_FAILED
    (difference,) = only(document)["differences"]
    assert difference["problem"].endswith("_m16_n9216_k4096")
    assert difference["consumer"].endswith(consumer or value)


def test_aiter_finds_padded_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without its own row, M = 15 uses that of 16: the result of the lookup is compared."""
    path, out = tmp_path / "a8w8_untuned_gemm.csv", tmp_path / "out"
    path.write_text("M,N,K\n16,1280,8192\n")
    assert run(["export", "--to", "aiter", "--arch", "gfx950", "--problems", str(path), "--out", str(out)]) == 0
    path.write_text("M,N,K\n15,1280,8192\n")
    edit_cells(out / "predicted" / "a8w8_tuned_gemm.csv", "splitK", "7")
    code, document = compared(capsys, "--problems", path, "--arch", "gfx950", "--consumer", "aiter", "--export", out)
    assert code == ExitCode.GATE_FAILED
    assert only(document)["differences"][0]["consumer"].endswith("_splitk7")


def test_a_broken_moe_table_is_detected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tokens are looked up with AITER's padding; the row of 64 with another kernel is wrong for 64 tokens only."""
    path, out = tmp_path / "untuned_fmoe.csv", tmp_path / "out"
    names = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1"
    types = "torch.bfloat16,torch.float8_e4m3fn,torch.float8_e4m3fn,QuantType.per_1x128,1,0"
    rows = [f"{tokens},7168,256,256,8,ActivationType.Silu,{types}" for tokens in (64, 7)]
    # Kernels of this kind have an older name in ckh's list.
    rows.append("512,6144,4096,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0")
    path.write_text("\n".join([names, *rows, ""]))
    call = ("--problems", path, "--op", "aiter_moe", "--arch", "gfx950", "--consumer", "aiter")
    assert run(["export", "--to", "aiter", "--arch", "gfx950", "--problems", str(path), "--out", str(out)]) == 0
    code, document = compared(capsys, *call, "--export", out)
    assert (code, only(document)["compared"], only(document)["differences"]) == (ExitCode.OK, 3, [])
    edit_cells(out / "predicted" / "tuned_fmoe.csv", "kernelName2", "moe_another", row=1)
    code, document = compared(capsys, *call, "--export", out)
    assert code == ExitCode.GATE_FAILED
    (difference,) = only(document)["differences"]
    assert "_t64_" in difference["problem"]
    assert difference["consumer"] == difference["ckh"].partition("+")[0] + "+moe_another"


@dataclass
class FakeTemplate:
    """A template with CK instances."""

    input_nodes: Sequence[Any]
    layout: Any = None

    def gen_ops(self) -> list[CkOp]:
        """Instances of a few tiles, smallest first."""
        sizes = ((64, 64, 1, 1), (128, 128, 2, 2), (256, 256, 4, 4))
        return [tiled(*size, a_element_dtype="BF16") for size in sizes]


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacements for the parts of PyTorch that ckh's hook uses."""
    rocm = SimpleNamespace(ck_tile_max_profiling_configs=None, ck_max_profiling_configs=None)

    @contextmanager
    def patch(_changes: dict[str, Any]) -> Iterator[None]:
        yield

    def buffer(*, name: str, layout: Any) -> SimpleNamespace:
        del name
        return SimpleNamespace(get_layout=lambda: layout)

    parts: dict[str, dict[str, Any]] = {
        "torch": {"device": str, "bfloat16": "bfloat16"},
        "torch._inductor": {},
        "torch._inductor.config": {"rocm": rocm, "patch": patch},
        "torch._inductor.ir": {
            "Buffer": buffer,
            "FixedLayout": lambda _device, _dtype, size, _strides: SimpleNamespace(size=size),
        },
        "torch._inductor.codegen": {},
        "torch._inductor.codegen.rocm": {},
    }
    for module, name, _ in inductor._TEMPLATES:
        template = type(name, (FakeTemplate,), {})
        parts[f"torch._inductor.codegen.rocm.{module}"] = {name: template}
    for name, values in parts.items():
        made = ModuleType(name)
        made.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, made)


def test_a_broken_hook_is_detected(
    torch: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first instance is ckh's first of Inductor's kernels; with a hook that puts them last it is another."""
    path = tmp_path / "gemms.csv"
    path.write_text("m,n,k\n4096,4096,4096\n8192,8192,4096\n")
    call = (
        "--problems",
        path,
        "--op",
        "gemm_universal",
        "--dtype",
        "bf16",
        "--arch",
        "gfx90a",
        "--consumer",
        "inductor",
    )
    code, document = compared(capsys, *call)
    assert (code, only(document)["compared"], only(document)["differences"]) == (ExitCode.OK, 2, [])
    out = tmp_path / "choices"
    assert (
        run(["export", "--to", "inductor", "--arch", "gfx950", "--model", str(CONV), "--out", str(out)]) == ExitCode.OK
    )
    code, document = compared(capsys, *call, "--arch", "gfx950", "--export", out)  # a model of convolutions
    assert (code, len(only(document)["differences"])) == (ExitCode.GATE_FAILED, 2)
    order = inductor._ranked
    monkeypatch.setattr(inductor, "_ranked", lambda *args: order(*args)[::-1])
    code, document = compared(capsys, *call)
    assert code == ExitCode.GATE_FAILED
    assert [item["problem"] for item in only(document)["differences"]] == [
        GemmProblem(*sizes, "bf16").canonical() for sizes in ((4096, 4096, 4096), (8192, 8192, 4096))
    ]


def test_untestable_exports_are_not_reported_equal(
    layers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a compiler nothing was compared: exit code 3, a line with the reason, and no verdict of equality."""
    monkeypatch.setenv("CC", "no-such-compiler")
    code, document = compared(capsys, "--problems", layers, "--model", "model", "--consumer", "c")
    assert (code, document["passes"], document["failures"]) == (ExitCode.NO_DEVICE, False, [])
    assert (only(document)["compared"], list(only(document)["not_compared"].values())) == (0, [3])
    assert "no-such-compiler" in next(iter(only(document)["not_compared"]))


def test_estimates_are_not_exported_to_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GEMMs answered by an estimate have no model to export; the dispatcher's headers are requested."""
    path = tmp_path / "gemms.csv"
    path.write_text("m,n,k\n16,1024,4096\n")
    call = ("--problems", path, "--op", "gemm_universal", "--dtype", "bf16", "--arch", "gfx90a")
    code, document = compared(capsys, *call)
    assert (code, document["passes"]) == (ExitCode.NO_DEVICE, False)
    assert [(item["consumer"], item["compared"]) for item in document["consumers"]][:2] == [
        ("c", 0),
        ("ck-dispatcher", 0),
    ]


@pytest.mark.parametrize(
    ("args", "code", "values"),
    [
        (["--consumer", "vllm"], "unknown-name", ["vllm"]),
        (["--export", "list.txt"], "not-an-export", ["list.txt"]),
        (["--consumer", "aiter"], "no-consumer", ["aiter"]),
        (["--consumer", "ck-dispatcher"], "no-consumer", ["ck-dispatcher"]),
        (["--consumer", "ck-dispatcher", "--dispatcher", "."], "no-consumer", ["ck-dispatcher"]),
    ],
)
def test_bad_input_is_one_line(
    layers: Path, args: list[str], code: str, values: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown consumers, invalid folders, and consumers that cannot be compared."""
    done = run(["validate", "parity", "--problems", str(layers), "--model", "model", *args])
    assert done not in (ExitCode.OK, ExitCode.GATE_FAILED)
    expect_error(capsys.readouterr().err, code, *values)
