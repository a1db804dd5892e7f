"""Consistency of the report: totals, slices, baselines and choices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.assess.baselines import Learned
from ckh.assess.metrics import choices, summarize
from ckh.assess.ranked_rows import RankedRows
from ckh.assess.report import Choice, Evaluation, SliceReport
from ckh.assess.report import evaluate as evaluate_parts
from ckh.assess.times import judged, times_of
from ckh.data.parts import in_memory
from ckh.errors import DataError
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.operation import SLICES
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.learn.conftest import build, kernels, measured
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from ckh.data.dataset import Dataset

ONE = ConvProblem(Direction.FORWARD, 1, 16, 16, 1, 8, 8, 3, 3)
TWO = replace(ONE, n=16, stride_h=2)
A, B, C = (next(kernel for kernel in kernels() if kernel.pipeline == name) for name in ("compv3", "mem", "basic_v1"))
# The oracle is A on ONE (2 ms) and B on TWO (3 ms); the scores choose B, then C, which failed.
DATA = build([(ONE, A, 2), (ONE, B, 4), (ONE, C, 8), (TWO, A, 6), (TWO, B, 3), (TWO, C, 1)], failed=[5])
SCORES = np.array([1.0, 2.0, 0.0, 1.0, 0.0, 2.0])


def evaluate(dataset: Dataset, scores: np.ndarray, learned_from: Dataset | None = None) -> Evaluation:
    """Evaluate scores of all rows of a dataset."""
    learned = None if learned_from is None else Learned([learned_from])
    return evaluate_parts(in_memory(dataset), lambda part: RankedRows.by_scores(part, scores), learned)


def test_choices_are_reported_with_the_best() -> None:
    """A choice that failed has no time and efficiency 0."""
    evaluation = evaluate(DATA, SCORES)
    names = [kernel_name(item) for item in (A, B, C)]
    assert evaluation.choices == [
        Choice(ONE.canonical(), names[1], 4.0, names[0], 2.0, best_is_candidate=True, efficiency=0.5, is_best=False),
        Choice(TWO.canonical(), names[2], None, names[1], 3.0, best_is_candidate=True, efficiency=0.0, is_best=False),
    ]
    assert evaluation.rows == 6
    assert evaluation.efficiency is not None
    assert (evaluation.efficiency.problems, evaluation.efficiency.mean.value, evaluation.efficiency.min) == (
        2,
        0.25,
        0.0,
    )
    assert [problem.k for problem in evaluation.top] == [1, 3, 5, 10]
    assert [(top_k.hit, top_k.efficiency_mean) for top_k in evaluation.top[:2]] == [(0.0, 0.25), (1.0, 1.0)]


def test_slices_by_hand() -> None:
    """Each problem is in its slices; a pipeline is evaluated among its own kernels, without failures."""
    result = {(item.kind, item.name): item for item in evaluate(DATA, SCORES).slices}
    assert result["batch", "N = 1"] == SliceReport("batch", "N = 1", 1, 0.5, 0.5, 0.5, 0.5, 0.5)
    assert result["stride", "strided"] == SliceReport("stride", "strided", 1, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert result["filter", "3x3"] == SliceReport("filter", "3x3", 2, 0.25, 0.05, 0.0, 0.0, 0.5)
    assert ("batch", "N = 2 to 8") not in result
    counts = {name: item.problems for (kind, name), item in result.items() if kind == "pipeline"}
    assert counts == {"basic_v1": 1, "compv3": 2, "mem": 2}
    assert result["pipeline", "mem"].mean == 1.0


def test_slices_of_a_kind_have_the_mean_of_the_whole() -> None:
    """Weighted by problems, the slices of each kind average to the overall mean."""
    data = judged(measured())
    scores = np.random.default_rng(5).random(len(data))
    evaluation = evaluate(data, scores)
    assert evaluation.efficiency is not None
    for kind in SLICES:
        parts = [item for item in evaluation.slices if item.kind == kind]
        assert sum(part.problems for part in parts) == 14
        total = sum(part.mean * part.problems for part in parts)
        assert total / 14 == pytest.approx(evaluation.efficiency.mean.value, rel=1e-12)
        assert min(part.min for part in parts) == evaluation.efficiency.min


def test_a_pipeline_is_evaluated_by_its_own_best() -> None:
    """Compared with a loop: the choice among a pipeline's kernels over the best of them."""
    data = judged(measured())
    scores = np.random.default_rng(6).random(len(data))
    frame = data.frame.assign(score=scores, problem=data.problem_ids)
    frame = frame[frame["is_valid"] & (frame["pipeline"] == "mem")]
    expected = [
        part["latency_ms"].min() / part["latency_ms"].loc[part["score"].idxmax()]
        for _, part in frame.groupby("problem")
    ]
    (result,) = [item for item in evaluate(data, scores).slices if item.name == "mem"]
    assert result.problems == len(expected)
    assert result.mean == pytest.approx(np.mean(expected), rel=1e-12)
    assert result.p10 == pytest.approx(np.percentile(expected, 10), rel=1e-12)


def test_baselines_depend_on_the_data() -> None:
    """Baselines that learn need training data; all use the evaluated problems."""
    assert set(evaluate(DATA, SCORES).baselines) == {"random kernel (expected)"}
    learned = build([(ONE, A, 4), (ONE, B, 2), (TWO, A, 3), (TWO, B, 5)])
    baselines = evaluate(DATA, SCORES, learned).baselines
    means = {name: item.mean.value for name, item in baselines.items()}
    # Learned: on ONE B was best (here 1/2), on TWO A (here 1/2). Single: B's mean 0.8 beats A's 0.75: 1/2 and 1.
    # A random choice reaches 7/12 and 1/2.
    assert means == pytest.approx(
        {
            "nearest training problem": 0.5,
            "best single kernel": 0.75,
            "random kernel (expected)": (7 / 12 + 1 / 2) / 2,
        }
    )


def test_the_oracle_has_full_efficiency() -> None:
    """Scores that are negative times choose the best everywhere."""
    data = judged(measured())
    times = times_of(data)
    evaluation = evaluate(data, -times.latency_ms)
    assert evaluation.efficiency == summarize(np.ones(14))
    assert all(item.min == 1.0 for item in evaluation.slices)
    assert (choices(-times.latency_ms, times.problem, 14) >= 0).all()


def test_problems_without_a_time_are_not_evaluated() -> None:
    """They have no oracle; with no other problem there is nothing to evaluate."""
    data = build([(ONE, A, 2), (ONE, B, 4), (TWO, A, 6), (TWO, B, 3)], failed=[0, 1])
    assert judged(data).problems() == [TWO]
    assert judged(DATA) is DATA
    with expect_refusal(DataError, "not-measured"):
        judged(data.select(data.problem_ids == 0))
