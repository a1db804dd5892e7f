"""Fallback lists, of which the first applicable kernel is taken, have the best order found by insertion."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.bench.planning.registry import read_registry
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.export.kernel_lists import ordered_list
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model
from ckh.ops import operation
from ckh.ops.grouped_conv.problem_sets import load_problems

MODEL = "grouped_conv_forward_bf16_gfx950"
ROOT = Path(__file__).parents[2]


def worth(order: tuple[int, ...], efficiency: np.ndarray, applies: np.ndarray) -> float:
    """The mean efficiency of a list over the problems."""
    total = 0.0
    for speeds, there in zip(efficiency, applies, strict=True):
        total += next((float(speeds[kernel]) for kernel in order if there[kernel]), 0.0)
    return total / len(efficiency)


@pytest.mark.parametrize("seed", range(8))
def test_the_greedy_order_is_nearly_optimal(seed: int) -> None:
    """Its efficiency is that of "first fit", and within 2% of the best of all lists of four kernels."""
    draw = np.random.default_rng(seed)
    efficiency = draw.uniform(0.2, 1.0, (12, 5))
    applies = draw.random((12, 5)) < np.array([1.0, 0.7, 0.5, 0.3, 0.2])
    result = ordered_list(efficiency, applies, 4)
    assert result.efficiency == pytest.approx(worth(result.kernels, efficiency, applies))
    best = max(worth(o, efficiency, applies) for count in range(1, 5) for o in permutations(range(5), count))
    assert best * 0.98 <= result.efficiency <= best + 1e-12
    alone = [worth((kernel,), efficiency, applies) for kernel in range(5)]
    assert result.single == int(np.argmax(alone))
    assert result.single_efficiency == pytest.approx(max(alone))


def test_a_specialized_kernel_precedes_a_general_one() -> None:
    """A faster kernel that supports few problems comes first; a kernel without remaining problems is omitted."""
    efficiency = np.array([[0.5, 1.0, 0.4], [0.9, 0.1, 0.4]])
    applies = np.array([[True, True, True], [True, False, True]])
    result = ordered_list(efficiency, applies, 9)
    assert result.kernels == (1, 0)
    assert result.efficiency == pytest.approx(0.95)
    assert result.covered == 2
    assert ordered_list(efficiency, applies, 1).kernels == (0,)


def test_a_list_of_predictions_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The efficiency in JSON is that of first fit by the model's speeds; the file reads back in its order."""
    (tmp_path / "p.txt").write_text(
        "\n".join(f"conv_forward_bf16_nhwgc_2d_n4_c{c}_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1" for c in (8, 64, 256)) + "\n"
    )
    problems = load_problems(str(tmp_path / "p.txt"), None, None, "bf16")
    command = ["export", "--to", "amd-registry", "--ordered", "--problems", str(tmp_path / "p.txt")]
    command += ["--model", str(ROOT / "models" / MODEL), "--out", str(tmp_path / "out"), "--json"]
    assert run(command) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    registry = read_registry(tmp_path / "out" / "registry_forward_2d_bf16.json", operation("grouped_conv"))
    assert [operation("grouped_conv").kernels.name(kernel) for kernel in registry.kernels] == document["kernels"]
    model, total = load_model(ROOT / "models" / MODEL), 0.0
    for problem in problems:
        speeds = {candidate.kernel: candidate.tflops for candidate in ranking_of(problem, model).ranked}
        first = next(kernel for kernel in registry.kernels if kernel in speeds)
        total += speeds[first] / max(speeds.values())  # type: ignore[operator,type-var]
    result = document["ordered"]
    assert result["efficiency"] == pytest.approx(total / len(problems))
    assert result["single_efficiency"] <= result["efficiency"] + 1e-12 <= result["oracle"] + 2e-12 == pytest.approx(1)
    assert (result["problems"], result["covered"], result["basis"]) == (3, 3, "predicted, not measured")


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
    assert document["ordered"] is None


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (["--data", "x"], ExitCode.USAGE, "--data is for --ordered"),
        ([], ExitCode.USAGE, "needs --problems or --registry"),
        (["--registry", "x", "--ordered"], ExitCode.USAGE, "--registry determines the kernels"),
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
