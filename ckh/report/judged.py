"""The worth of a model's choices on measured problems: the arrays that figures of models are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess import baselines
from ckh.assess.metrics import choices
from ckh.assess.noise import noise_times
from ckh.assess.report import FIXED, HINDSIGHT, NEAREST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.assess.metrics import Times
    from ckh.data.dataset import Dataset
    from ckh.learn.artifact import Model


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A model on a dataset.

    Attributes:
        model: the model.
        dataset: problems that have an oracle.
        times: of all rows.
        scores: the model's, shape (rows,).
        chosen: row of the first choice of each problem, shape (problems,).
        efficiency: of the first choices, shape (problems,).
    """

    model: Model
    dataset: Dataset
    times: Times
    scores: NDArray[np.float64]
    chosen: NDArray[np.int64]
    efficiency: NDArray[np.float64]

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.path.resolve().name

    def mean_and_low(self, scores: NDArray[np.float64]) -> tuple[float, float]:
        """Mean and tenth percentile of the efficiency of what other scores choose."""
        efficiency = self.times.efficiency()[choices(scores, self.times.problem, self.times.count)]
        return float(efficiency.mean()), float(np.percentile(efficiency, 10))


def judge(model: Model, dataset: Dataset) -> Judged:
    """The choices of a model on measured problems, all of which have an oracle."""
    (times, _noise), scores = noise_times(dataset), model.scores(dataset)
    chosen = choices(scores, times.problem, times.count)
    return Judged(model, dataset, times, scores, chosen, times.efficiency()[chosen])


def baseline_efficiencies(judged: Judged, learned_from: Dataset | None) -> dict[str, NDArray[np.float64]]:
    """Efficiencies of choices that need no model, by name, shape (problems,) each."""
    times, dataset = judged.times, judged.dataset
    found: dict[str, NDArray[np.float64]] = {}
    if learned_from is not None:
        learned = baselines.Learned([learned_from])
        scores = {
            NEAREST: learned.nearest_problem_scores(dataset),
            FIXED: learned.single_kernel_scores(dataset),
        }
        found |= {name: times.efficiency()[choices(one, times.problem, times.count)] for name, one in scores.items()}
    if (hindsight := baselines.hindsight_efficiency([dataset])) is not None:
        found[HINDSIGHT] = hindsight
    found["random kernel"] = baselines.random_efficiency(times)
    return found
