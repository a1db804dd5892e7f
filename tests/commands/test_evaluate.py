"""`ckh evaluate` on the command line."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ckh.assess.report import COPY, NEW
from ckh.cli import run
from ckh.data import parts
from ckh.data.dataset import read_dataset, write_dataset
from ckh.data.parquet import DatasetFile
from ckh.errors import ExitCode
from ckh.learn.models.manifest import training_files
from ckh.problems import Direction
from ckh.schema import REPEATED
from tests.learn.conftest import build, efficiencies, kernels, measured, problems, saved, time_ms
from tests.refusals import expect_error, expect_values, expect_warning

ROOT = Path(__file__).parents[2]
MEASURED = ("--among", "measured")  # 24 of the 300 candidates were measured


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model."""
    return saved(tmp_path / "model")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The training data of the model."""
    path = tmp_path / "data.parquet"
    write_dataset(measured(), path)
    return path


@pytest.fixture
def call(model: Path, data: Path) -> list[str]:
    """The evaluation of the model on its training data."""
    return ["evaluate", *MEASURED, "--model", str(model), "--data", str(data)]


def test_the_table_shows_total_and_slices(
    call: list[str], model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model's line has the mean and percentiles of a plain loop; baselines, first k and slices follow."""
    assert run([*call, "--with-trained"]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    lines = [line.split() for line in stdout.splitlines()]
    (line,) = [line for line in lines if line and line[0] == "model"]
    expected = efficiencies(model)
    assert f"{model}: 336 rows, 14 problems" in stdout
    assert line[1] == f"{expected.mean():.2%}"
    assert line[-3:] == [f"{np.percentile(expected, q):.2%}" for q in (10, 5, 0)]
    for words in (
        "random kernel (expected)",
        "first k choices",
        "stride: strided",
        "pipeline: mem",
        "groups: depthwise",
    ):
        assert words in stdout
    assert "nearest training problem" not in stdout
    assert "best fixed kernel" in stdout
    assert "--train-data\n" in stdout
    assert len(stderr.splitlines()) == 1
    expect_warning(stderr, "trained-on", 14, 14, model)


@pytest.mark.slow
def test_training_data_are_located(
    call: list[str], model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single file is found by its digest, several by their source; the table states if they differ."""
    args = [*call, "--with-trained"]
    assert run([*args, "--train-data", str(data)]) == ExitCode.OK
    named = capsys.readouterr().out
    assert "nearest training problem" in named
    path = model / "train_manifest.json"
    manifest = json.loads(path.read_text())
    manifest["ckh"]["data_sha256"] = DatasetFile(data).sha256
    path.write_text(json.dumps(manifest))
    assert run(args) == ExitCode.OK
    shown = capsys.readouterr()
    assert shown.out == named
    expect_values(shown.err, data)
    whole = measured()
    half = whole.problem_ids < 7
    folder = data.parent / "parts"
    folder.mkdir()
    for name, rows in (("a", half), ("b", ~half)):
        origin = {"name": name, "format": "journal", "sha256": name}
        part = replace(whole.select(rows), metadata={**whole.metadata, "sources": [origin]})
        write_dataset(part, folder / f"{name}.parquet")
    manifest["ckh"] |= {"data_sha256": "0", "sources": [{"sha256": "a"}, {"sha256": "b"}]}
    path.write_text(json.dumps(manifest))
    files = tuple(folder / f"{name}.parquet" for name in "ab")
    assert training_files(model, [folder]) == files
    assert training_files(model, [data.parent]) == ()
    files[0].unlink()
    assert training_files(model, [folder]) == ()
    assert run(args) == ExitCode.OK
    assert "nearest training problem" not in capsys.readouterr().out


def test_json_has_every_figure(call: list[str], model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One document: figures, trained baselines, and the choices, worst first."""
    assert run([*call, "--train-data", str(data), "--json", "--with-trained"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    expected = efficiencies(model)
    assert document["figures"]["mean_efficiency"] == pytest.approx(expected.mean(), rel=1e-12)
    assert document["figures"]["min_efficiency"] == expected.min()
    assert [item["efficiency"] for item in document["choices"]] == pytest.approx(sorted(expected))
    # The nearest problem of the same data is the problem itself.
    assert document["baselines"]["nearest training problem"]["mean"]["value"] == 1.0
    assert document["baselines"]["random kernel (expected)"]["mean"]["value"] < expected.mean()
    assert (document["rows"], document["failures"]) == (14 * 24, [])


def test_scores_with_the_estimate_rank_measured_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The estimate depends on the compute units of the data's GPU, which are read with the times."""
    data = read_dataset(ROOT / "data" / "amd-gfx950-conv-20kernels.parquet")
    write_dataset(data.select(data.problem_ids < 3), tmp_path / "few.parquet")
    model = str(ROOT / "models" / "grouped_conv_forward_bf16_gfx950")
    args = [
        "evaluate",
        *MEASURED,
        "--model",
        model,
        "--data",
        str(tmp_path / "few.parquet"),
        "--with-trained",
        "--json",
    ]
    assert run(args) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["coverage"]["problems"] == 3


@pytest.mark.slow
def test_slices_change_no_figure(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in random order in two files give the same document read at once and in parts, to the last digit."""
    whole, random = measured(), np.random.default_rng(3)
    twice = {name: whole.frame["latency_ms"] * np.exp(random.normal(0, 0.1, len(whole))) for name in REPEATED}
    whole = replace(whole, frame=whole.frame.assign(**twice))
    files = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    for path, rows in zip(files, np.array_split(random.permutation(len(whole)), 2), strict=True):
        write_dataset(whole.select(rows), path)
    args = ["evaluate", *MEASURED, "--model", str(model), "--with-trained", "--json"]
    args += [word for path in files for word in ("--data", path, "--train-data", path)]
    assert run(args) == ExitCode.OK
    at_once = capsys.readouterr()
    monkeypatch.setattr(parts, "PART_ROWS", 50)
    assert run(args) == ExitCode.OK
    in_parts = capsys.readouterr()
    assert in_parts == at_once
    assert json.loads(at_once.out)["ceiling"]["problems"] > 0


def test_the_worst_choices_are_listed(call: list[str], model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--worst lists as many, in ascending order, and truncates the choices of --json."""
    args = [*call, "--with-trained", "--worst", "3"]
    assert run(args) == ExitCode.OK
    listed = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("conv_forward_")]
    assert [line[1] for line in listed] == [f"{efficiency:.2%}" for efficiency in sorted(efficiencies(model))[:3]]
    assert run([*args, "--json"]) == ExitCode.OK
    assert len(json.loads(capsys.readouterr().out)["choices"]) == 3


def test_gates(call: list[str], model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A figure below its gate gives exit code 1 and a warning; at its gate it passes."""
    least = float(efficiencies(model).min())
    args = [*call, "--json", "--with-trained", "--fail-under"]
    assert run([*args, f"min_efficiency={least!r}", "--fail-under", "mean_efficiency=0.5"]) == ExitCode.OK
    assert "all gates passed" in capsys.readouterr().err
    assert run([*args, f"min_efficiency={least + 1e-6!r}", "--fail-under", "mean_efficiency=0.5"]) == 1
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout)["failures"] == [f"min_efficiency is {least:.4f}, under {least + 1e-6:g}"]
    assert f"warning: min_efficiency is {least:.4f}" in stderr
    assert "all gates passed" not in stderr


def test_figures_of_few_choices_are_no_headline(call: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Of all candidates few choices were measured: the row of measured kernels is first, and every gate fails."""
    every = ["evaluate", *call[3:], "--with-trained"]
    assert run([*every, "--fail-under", "coverage=0", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    judged = document["efficiency"]["problems"]
    assert document["figures"]["coverage"] < 0.5
    assert run(every) == ExitCode.OK
    rows = [line for line in capsys.readouterr().out.splitlines() if " of 14 " in line]
    assert rows[0].split()[:6] == ["best-ranked", "measured", "kernel", "14", "of", "14"]
    assert rows[1].split()[:4] == ["model", str(judged), "of", "14"]
    gate = ["--min-problems", "1", "--fail-under", "mean_efficiency=0"]
    assert run([*every, *gate]) == ExitCode.GATE_FAILED
    expect_warning(capsys.readouterr().err, "gate", "coverage", "under 0.8")
    assert run([*call, "--with-trained", *gate]) == ExitCode.OK  # among the measured ones


@pytest.mark.slow
def test_a_gate_ignores_training_data(call: list[str], data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Training problems are left out, and too few others give no verdict; --with-trained gives a warning."""
    gate = ["--fail-under", "mean_efficiency=0"]
    args = [*call, "--json"]
    assert run([*args, *gate]) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout)["code"] == "few-problems"
    expect_error(stderr, "few-problems", 0, 10)
    assert run([*args, *gate, "--with-trained"]) == ExitCode.OK
    expect_warning(capsys.readouterr().err, "trained-on", 14, 14)
    frame = measured().frame.assign(N=measured().frame["N"] + 100)
    write_dataset(type(measured())(frame), data.with_name("new.parquet"))
    assert run([*args, "--data", str(data.with_name("new.parquet")), *gate]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout)["efficiency"]["problems"] == 14
    expect_warning(stderr, "trained-on", 14, 28)
    assert run([*args, "--min-problems", "3"]) == ExitCode.USAGE
    assert "--min-problems needs a gate" in capsys.readouterr().err


def test_a_holdout_in_the_training_data_is_refused(
    call: list[str], model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also without a gate: evaluation needs new problems, and mixed data are evaluated on those."""
    args = [*call, "--json"]
    assert run(args) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout)["code"] == "trained-on-all"
    expect_error(stderr, "trained-on-all", model, 14)
    new = [replace(problem, n=problem.n + 100, c=2 * problem.c, k=2 * problem.k) for problem in problems()[:3]]
    rows = [(item, kernel, time_ms(item, kernel)) for item in new for kernel in kernels(ndim=2)]
    write_dataset(build(rows), data.with_name("new.parquet"))
    assert run([*args, "--data", str(data.with_name("new.parquet"))]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["efficiency"]["problems"] == 3


def test_the_same_layer_at_another_batch_is_held_out(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Problems that differ from training ones only in the batch are a slice, those of other layers another."""
    copies = [replace(problem, n=problem.n + 100) for problem in problems()[:3]]
    others = [replace(copies[0], c=40), replace(copies[1], k=24)]
    rows = [(copy, kernel, time_ms(copy, kernel)) for copy in (*copies, *others) for kernel in kernels()]
    write_dataset(build(rows), tmp_path / "new.parquet")
    args = ["evaluate", *MEASURED, "--model", str(model), "--data", str(tmp_path / "new.parquet"), "--json"]
    assert run(args) == ExitCode.OK
    result = {load["name"]: load["problems"] for load in json.loads(capsys.readouterr().out)["slices"]}
    assert (result[COPY], result[NEW]) == (3, 2)


def test_unstable_data_are_refused(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Above a share of unstable times there is no evaluation, and the message states the share and a remedy."""
    frame = measured().frame.assign(N=measured().frame["N"] + 100)
    rows = np.flatnonzero(frame["is_valid"])[::2]
    frame.loc[rows, "status"] = "unstable"
    share = len(rows) / int(frame["is_valid"].sum())
    write_dataset(type(measured())(frame), tmp_path / "loaded.parquet")
    args = ["evaluate", *MEASURED, "--model", str(model), "--data", str(tmp_path / "loaded.parquet"), "--json"]
    assert run(args) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout)["code"] == "unsteady"
    expect_error(stderr, "unsteady", f"{share:.2%}", "--max-unstable")
    assert run([*args, "--max-unstable", "0.6"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["unstable"] == pytest.approx(share)


def test_the_worst_choices_have_a_command_to_remeasure_them(
    call: list[str], model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The printed command, run by a shell, writes the problems and plans a bench of them with all kernels."""
    args = [*call, "--with-trained", "--worst", "2"]
    assert run(args) == ExitCode.OK
    (line,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("measure them again: ")]
    write, bench = line.removeprefix("measure them again: ").split(" && ")
    subprocess.run(["/bin/sh", "-c", write], cwd=data.parent, check=True)
    (listed,) = data.parent.glob("worst-*.txt")
    problems = listed.read_text(encoding="utf-8").split()
    ranked = sorted(zip(efficiencies(model), measured().problems(), strict=True), key=lambda item: item[0])
    assert problems == [problem.canonical() for _, problem in ranked[:2]]
    words = [str(listed) if word == listed.name else word for word in shlex.split(bench)[1:]]
    assert words[-1] == f"runs/{listed.stem}"
    assert run([*words, "--dry-run", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["problems"] == 2


@pytest.mark.parametrize(
    ("gate", "code", "value"),
    [
        ("speed=1", "unknown-name", "'speed'"),
        ("mean=0.5", "unknown-name", "'mean'"),
        ("problems=3", "unknown-name", "'problems'"),
        ("mean_efficiency=high", "out-of-range", "'high'"),
        ("mean_efficiency=", "out-of-range", "''"),
        ("mean_efficiency", "out-of-range", "''"),
        ("mean_efficiency=nan", "out-of-range", "'nan'"),
        ("mean_efficiency=95", "out-of-range", "'95'"),
    ],
)
def test_invalid_gates_are_refused(
    call: list[str], gate: str, code: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused, so that no gate passes by accident."""
    assert run([*call, "--fail-under", gate]) == ExitCode.USAGE
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    expect_error(stderr, code, value)


def test_held_out_problems_give_no_warning(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no warning if no problem was trained on; for training data of baselines, training is expected."""
    frame = measured().frame.assign(N=measured().frame["N"] + 100)
    write_dataset(type(measured())(frame), tmp_path / "new.parquet")
    write_dataset(measured(), tmp_path / "old.parquet")
    data = ["--data", str(tmp_path / "new.parquet"), "--train-data", str(tmp_path / "old.parquet")]
    assert run(["evaluate", *MEASURED, "--model", str(model), *data]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    assert stderr == ""
    assert "nearest training problem" in stdout


def test_rows_of_other_directions_are_skipped(model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Mixed data are evaluated on the model's direction, with a note; data without it are an error."""
    other = data.with_name("other.parquet")
    rows = [(problem, kernel, time_ms(problem, kernel)) for problem in problems()[:2] for kernel in kernels()[:4]]
    turned = [(item.replaced(variant=Direction.BWD_DATA), kernel, ms) for item, kernel, ms in rows]
    write_dataset(build(turned), other)
    args = ["evaluate", *MEASURED, "--model", str(model), "--json", "--with-trained"]
    assert run([*args, "--data", str(data), "--data", str(other)]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout)["rows"] == 14 * 24
    expect_warning(stderr, "left-out", 8, "grouped_conv forward fp32 on host")
    assert run([*args, "--data", str(other)]) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout)["code"] == "model-mismatch"
    expect_error(stderr, "model-mismatch", "grouped_conv forward fp32", "grouped_conv bwd_data")


def test_a_model_without_its_training_problems(
    call: list[str], model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own training data are evaluated as if they were new, with a warning that this is unknown."""
    (model / "train_manifest.json").write_text("{}", encoding="utf-8")
    assert run(call) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    assert "14 problems" in stdout
    expect_warning(stderr, "unknown-training-data", model)
    assert stderr.count("[unknown-training-data]") == 1


def test_a_missing_or_damaged_model(
    call: list[str], model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are reported in one line with exit code 4."""
    assert run(["evaluate", *MEASURED, "--model", str(model / "none"), "--data", str(data)]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "no-model", model / "none")
    (model / "model_rank.lgbm.gz").write_bytes(b"hello")
    assert run([*call, "--with-trained"]) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    expect_error(stderr, "damaged-model", model, "rank")
