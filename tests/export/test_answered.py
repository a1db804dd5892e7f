"""Lists of kernels for AMD's tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ckh.archs import load_arch
from ckh.bench.planning.registry import read_registry
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model
from ckh.ops import operation

MODEL = "grouped_conv_forward_bf16_gfx950"
ROOT = Path(__file__).parents[2]


def test_the_best_kernels_are_written_with_the_smallest_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The registry has exactly the first two of each problem; the configuration states how many it describes."""
    text = "conv_forward_bf16_nhwgc_2d_n4_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1"
    (tmp_path / "p.txt").write_text(text + "\n")
    command = ["export", "--to", "amd-registry", "--problems", str(tmp_path / "p.txt"), "--top", "2"]
    model = str(ROOT / "models" / MODEL)
    assert run([*command, "--model", model, "--out", str(tmp_path / "out"), "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    problem = operation("grouped_conv").problems.parse(text)
    best = [item.name for item in ranking_of(problem, load_model(Path(model))).best(2)]
    assert document["kernels"] == best
    path = tmp_path / "out" / "config_forward_2d_bf16.json"
    built = read_registry(path, operation("grouped_conv")).built(load_arch("gfx950"), "bf16")
    assert document["described"]["config_forward_2d_bf16.json"] == {"form": "configuration", "kernels": len(built)}


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (["--data", "x"], ExitCode.USAGE, "--data is not supported by --to amd-registry"),
        ([], ExitCode.USAGE, "needs --problems or --registry"),
        (["--registry", "x", "--problems", "resnet50"], ExitCode.USAGE, "--registry determines the kernels"),
        (["--problems", "resnet50", "--embed"], ExitCode.USAGE, "--embed is not supported by --to amd-registry"),
        (["--op", "aiter_gemm", "--problems", "resnet50"], ExitCode.USAGE, "have no kernels of aiter_gemm"),
    ],
)
def test_wrong_options_write_nothing(
    options: list[str], code: int, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is refused in one line, and no folder is created."""
    command = ["export", "--to", "amd-registry", "--arch", "gfx950", "--dtype", "bf16", "--out", str(tmp_path / "out")]
    assert run([*command, *options]) == code
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
