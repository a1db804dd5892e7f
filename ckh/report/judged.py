"""Efficiency of a model's choices on measured problems: the arrays that figures of models are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess import baselines
from ckh.assess.metrics import choices
from ckh.assess.noise import noise_times
from ckh.assess.ranked_rows import Coverage, RankedRows, coverage, coverage_of
from ckh.assess.report import FIXED, HINDSIGHT, NEAREST
from ckh.errors import DataError
from ckh.learn.judging.judged_answers import judged_rows
from ckh.report import weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.assess.metrics import Times
    from ckh.data.dataset import Dataset
    from ckh.learn.models.artifact import Model


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A model evaluated on a dataset."""

    model: Model  # the model
    dataset: Dataset  # problems that have an oracle
    times: Times  # times of all rows
    ranked: RankedRows  # the rows in the model's order
    coverage: Coverage  # overlap of the model's answers and the measurements
    weights: NDArray[np.float64]  # number of executions of each problem, shape (problems,)

    @property
    def all_efficiency(self) -> NDArray[np.float64]:
        """Efficiency of the choices, NaN for unmeasured ones, shape (problems,)."""
        problem = self.times.problem
        efficiency = self.times.efficiency()[self.ranked.best_ranked(problem)]
        return np.where(self.ranked.is_measured(problem), efficiency, np.nan)

    @property
    def chosen(self) -> NDArray[np.int64]:
        """Row of each choice, -1 for unmeasured ones, shape (problems,)."""
        problem = self.times.problem
        return np.where(self.ranked.is_measured(problem), self.ranked.best_ranked(problem), -1)

    @property
    def efficiency(self) -> NDArray[np.float64]:
        """Efficiency of the measured choices, shape (measured choices,)."""
        all_efficiency = self.all_efficiency
        return all_efficiency[np.isfinite(all_efficiency)]

    @property
    def judged_weights(self) -> NDArray[np.float64]:
        """Weights of the problems with measured choices, shape (measured choices,)."""
        return self.weights[np.isfinite(self.all_efficiency)]

    @property
    def coverage_facts(self) -> list[tuple[str, str]]:
        """Facts on choices that could not be evaluated; empty if there are none."""
        coverage = self.coverage
        if coverage.coverage == 1.0:
            return []
        return [
            ("choices that were measured", f"{coverage.judged:,} of {coverage.problems:,}"),
            ("refused problems", f"{coverage.refused:,}"),
            ("best kernel is not a candidate", f"{coverage.best_no_candidate:,}"),
        ]

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.path.resolve().name

    def mean_and_low(self, scores: NDArray[np.float64]) -> tuple[float, float]:
        """Mean and tenth percentile of the efficiency of the measured kernels chosen by other scores."""
        efficiency = self.times.efficiency()[choices(scores, self.times.problem, self.times.count)]
        return weights.mean(efficiency, self.weights), float(weights.quantiles(efficiency, [0.1], self.weights)[0])


def judge(
    model: Model, dataset: Dataset, weight: NDArray[np.float64] | None = None, *, measured_alone: bool = False
) -> Judged:
    """Answers of a model for measured problems with an oracle; or its order of only the measured kernels."""
    (times, _noise), (ranked, _) = noise_times(dataset), judged_rows(model, dataset, measured_alone=measured_alone)
    weight = np.ones(times.count) if weight is None else weight
    judged = Judged(model, dataset, times, ranked, coverage([coverage_of(ranked, times)]), weight)
    if not len(judged.efficiency):
        raise DataError(
            f"none of the {times.count} choices of {model.path} was measured in these data",
            "rank the measured kernels alone with --among measured",
            code="not-measured",
        )
    return judged


def baseline_efficiencies(judged: Judged, learned_from: Dataset | None) -> dict[str, NDArray[np.float64]]:
    """Efficiency of baselines without a model, by name, on the problems of `Judged.efficiency`."""
    times, dataset = judged.times, judged.dataset
    result: dict[str, NDArray[np.float64]] = {}
    if learned_from is not None:
        learned = baselines.Learned([learned_from])
        scores = {
            NEAREST: learned.nearest_problem_scores(dataset),
            FIXED: learned.single_kernel_scores(dataset),
        }
        result |= {
            name: times.efficiency()[choices(score, times.problem, times.count)] for name, score in scores.items()
        }
    if (hindsight := baselines.hindsight_efficiency([dataset])) is not None:
        result[HINDSIGHT] = hindsight
    result["random kernel"] = baselines.random_efficiency(times)
    is_judged = np.isfinite(judged.all_efficiency)
    return {name: values[is_judged] for name, values in result.items()}
