"""Functions of the Python API do the same as the commands of their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ckh
from ckh.cli import run
from ckh.data.journal import JOURNAL_NAME, read_journal
from ckh.errors import ExitCode
from tests.learn.conftest import TREES, efficiencies, measured, saved
from tests.refusals import expect_refusal

TREE_OPTIONS: dict[str, Any] = {
    "n_estimators": TREES.n_estimators,
    "num_leaves": TREES.num_leaves,
}
TYPED = (
    "--trees",
    str(TREES.n_estimators),
    "--leaves",
    str(TREES.num_leaves),
)
GEMM = ckh.GemmProblem(48, 40, 64)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders without the user's files."""
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CKH_MODELS", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        ({"n": 16, "c": 256}, "--n 16 --c 256"),
        ({"c": 64, "stride": 2, "dilation": (1, 2)}, "--c 64 --stride 2 --dilation 1x2"),
        ({"c": 64, "ndim": 3, "di": 16, "variant": "bwd_data"}, "--c 64 --ndim 3 --di 16 --variant bwd_data"),
        ({"m": 128, "n": 1536, "k": 7168, "layout": "RRR"}, "--m 128 --n 1536 --k 7168 --layout rrr"),
        ({"c": 64, "dtype": "half", "arch": "MI300X"}, "--c 64 --dtype fp16 --arch gfx942"),
        ({"op": "gemm", "m": 8, "n": 8, "k": 8, "arch": "gfx950"}, "--m 8 --n 8 --k 8 --arch gfx950"),
    ],
)
def test_problems_have_the_defaults_of_predict(
    given: dict[str, Any], typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes, strides as numbers and pairs, other spellings, and element types by architecture."""
    assert run(["predict", *typed.split(), "--json", "--top", "1"]) == ExitCode.OK
    text = json.loads(capsys.readouterr().out)["problem"]
    assert ckh.problem(**given).canonical() == text
    assert ckh.problem(text) == ckh.problem(**given)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"m": 3, "c": 4}, "inapplicable-option"),
        ({"tile": 3}, "inapplicable-option"),
        ({"c": "64"}, "bad-number"),
        ({"c": 64, "stride": 0}, "out-of-range"),
        ({"variant": "sideways"}, "unknown-name"),
        ({"op": "softmax"}, "unknown-op"),
        ({"arch": "gfx1"}, "unknown-arch"),
        ({"text": "conv_", "c": 3}, "conflicting-options"),
        ({"text": "conv_"}, "bad-problem"),
    ],
)
def test_invalid_problems(given: dict[str, Any], code: str) -> None:
    """Each is a `ckh.CkhError` with a code."""
    with pytest.raises(ckh.CkhError) as caught:
        ckh.problem(**given)
    assert caught.value.code == code


def test_datasets_are_written_and_read(tmp_path: Path) -> None:
    """Rows are the same after a file, and a frame of them is a copy."""
    data = measured()
    data.write(tmp_path / "data.parquet")
    with expect_refusal(ckh.UsageError, "output-exists", tmp_path / "data.parquet"):
        data.write(tmp_path / "data.parquet")
    data.write(tmp_path / "data.parquet", force=True)
    read = ckh.Dataset.read(tmp_path / "data.parquet")
    assert read.content_hash == data.content_hash
    frame = read.to_frame()
    frame["latency_ms"] = 0.0
    assert read.content_hash == data.content_hash
    pd.testing.assert_frame_equal(read.to_frame(), read.frame)


@pytest.mark.slow
def test_train_writes_the_same_model_as_the_command(tmp_path: Path) -> None:
    """A dataset in memory or its file gives the same bytes, and a loaded model that ranks."""
    data = measured()
    data.write(tmp_path / "data.parquet")
    own = ckh.train(data, tmp_path / "own", folds=3, **TREE_OPTIONS)
    ckh.train(tmp_path / "data.parquet", tmp_path / "of_file", folds=3, **TREE_OPTIONS)
    typed = ["train", "--data", "data.parquet", "--out", "typed", "--folds", "3", *TYPED]
    assert run(typed) == ExitCode.OK
    model = "model_rank.lgbm.gz"
    assert (tmp_path / "own" / model).read_bytes() == (tmp_path / "typed" / model).read_bytes()
    assert (tmp_path / "of_file" / model).read_bytes() == (tmp_path / "typed" / model).read_bytes()
    problem = data.problems()[0]
    assert ckh.rank(problem, 3, own) == ckh.rank(problem, 3, tmp_path / "typed")


def test_train_rejects_the_same_input_as_the_command(tmp_path: Path) -> None:
    """Unknown names, invalid values and existing outputs; nothing is written."""
    data = measured()
    for options, code in (
        ({"leaves": 3}, "unknown-field"),
        ({"folds": 2}, "out-of-range"),
        ({"num_leaves": 1}, "out-of-range"),
        ({"rank": "best"}, "unknown-name"),
        ({"targets": ("speed",)}, "unknown-name"),
        ({"variant": "sideways"}, "unknown-name"),
        ({"warm_start": "nowhere"}, "no-model"),
    ):
        with pytest.raises(ckh.CkhError) as caught:
            ckh.train(data, tmp_path / "model", **options)
        assert caught.value.code == code, options
    assert not (tmp_path / "model").exists()
    saved(tmp_path / "model")
    with expect_refusal(ckh.CkhError, "output-exists"):
        ckh.train(data, tmp_path / "model")
    assert not (tmp_path / "other").exists()


def test_evaluate_returns_the_figures_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a loaded model or its folder, and data in memory; the mean is that of a plain loop."""
    folder, data = saved(tmp_path / "model"), measured()
    data.write(tmp_path / "data.parquet")
    options: dict[str, Any] = {"among": "measured", "with_trained": True}
    result = ckh.evaluate(data, folder, **options)
    typed = ["--model", "model", "--data", "data.parquet", "--among", "measured", "--with-trained", "--json"]
    assert run(["evaluate", *typed]) == ExitCode.OK
    assert result.figures == json.loads(capsys.readouterr().out)["figures"]
    assert result.figures["mean_efficiency"] == pytest.approx(efficiencies(folder).mean())
    assert ckh.evaluate([data], ckh.load_model(folder), **options).figures == result.figures
    with expect_refusal(ckh.DataError, "trained-on-all"):
        ckh.evaluate(data, folder, among="measured")
    with expect_refusal(ckh.UsageError, "unknown-name"):
        ckh.evaluate(data, folder, among="all")


@pytest.mark.slow
def test_measurements(tmp_path: Path) -> None:
    """Listed problems and kernels are measured into a dataset; the run can be resumed and is not replaced."""
    names = [item.name for item in ckh.rank(GEMM, 2, arch="host")]
    problems: list[Any] = [GEMM, GEMM.replaced(m=16).canonical()]
    done = ckh.bench(problems, tmp_path / "run", kernels=names, device="host", samples=3)
    data = done.dataset()
    assert {problem.canonical() for problem in data.problems()} == {GEMM.canonical(), problems[1]}
    assert set(data.frame["kernel"]) == set(names)
    assert len(done.to_frame()) == 4
    assert (data.frame["latency_ms"] > 0).all()
    assert np.isfinite(data.frame["tflops"]).all()
    before = (tmp_path / "run" / JOURNAL_NAME).read_bytes()
    with pytest.raises(ckh.UsageError):
        ckh.bench([GEMM], tmp_path / "run", device="host")
    assert (tmp_path / "run" / JOURNAL_NAME).read_bytes() == before
    assert ckh.bench(out=tmp_path / "run", resume=True).outcome.pairs_left == 0
    assert read_journal(tmp_path / "run").runs[0].samples == 3


def test_a_list_in_the_folder_of_a_run_is_not_replaced(tmp_path: Path) -> None:
    """A file of the name of the list, in a folder without a run, stays; with force only a list is replaced."""
    theirs = tmp_path / "problems.txt"
    for text, code in (("a list\n", "foreign-output"), ("gemm\n", "output-exists")):
        theirs.write_text(text, encoding="utf-8")
        with expect_refusal(ckh.UsageError, code, theirs):
            ckh.bench([GEMM], tmp_path, device="host")
        assert theirs.read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir()] == ["problems.txt"]


@pytest.mark.parametrize(
    ("args", "options", "code"),
    [
        (([GEMM], "run"), {"sample": 3}, "unknown-field"),
        (([GEMM], "run"), {"samples": 0}, "out-of-range"),
        (([GEMM], "run"), {"device": "fpga"}, "unknown-name"),
        (([GEMM],), {}, "missing-option"),
        (([], "run"), {}, "no-problems"),
        (([GEMM, GEMM.replaced(dtype="fp16")], "run"), {}, "mixed-data"),
        (([GEMM, ckh.problem(c=8)], "run"), {}, "mixed-data"),
        ((["conv"], "run"), {}, "unknown-op"),
        (("no-such-set", "run"), {"device": "host"}, "unknown-set"),
    ],
)
def test_invalid_measurements_are_refused(args: tuple[Any, ...], options: dict[str, Any], code: str) -> None:
    """Each is a `ckh.CkhError` with a code, and no run starts."""
    with pytest.raises(ckh.CkhError) as caught:
        ckh.bench(*args, **options)
    assert caught.value.code == code
    assert not Path("run", JOURNAL_NAME).exists()


def test_invalid_tuning_is_refused(tmp_path: Path) -> None:
    """Wrong options, and a failing step: the error names it, and its own message is on stderr."""
    for sources, options, code in (
        ((), {}, "missing-option"),
        (("x",), {"tile": 3}, "unknown-field"),
        (("x",), {"to": "onnx"}, "unknown-name"),
        (("x",), {"budget": "soon"}, "bad-number"),
    ):
        with pytest.raises(ckh.CkhError) as caught:
            ckh.tune(*sources, out=tmp_path / "tuned", **options)
        assert caught.value.code == code
    with expect_refusal(ckh.CkhError, "step-failed", "shapes"):
        ckh.tune("no-such-model", out=tmp_path / "tuned", device="host")


@pytest.mark.slow
@pytest.mark.usefixtures("known_host")
def test_tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GEMMs on the host: measured, exported, and a document with their gains."""
    monkeypatch.setattr("ckh.tune.steps.PLAN", ("--kernels", "sample:3"))  # which are soon compiled
    (tmp_path / "shapes.txt").write_text(f"{GEMM.canonical()}\n{GEMM.replaced(m=16).canonical()}\n", encoding="utf-8")
    tune_document = ckh.tune(
        tmp_path / "shapes.txt", out=tmp_path / "tuned", budget="10m", device="host", to="amd-registry"
    )
    assert {shape.problem for shape in tune_document.shapes} == {GEMM.canonical(), GEMM.replaced(m=16).canonical()}
    assert all(shape.latency_ms is not None and shape.latency_ms > 0 for shape in tune_document.shapes)
    assert tune_document.export is not None
    assert Path(tune_document.export).exists()
