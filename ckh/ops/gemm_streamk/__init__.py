"""`gemm_streamk`: matrix products whose blocks share the steps along K of tiles, CK Tile's `StreamKKernel`.

What is not stated here is that of `gemm_universal`.
"""

from __future__ import annotations

from ckh.ops.gemm_universal import OPTIONS, requested_of

REQUESTED = requested_of(
    "ckh.ops.gemm_streamk.problem:GemmStreamKProblem",
    tuple(option for option in OPTIONS if option.name != "split_k"),
    r"gemm_streamk_(?P<sharing>[a-z]+_\d+)",
    unsaid="split_k",
)
