"""Models of mixtures of experts start from the analytic estimate, as those of convolutions do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ckh.data.dataset import Dataset, read_dataset
from ckh.learn.analytic.corrected import estimated_logs
from ckh.learn.analytic.estimator import EstimateScores
from ckh.learn.answers.explain import explain
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model, wanted_for
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops.aiter_moe.kernel import moe_pool
from ckh.ops.aiter_moe.problem import AiterMoe

DATA = Path(__file__).parents[3] / "data"
MI350 = DATA / "aiter-moe-gfx950.parquet"


def some(rows: int, seed: int = 0) -> Dataset:
    """Random rows of AMD's times of an MI350."""
    every = read_dataset(MI350).valid()
    return every.select(np.sort(np.random.default_rng(seed).choice(len(every), rows, replace=False)))


def trained(dataset: Dataset, folder: Path) -> Path:
    """Train the ranking with the defaults of `ckh train`."""
    defaults = dataset.op.training.defaults(len(dataset))
    save(train(dataset, replace(defaults, targets=(), folds=0, jobs=1), lambda *_: None), folder)
    return folder


@pytest.mark.slow
def test_ten_rows_leave_the_order_to_the_estimate(tmp_path: Path) -> None:
    """A model of ten rows ranks pairs, and kernels of one product, as the estimate does, in C as in Python."""
    model = load_model(trained(some(10), tmp_path / "few"))
    assert model.spec.estimate
    for stage in ("both", "stage1", "stage2"):
        for quant, dtype in (("per_1x32", "pk_fp4"), ("per_1x128", "fp8")):
            problem = AiterMoe(512, 7168, 512, 384, 8, stage=stage, dtype=dtype, quant=quant, num_cus=256)
            pool = moe_pool("gfx950", stage, dtype, quant, "silu")
            score, _ = model.score_pool([problem], pool)
            minus_us = EstimateScores(wanted_for(problem, "gfx950")).scores([problem], pool)
            assert score == pytest.approx(-np.log(-minus_us), rel=1e-12)


def test_three_layers_of_one_row_have_no_folds(tmp_path: Path) -> None:
    """A fold of one row, which LightGBM cannot fit, is not tried: the model is the estimate."""
    every = read_dataset(MI350).valid()
    rows = [int(np.flatnonzero(every.split_ids == layer)[layer]) for layer in range(3)]
    data = every.select(np.isin(np.arange(len(every)), rows))
    assert len(data) == len(data.first_rows) == 3
    assert load_model(trained(data, tmp_path / "three")).spec.estimate


@pytest.mark.slow
def test_the_score_is_the_estimate_and_the_trees(tmp_path: Path) -> None:
    """Scores of rows, of pools and explanations agree where trees have a weight, on compute units of the problem."""
    learned = some(1200)
    model = load_model(trained(learned, tmp_path / "many"))
    held = some(200, seed=1)
    logs = estimated_logs(held)
    assert logs is not None
    scores, trees = model.scores(held), model.predict_dataset(held, "rank") + logs
    assert scores == pytest.approx(trees - logs)
    assert np.abs(trees).max() > 0.01
    names, op = held.frame["kernel"].to_numpy(), held.op
    for number, problem in list(enumerate(held.problems()))[::20]:
        rows = np.flatnonzero(held.problem_ids == number)
        score, _ = model.score_pool([problem], tuple(op.kernels.parse(name) for name in names[rows]))
        assert score[0] == pytest.approx(scores[rows], rel=1e-9)
    problem = next(one for one in held.problems() if one.stage == "both")
    ranking = ranking_of(problem, model)
    explained = explain(ranking)
    assert explained is not None
    first, second = ranking.best(2)
    assert explained.difference == pytest.approx(first.score - second.score)
