"""`ckh validate` on the command line."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.cli import run
from ckh.commands import validate
from ckh.data.dataset import read_dataset, write_dataset
from ckh.errors import ExitCode
from ckh.learn.models.manifest import problem_id
from ckh.ops.grouped_conv.features import NAMES_83
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.learn.conftest import amd_model, build, efficiencies, kernels, measured, saved, silent, time_ms
from tests.refusals import expect_error, expect_values, expect_warning

if TYPE_CHECKING:
    from pathlib import Path


LOOSE = ("--fail-under", "mean_efficiency=0", "--fail-under", "p10_efficiency=0")
MEASURED = ("--among", "measured")  # 24 of the 300 candidates were measured


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model that does not state its training problems."""
    return silent(saved(tmp_path / "model"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The training data of the model."""
    path = tmp_path / "data.parquet"
    write_dataset(measured(), path)
    return path


@pytest.fixture
def opposite(tmp_path: Path) -> Path:
    """The same model with negated leaves: it ranks the worst first."""
    path = silent(saved(tmp_path / "opposite")) / "model_rank.lgbm.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    turned = re.sub(
        r"(?m)^leaf_value=(.*)$",
        lambda match: "leaf_value=" + " ".join(repr(-float(value)) for value in match[1].split()),
        text,
    )
    # The trees now have different lengths, which LightGBM detects.
    path.write_bytes(gzip.compress(re.sub(r"(?m)^tree_sizes=.*\n", "", turned).encode()))
    return path.parent


def test_the_oracle_gives_the_verdict(model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are those of a plain loop; a gate just below them passes, one just above fails."""
    result = efficiencies(model)
    args = ["validate", "oracle", *MEASURED, "--model", str(model), "--data", str(data)]
    args += ["--json", "--fail-under=p10_efficiency=0"]
    gate = "--fail-under=mean_efficiency={}".format
    assert run([*args, gate(float(result.mean()) - 1e-9)]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    document = json.loads(stdout)
    assert stderr.splitlines()[-1] == "PASS"
    assert (document["problems"], document["passes"], document["on_device"]) == (14, True, False)
    figures = document["figures"]
    expected = [result.mean(), np.median(result), np.percentile(result, 10), result.min()]
    names = [f"{name} efficiency" for name in ("mean", "median", "P10", "least")]
    assert [figures[name] for name in names] == pytest.approx(expected, rel=1e-12)
    assert figures["mean efficiency of the best of 5"] >= figures["mean efficiency"]
    assert run([*args, gate(float(result.mean()) + 1e-9)]) == ExitCode.GATE_FAILED
    stdout, stderr = capsys.readouterr()
    assert not json.loads(stdout)["passes"]
    assert stderr.splitlines()[-1] == "FAIL"
    expect_warning(stderr, "gate", f"{result.mean():.2%}")


@pytest.mark.parametrize("command", ["oracle", "compare"])
def test_training_data_give_no_verdict(
    command: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither PASS nor a failed gate: the data say nothing about new problems."""
    trained = str(saved(tmp_path / "trained"))
    which = ["--model", trained] if command == "oracle" else [str(silent(saved(tmp_path / "old"))), trained]
    args = ["validate", command, *which, "--data", str(data), "--json"]
    assert run(args) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout)["code"] == "few-problems"
    expect_warning(stderr, "trained-on", 14, 14, trained)
    expect_error(stderr, "few-problems", 0, 10)
    assert "PASS" not in stderr


def test_held_out_problems_give_the_verdict(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of mixed data only the new problems are evaluated, at least as many as --min-problems."""
    path = saved(tmp_path / "partly") / "train_manifest.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["ckh"]["problems"] = [problem_id(problem) for problem in measured().problems()[:3]]
    path.write_text(json.dumps(document), encoding="utf-8")
    args = ["validate", "oracle", *MEASURED, "--model", str(path.parent), "--data", str(data)]
    args += ["--json", "--min-problems"]
    assert run([*args, "11", *LOOSE]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    result = json.loads(stdout)
    assert (result["problems"], result["passes"]) == (11, True)
    expect_warning(stderr, "trained-on", 3, 14)
    assert result["figures"]["mean efficiency"] == pytest.approx(efficiencies(path.parent)[3:].mean(), rel=1e-12)
    assert run([*args, "12"]) == ExitCode.BAD_DATA


def test_a_single_row_gives_no_verdict(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every model is right on a problem with a single measured kernel."""
    item = measured().select(np.array([0]))
    write_dataset(item, tmp_path / "one.parquet")
    args = ["validate", "oracle", *MEASURED, "--model", str(model), "--data", str(tmp_path / "one.parquet")]
    assert run([*args, "--min-problems", "1"]) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    expect_warning(stderr, "single-kernel", 1)
    expect_error(stderr, "few-problems", 0)


def test_the_tenth_percentile_is_a_separate_gate(
    opposite: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that chooses the worst fails on both gates by default, and passes without requirements."""
    args = ["validate", "oracle", *MEASURED, "--model", str(opposite), "--data", str(data)]
    assert run(args) == ExitCode.GATE_FAILED
    stdout, stderr = capsys.readouterr()
    warnings = [line for line in stderr.splitlines() if "efficiency is" in line]
    assert [line.split(" is ")[0] for line in warnings] == ["warning: mean efficiency", "warning: P10 efficiency"]
    assert f"{efficiencies(opposite).mean():.2%}" in stdout
    assert run([*args, *LOOSE]) == ExitCode.OK


@pytest.mark.parametrize(
    "args",
    [
        ["--fail-under", "mean_efficiency=2"],
        ["--fail-under", "speed=0.5"],
        ["--min-mean", "0.5"],
        ["--min-problems", "0"],
        ["--on-device", "--limit", "3"],
    ],
)
def test_invalid_options_are_refused(
    model: Path, data: Path, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused before any measurement."""
    assert run(["validate", "oracle", *MEASURED, "--model", str(model), "--data", str(data), *args]) == ExitCode.USAGE
    assert capsys.readouterr().out == ""


def test_a_model_compared_with_itself_passes(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All choices agree and nothing is lost, so that even zero thresholds pass."""
    nothing = [f"--max-loss={name}=0" for name in ("mean", "median", "p10", "problem")]
    again = silent(saved(tmp_path / "again"))
    args = ["validate", "compare", *MEASURED, str(model), str(again), "--data", str(data), *nothing]
    assert run(args) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    expect_values(stdout, "100.00%", "0 improved", "14 same", "0 degraded")
    assert stderr.splitlines()[-1] == "PASS"
    assert run([*args, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["agreement"], document["passes"], document["degraded"]) == (1.0, True, [])
    old, new = ([item[which] for item in document["differences"]] for which in ("old", "new"))
    assert old == new == pytest.approx([f(efficiencies(model)) for f in (np.mean, np.median, _p10)], rel=1e-12)


def _p10(values: np.ndarray) -> float:
    return float(np.percentile(values, 10))


@pytest.mark.slow
def test_a_worse_model_fails(model: Path, opposite: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict lists losses, worst problem first; the reverse comparison is an improvement."""
    args = ["validate", "compare", *MEASURED, str(model), str(opposite), "--data", str(data)]
    assert run([*args, "--json"]) == ExitCode.GATE_FAILED
    stdout, stderr = capsys.readouterr()
    document = json.loads(stdout)
    pairs = zip(efficiencies(model), efficiencies(opposite), strict=True)
    losses = sorted((1 - after / before for before, after in pairs if after < before), reverse=True)
    assert len(losses) > 7
    result = [1 - item["new_efficiency"] / item["old_efficiency"] for item in document["degraded"]]
    assert result == pytest.approx(losses, rel=1e-9)
    assert (document["passes"], len(document["failures"])) == (False, 4)
    assert [line for line in stderr.splitlines() if "efficiency falls from" in line]
    assert stderr.splitlines()[-1] == "FAIL"
    assert run(args) == ExitCode.GATE_FAILED
    assert "degraded most" in capsys.readouterr().out
    assert run([*args, *(f"--max-loss={name}=1" for name in ("mean", "median", "p10", "problem"))]) == ExitCode.OK
    turned = ["validate", "compare", *MEASURED, str(opposite), str(model), "--data", str(data)]
    assert run([*turned, "--max-loss=problem=1"]) == ExitCode.OK


def test_models_for_different_things_are_not_compared(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model of a GPU cannot replace one of the host."""
    amd_model(tmp_path / "forward", NAMES_83)
    args = ["validate", "compare", *MEASURED, str(tmp_path / "forward"), str(model), "--data", str(data)]
    assert run(args) == ExitCode.USAGE
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    expect_error(stderr, "model-mismatch")


@pytest.mark.parametrize("command", ["oracle", "compare"])
def test_missing_models_are_named(data: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Both verdicts require existing models."""
    folder = str(data.with_name("none"))
    which = ["--model", folder] if command == "oracle" else [folder, folder]
    assert run(["validate", command, *which, "--data", str(data)]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "no-model", folder)


@pytest.mark.slow
def test_choices_are_remeasured_on_the_device(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tiny problems of the host: oracle and two choices are compiled, run and compared."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    first = ConvProblem(Direction.FORWARD, 1, 16, 16, 1, 8, 8, 3, 3, pad_h=1, pad_w=1)
    of = kernels()[:3]
    rows = [(item, kernel, time_ms(item, kernel)) for item in (first, replace(first, n=2)) for kernel in of]
    write_dataset(build(rows), tmp_path / "tiny.parquet")
    args = ["validate", "oracle", *MEASURED, "--model", str(model), "--data", str(tmp_path / "tiny.parquet")]
    monkeypatch.setattr(validate, "_SAMPLE", 2)
    args += ["--on-device"]
    assert run([*args, "--min-problems", "2", *LOOSE, "--json"]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    document = json.loads(stdout)
    assert (document["on_device"], document["problems"]) == (True, 2)
    figures = document["figures"]
    assert 0 < figures["least efficiency"] <= figures["mean efficiency"] <= 1
    assert figures["mean efficiency"] <= figures["mean efficiency of the best of 5"] <= 1
    assert 0 < figures["mean efficiency of the oracle's kernel"] <= 1
    assert figures["mean efficiency, by the estimated best of all"] <= figures["mean efficiency"]
    expect_values(document["notes"][0], 2, 300, 5)
    assert "at most 77." in document["notes"][1] or "at most 76." in document["notes"][1]
    assert stderr.splitlines()[-1] == "PASS"
    expect_warning(stderr, "trained-on", model, "a test")


def test_a_model_of_another_machine_is_not_measured_here(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the model's GPU there is no device to measure on."""
    amd_model(tmp_path / "forward", NAMES_83)
    frame = read_dataset(data).frame.assign(arch="gfx950", dtype="bf16")
    write_dataset(type(measured())(frame), data)
    args = ["validate", "oracle", *MEASURED, "--model", str(tmp_path / "forward"), "--data", str(data), "--on-device"]
    assert run(args) == ExitCode.NO_DEVICE
    assert capsys.readouterr().out == ""
