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
        on="344 forward convolutions in bf16, of 20 kernels each,",
        figures=(0.940, 0.805),
        interval=(0.930, 0.950),
        random=0.677,
    ),
)
