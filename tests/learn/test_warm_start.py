"""A warm start adds trees to a model of the same target and inputs, and reports whether that helped."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

import lightgbm
import numpy as np
import pytest

from ckh.data.dataset import Dataset
from ckh.errors import ModelError, UsageError
from ckh.learn.models.artifact import Model, load_model
from ckh.learn.models.manifest import problem_id, trained_problems
from ckh.learn.training.train import train
from ckh.learn.training.trained import compare, save
from ckh.learn.training.warm_start import NEW_TREES, continued, read_start
from ckh.ops.grouped_conv.features import GROUPED_CONV, INPUT_COLUMNS
from ckh.training import RankObjective, TrainOptions
from tests.learn.conftest import HARDWARE, TREES, amd_model, measured, problems
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.learn.training.trained import Trained

OPTIONS = TrainOptions(targets=("tflops",), folds=3, early_stopping=5, params=TREES)


def quiet(_steps: int, _text: str) -> None:
    """Ignore progress."""


@cache
def first(rank: RankObjective) -> Trained:
    """A model of four of the fourteen problems."""
    few = measured().select(measured().problem_ids < 4)
    return train(few, replace(OPTIONS, rank=rank, folds=0), quiet)


def start_in(folder: Path, rank: RankObjective = RankObjective.RELATIVE) -> Path:
    """Save that model in a folder."""
    save(first(rank), folder)
    return folder


def text_of(folder: Path, target: str) -> str:
    """LightGBM's text of a model."""
    return gzip.decompress((folder / f"model_{target}.lgbm.gz").read_bytes()).decode()


def trees_of(text: str) -> list[str]:
    """The text of each tree, without its number."""
    return [part.split("\n", 1)[1].split("end of trees")[0].strip() for part in text.split("\nTree=")[1:]]


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("rank", RankObjective)
def test_the_new_trees_correct_the_old(tmp_path: Path, rank: RankObjective) -> None:
    """The start's trees come first, unchanged; the score adds what LightGBM alone learns from the start's errors."""
    start = read_start(start_in(tmp_path / "start", rank))
    short = replace(TREES, n_estimators=5)
    made = train(measured(), replace(OPTIONS, rank=rank, folds=0, params=short), quiet, start)
    target = made.rank_by
    old, text = text_of(start.path, target), made.targets[target].text
    assert trees_of(text)[:12] == trees_of(old)
    assert (len(trees_of(text)), made.targets[target].trees, start.trees[target]) == (17, 17, 12)

    frame = measured().frame[measured().frame["is_valid"]].reset_index(drop=True)
    groups = measured().problem_ids[measured().frame["is_valid"].to_numpy(dtype=bool)]
    matrix = GROUPED_CONV.matrix({name: frame[name].to_numpy() for name in INPUT_COLUMNS}, HARDWARE)
    efficiency = (frame.groupby(groups)["latency_ms"].transform("min") / frame["latency_ms"]).to_numpy()
    label = {
        RankObjective.TFLOPS: np.log1p(frame["tflops"].to_numpy()),
        RankObjective.EFFICIENCY: efficiency,
        RankObjective.RELATIVE: np.maximum(np.log(efficiency), -2.5),
        RankObjective.LAMBDARANK: np.floor(efficiency * 30),
    }[rank]
    before = np.asarray(lightgbm.Booster(model_str=old).predict(matrix, raw_score=True))
    data = lightgbm.Dataset(
        matrix,
        label,
        weight=efficiency if rank in {RankObjective.EFFICIENCY, RankObjective.RELATIVE} else None,
        group=np.bincount(groups) if rank is RankObjective.LAMBDARANK else None,
        init_score=before,
        feature_name=list(GROUPED_CONV.names),
        categorical_feature=list(GROUPED_CONV.categorical),
    )
    objective: dict[str, object] = {"objective": "regression"}
    if rank is RankObjective.LAMBDARANK:
        gains = [float(np.expm1(grade / 5)) for grade in range(31)]
        objective = {"objective": "lambdarank", "label_gain": gains, "lambdarank_truncation_level": 20}
    fixed = {"random_state": 42, "n_jobs": 1, "verbose": -1, "deterministic": True, "force_col_wise": True}
    alone = lightgbm.train({**short.to_dict(), **objective, **fixed}, data)
    whole = lightgbm.Booster(model_str=text)
    np.testing.assert_allclose(
        whole.predict(matrix, raw_score=True), before + alone.predict(matrix, raw_score=True), rtol=0, atol=1e-12
    )
    assert not np.allclose(whole.predict(matrix, raw_score=True), before, atol=1e-3)


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    """For any number of threads, with folds."""
    start = read_start(start_in(tmp_path / "start"))
    for jobs in (1, 2):
        options = replace(OPTIONS, jobs=jobs, params=replace(TREES, n_estimators=2))
        save(train(measured(), options, quiet, start), tmp_path / str(jobs))
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_folds_continue_the_start_and_are_compared_with_it(tmp_path: Path) -> None:
    """A fold's model contains the start; both are evaluated on the ten problems unseen by the start."""
    folder = start_in(tmp_path / "start")
    made = train(measured(), OPTIONS, quiet, read_start(folder)).targets["rank"]
    assert all(12 < fold.best_iteration <= 24 for fold in made.folds)
    assert made.trees == sorted(fold.best_iteration for fold in made.folds)[1]
    comparison = made.comparison
    assert comparison is not None
    assert (comparison.problems, comparison.seen) == (10, 0)
    ms = np.where(measured().frame["is_valid"], measured().frame["latency_ms"], np.inf)
    usable = measured().frame["is_valid"].to_numpy(dtype=bool)
    scores = np.where(usable, load_model(folder).scores(measured()), -np.inf)
    rows = [np.flatnonzero(measured().problem_ids == number) for number in range(4, 14)]
    chosen = [ms[of].min() / ms[of[np.argmax(scores[of])]] for of in rows]
    assert comparison.start_mean_efficiency == pytest.approx(fmean(chosen), rel=1e-12)
    assert comparison.start_p10_efficiency == pytest.approx(float(np.percentile(chosen, 10)), rel=1e-12)
    assert made.oof_mean_efficiency is not None
    assert comparison.mean_efficiency > comparison.start_mean_efficiency
    assert comparison.losses == ()


def test_comparisons_prefer_unseen_problems() -> None:
    """Ten unseen problems are enough; with fewer all are compared, and unknown values are None."""
    before, after = np.linspace(0.5, 1, 12), np.linspace(0.6, 0.9, 12)
    seen = np.arange(12) < 2
    item = compare(before, after, seen)
    assert (item.problems, item.seen) == (10, 0)
    assert item.start_mean_efficiency == pytest.approx(fmean(before[2:]))
    assert item.p10_efficiency == pytest.approx(float(np.percentile(after[2:], 10)))
    assert item.losses == ("mean",)
    other = compare(before, after, np.arange(12) < 3)
    assert (other.problems, other.seen) == (12, 3)
    assert other.start_mean_efficiency == pytest.approx(0.75)
    assert compare(before, after, None).seen is None
    low = np.array([0.1, 1, 1, 1])
    assert compare(np.full(4, 0.7), low, None).losses == ("P10",)
    assert compare(low, low, None).losses == ()
    assert compare(np.full(4, 0.9), low, None).losses == ("mean", "P10")


def test_the_lineage_is_kept(tmp_path: Path) -> None:
    """AMD's keys count trees; ckh's list the start's files, and the start's own start."""
    item, two, three = (tmp_path / name for name in ("one", "two", "three"))
    start_in(item)
    short = replace(OPTIONS, folds=0, params=replace(TREES, n_estimators=3))
    save(train(measured(), short, quiet, read_start(item)), two)
    few = measured().select(measured().problem_ids > 9)
    save(train(few, short, quiet, read_start(two)), three)
    manifest = json.loads((three / "train_manifest.json").read_text(encoding="utf-8"))
    counts = {name: manifest[name] for name in manifest if name.endswith("_estimators")}
    assert counts == {"prev_n_estimators": 15, "new_n_estimators": 3, "total_n_estimators": 18}
    assert manifest["warm_start_from"] == str(two)
    start = manifest["ckh"]["warm_start"]
    assert start["sha256"] == {name: hashlib.sha256(text).hexdigest() for name, text in contents(two).items()}
    assert start["data_sha256"] == measured().valid().content_hash
    assert (start["prev_trees"], start["validation"]) == ({"tflops": 15, "rank": 15}, None)
    assert start["start"]["from"] == str(item)
    assert start["start"]["prev_trees"] == {"tflops": 12, "rank": 12}
    assert start["start"]["start"] is None
    # Problems seen by the start are also seen by its successor.
    assert trained_problems(three) == frozenset(problem_id(problem) for problem in problems())


def test_all_differences_are_reported_at_once(tmp_path: Path) -> None:
    """Differences in dtype, arch, direction, inputs, targets and objective are on one line."""
    folder = start_in(tmp_path / "start")
    spec = json.loads((folder / "feature_spec.json").read_text(encoding="utf-8"))
    spec |= {"dtype": "bf16", "arch": "gfx942", "log_targets": [], "categorical_features": ["pipeline"]}
    spec["ckh"]["variant"] = "bwd_data"
    spec["hardware"]["num_cus"] = 304
    (folder / "feature_spec.json").write_text(json.dumps(spec), encoding="utf-8")
    options = replace(OPTIONS, targets=("tflops", "latency"), rank=RankObjective.LAMBDARANK)
    with pytest.raises(UsageError) as caught:
        train(measured(), options, quiet, read_start(folder))
    assert caught.value.code == "not-continuable"
    differences = [
        ("direction: ", "bwd_data", "forward"),
        ("objective: ", "relative", "lambdarank"),
        ("categorical features: ", "+kernel_variant"),
        ("targets: ", "latency"),
        ("log targets: ", "tflops"),
        ("dtype: ", "bf16", "fp32"),
        ("arch: ", "gfx942", "host"),
        ("num_cus: ", 304, 3),
    ]
    for line, values in zip(caught.value.message.split(": ", 1)[1].split("; "), differences, strict=True):
        expect_values(line, *values)


def of_other_gpu(folder: Path, arch: str, **changes: object) -> Path:
    """A model's folder as if measured on another GPU."""
    spec = json.loads((folder / "feature_spec.json").read_text(encoding="utf-8")) | {"arch": arch, **changes}
    (folder / "feature_spec.json").write_text(json.dumps(spec), encoding="utf-8")
    return folder


def test_a_model_of_other_hardware_is_continued_and_that_is_recorded(tmp_path: Path) -> None:
    """Other compute units and another element type: trees are added, and the manifest records the differences."""
    start = of_other_gpu(start_in(tmp_path / "start"), "host", dtype="bf16", hardware={**HARDWARE, "num_cus": 304})
    made = train(measured(), replace(OPTIONS, folds=0), quiet, read_start(start))
    save(made, tmp_path / "made")
    manifest = json.loads((tmp_path / "made" / "train_manifest.json").read_text(encoding="utf-8"))
    dtype, hardware = manifest["ckh"]["warm_start"]["differs"]
    expect_values(dtype, "dtype: ", "bf16", "fp32")
    expect_values(hardware, "num_cus: ", 304, 3)
    assert made.targets[made.rank_by].trees == 24
    model = load_model(tmp_path / "made")
    assert (model.spec.dtype, model.hardware["num_cus"]) == ("fp32", 3)


def test_the_hosts_model_is_not_continued_for_a_gpu(tmp_path: Path) -> None:
    """Nor vice versa: times of a CPU do not apply to a GPU."""
    start = read_start(of_other_gpu(start_in(tmp_path / "start"), "gfx950"))
    with expect_refusal(UsageError, "not-continuable", "gfx950", "host"):
        train(measured(), OPTIONS, quiet, start)


def test_the_order_of_features_matters(tmp_path: Path) -> None:
    """Features in another order, and missing features, are named."""
    folder = start_in(tmp_path / "start")
    names = list(GROUPED_CONV.names)
    start = read_start(folder)
    swapped = replace(start.spec, feature_names=(names[1], names[0], *names[2:]))
    with expect_refusal(UsageError, "not-continuable", "feature names: another order"):
        train(measured(), OPTIONS, quiet, replace(start, model=Model(start.path, swapped)))
    fewer = replace(start.spec, feature_names=tuple(names[5:]))
    with expect_refusal(UsageError, "not-continuable", *(f"+{name}" for name in names[:5])):
        train(measured(), OPTIONS, quiet, replace(start, model=Model(start.path, fewer)))


def test_what_cannot_be_continued(tmp_path: Path) -> None:
    """AMD's inputs have other meanings."""
    amd_model(tmp_path / "amd", GROUPED_CONV.names[:83])
    with expect_refusal(UsageError, "not-continuable", "AMD's"):
        train(measured(), replace(OPTIONS, rank=RankObjective.TFLOPS), quiet, read_start(tmp_path / "amd"))


def test_a_model_is_continued_as_it_was_trained(tmp_path: Path) -> None:
    """Targets, objective and parameters are the start's; trees and folds are not."""
    start = read_start(start_in(tmp_path / "start", RankObjective.LAMBDARANK))
    options = continued(start, TrainOptions(folds=0, seed=7))
    assert (options.targets, options.rank) == (("tflops",), RankObjective.LAMBDARANK)
    assert options.params == replace(TREES, n_estimators=NEW_TREES)
    assert (options.folds, options.seed) == (3, 7)


def test_splits_of_all_trees_are_counted(tmp_path: Path) -> None:
    """The start's trees and the new ones."""
    rank = replace(OPTIONS, rank=RankObjective.LAMBDARANK, folds=0)
    start = read_start(start_in(tmp_path / "start", RankObjective.LAMBDARANK))
    made = train(measured(), replace(rank, params=replace(TREES, n_estimators=3)), quiet, start).targets["rank"]
    assert (made.trees, len(trees_of(made.text))) == (15, 15)
    splits = [
        int(item) for line in re.findall(r"^split_feature=(.*)$", made.text, re.MULTILINE) for item in line.split()
    ]
    counts = np.bincount(splits, minlength=len(GROUPED_CONV.names))
    assert list(made.importances.values()) == counts.tolist()


@pytest.mark.parametrize("damage", ["missing", "spec", "cut", "manifest", "params"])
def test_a_damaged_start_is_reported(tmp_path: Path, damage: str) -> None:
    """The message names the folder or file."""
    folder = start_in(tmp_path / "start")
    spec = folder / "feature_spec.json"
    match damage:
        case "missing":
            folder = tmp_path / "nowhere"
        case "spec":
            spec.write_text("{", encoding="utf-8")
        case "cut":
            model = folder / "model_rank.lgbm.gz"
            model.write_bytes(gzip.compress(text_of(folder, "rank")[:3000].encode()))
        case "manifest":
            (folder / "train_manifest.json").write_text('{"ckh": 7}', encoding="utf-8")
        case "params":
            values = json.loads(spec.read_text(encoding="utf-8"))
            values["params"]["num_leaves"] = "many"
            spec.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ModelError, match=re.escape(str(folder))):
        read_start(folder)


def test_a_start_that_does_not_name_its_problems(tmp_path: Path) -> None:
    """Without the list all problems are compared, and the number seen is unknown."""
    folder = start_in(tmp_path / "start")
    manifest = json.loads((folder / "train_manifest.json").read_text(encoding="utf-8"))
    manifest["ckh"]["problems"] = None
    (folder / "train_manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    made = train(measured(), replace(OPTIONS, rank=RankObjective.RELATIVE), quiet, read_start(folder))
    comparison = made.targets["rank"].comparison
    assert comparison is not None
    assert (comparison.problems, comparison.seen) == (14, None)


def test_both_devices_are_named(tmp_path: Path) -> None:
    """The spec of a continued model names the devices of all its data."""
    frame = measured().frame.assign(device="another")
    made = train(Dataset(frame), replace(OPTIONS, folds=0), quiet, read_start(start_in(tmp_path / "start")))
    save(made, tmp_path / "more")
    assert load_model(tmp_path / "more").spec.device == "a test, another"


def test_a_continued_model_knows_both_kernel_sets(tmp_path: Path) -> None:
    """Its candidates are those of its start or the new data; all if the start does not state them."""
    frame, short = measured().frame, replace(OPTIONS, folds=0, params=replace(TREES, n_estimators=3))
    is_small = (frame["tile_m"] < 64).to_numpy()
    save(train(measured().select(is_small), short, quiet), tmp_path / "start")
    for is_known in (True, False):
        if not is_known:
            (tmp_path / "start" / "kernels.json").unlink()
        save(train(measured().select(~is_small), short, quiet, read_start(tmp_path / "start")), tmp_path / "made")
        assert (tmp_path / "made" / "kernels.json").exists() == is_known
        if is_known:
            tiles = json.loads((tmp_path / "made" / "kernels.json").read_text(encoding="utf-8"))["tiles"]
            assert tiles == sorted(frame[["tile_m", "tile_n", "tile_k"]].drop_duplicates().to_numpy().tolist())
