"""`gemm_batched`: a batch of equal matrix products, CK Tile's `BatchedGemmKernel`.

Kernels, rules and emitted sources are those of `gemm_universal`; this package has what differs.
"""

from __future__ import annotations

from ckh.ops.gemm_universal import OPTIONS, requested_of
from ckh.requested import SizeOption

_STRIDE = "Distance of the matrices {} of a batch, in elements"

REQUESTED = requested_of(
    "ckh.ops.gemm_batched.problem:GemmBatchedProblem",
    (
        SizeOption("batch", "Products of a batch"),
        *OPTIONS,
        *(SizeOption(f"ld{text}", f"Distance of the lines of {text.upper()}, in elements", "dense") for text in "abc"),
        *(SizeOption(f"batch_stride_{text}", _STRIDE.format(text.upper()), "dense") for text in "abc"),
    ),
    "gemm_batched",
    required=("batch", "m", "n", "k"),
    what="a batched GEMM",
)
