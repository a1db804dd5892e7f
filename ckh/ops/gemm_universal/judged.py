"""Evaluated accuracy of answers for GEMMs of unmeasured GPUs; `benchmarks/gemm_winners.py` prints these figures."""

from __future__ import annotations

from ckh.ops.base import Worth

_ON = "4 GEMMs in fp16 with the 32 kernels of a tile"
_RANDOM = 0.931

JUDGED = (
    Worth(of={}, target="gfx942", on=_ON, figures=(0.950, 0.943), interval=(0.944, 0.956), random=_RANDOM),
    Worth(
        of={},
        target="gfx942",
        on=_ON,
        figures=(0.983, 0.954),
        interval=(0.950, 1.0),
        random=_RANDOM,
        source="gfx950",
    ),
)
