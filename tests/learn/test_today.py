"""A new model is compared with the one that answers until now, and is installed only if it is better."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.api.learning import against_today, why_not_used
from ckh.api.learning import saved as installed
from ckh.data.dataset import Dataset
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model
from ckh.learn.training.train import train
from ckh.learn.training.trained import ModelComparison, Today, save
from ckh.learn.training.warm_start import read_start
from ckh.training import TrainOptions
from tests.learn.conftest import TREES, measured, saved, trained
from tests.refusals import expect_warning

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = TrainOptions(folds=4, early_stopping=5, params=TREES)
BETTER, WORSE = ModelComparison(10, 0, 0.8, 0.5, 0.9, 0.6), ModelComparison(10, 0, 0.9, 0.6, 0.8, 0.5)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder where `ckh predict` looks for models."""
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.setenv("CKH_MODELS", str(folder))
    return folder


def test_held_out_choices_are_compared_on_unknown_problems(models: Path) -> None:
    """The model in use knows four of fourteen problems: both are compared on the others."""
    few = train(measured().select(measured().problem_ids < 4), replace(OPTIONS, folds=0), lambda *_: None)
    save(few, models / "mine")
    today = against_today(trained())
    assert today is not None
    assert (today.source, today.comparison.problems, today.comparison.seen) == (str(models / "mine"), 10, 0)
    rows = measured().valid()
    scores, ms = load_model(models / "mine").scores(rows), rows.frame["latency_ms"].to_numpy()
    chosen = []
    for number in range(4, 14):
        of = np.flatnonzero(rows.problem_ids == number)
        chosen.append(ms[of].min() / ms[of[np.argmax(scores[of])]])
    assert today.comparison.start_mean_efficiency == pytest.approx(fmean(chosen))
    assert today.comparison.mean_efficiency == pytest.approx(
        fmean((trained().targets["rank"].oof_efficiency or ())[4:])
    )


def test_a_model_that_knows_the_problems_is_trained_on_the_same_folds(models: Path) -> None:
    """The same recipe ties, a poorer one loses, each by its out-of-fold choices; on another device choices count."""
    saved(models / "mine")
    today = against_today(trained())
    assert today is not None
    assert (today.retrained, today.comparison.problems, today.comparison.seen) == (True, 14, 0)
    assert today.comparison.start_mean_efficiency == today.comparison.mean_efficiency
    assert str(models / "mine") in why_not_used(replace(trained(), today=today), models / "new")
    poor = train(measured(), replace(OPTIONS, params=replace(TREES, n_estimators=1, num_leaves=2)), lambda *_: None)
    shutil.rmtree(models / "mine")
    save(poor, models / "mine")
    today = against_today(trained())
    assert today is not None
    assert today.comparison.start_mean_efficiency == pytest.approx(fmean(poor.targets["rank"].oof_efficiency or ()))
    assert today.comparison.start_mean_efficiency < today.comparison.mean_efficiency
    assert why_not_used(replace(trained(), today=today), models / "new") == ""
    elsewhere = train(Dataset(measured().frame.assign(device="another CPU")), OPTIONS, lambda *_: None)
    today = against_today(elsewhere)
    assert today is not None
    assert (today.retrained, today.comparison.problems, today.comparison.seen) == (False, 14, 14)


def test_a_start_that_knows_the_problems_is_not_compared(models: Path) -> None:
    """Its trees have seen the problems of all folds; nor is a recipe that a damaged manifest states wrongly."""
    saved(models / "mine")
    continued = replace(trained(), start=read_start(models / "mine"))
    assert against_today(continued) is None
    path = models / "mine" / "train_manifest.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["ckh"] |= {"prior": -1.0}
    path.write_text(json.dumps(document), encoding="utf-8")
    assert against_today(trained()) is None


def test_only_a_better_model_is_used(models: Path) -> None:
    """One that cannot be compared is not used beside another; the first of its kind is."""
    better, worse = (replace(trained(), today=Today("it", each)) for each in (BETTER, WORSE))
    assert why_not_used(better, models / "new") == ""
    assert "it" in why_not_used(worse, models / "new")
    assert why_not_used(trained(), models / "new") == ""
    saved(models / "mine")
    assert str(models / "mine") in why_not_used(trained(), models / "new")


def test_another_model_is_kept_beside(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where predict does not look, with a warning; on request it is installed, with the warning that it is used."""
    worse = replace(trained(), today=Today("it", WORSE))
    kept = models.with_name("models-not-installed") / "new"
    assert installed(worse, models / "new") == kept
    error = capsys.readouterr().err
    expect_warning(error, "not-installed", kept)
    expect_warning(error, "worse-than-current", "90.00% -> 80.00%")
    assert (kept / "feature_spec.json").is_file()
    assert list(models.iterdir()) == []
    assert installed(worse, models / "new", install=True) == models / "new"
    expect_warning(capsys.readouterr().err, "shadows-model")
    assert installed(replace(worse, today=Today("it", BETTER)), models / "better") == models / "better"
    assert "[" not in capsys.readouterr().err
    elsewhere = models.parent / "elsewhere"
    assert installed(worse, elsewhere) == elsewhere  # ckh predict does not look there
    assert "[shadows-model]" not in capsys.readouterr().err


def test_predict_repeats_the_doubts_of_training(models: Path) -> None:
    """Few problems, and no better than the model before it; a good model has none."""
    few = train(measured().select(measured().problem_ids < 4), replace(OPTIONS, folds=0), lambda *_: None)
    worse = replace(few, today=Today("/folder/before", WORSE))
    save(worse, models / "mine")
    save(trained(), models.parent / "good")
    problem = measured().problems()[0]
    said, none = (
        [caveat.data["warning"] for caveat in answer.caveats if caveat.kind == "model-warning"]
        for folder in (models / "mine", models.parent / "good")
        for answer in [ranking_of(problem, load_model(folder)).answer(1, "")]
    )
    assert none == []
    assert [[word for word in text.split() if word[0].isdigit()] for text in said] == [["4"], ["80.0", "90.0"]]


def test_few_measured_first_choices_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the share, if it is below 80 %."""
    for coverage, is_low in ((0.79, True), (0.8, False), (None, False)):
        installed(replace(trained(), coverage=coverage), tmp_path / "mine")
        error = capsys.readouterr().err
        assert ("[low-coverage]" in error) == is_low
    installed(replace(trained(), coverage=0.25), tmp_path / "mine")
    expect_warning(capsys.readouterr().err, "low-coverage", "25.00%")
