"""Training options in a model's directory."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from ckh.learn.training.save import save
from ckh.learn.training.train import train
from ckh.learn.training.tune import tune
from ckh.training import RankObjective, TrainOptions
from tests.learn.conftest import TREES, measured

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = TrainOptions(targets=("tflops",), folds=3, early_stopping=5, params=TREES)


def test_an_ordinary_model_omits_unused_options(model_dir: Path) -> None:
    """The manifest has only the standard keys, and there is no tuning."""
    manifest = json.loads((model_dir / "train_manifest.json").read_text(encoding="utf-8"))
    assert set(manifest["ckh"]) == {
        *("version", "lightgbm", "data_sha256", "sources", "rank_objective", "folds", "seed", "trees"),
        *("oof_efficiency", "problems", "layers"),
    }
    assert not (model_dir / "tuning.json").exists()


def test_the_regression_of_a_blend_is_written(tmp_path: Path) -> None:
    """Its parameters are written if they are its own."""
    options = replace(OPTIONS, rank=RankObjective.BLEND, regression=replace(TREES, num_leaves=5))
    save(train(measured(), options, lambda _steps, _text: None), tmp_path / "model")
    ours = json.loads((tmp_path / "model" / "train_manifest.json").read_text(encoding="utf-8"))["ckh"]
    assert ours["rank_objective"] == "blend"
    assert ours["regression"] == {**TREES.to_dict(), "num_leaves": 5}


def test_options_that_were_used_are_written(tmp_path: Path) -> None:
    """Tuning, mining and the ensemble are in the manifest, every setting tried in a file."""
    fixed = ("n_estimators", "learning_rate")
    tuning = tune(measured(), OPTIONS, 3, lambda _steps, _text: None, fixed)
    options = replace(OPTIONS, params=tuning.params, mine=1, ensemble=2)
    made = replace(train(measured(), options, lambda _steps, _text: None), tuning=tuning)
    save(made, tmp_path / "model")
    ours = json.loads((tmp_path / "model" / "train_manifest.json").read_text(encoding="utf-8"))["ckh"]
    assert ours["tuning"] == {"settings": 3, "chosen": tuning.chosen}
    assert ours["ensemble"] == 2
    assert [our["number"] for our in ours["mining"]["rounds"]][:1] == [0]
    assert (
        ours["oof_efficiency"]["rank"]["mean"] == (ours["mining"]["rounds"][ours["mining"]["kept"]]["mean_efficiency"])
    )
    document = json.loads((tmp_path / "model" / "tuning.json").read_text(encoding="utf-8"))
    assert (document["seed"], document["folds"], document["default"]) == (42, 3, 0)
    assert set(fixed).isdisjoint(document["space"])
    assert [item["number"] for item in document["settings"]] == [0, 1, 2]
    assert document["settings"][0]["params"]["num_leaves"] == TREES.num_leaves
    assert document["settings"][0]["dropped_after_fold"] is None
    assert sorted(len(item["fold_efficiency"]) for item in document["settings"]) == [1, 3, 3]
    dropped = next(item for item in document["settings"] if len(item["fold_efficiency"]) == 1)
    assert dropped["dropped_after_fold"] == 1
