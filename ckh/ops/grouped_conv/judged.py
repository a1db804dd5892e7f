"""How good answers are where CK Tile's convolutions were not measured; `benchmarks/transfer.py` prints these figures.

CK Tile's convolutions were measured on one GPU, forward and in one element type, so that no model's answers on another
could be judged.
"""

from __future__ import annotations

from ckh.ops.base import Worth

JUDGED = (
    Worth(
        of={"variant": "forward"},
        target="gfx950",
        on="344 forward convolutions in bf16 with 20 kernels each (used to choose the estimate's form)",
        figures=(0.971, 0.918),
        interval=(0.964, 0.978),
        random=0.677,
    ),
)
