"""Every command in a folder of planted modules and programs, none of which runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckh.cli import COMMANDS
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode
from tests.isa.keep import LEAST, code
from tests.planted import plant, ran

ROOT = Path(__file__).parents[1]
_MODEL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "torch_dtype": "bfloat16",
}
_AMD = str(ROOT / "tests" / "amd_files" / "training_data_forward_bf16_20.csv")
_MODEL_OF_GPU = str(ROOT / "models" / "grouped_conv_forward_bf16_gfx950")
_CONV = ("--n", "1", "--c", "8", "--k", "8", "--hi", "8", "--arch", "host")
_RUNS = {
    "shapes": ("config.json",),
    "doctor": (),
    "tune": ("config.json", "--out", "tuned", "--dry-run", "--arch", "gfx942"),
    "bench": ("--device", "host", "--problems", "problems.txt", "--kernels", "sample:1", "--out", "run"),
    "convert": (_AMD, "--arch", "gfx950", "--out", "converted.parquet"),
    "train": ("--data", "data.parquet", "--out", "model", "--trees", "3", "--folds", "0"),
    "evaluate": ("--model", _MODEL_OF_GPU, "--data", "data.parquet", "--with-trained"),
    "predict": (*_CONV, "--probe", "1"),
    "explain": (LEAST, "--code-object", "kernel.co"),
    "search": (*_CONV[:-1], "gfx950"),
    "validate": ("parity", "--problems", "resnet50", "--arch", "gfx950", "--dtype", "bf16"),
    "report": ("data.parquet", "--plots", "plots"),
    "export": ("--model", _MODEL_OF_GPU, "--to", "c", "--out", "exported"),
    "help": ("gpu",),
}


def test_every_command_is_tried() -> None:
    """A new command gets a line here."""
    assert _RUNS.keys() == COMMANDS.keys()


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of six problems."""
    data = read_dataset(ROOT / "data" / "amd-gfx950-conv-20kernels.parquet")
    data.select(data.problem_ids < 6).write(path := tmp_path_factory.mktemp("few") / "data.parquet")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("command", _RUNS)
def test_a_command_runs_nothing_of_the_current_folder(
    command: str, tmp_path: Path, few: Path, emulator_build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither modules with the names of imported ones, nor programs and headers by empty entries of search paths."""
    folder, script = tmp_path / "downloaded", tmp_path / "ckh"
    folder.mkdir()
    plant(folder)
    script.write_text("from ckh.entry import main\nmain()\n", encoding="utf-8")  # as the installed command
    (folder / "config.json").write_text(json.dumps(_MODEL), encoding="utf-8")
    problem = "conv_forward_fp32_nhwgc_2d_n1_c8_k8_g1_i8x8_f3x3_s1x1_p1x1_d1x1"
    (folder / "problems.txt").write_text(problem + "\n", encoding="utf-8")
    shutil.copy(few, folder)
    code(LEAST, folder).rename(folder / "kernel.co")
    cache = shutil.copytree(emulator_build, tmp_path / "cache", symlinks=True)
    monkeypatch.setenv("CKH_CACHE_DIR", str(cache))
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))  # without probes of before
    monkeypatch.setenv("PATH", f":{os.environ['PATH']}")
    monkeypatch.setenv("CPATH", ":")
    done = subprocess.run(
        [sys.executable, script, command, *_RUNS[command]], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran(folder) == []
    assert done.returncode == ExitCode.OK, done.stderr
