"""Walks of three newcomers, by commands that the docs print: CI with JSON, a model to a table, a DataFrame."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ckh
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode

DOCS = Path(__file__).parents[1] / "docs"
MODEL = Path(__file__).parents[1] / "models" / "grouped_conv_forward_bf16_gfx950"
GEMM = "gemm_fp16_rcr_mem_default_interwave_False_False_False_False_64x64x64_4x1x1_16x16x16"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, without anything of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CKH_MODELS", raising=False)
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "")


def printed(page: str, start: str) -> list[str]:
    """The only command of a page that starts like this, as arguments of `run`."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    (line,) = {line for line in lines if line.startswith(f"ckh {start}")}
    return shlex.split(line, comments=True)[1:]


def document(args: list[str], capsys: pytest.CaptureFixture[str], code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    """The JSON document of a command."""
    capsys.readouterr()
    assert run(args) == code
    loaded: dict[str, Any] = json.loads(capsys.readouterr().out)
    return loaded


@pytest.mark.slow
def test_choices_in_ci(capsys: pytest.CaptureFixture[str]) -> None:
    """A list of layers has choices in JSON, which become golden ones; a changed one fails."""
    Path("layers.csv").write_text("N,C,K,Hi,Wi,Y,X,pad_h,pad_w\n16,256,256,28,28,3,3,1,1\n8,64,128,56,56,1,1,0,0\n")
    Path("models").mkdir()
    Path("models/current").symlink_to(MODEL)
    results = document(printed("predict.md", "predict --problems layers.csv"), capsys)["results"]
    best = {result["problem"]: result["kernels"][0]["kernel"] for result in results}
    assert len(best) == 2
    assert all(result["not_measured"] is None for result in results)
    assert run(printed("ci.md", "validate selection golden.json --create --problems")) == ExitCode.OK
    golden = json.loads(Path("golden.json").read_text())
    assert golden["kernels"] == best
    gate = ["validate", "selection", "golden.json", "--model", "models/current", "--json"]
    document(gate, capsys)
    first = next(iter(best))
    golden["kernels"][first] = ckh.answer(first, 2, model=MODEL).kernels[1].kernel  # which nobody measured here
    Path("golden.json").write_text(json.dumps(golden))
    document(gate, capsys, ExitCode.GATE_FAILED)


@pytest.mark.slow
def test_a_model_to_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The products of a layer on eight GPUs, by hand, are rows of AITER's table."""
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096}
    config |= {"intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 2}
    config |= {"vocab_size": 128256, "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}
    Path("config.json").write_text(json.dumps(config))
    assert run(printed("shapes.md", "shapes config.json --tp 8 --out")) == ExitCode.OK
    layer = {(768, 4096), (4096, 512), (3584, 4096), (4096, 1792)}  # N and K of qkv, output, gate and up, down
    shapes = pd.read_csv("shapes.csv")
    assert layer <= set(zip(shapes["n"], shapes["k"], strict=True))
    export = printed("shapes.md", "export --to aiter --op aiter_gemm")
    export[export.index("config.json")] = "shapes.csv"
    assert run(export) == ExitCode.OK
    tables = [pd.read_csv(path) for path in Path("tuned").rglob("*.csv")]
    assert layer <= {pair for table in tables if "N" in table for pair in zip(table["N"], table["K"], strict=True)}


def test_a_data_frame_to_a_dataset() -> None:
    """A frame with other column names is the same dataset by `convert` and in Python."""
    frame = pd.DataFrame({"name": [GEMM] * 2, "m": [1024, 64], "n": [1024, 512], "k": [1024, 512], "time": [11.0, 2.0]})
    frame.to_csv("mine.csv", index=False)
    assert run(printed("loop.md", "convert mine.csv --op gemm_universal")) == ExitCode.OK
    mapping = {"kernel": "name", "latency_us": "time"}
    made = ckh.Dataset.from_frame(frame, op="gemm_universal", arch="gfx942", mapping=mapping)
    converted = read_dataset(Path("mine.parquet")).frame
    for columns in (made.frame, converted):
        assert columns["latency_ms"].tolist() == [0.011, 0.002]
        assert columns["tflops"].tolist() == pytest.approx([2 * 1024**3 / 11e-6 / 1e12, 2 * 64 * 512**2 / 2e-6 / 1e12])
