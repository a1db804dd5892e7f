"""How a model's choices get better with its trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.report.drawing import Drawing, Line, Lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.report.judged import Judged

_POINTS = 14


def learning_curve(judged: Judged) -> Drawing | None:
    """The efficiency of choices by the first trees alone, on the problems that are judged."""
    model = judged.model
    target = model.spec.rank_by
    trees = np.unique(np.geomspace(1, model.tree_count(target), _POINTS).round().astype(int)).tolist()
    if len(trees) < 2:  # noqa: PLR2004 - one point is not a curve
        return None
    found = [judged.mean_and_low(model.predict_dataset(judged.dataset, target, count)) for count in trees]
    half = next(count for count, (mean, _) in zip(trees, found, strict=True) if mean >= found[-1][0] - 0.005)
    return Drawing(
        "learning",
        f"{half} of {trees[-1]} trees come within half a point of all of them",
        "Efficiency on the judged problems if only the first trees choose, among the measured kernels. A curve that "
        "still rises calls for more "
        "trees; one that is flat, for more data or other features.",
        efficiency_lines("trees", trees, found),
    )


def efficiency_lines(by: str, counts: Sequence[int], efficiencies: Sequence[tuple[float, float]]) -> Lines:
    """Mean and tenth percentile of the efficiency by a count."""
    mean, low = zip(*efficiencies, strict=True)
    lines = [Line("mean", list(counts), list(mean)), Line("P10", list(counts), list(low))]
    return Lines(lines, by, "efficiency", log_x=True, percent_y=True)
