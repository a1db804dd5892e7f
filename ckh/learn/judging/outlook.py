"""Learning curve: the gain of further measurements, over the number of training pairs.

Models trained on the first quarter, half and all of the measurements choose kernels for held-out problems. The loss of
their choices against the best measured kernel falls as a power law of the number of pairs: a line between logarithms,
as for most learning curves (Hestness et al., "Deep learning scaling is predictable, empirically", arXiv:1712.00409).
Figures are extrapolated by it; their interval covers the sampling of problems, not the error of the law.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.intervals import Estimate, Figure, estimates
from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.learn.training.boosting import Boosting
from ckh.learn.training.prepared import prepare
from ckh.learn.training.targets import make_fit
from ckh.training import RANK

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.training import TrainOptions

SHARES = (0.25, 0.5, 1.0)
FEWEST_PROBLEMS = 12  # minimum for a meaningful curve
_FOLDS = 3
_LEAST_LOSS = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class LearningCurve:
    """Efficiency of choices over the amount of training data.

    Attributes:
        pairs: number of training pairs, shape (points,), ascending; the last point uses all but the held-out pairs.
        efficiency: efficiency of the choices for held-out problems, against the best measured kernel, shape (points,
            problems).
    """

    pairs: NDArray[np.float64]
    efficiency: NDArray[np.float64]

    def now(self) -> Estimate:
        """Mean efficiency with all measurements."""
        return self._estimate(lambda losses: 1.0 - losses[:, -1])

    def gain(self, share: float) -> Estimate:
        """Estimate the gain in mean efficiency with `share` times as many additional pairs."""

        def gained(losses: NDArray[np.float64]) -> NDArray[np.float64]:
            x = np.log(self.pairs) - np.log(self.pairs).mean()
            slope = np.minimum(np.log(np.maximum(losses, _LEAST_LOSS)) @ x / (x @ x), 0.0)
            return np.asarray(losses[:, -1] * (1.0 - (1.0 + share) ** slope))

        return self._estimate(gained)

    def against(self, dataset: Dataset, scores: NDArray[np.float64]) -> float:
        """Difference in mean efficiency to choices by other scores of the same rows."""
        times = times_of(dataset)
        others = times.efficiency()[choices(scores, times.problem, times.count)]
        return float(self.efficiency[-1].mean() - others.mean())

    def _estimate(self, of_losses: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Estimate:
        losses = 1.0 - self.efficiency
        figure = Figure(
            (*losses, np.ones(losses.shape[1])),
            lambda sums, _counts: of_losses(sums[:, :-1] / sums[:, -1:]),
        )
        return estimates({"": figure}, losses.shape[1])[""]


def learning_curve(dataset: Dataset, options: TrainOptions) -> LearningCurve:
    """Compute the learning curve of rows in the order in which their problems were measured.

    Args:
        dataset: rows of at least six problems, so that a fold trains on four, and on two of them.
        options: training options; only the ranking model is trained.
    """
    prepared = prepare(dataset, replace(options, targets=()))
    boosting = Boosting(prepared, options, lambda _steps, _text: None)
    fit = make_fit(RANK, prepared.dataset, options.rank)
    problem = prepared.dataset.problem_ids
    count = int(problem.max()) + 1
    pairs, efficiency = np.zeros(len(SHARES)), np.zeros((len(SHARES), count))
    scores = np.zeros(len(problem))
    for point, share in enumerate(SHARES):
        for fold in range(_FOLDS):
            others = np.flatnonzero(np.arange(count) % _FOLDS != fold)
            learned = others[: max(2, round(share * len(others)))]
            rows, held = np.flatnonzero(np.isin(problem, learned)), np.flatnonzero(problem % _FOLDS == fold)
            scores[held] = boosting.predicted(fit, boosting.fit(fit, rows, None, ""), rows, held)
            pairs[point] += len(rows) / _FOLDS
        efficiency[point] = prepared.chosen_efficiency(scores, np.arange(len(problem)))
    return LearningCurve(pairs, efficiency)
