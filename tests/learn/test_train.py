"""Training is reproducible, and its metrics are those of the trained models."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from statistics import fmean, median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import pytest

from ckh.data.dataset import Dataset
from ckh.errors import DataError, ModelError, UsageError
from ckh.files.outputs import check_output
from ckh.files.paths import data_dir
from ckh.learn.models.artifact import load_model
from ckh.learn.models.manifest import problem_id, trained_problems
from ckh.learn.training import boosting
from ckh.learn.training.boosting import make_fit
from ckh.learn.training.prepared import prepare
from ckh.learn.training.train import conformal, held_out, rounds, train
from ckh.learn.training.trained import MODEL, save
from ckh.ops.grouped_conv.features import GROUPED_CONV, INPUT_COLUMNS
from ckh.problems import Direction
from ckh.training import TARGETS as MODELLED
from ckh.training import RankObjective, TrainOptions
from tests.learn.conftest import HARDWARE, TREES, build, kernels, measured, problems, saved, time_ms, trained
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

TARGETS = (*MODELLED, "rank")
FILES = {f"model_{target}.lgbm.gz" for target in TARGETS}
FILES |= {f"{kind}_{target}.json" for kind in ("cv_metrics", "feature_importances") for target in TARGETS}
FILES |= {"feature_spec.json", "train_manifest.json", "kernels.json", "measured.json.gz", "timed_kernels.json.gz"}


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_equal_seeds_give_equal_bytes(tmp_path: Path) -> None:
    """Trained again, every file of the directory is identical."""
    save(train(measured(), trained().options, lambda _steps, _text: None), tmp_path / "again")
    first = contents(saved(tmp_path / "first"))
    assert set(first) == FILES
    assert contents(tmp_path / "again") == first


def test_held_out_scores_do_not_depend_on_the_problem() -> None:
    """Other times of one problem change no score of it, but scores of others; without folds there are none."""
    options = TrainOptions(folds=4, early_stopping=5, params=TREES)
    first = held_out(measured(), options)
    frame = measured().frame.copy()
    is_one = measured().problem_ids == 5
    frame.loc[is_one, "latency_ms"] *= np.random.default_rng(0).uniform(0.5, 2, is_one.sum())
    second = held_out(Dataset(frame), options)
    assert first is not None
    assert second is not None
    item = first.dataset.problem_ids == 5
    assert np.array_equal(first.score[item], second.score[second.dataset.problem_ids == 5])
    assert not np.array_equal(first.score[~item], second.score[second.dataset.problem_ids != 5])
    assert held_out(measured(), replace(options, folds=0)) is None


@pytest.mark.parametrize("are_many", [False, True])
def test_threads_change_no_byte(tmp_path: Path, are_many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one thread or more, the files are identical, also if rows are binned together."""
    if are_many:
        monkeypatch.setattr(boosting, "_MANY_ROWS", 100)
    rank = RankObjective.LAMBDARANK if are_many else RankObjective.TFLOPS
    for jobs in (1, 3):
        short = replace(TREES, n_estimators=4)
        options = TrainOptions(("tflops", "latency"), rank, folds=3, early_stopping=5, jobs=jobs, params=short)
        save(train(measured(), options, lambda _steps, _text: None), tmp_path / str(jobs))
    assert contents(tmp_path / "1") == contents(tmp_path / "3")


def test_another_seed_gives_other_trees(tmp_path: Path) -> None:
    """The seed affects the trees, not only the spec."""
    train_options, two = trained(), trained(seed=43)
    assert (
        train_options.targets["rank"].text.split("\nparameters:")[0]
        != two.targets["rank"].text.split("\nparameters:")[0]
    )


@pytest.mark.parametrize("rank", RankObjective)
def test_every_objective_gives_a_model_that_ranks(tmp_path: Path, rank: RankObjective) -> None:
    """Each loads, ranks by its own target, and chooses much better than chance on training data."""
    model = load_model(saved(tmp_path / "model", rank))
    assert model.spec.rank_by == ("tflops" if rank is RankObjective.TFLOPS else "rank")
    valid = measured().valid()
    scores, ms = model.scores(valid), valid.frame["latency_ms"].to_numpy()
    chosen, expected = [], []
    for number in range(14):
        rows = np.flatnonzero(valid.problem_ids == number)
        chosen.append(ms[rows].min() / ms[rows[np.argmax(scores[rows])]])
        expected.append(float(np.mean(ms[rows].min() / ms[rows])))
    assert fmean(chosen) > 0.8
    assert fmean(expected) < 0.6


def held_rows(groups: list[int], count: int) -> list[NDArray[np.int64]]:
    """Rows that each fold holds out: groups go to the smallest fold, the largest first, of equal ones the last.

    So does GroupKFold of scikit-learn, but for older versions, which leave the order of equal groups to NumPy.
    """
    folds: list[list[int]] = [[] for _ in range(count)]
    for _, group in sorted(((groups.count(group), group) for group in set(groups)), reverse=True):
        min(folds, key=len).extend(row for row, of in enumerate(groups) if of == group)
    return [np.sort(rows) for rows in folds]


@pytest.mark.parametrize("are_many", [False, True])
@pytest.mark.parametrize("target", ["tflops", "rank"])
def test_metrics_of_a_fold_equal_its_models(target: str, are_many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold trained again with LightGBM alone has the recorded trees, errors and efficiencies.

    Large data are binned together, with row-wise histograms.
    """
    if are_many:
        monkeypatch.setattr(boosting, "_MANY_ROWS", 100)
    options = TrainOptions(MODELLED, folds=4, early_stopping=5, params=TREES)
    fold = train(measured(), options, lambda _steps, _text: None).targets[target].folds[1]
    frame = measured().frame[measured().frame["is_valid"]].reset_index(drop=True)
    keys = frame[["N", "C", "K", "G", "Hi", "Di", "stride_h"]].apply(tuple, axis=1)
    groups = keys.map({key: number for number, key in enumerate(dict.fromkeys(keys))}).to_numpy()
    matrix = GROUPED_CONV.matrix({name: frame[name].to_numpy() for name in INPUT_COLUMNS}, HARDWARE)
    best = frame.groupby(groups)["latency_ms"].transform("min")
    efficiency = (best / frame["latency_ms"]).to_numpy()
    label = np.log1p(frame["tflops"].to_numpy()) if target == "tflops" else np.maximum(np.log(efficiency), -2.5)
    weight = None if target == "tflops" else efficiency
    parts = held_rows(groups.tolist(), 4)
    params = TREES.to_dict() | {"objective": "regression", "random_state": 42, "n_jobs": 1, "verbose": -1}
    params |= {"deterministic": True, "force_row_wise" if are_many else "force_col_wise": True}

    def data(rows: NDArray[np.int64]) -> lightgbm.Dataset:
        return lightgbm.Dataset(
            matrix[rows],
            label[rows],
            weight=None if weight is None else weight[rows],
            feature_name=list(GROUPED_CONV.names),
            categorical_feature=list(GROUPED_CONV.categorical),
            params=params,
        )

    whole, both = data(np.arange(len(label))), (np.sort(np.concatenate([parts[0], parts[3]])), parts[2])
    sets = [whole.subset(rows.tolist(), params=params) if are_many else data(rows) for rows in both]
    booster = lightgbm.train(
        params,
        sets[0],
        valid_sets=[sets[1]],
        callbacks=[lightgbm.early_stopping(5, verbose=False)],
    )
    predicted = np.asarray(booster.predict(matrix[parts[1]], num_iteration=booster.best_iteration))
    truth, of = label[parts[1]], groups[parts[1]]
    chosen = [efficiency[parts[1]][of == item][np.argmax(predicted[of == item])] for item in sorted(set(of))]
    squares = float(((predicted - truth) ** 2).sum())
    assert fold.best_iteration == booster.best_iteration
    assert (fold.val_size, fold.val_groups) == (len(truth), len(chosen))
    assert fold.train_size == len(parts[0]) + len(parts[3])
    assert fold.rmse == pytest.approx((squares / len(truth)) ** 0.5, rel=1e-9)
    assert fold.r2 == pytest.approx(1 - squares / float(((truth - truth.mean()) ** 2).sum()), rel=1e-9)
    assert fold.mean_efficiency == pytest.approx(fmean(chosen), rel=1e-9)
    assert fold.p10_efficiency == pytest.approx(float(np.percentile(chosen, 10)), rel=1e-9)


def test_total_efficiency_of_the_folds() -> None:
    """Held-out efficiency is the mean over problems of all folds, for ranking targets; LambdaRank has no error."""
    made = trained().targets["rank"]
    parts = [(fold.mean_efficiency, fold.val_groups) for fold in made.folds]
    assert sum(count for _, count in parts) == 14
    assert made.oof_mean_efficiency == pytest.approx(sum(mean * n for mean, n in parts if mean is not None) / 14)
    latency = trained().targets["latency"]
    assert latency.oof_mean_efficiency is None
    assert all(fold.mean_efficiency is None and fold.rmse is not None for fold in latency.folds)
    ranked = trained(RankObjective.LAMBDARANK).targets["rank"]
    assert all(fold.rmse is None and fold.r2 is None and fold.mean_efficiency is not None for fold in ranked.folds)


@pytest.mark.parametrize("target", TARGETS)
def test_the_final_model_has_the_median_number_of_trees(target: str) -> None:
    """Trees and split counts in the saved text equal the recorded ones."""
    made = trained().targets[target]
    assert made.trees == round(median(fold.best_iteration for fold in made.folds))
    booster = lightgbm.Booster(model_str=made.text)
    assert booster.num_trees() == made.trees
    assert list(made.importances.values()) == booster.feature_importance("split").tolist()
    assert list(made.importances) == booster.feature_name() == list(GROUPED_CONV.names)


def test_the_folds_do_not_all_stop_at_the_same_tree() -> None:
    """The data distinguish the median from the first, last or largest number of trees."""
    counts = {fold.best_iteration for made in trained().targets.values() for fold in made.folds}
    assert len(counts) > 3


def test_the_order_weighs_rows_by_their_efficiency() -> None:
    """Rows of a ranking regression are weighted by efficiency; TFLOPS have no such weights."""
    valid = measured().valid()
    best = valid.frame.groupby(valid.problem_ids)["latency_ms"].transform("min").to_numpy()
    weight = make_fit("rank", valid, RankObjective.RELATIVE).weight
    assert weight is not None
    np.testing.assert_allclose(weight, best / valid.frame["latency_ms"].to_numpy(), rtol=1e-12)
    assert make_fit("tflops", valid, RankObjective.RELATIVE).weight is None


@pytest.mark.parametrize("are_many", [False, True])
def test_the_progress_counts_every_round_once(are_many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps add up to the total, with or without early stopping; for large data latency has one fold."""
    if are_many:
        monkeypatch.setattr(boosting, "_MANY_ROWS", 100)
    options = replace(trained().options, targets=("tflops", "latency"))
    steps: list[int] = []
    made = train(measured(), options, lambda step, _text: steps.append(step))
    assert sum(steps) == rounds(options)
    folds = {target: len(train_options.folds) for target, train_options in made.targets.items()}
    assert folds == {"tflops": 4, "latency": 1 if are_many else 4, "rank": 4}


def test_failures_are_not_trained_on() -> None:
    """Rows without a usable time are counted in the total only."""
    count = int(measured().frame["is_valid"].sum())
    assert (trained().all_rows, len(trained().dataset.frame)) == (14 * 24, count)
    assert count < 14 * 24


def test_too_few_problems_train_without_folds() -> None:
    """Two problems cannot be split: there are no folds, and all trees are kept."""
    rows = [(problem, kernel, time_ms(problem, kernel)) for problem in problems()[:2] for kernel in kernels()]
    options = TrainOptions(targets=("tflops",), rank=RankObjective.TFLOPS, params=TREES)
    made = train(build(rows), options, lambda _steps, _text: None).targets["tflops"]
    assert (made.folds, made.trees, made.oof_mean_efficiency) == ((), TREES.n_estimators, None)


@pytest.mark.parametrize(("column", "value"), [("variant", "bwd_data"), ("arch", "gfx942"), ("dtype", "bf16")])
def test_mixed_rows_are_refused(column: str, value: str) -> None:
    """A model has one direction, architecture and dtype; the message lists the values."""
    frame = measured().frame.copy()
    old = frame[column].iloc[0]
    frame.loc[100:, column] = value
    with expect_refusal(DataError, "mixed-data", column, ", ".join(sorted([old, value]))):
        train(Dataset(frame), trained().options, lambda _steps, _text: None)


def test_rows_without_a_time_are_refused() -> None:
    """Failures alone cannot be trained on."""
    failures = measured().select(~measured().frame["is_valid"].to_numpy(dtype=bool))
    assert len(failures)
    with expect_refusal(DataError, "not-measured"):
        train(failures, trained().options, lambda _steps, _text: None)


def test_the_files_have_the_keys_of_amd(model_dir: Path) -> None:
    """AMD's tools find their keys in spec, manifest and metrics; ckh's are under one key."""
    names = [name for name in FILES if name.endswith(".json")]
    read = {name: json.loads((model_dir / name).read_text(encoding="utf-8")) for name in names}
    spec, manifest = read["feature_spec.json"], read["train_manifest.json"]
    assert set(spec) == {
        *("op_type", "feature_encoding_version", "feature_engine", "hardware", "dtype", "arch", "feature_names"),
        *("categorical_features", "targets", "log_targets", "params", "ckh"),
    }
    assert (spec["op_type"], spec["dtype"], spec["arch"]) == ("grouped_conv", "fp32", "host")
    assert spec["targets"] == list(TARGETS)
    assert spec["log_targets"] == ["bandwidth", "tflops"]
    assert spec["hardware"] == HARDWARE
    assert spec["ckh"] == {"variant": "forward", "device": "a test", "rank_by": "rank", "tile_naming": "true"}
    assert set(manifest) == {
        *("warm_start_from", "prev_n_estimators", "new_n_estimators", "total_n_estimators", "data_rows"),
        *("valid_rows", "unique_shapes", "timestamp", "ckh"),
    }
    assert set(manifest["ckh"]) == {
        *("version", "lightgbm", "data_sha256", "sources", "rank_objective", "folds", "seed", "trees"),
        *("oof_efficiency", "problems", "layers"),
    }
    assert manifest["total_n_estimators"] == trained().targets["rank"].trees
    assert (manifest["data_rows"], manifest["unique_shapes"]) == (14 * 24, 14)
    assert manifest["valid_rows"] == int(measured().frame["is_valid"].sum())
    assert manifest["ckh"]["data_sha256"] == measured().valid().content_hash
    assert manifest["ckh"]["trees"] == {target: trained().targets[target].trees for target in TARGETS}
    assert len(read["cv_metrics_rank.json"]) == 4
    assert read["cv_metrics_rank.json"][2]["p10_efficiency"] == trained().targets["rank"].folds[2].p10_efficiency
    assert read["feature_importances_tflops.json"] == trained().targets["tflops"].importances


@pytest.mark.parametrize("target", TARGETS)
def test_model_files_are_the_text_of_lightgbm(model_dir: Path, target: str) -> None:
    """LightGBM reads the unpacked file."""
    text = gzip.decompress((model_dir / f"model_{target}.lgbm.gz").read_bytes()).decode()
    assert lightgbm.Booster(model_str=text).num_feature() == len(GROUPED_CONV.names)
    assert "[num_threads: 0]" in text


def test_training_problems_are_stored(model_dir: Path) -> None:
    """The manifest has an id for every problem; another direction is another problem."""
    known = trained_problems(model_dir)
    assert known is not None
    assert known == frozenset(problem_id(problem) for problem in problems())
    assert not known & {problem_id(problem) for problem in problems(Direction.BWD_DATA)}
    (model_dir / "train_manifest.json").write_text("{}", encoding="utf-8")
    assert trained_problems(model_dir) is None
    (model_dir / "train_manifest.json").write_text("[]", encoding="utf-8")
    with expect_refusal(ModelError, "bad-field"):
        trained_problems(model_dir)


def test_a_model_replaces_another_whole(model_dir: Path) -> None:
    """Files of the old model are removed, and nothing else remains."""
    (model_dir / "notes.txt").write_text("old", encoding="utf-8")
    saved(model_dir, RankObjective.TFLOPS)
    assert set(contents(model_dir)) == {name for name in FILES if "rank" not in name}
    assert [path.name for path in model_dir.parent.iterdir()] == [model_dir.name]


def test_only_models_are_replaced(model_dir: Path, tmp_path: Path) -> None:
    """Only a model directory may be overwritten, and only by force."""
    check_output(model_dir, MODEL, force=True)
    with pytest.raises(UsageError, match="exists"):
        check_output(model_dir, MODEL, force=False)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "feature_spec.json").write_text("{}", encoding="utf-8")
    with expect_refusal(UsageError, "foreign-output"):
        check_output(tmp_path / "folder", MODEL, force=True)
    (model_dir / "thesis.tex").write_text("mine", encoding="utf-8")
    with expect_refusal(UsageError, "foreign-output", "thesis.tex"):
        check_output(model_dir, MODEL, force=True)


@pytest.mark.parametrize("name", sorted(path.name for path in data_dir("models").iterdir() if path.is_dir()))
def test_every_model_that_ships_is_known_as_one(name: str) -> None:
    """With all of its files, for any operation."""
    assert MODEL.difference(data_dir("models") / name) == ""


@pytest.mark.parametrize(("rows", "threads"), [(10**9, 1), (50, 2), (1, 3)])
def test_few_rows_take_few_threads(rows: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread per that many rows, at least one, and at most the number in the options."""
    options = TrainOptions(jobs=3)
    data = measured().valid()
    data = data.select(np.arange(len(data)) < 120)
    monkeypatch.setattr(boosting, "_ROWS_A_THREAD", rows)
    fitting = boosting.Boosting(prepare(data, options), options, lambda _steps, _text: None)
    assert len(fitting.prepared.matrix) == len(data) in range(100, 150)
    fit = make_fit("tflops", fitting.prepared.dataset, options.rank)
    assert fitting._parameters(fit, options.params)["n_jobs"] == threads


def test_the_lead_is_the_error_on_kernels_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With planted scores it is that of plain loops, of a third of the tiles or pipelines, on held-out problems."""
    scores = np.random.default_rng(3).normal(size=len(measured().valid()))
    fitted: list[Any] = []

    def fit(_: Any, __: Any, rows: Any, *___: Any) -> Any:
        return SimpleNamespace(best_iteration=1, rows=rows)

    def predict(_: Any, model: Any, others: Any) -> Any:
        fitted.append((model.rows, others))
        return scores[others]

    monkeypatch.setattr(boosting.Boosting, "fit", fit)
    monkeypatch.setattr("ckh.learn.training.feature_matrix.FeatureMatrix.predict", predict)
    monkeypatch.setattr("ckh.learn.training.train._fitted", lambda *_: None)
    monkeypatch.setattr("ckh.learn.training.train._FEWEST_LEADS", 2)
    options = TrainOptions((), folds=4, early_stopping=5, params=TREES)
    lead = train(measured(), options, lambda *_: None).lead
    rows = measured().valid()
    tiles = rows.frame[["tile_m", "tile_n", "tile_k"]].astype(str).agg("x".join, axis=1).to_numpy()
    kinds, errors = (tiles, rows.frame["pipeline"].to_numpy()), []
    ms = rows.frame["latency_ms"].to_numpy()
    assert len(fitted) == 8  # four folds, and four that leave kernels out
    for number, (trained_on, others) in enumerate(fitted[4:]):
        of = kinds[number % 2]
        out = set(of) - set(of[trained_on])
        assert len(out) == max(1, len(set(of)) // 3)
        assert not set(rows.problem_ids[trained_on]) & set(rows.problem_ids[others])
        for problem in set(rows.problem_ids[others]):
            inside = [row for row in others if rows.problem_ids[row] == problem]
            best = {
                is_out: max((row for row in inside if (of[row] in out) == is_out), key=lambda row: scores[row])
                for is_out in (True, False)
            }
            more = scores[best[True]] - scores[best[False]]
            if more > 0:
                errors.append(more if ms[best[True]] >= ms[best[False]] else 0.0)
    assert 2 <= len(errors) < 19
    assert lead == pytest.approx(max(errors))


def test_a_conformal_quantile_counts_the_next_one() -> None:
    """Of 39 errors it is the 38th at 95 %, of up to 19 the largest."""
    assert conformal([float(number) for number in range(1, 40)], 0.95) == 38.0
    assert conformal([3.0, 1.0, 2.0], 0.95) == 3.0
    assert conformal([float(number) for number in range(1, 20)], 0.95) == 19.0
