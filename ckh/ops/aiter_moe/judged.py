"""How good answers are for AITER's mixtures by the model of another GPU; `benchmarks/transfer.py` prints these figures.

Each GPU's kernels were chosen among those that were measured.
"""

from __future__ import annotations

from ckh.ops.aiter_moe.problem import BOTH, STAGE1, STAGE2
from ckh.ops.base import Worth

# Source, target, stage, problems, efficiency (mean, P10), the mean's 95 % interval, and the mean of random choices.
_EFFICIENCY = (
    ("gfx942", "gfx950", STAGE1, 172, (0.970, 0.879), (0.959, 0.979), 0.828),
    ("gfx942", "gfx950", STAGE2, 172, (0.979, 0.934), (0.975, 0.983), 0.809),
    ("gfx942", "gfx950", BOTH, 172, (0.974, 0.930), (0.967, 0.981), 0.819),
    ("gfx950", "gfx942", STAGE1, 32, (0.943, 0.856), (0.912, 0.969), 0.714),
    ("gfx950", "gfx942", STAGE2, 32, (0.838, 0.653), (0.790, 0.887), 0.529),
    ("gfx950", "gfx942", BOTH, 32, (0.881, 0.745), (0.842, 0.919), 0.574),
)
JUDGED = tuple(
    Worth({"stage": stage}, target, f"{problems} mixtures ({stage})", figures, interval, random, source=source)
    for source, target, stage, problems, figures, interval, random in _EFFICIENCY
)
