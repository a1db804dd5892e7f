"""Requests of Stream-K matrix products: the options of `gemm_universal` without a split of K."""

from __future__ import annotations

from ckh.ops.gemm_universal.requested import OPTIONS, requested_of

REQUESTED = requested_of(
    "ckh.ops.gemm_streamk.problem:GemmStreamKProblem",
    tuple(option for option in OPTIONS if option.name != "split_k"),
    r"gemm_streamk_(?P<sharing>[a-z]+_\d+)",
    unsaid="split_k",
)
