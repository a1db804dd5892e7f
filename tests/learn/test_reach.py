"""Limits of extrapolation of a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.files.paths import data_dir
from ckh.learn.answers.api import rank, rank_many
from ckh.learn.models.artifact import Model, load_model
from ckh.learn.models.reach import FAR, beyond
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.learn.conftest import kernels, problems, saved
from tests.refusals import expect_values

if TYPE_CHECKING:
    from pathlib import Path

PROBLEM = problems()[3]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """A small model."""
    return load_model(saved(tmp_path / "model"))


def test_it_is_the_largest_threshold_of_the_trees(model: Model) -> None:
    """As in LightGBM's own text: on a size, or on its logarithm, whichever is larger."""
    forest = model._forest("tflops")
    largest: dict[str, float] = {}
    for feature, threshold in zip(forest.feature, forest.threshold, strict=True):
        name = forest.feature_names[feature]
        value = 2.0**threshold if name.startswith("log2_") else float(threshold)
        largest[name.removeprefix("log2_").lower()] = max(value, largest.get(name.removeprefix("log2_").lower(), 0.0))
    assert {"n", "c", "k"} & model.reach.keys()
    assert model.reach == {name: largest[name] for name in model.reach}
    assert "tile_m" not in model.reach


def test_the_models_that_ship_reach_their_hold_out() -> None:
    """No layer of the GEMM hold-out set, and no training problem, is far outside."""
    model = load_model(data_dir("models") / "gemm_universal_fp32_host")
    op = model.spec.op
    for name in ("host-llm", "host-gemm-train"):
        assert not any(beyond(problem, model.reach) for problem in op.problems.load(name, None, "fp32"))
    expect_values(beyond(GemmProblem(1_000_000, 64, 64), model.reach), "m = 1000000")


def test_one_and_many_agree(model: Model) -> None:
    """`rank`, `rank_many` and `Model.rank` omit the same speeds, and keep the order."""
    far = replace(PROBLEM, c=int(FAR * model.reach["c"]) * 2)
    near, outside = rank_many([PROBLEM, far], model=model)
    assert all(item.tflops is not None and item.latency_ms is not None for item in near)
    assert all(item.tflops is None and item.latency_ms is None for item in outside)
    assert outside == rank(far, model=model)
    pool = kernels(ndim=far.ndim)
    assert all(item.tflops is None for item in model.rank(far, pool))
    scores = [item.score for item in outside]
    assert scores == sorted(scores, reverse=True)
