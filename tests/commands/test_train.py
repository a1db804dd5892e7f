"""`ckh train` on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.cli import run
from ckh.data.dataset import write_dataset
from ckh.errors import DataError, ExitCode
from ckh.learn.models.artifact import load_model
from ckh.problems import Direction
from tests.learn.conftest import measured, saved, silent
from tests.refusals import expect_error, expect_refusal, expect_warning

if TYPE_CHECKING:
    from pathlib import Path


SMALL = ["--trees", "5", "--leaves", "5", "--folds", "3", "--jobs", "1"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The measured dataset in a file."""
    path = tmp_path / "data.parquet"
    write_dataset(measured(), path)
    return path


def test_problems_are_sampled_from_many_rows(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whole problems are sampled by the seed, which is reported and recorded in the manifest."""
    out = data.with_name("model")
    assert run(["train", "--data", str(data), "--out", str(out), "--sample", "130", *SMALL]) == ExitCode.OK
    said = "120 rows of 5 problems were drawn from the 336 rows of 14 problems of the data: --sample 130, --seed 42"
    assert said in capsys.readouterr().err
    manifest = json.loads((out / "train_manifest.json").read_text(encoding="utf-8"))
    assert (manifest["data_rows"], manifest["unique_shapes"]) == (120, 5)
    assert manifest["ckh"]["drawn_from"] == {"rows": 336, "problems": 14}


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["train", "--out", "{0}/new", *SMALL],
        ["evaluate", "--among", "measured", "--model", "{0}/model"],
        ["validate", "oracle", "--among", "measured", "--model", "{0}/model"],
        ["validate", "compare", "--among", "measured", "{0}/model", "{0}/model"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_scikit_learn_is_not_imported(command: list[str], data: Path) -> None:
    """Neither by LightGBM nor for folds and calibration: its import takes longer than these commands."""
    silent(saved(data.with_name("model")))
    line = [*(word.format(data.parent) for word in command), "--data", str(data)]
    program = f"import sys; from ckh.cli import run; assert run({line}) == 0; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.endswith("False\n")


def test_json_has_the_figures_of_the_folds(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The document has the numbers of the written files."""
    out = data.with_name("model")
    line = ["train", str(data), "--out", str(out), "--rank", "lambdarank", "--seed", "7", *SMALL, "--json"]
    assert run(line) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    spec = json.loads((out / "feature_spec.json").read_text(encoding="utf-8"))
    asked = {"n_estimators": 5, "num_leaves": 5, "random_state": 7}
    assert {name: spec["params"][name] for name in asked} == asked
    assert load_model(out).spec.targets == ("tflops", "rank")
    assert (document["out"], document["problems"]) == (str(out), 14)
    assert document["rows"] == int(measured().frame["is_valid"].sum())
    for target in ("tflops", "rank"):
        folds = json.loads((out / f"cv_metrics_{target}.json").read_text(encoding="utf-8"))
        assert document[target]["folds"] == folds
        assert len(folds) == 3
        efficiencies = sum(fold["mean_efficiency"] * fold["val_groups"] for fold in folds)
        assert document[target]["oof_mean_efficiency"] == pytest.approx(efficiencies / 14)
    assert document["rank"]["folds"][0]["rmse"] is None


def test_directions_are_chosen(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data of two directions need --variant; the model is then of that direction."""
    other = tmp_path / "other.parquet"
    write_dataset(measured(Direction.BWD_DATA), other)
    out = tmp_path / "model"
    args = ["train", str(data), "--data", str(other), "--out", str(out), "--rank", "tflops", *SMALL]
    assert run(args) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "mixed-data", "bwd_data, forward", "--variant")
    assert run([*args, "--variant", "bwd_data"]) == ExitCode.OK
    assert load_model(out).spec.variant is Direction.BWD_DATA
    assert run([*args, "--variant", "bwd_weight", "--force"]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "no-training-data", "grouped_conv bwd_weight")
    assert load_model(out).spec.variant is Direction.BWD_DATA


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_only_models_are_replaced(data: Path, force: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Other folders and files are unchanged, even with --force; a model is without."""
    if not force:
        out = saved(data.with_name("model"))
        assert run(["train", str(data), "--out", str(out), *SMALL]) == ExitCode.USAGE
        expect_error(capsys.readouterr().err, "output-exists", out, "--force")
    folder = data.with_name("thesis")
    folder.mkdir()
    (folder / "thesis.tex").write_text("precious", encoding="utf-8")
    for out in (folder, folder / "thesis.tex"):
        assert run(["train", str(data), "--out", str(out), *SMALL, *force]) == ExitCode.USAGE
        expect_error(capsys.readouterr().err, "foreign-output", out)
    assert (folder / "thesis.tex").read_text(encoding="utf-8") == "precious"


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "text", "folder"])
def test_unreadable_data(data: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the file, nothing is printed on stdout and nothing written."""
    content = data.read_bytes()
    data.unlink()
    if damage == "folder":
        data.mkdir()
    elif damage != "missing":
        data.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "text": b"N,C,K\n1,2,3\n"}[damage])
    assert run(["train", "--data", str(data), "--out", str(data.with_name("model")), *SMALL]) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert stderr.startswith("error: ")
    assert str(data) in stderr.splitlines()[0]
    assert [path.name for path in data.parent.iterdir()] == (["data.parquet"] if damage != "missing" else [])


@pytest.mark.parametrize(
    ("args", "code", "value"),
    [
        (["--targets", "tflops,speed"], "unknown-name", "'speed'"),
        (["--targets", "latency"], "missing-option", "--targets"),
        (["--targets", ""], "missing-option", "--targets"),
        (["--rank", "luck"], "usage", "luck"),
        (["--op", "nothing"], "unknown-op", "nothing"),
        (["--trees", "0"], "usage", "--trees"),
        (["--folds", "2"], "out-of-range", "--folds 2"),
        (["--tune", "3"], "inapplicable-option", "--tune"),
        (["--mine", "1"], "inapplicable-option", "--mine"),
        (["--prior", "0"], "inapplicable-option", "--prior"),
        (["--rank", "blend"], "usage", "blend"),
    ],
)
def test_invalid_options_are_refused(
    data: Path, args: list[str], code: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage is an error before training."""
    assert run(["train", str(data), "--out", str(data.with_name("model")), *args]) == ExitCode.USAGE
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    expect_error(stderr, code, value)
    assert not data.with_name("model").exists()


@pytest.mark.parametrize("folds", ["1", "2"])
def test_too_few_folds_are_refused_before_data_are_read(
    tmp_path: Path, folds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unreadable data are not even opened."""
    assert run(["train", str(tmp_path / "none.parquet"), "--out", "x", "--folds", folds]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "out-of-range", f"--folds {folds}")


def test_an_interrupted_training_reports_what_is_kept(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the previous contents; threads sleep while waiting unless the user requests otherwise."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setattr("ckh.api.learning.trained_on", _interrupt)
    args = ["train", str(data), "--out", str(data.with_name("model")), *SMALL]
    assert run(args) == ExitCode.INTERRUPTED
    assert "interrupted" in capsys.readouterr().err
    assert not data.with_name("model").exists()
    assert os.environ["OMP_WAIT_POLICY"] == "active"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert run(args) == ExitCode.INTERRUPTED
    assert os.environ["OMP_WAIT_POLICY"] == "passive"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("damage", "code", "value"), [("one row", "few-problems", "1"), ("no tflops", "bad-column", "tflops")]
)
def test_data_without_a_choice(
    tmp_path: Path, damage: str, code: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One row, and rows without TFLOPS, are refused in one line; no model is written."""
    valid = measured().valid()
    frame = valid.frame.iloc[:1] if damage == "one row" else valid.frame.assign(tflops=float("nan"))
    write_dataset(type(valid)(frame.reset_index(drop=True)), tmp_path / "data.parquet")
    args = ["train", str(tmp_path / "data.parquet"), "--out", str(tmp_path / "model"), *SMALL]
    assert run(args) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert len([line for line in stderr.splitlines() if line.startswith("error: ")]) == 1
    expect_error(stderr, code, value)
    assert "Traceback" not in stderr
    assert not (tmp_path / "model").exists()


def test_data_of_another_operation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data of another operation than the requested one are refused."""
    write_dataset(measured(), tmp_path / "data.parquet")
    args = ["train", str(tmp_path / "data.parquet"), "--out", str(tmp_path / "model"), *SMALL]
    assert run([*args, "--op", "gemm_universal"]) == ExitCode.BAD_DATA
    assert "no row of gemm_universal" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_data_of_an_unknown_operation(tmp_path: Path) -> None:
    """Rows of an operation that ckh does not have are not a dataset."""
    data = measured()
    with expect_refusal(DataError, "unknown-op", "'pooling'"):
        write_dataset(type(data)(data.frame.assign(op_type="pooling")), tmp_path / "data.parquet")


def test_too_few_problems_give_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two problems train a model without validation, which gives a warning."""
    data = measured()
    write_dataset(data.select(data.problem_ids < 2), tmp_path / "data.parquet")
    args = ["train", str(tmp_path / "data.parquet"), "--out", str(tmp_path / "model"), *SMALL]
    assert run(args) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    expect_warning(stderr, "few-problems")
    lines = [line.split() for line in stdout.splitlines()]
    assert ["tflops", "5", "-", "-", "-", "-"] in lines
    assert [line[0] for line in lines if line][3:5] == ["tflops", "rank"]
    assert stdout.endswith(f"next: ckh evaluate --model {tmp_path / 'model'} --data HOLDOUT.parquet\n")


@pytest.mark.slow
def test_a_worse_model_gives_a_warning(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trees trained on shuffled times make a model worse, which gives a warning with both efficiencies."""
    start, bad = saved(data.with_name("start")), data.with_name("bad.parquet")
    frame = measured().frame.copy()
    columns = ["latency_ms", "latency_min_ms", "tflops", "bandwidth_gb_s"]
    usable = frame["is_valid"].to_numpy(dtype=bool)
    # Only half of the problems are wrong: the start is good on the others, the new trees are not.
    rows = np.flatnonzero(usable & (measured().problem_ids % 2 == 0))
    frame.loc[rows, columns] = frame.loc[np.random.default_rng(1).permutation(rows), columns].to_numpy()
    write_dataset(type(measured())(frame), bad)
    args = ["train", str(bad), "--warm-start", str(start), "--out", str(data.with_name("model")), "--trees", "5"]
    spec = start / "feature_spec.json"  # whose learning rate is continued
    document = json.loads(spec.read_text(encoding="utf-8"))
    document["params"]["learning_rate"] = 1.0
    spec.write_text(json.dumps(document), encoding="utf-8")
    assert run([*args, "--jobs", "1", "--folds", "3", "--json"]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    warm_start = json.loads(stdout)["warm_start"]
    manifest = json.loads((data.with_name("model") / "train_manifest.json").read_text(encoding="utf-8"))
    assert warm_start["from"] == manifest["warm_start_from"] == str(start)
    assert warm_start["new_trees"] == manifest["new_n_estimators"] <= 5
    assert warm_start["prev_trees"] + warm_start["new_trees"] == json.loads(stdout)["rank"]["trees"]
    load = warm_start["validation"]
    assert load == manifest["ckh"]["warm_start"]["validation"]
    assert load["worse"]
    assert (load["problems"], load["seen"]) == (14, 14)
    mean = f"{load['start_mean_efficiency']:.2%} -> {load['mean_efficiency']:.2%}"
    expect_warning(stderr, "worse-than-start", mean, "P10", 14, 14)
    assert run([*args, "--jobs", "1", "--folds", "0", "--force"]) == ExitCode.OK
    expect_warning(capsys.readouterr().err, "not-compared")


def test_an_incompatible_warm_start(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Differences are reported in one line, and nothing is written; an invalid start is bad data."""
    start, out = saved(data.with_name("start")), data.with_name("model")
    args = ["train", str(data), "--out", str(out), "--warm-start"]
    assert run([*args, str(start), *SMALL, "--rank", "lambdarank", "--targets", "tflops"]) == ExitCode.USAGE
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    expect_error(stderr, "not-continuable", start, "relative", "lambdarank", "bandwidth", "bandwidth")
    assert run([*args, str(data.with_name("nothing")), *SMALL]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "no-model", data.with_name("nothing"))
    assert sorted(path.name for path in data.parent.iterdir()) == ["data.parquet", "start"]


def test_the_nearest_model_is_warm_started(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--warm-start nearest` adds trees to the model that would answer for the data, and names it."""
    models = data.parent / "models"
    saved(models / "mine")
    monkeypatch.setenv("CKH_MODELS", str(models))
    out = data.parent / "continued"
    args = ["train", str(data), "--warm-start", "nearest", "--trees", "5", "--folds", "0", "--jobs", "1"]
    assert run([*args, "--out", str(out), "--json"]) == ExitCode.OK
    captured = capsys.readouterr()
    assert f"adding trees to {models / 'mine'}" in captured.err
    assert json.loads(captured.out)["warm_start"]["from"] == str(models / "mine")
