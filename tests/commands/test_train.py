"""`ckh train` on the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.cli import run
from ckh.data.dataset import write_dataset
from ckh.errors import DataError, ExitCode
from ckh.learn.models.artifact import load_model
from ckh.problems import Direction
from tests.learn.conftest import measured, saved
from tests.refusals import expect_error, expect_refusal, expect_values, expect_warning

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("small_priors")

SMALL = [
    "--trees",
    "5",
    "--leaves",
    "5",
    "--learning-rate",
    "0.3",
    "--folds",
    "3",
    "--jobs",
    "1",
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The measured dataset in a file."""
    path = tmp_path / "data.parquet"
    write_dataset(measured(), path)
    return path


@pytest.mark.slow
def test_a_model_is_trained_and_evaluated(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is a line for each target and the next command; the model has the requested targets, and no other files."""
    out = data.with_name("model")
    assert run(["train", "--data", str(data), "--out", str(out), "--seed", "7", *SMALL]) == ExitCode.OK
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines()]
    assert [line[0] for line in lines if line][3:5] == ["tflops", "rank"]
    assert text.startswith(f"{out}: {len(measured().valid())} rows, 14 problems")
    assert text.endswith(f"next: ckh evaluate --model {out} --data HOLDOUT.parquet\n")
    spec = json.loads((out / "feature_spec.json").read_text(encoding="utf-8"))
    asked = {"n_estimators": 5, "num_leaves": 5, "learning_rate": 0.3, "random_state": 7}
    assert {name: spec["params"][name] for name in asked} == asked
    assert load_model(out).spec.targets == ("tflops", "rank")
    assert {path.name for path in out.glob("model_*")} == {"model_tflops.lgbm.gz", "model_rank.lgbm.gz"}


def test_problems_are_sampled_from_many_rows(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whole problems are sampled by the seed, which is reported and recorded in the manifest."""
    out = data.with_name("model")
    assert run(["train", "--data", str(data), "--out", str(out), "--sample", "130", *SMALL]) == ExitCode.OK
    said = "120 rows of 5 problems were drawn from the 336 rows of 14 problems of the data: --sample 130, --seed 42"
    assert said in capsys.readouterr().err
    manifest = json.loads((out / "train_manifest.json").read_text(encoding="utf-8"))
    assert (manifest["data_rows"], manifest["unique_shapes"]) == (120, 5)
    assert manifest["ckh"]["drawn_from"] == {"rows": 336, "problems": 14}


def test_json_has_the_figures_of_the_folds(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The document has the numbers of the written files."""
    out = data.with_name("model")
    assert run(["train", str(data), "--out", str(out), "--rank", "lambdarank", "--json", *SMALL]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
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


@pytest.mark.slow
def test_only_force_replaces_a_model(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model is unchanged unless --force is given."""
    out = saved(tmp_path / "model")
    before = (out / "feature_spec.json").read_bytes()
    args = ["train", str(data), "--out", str(out), *SMALL]
    assert run(args) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "output-exists", out, "--force")
    assert (out / "feature_spec.json").read_bytes() == before
    assert run([*args, "--force"]) == ExitCode.OK
    assert load_model(out).spec.targets == ("tflops", "rank")


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_only_models_are_replaced(data: Path, force: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Other folders and files are unchanged, even with --force."""
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
        (["--learning-rate", "nan"], "usage", "--learning-rate"),
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
    monkeypatch.setattr("ckh.learn.training.train.train", _interrupt)
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


def test_nothing_to_train_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data without a usable time are refused."""
    out = ["--out", str(tmp_path / "model")]
    write_dataset(measured().select(~measured().frame["is_valid"].to_numpy(dtype=bool)), tmp_path / "data.parquet")
    assert run(["train", str(tmp_path / "data.parquet"), *out, *SMALL]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "not-measured")


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
    assert ["tflops", "5", "-", "-", "-", "-"] in [line.split() for line in stdout.splitlines()]


@pytest.mark.slow
def test_a_model_is_warm_started(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trees are added to a model's own targets; the held-out results are in the document."""
    few, out = data.with_name("few.parquet"), data.with_name("model")
    write_dataset(measured().select(measured().problem_ids < 4), few)
    start = data.with_name("start")
    assert run(["train", str(few), "--out", str(start), *SMALL]) == ExitCode.OK
    capsys.readouterr()
    args = ["train", str(data), "--warm-start", str(start), "--out", str(out), "--trees", "7", "--jobs", "1"]
    assert run([*args, "--folds", "3", "--json"]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    said = json.loads(stdout)["warm_start"]
    manifest = json.loads((out / "train_manifest.json").read_text(encoding="utf-8"))
    assert said["from"] == manifest["warm_start_from"] == str(start)
    assert said["prev_trees"] + said["new_trees"] == json.loads(stdout)["rank"]["trees"]
    assert said["new_trees"] == manifest["new_n_estimators"] <= 7
    assert said["validation"] == manifest["ckh"]["warm_start"]["validation"]
    assert (said["validation"]["problems"], said["validation"]["seen"]) == (10, 0)
    assert said["validation"]["worse"] == ("[worse-than-start]" in stderr)
    spec = json.loads((out / "feature_spec.json").read_text(encoding="utf-8"))
    asked = {"n_estimators": 7, "num_leaves": 5, "learning_rate": 0.3}
    assert {name: spec["params"][name] for name in asked} == asked
    assert load_model(out).spec.targets == ("tflops", "rank")
    assert run([*args, "--folds", "3", "--force"]) == ExitCode.OK
    expect_values("".join(capsys.readouterr()), "on 10 ")


@pytest.mark.slow
def test_a_warm_started_model_knows_both_kernel_sets(data: Path) -> None:
    """Its candidates are those of its start or the new data; all if the start does not state them."""
    tiles = ["tile_m", "tile_n", "tile_k"]
    frame = measured().frame
    is_small = (frame["tile_m"] < 64).to_numpy()
    few, start, out = (data.with_name(name) for name in ("few.parquet", "start", "model"))
    write_dataset(measured().select(is_small), few)
    write_dataset(measured().select(~is_small), data)
    assert run(["train", str(few), "--out", str(start), *SMALL]) == ExitCode.OK
    args = ["train", str(data), "--warm-start", str(start), "--out", str(out), "--trees", "5", "--jobs", "1"]
    assert run(args) == ExitCode.OK
    known = json.loads((out / "kernels.json").read_text(encoding="utf-8"))
    assert known["tiles"] == sorted(frame[tiles].drop_duplicates().to_numpy().tolist())
    assert known["tiles"] != json.loads((start / "kernels.json").read_text(encoding="utf-8"))["tiles"]
    (start / "kernels.json").unlink()
    assert run([*args, "--force"]) == ExitCode.OK
    assert not (out / "kernels.json").exists()


@pytest.mark.slow
def test_a_model_is_compared_with_the_current_one(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Held-out choices are compared with those of predict's current model, on problems that it does not know."""
    models = data.parent / "models"
    models.mkdir()
    monkeypatch.setenv("CKH_MODELS", str(models))
    few, out = data.with_name("few.parquet"), data.with_name("model")
    write_dataset(measured().select(measured().problem_ids < 4), few)
    assert run(["train", str(few), "--out", str(models / "mine"), "--install", *SMALL]) == ExitCode.OK
    capsys.readouterr()
    assert run(["train", str(data), "--out", str(out), *SMALL, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    load = document["today"]["validation"]
    assert document["today"]["model"] == str(models / "mine")
    assert (load["problems"], load["seen"]) == (10, 0)
    rows = measured().valid()
    frame = rows.frame.assign(score=load_model(models / "mine").scores(rows), problem=rows.problem_ids)
    best = frame.groupby("problem")["latency_ms"].min()
    chosen = frame.loc[frame.groupby("problem")["score"].idxmax()].set_index("problem")["latency_ms"]
    assert load["start_mean_efficiency"] == pytest.approx((best / chosen)[4:].mean())
    for options in (SMALL, [*SMALL, "--trees", "1", "--leaves", "2"]):
        assert run(["train", str(data), "--out", str(out), *options, "--force", "--json"]) == ExitCode.OK
        stdout, stderr = capsys.readouterr()
        load = json.loads(stdout)["today"]["validation"]
        assert ("[worse-than-current]" in stderr) == load["worse"]
        assert "[shadows-model]" not in stderr  # ckh predict does not look there
    assert load["worse"]
    assert f"{load['start_mean_efficiency']:.2%} -> {load['mean_efficiency']:.2%}" in stderr
    poor = [*SMALL, "--trees", "1", "--leaves", "2", "--force", "--install"]
    assert run(["train", str(few), "--out", str(models / "mine"), *poor]) == ExitCode.OK
    capsys.readouterr()
    assert run(["train", str(data), "--out", str(out), *SMALL, "--trees", "40", "--force"]) == ExitCode.OK
    said = " ".join(capsys.readouterr().out.split())
    expect_values(said, models / "mine")


@pytest.mark.slow
def test_only_a_better_model_is_installed(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worse or incomparable one is kept beside, and installed on request; the first of its kind and a better are."""
    models, before = data.parent / "models", load_model(saved(data.parent / "models" / "mine"))
    monkeypatch.setenv("CKH_MODELS", str(models))
    (models / "mine" / "train_manifest.json").unlink()  # so that its training problems are unknown
    kept = data.parent / "models-not-installed"
    poor = ["train", str(data), *SMALL, "--trees", "1", "--leaves", "2"]
    efficiency = dict.fromkeys(("mean_efficiency", "start_mean_efficiency"), 0.0)
    for line, place, codes in (
        ([*poor, "--out", str(models / "new")], kept / "new", {"worse-than-current", "not-installed"}),
        ([*poor, "--out", str(models / "new"), "--folds", "0"], kept / "new", {"not-installed"}),
        ([*poor, "--out", str(models / "mine"), "--force"], kept / "mine", {"worse-than-current", "not-installed"}),
        ([*poor, "--out", str(models / "new"), "--install"], models / "new", {"worse-than-current", "shadows-model"}),
    ):
        capsys.readouterr()
        assert run([*line, "--json"]) == ExitCode.OK
        printed = capsys.readouterr()
        assert set(re.findall(r"\[([a-z-]+)\]", printed.err)) == codes
        document = json.loads(printed.out)
        assert (document["out"], (place / "feature_spec.json").is_file()) == (str(place), True)
        assert (models / "new").exists() == ("--install" in line)
        efficiency = efficiency if "today" not in document else document["today"]["validation"]
        assert efficiency["mean_efficiency"] < efficiency["start_mean_efficiency"]
    assert load_model(models / "mine").scores(measured()).tolist() == before.scores(measured()).tolist()
    shutil.rmtree(models)
    few = data.with_name("few.parquet")
    write_dataset(measured().select(measured().problem_ids < 4), few)
    models.mkdir()
    assert run(["train", str(few), *poor[2:], "--out", str(models / "poor"), "--install", "--force"]) == ExitCode.OK
    capsys.readouterr()
    assert run(["train", str(data), *SMALL, "--trees", "40", "--out", str(models / "better"), "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    efficiency = document["today"]["validation"]
    assert efficiency["mean_efficiency"] > efficiency["start_mean_efficiency"]
    assert document["out"] == str(models / "better")


@pytest.mark.slow
def test_no_comparison_with_a_model_trained_on_the_same_data(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model trained on these problems on this device is not compared; on another device it is."""
    models = data.parent / "models"
    models.mkdir()
    monkeypatch.setenv("CKH_MODELS", str(models))
    assert run(["train", str(data), "--out", str(models / "mine"), *SMALL]) == ExitCode.OK
    elsewhere = data.with_name("elsewhere.parquet")
    write_dataset(type(measured())(measured().frame.assign(device="another CPU")), elsewhere)
    said = []
    for path in (data, elsewhere):
        capsys.readouterr()
        assert run(["train", str(path), "--out", str(data.with_name("model")), *SMALL, "--force", "--json"]) == 0
        said.append(json.loads(capsys.readouterr().out).get("today"))
    assert said[0] is None
    assert (said[1]["validation"]["problems"], said[1]["validation"]["seen"]) == (14, 14)


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
    assert run([*args, "--learning-rate", "1", "--jobs", "1", "--folds", "3", "--json"]) == ExitCode.OK
    stdout, stderr = capsys.readouterr()
    load = json.loads(stdout)["warm_start"]["validation"]
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
