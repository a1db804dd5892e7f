"""How good answers are for MIOpen's solvers by the model of another GPU; `benchmarks/transfer.py` prints these figures.

Solvers were chosen among those that the find databases list, the four fastest of a problem. Half of the MI200's
problems have no answer, as the MI300X's databases have none of their kind (3D, bf16): they are not counted.
"""

from __future__ import annotations

from ckh.ops.base import Worth
from ckh.problems import Direction

# Source, target, direction, problems, efficiency (mean, P10), the mean's 95 % interval, and the mean of random choices.
_EFFICIENCY = (
    ("gfx942", "gfx90a", Direction.FORWARD, 3304, (0.768, 0.442), (0.761, 0.776), 0.727),
    ("gfx942", "gfx90a", Direction.BWD_DATA, 3243, (0.755, 0.327), (0.745, 0.765), 0.633),
    ("gfx942", "gfx90a", Direction.BWD_WEIGHT, 3489, (0.883, 0.550), (0.876, 0.890), 0.586),
    ("gfx90a", "gfx942", Direction.FORWARD, 2769, (0.895, 0.631), (0.888, 0.902), 0.594),
    ("gfx90a", "gfx942", Direction.BWD_DATA, 2508, (0.923, 0.724), (0.916, 0.929), 0.626),
    ("gfx90a", "gfx942", Direction.BWD_WEIGHT, 2390, (0.957, 1.000), (0.951, 0.964), 0.428),
)
JUDGED = tuple(
    Worth(
        {"variant": str(direction)},
        target,
        f"{problems:,} {direction} convolutions with MIOpen's fastest solvers",
        figures,
        interval,
        random,
        source=source,
    )
    for source, target, direction, problems, figures, interval, random in _EFFICIENCY
)
