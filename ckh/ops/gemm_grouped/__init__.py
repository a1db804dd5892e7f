"""`gemm_grouped`: matrix products that share N and K in one launch, CK Tile's `GroupedGemmKernel`.

Kernels, rules and emitted sources are those of `gemm_universal`; this package has what differs.
"""

from __future__ import annotations

from ckh.ops.gemm_universal import OPTIONS, requested_of
from ckh.requested import SizeOption

REQUESTED = requested_of(
    "ckh.ops.gemm_grouped.problem:GemmGroupedProblem",
    (
        SizeOption("ms", "M of the groups, each with the number of such groups, e.g. 512+64x8", kind=str),
        *(option for option in OPTIONS if option.name != "m"),
    ),
    "gemm_grouped",
    required=("ms", "n", "k"),
    what="a grouped GEMM",
    unsaid="m",
)
