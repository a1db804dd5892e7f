"""Limits of extrapolation of a model."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.data.dataset import read_dataset
from ckh.files.paths import data_dir, shipped_data
from ckh.learn.answers.answer import ABOVE_PEAK
from ckh.learn.answers.api import rank, rank_many, ranking
from ckh.learn.models.artifact import Model, load_model
from ckh.learn.models.reach import FAR, beyond, peak_tflops
from ckh.learn.models.spec import ModelSpec
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
    forest = model.forest("tflops")
    largest: dict[str, float] = {}
    for feature, threshold in zip(forest.feature, forest.threshold, strict=True):
        name = forest.feature_names[feature]
        value = 2.0**threshold if name.startswith("log2_") else float(threshold)
        largest[name.removeprefix("log2_").lower()] = max(value, largest.get(name.removeprefix("log2_").lower(), 0.0))
    assert {"n", "c", "k"} & model.reach.keys()
    assert model.reach == {name: largest[name] for name in model.reach}
    assert "tile_m" not in model.reach


def test_a_shipped_model_reaches_its_training_problems() -> None:
    """None is far outside, and a size far beyond them is named."""
    model = load_model(data_dir("models") / "grouped_conv_forward_bf16_gfx950")
    problems = read_dataset(shipped_data() / "amd-gfx950-conv-20kernels.parquet").problems()
    assert not any(beyond(problem, model.reach) for problem in problems)
    expect_values(beyond(replace(problems[0], c=10**6), model.reach), "c = 1000000")


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


def test_no_speed_above_the_peak_is_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such rows have neither TFLOPS nor a time, in `rank` and in answers, which state the reason; the order is kept."""
    before, after, none = (load_model(saved(tmp_path / name)) for name in ("before", "after", "none"))
    ranked = rank(PROBLEM, model=before)
    speeds = [item.tflops or math.nan for item in ranked]
    middle = sorted(speeds)[len(speeds) // 2]
    monkeypatch.setattr(ModelSpec, "peak_of", lambda *_: (middle, 1))
    capped = rank(PROBLEM, model=after)
    assert [item.kernel for item in capped] == [item.kernel for item in ranked]
    assert [item.tflops for item in capped] == [speed if speed <= middle else None for speed in speeds]
    assert [item.latency_ms is None for item in capped] == [speed > middle for speed in speeds]
    monkeypatch.setattr(ModelSpec, "peak_of", lambda *_: (1e-9, 1))
    answer = ranking(PROBLEM, none, None, None, None).answer(3, "")
    assert [row.tflops for row in answer.kernels] == [None] * 3
    assert answer.no_speed == ABOVE_PEAK


@pytest.mark.parametrize(("num_cus", "tflops"), [(0, 2048 * 304 * 2100e6 / 1e12), (80, 2048 * 80 * 2100e6 / 1e12)])
def test_the_peak_is_that_of_the_problems_gpu(num_cus: int, tflops: float) -> None:
    """Of the 304 compute units of an MI300X unless the problem states them; infinite for unknown rates."""
    arch = load_arch("gfx942")
    of_unit = arch.peak_tflops("fp16", 1), arch.largest_gpu
    stating = SimpleNamespace(num_cus=num_cus)
    assert peak_tflops(of_unit, stating) == pytest.approx(tflops)
    assert arch.peak_tflops("fp16", num_cus) == pytest.approx(tflops)
    assert arch.peak_tflops("fp64", num_cus) == peak_tflops((0.0, 304), stating) == math.inf
