"""Matrix products whose B is stored in the order in which the waves of a block read it, shuffled once beforehand.

The operation is `gemm_universal` with another operand B and one pipeline: what is not stated here is that of
`gemm_universal`.
"""

from __future__ import annotations

from ckh.ops.gemm_universal import OPTIONS, requested_of
from ckh.requested import SizeOption

_ORDER = "16x16"
_HELP = "Order of a shuffled B: columns of an instruction x bytes that a lane reads"
REQUESTED = requested_of(
    "ckh.ops.gemm_preshuffle.problem:GemmPreshuffleProblem",
    (*(option for option in OPTIONS if option.name in ("m", "n", "k")), SizeOption("b_order", _HELP, _ORDER, str)),
    "gemm_preshuffle(?:_permute_n)?",
    unsaid="split_k",
    pool=lambda given: str(given.get("b_order", _ORDER)),
    refused={
        "layout": ("B is shuffled, A and C are row-major", "omit it"),
        "split_k": ("K of a shuffled B is not split", "omit it"),
    },
)
