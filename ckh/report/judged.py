"""The worth of a model's choices on measured problems: the arrays that figures of models are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess import baselines
from ckh.assess.metrics import choices, places
from ckh.assess.noise import noise_times

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
        scores = {
            "nearest training problem": baselines.nearest_problem_scores(dataset, learned_from),
            "best single kernel": baselines.single_kernel_scores(dataset, learned_from),
        }
        found |= {name: times.efficiency()[choices(one, times.problem, times.count)] for name, one in scores.items()}
    if (hindsight := baselines.hindsight_efficiency(dataset)) is not None:
        found["best single kernel in hindsight"] = hindsight
    found["random kernel"] = baselines.random_efficiency(dataset)
    return found


def best_of_first(judged: Judged, most: int) -> NDArray[np.float64]:
    """The best efficiency among the first k choices of each problem, for k = 1 to `most`, shape (most, problems)."""
    place, efficiency = places(judged.scores, judged.times.problem), judged.times.efficiency()
    best = np.zeros((most, judged.times.count))
    inside = place < most
    np.maximum.at(best, (place[inside], judged.times.problem[inside]), efficiency[inside])
    return np.maximum.accumulate(best, axis=0)
