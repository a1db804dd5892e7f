"""How good answers are for MIOpen's solvers by the model of another GPU; `benchmarks/transfer.py` prints these figures.

Solvers were chosen among those that the find databases list, the four fastest of a problem.
"""

from __future__ import annotations

from ckh.ops.base import Worth
from ckh.problems import Direction

# Source, target, direction, problems, efficiency (mean, P10), the mean's 95 % interval, and the mean of random choices.
_EFFICIENCY = (
    ("gfx942", "gfx90a", Direction.FORWARD, 6637, (0.825, 0.445), (0.819, 0.831), 0.655),
    ("gfx942", "gfx90a", Direction.BWD_DATA, 6570, (0.789, 0.237), (0.781, 0.796), 0.575),
    ("gfx942", "gfx90a", Direction.BWD_WEIGHT, 6793, (0.888, 0.517), (0.883, 0.894), 0.574),
    ("gfx90a", "gfx942", Direction.FORWARD, 2769, (0.895, 0.631), (0.888, 0.902), 0.594),
    ("gfx90a", "gfx942", Direction.BWD_DATA, 2508, (0.928, 0.737), (0.922, 0.934), 0.626),
    ("gfx90a", "gfx942", Direction.BWD_WEIGHT, 2561, (0.967, 1.000), (0.962, 0.972), 0.438),
)
JUDGED = tuple(
    Worth(
        {"variant": str(direction)},
        target,
        f"{problems:,} {direction} convolutions, among the fastest solvers,",
        figures,
        interval,
        random,
        source=source,
    )
    for source, target, direction, problems, figures, interval, random in _EFFICIENCY
)
