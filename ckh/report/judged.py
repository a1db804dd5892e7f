"""Efficiency of a model's choices on measured problems: the arrays that figures of models are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess import baselines
from ckh.assess.metrics import choices
from ckh.assess.noise import repeat_noise
from ckh.assess.ranked_rows import Coverage, RankedRows, coverage, coverage_of
from ckh.assess.report import FIXED, NEAREST
from ckh.assess.times import times_of
from ckh.errors import DataError
from ckh.learn.judging.judged_answers import judged_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.assess.metrics import Times
    from ckh.data.dataset import Dataset
    from ckh.learn.models.artifact import Model


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A model evaluated on a dataset."""

    model: Model
    dataset: Dataset  # problems that have an oracle
    times: Times  # times of all rows
    ranked: RankedRows  # the rows in the model's order
    coverage: Coverage  # overlap of the model's answers and the measurements

    @property
    def all_efficiency(self) -> NDArray[np.float64]:
        """Efficiency of the choices, NaN for unmeasured ones, shape (problems,)."""
        return self.ranked.efficiency(self.times)

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


def judge(model: Model, dataset: Dataset, *, measured_alone: bool = False) -> Judged:
    """Answers of a model for measured problems with an oracle; or its order of only the measured kernels."""
    times, noise = times_of(dataset), repeat_noise(dataset)
    times = times if noise is None else replace(times, tolerance=noise.tolerance)
    ranked, _ratios = judged_rows(model, dataset, measured_alone=measured_alone)
    judged = Judged(model, dataset, times, ranked, coverage([coverage_of(ranked, times)]))
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
    scores: dict[str, NDArray[np.float64]] = {}
    if learned_from is not None:
        learned = baselines.Learned([learned_from])
        scores = {NEAREST: learned.nearest_problem_scores(dataset), FIXED: learned.single_kernel_scores(dataset)}
    efficiencies = {
        name: times.efficiency()[choices(score, times.problem, times.count)] for name, score in scores.items()
    }
    efficiencies["random kernel"] = baselines.random_efficiency(times)
    is_judged = np.isfinite(judged.all_efficiency)
    return {name: values[is_judged] for name, values in efficiencies.items()}
