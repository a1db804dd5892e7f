"""How a model's choices get better with its trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.metrics import choices
from ckh.report.drawing import Drawing, Line, Lines

if TYPE_CHECKING:
    from ckh.report.judged import Judged

_POINTS = 14


def learning_curve(judged: Judged) -> Drawing | None:
    """The efficiency of choices by the first trees alone, on the problems that are judged."""
    model = judged.model
    target = model.spec.rank_by
    trees = np.unique(np.geomspace(1, model.tree_count(target), _POINTS).round().astype(int)).tolist()
    if len(trees) < 2:  # noqa: PLR2004 - one point is no curve
        return None
    mean, low = [], []
    for count in trees:
        scores = model.predict_dataset(judged.dataset, target, count)
        efficiency = judged.times.efficiency()[choices(scores, judged.times.problem, judged.times.count)]
        mean.append(float(efficiency.mean()))
        low.append(float(np.percentile(efficiency, 10)))
    half = next(count for count, value in zip(trees, mean, strict=True) if value >= mean[-1] - 0.005)
    return Drawing(
        "learning",
        f"{half} of {trees[-1]} trees come within half a point of all of them",
        "Efficiency on the judged problems if only the first trees choose. A curve that still rises asks for more "
        "trees; one that is flat, for more data or other features.",
        Lines(
            [Line("mean", trees, mean), Line("P10", trees, low)],
            "trees",
            "efficiency",
            log_x=True,
            percent_y=True,
        ),
    )
