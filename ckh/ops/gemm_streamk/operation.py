"""Record of the operation `gemm_streamk`: that of `gemm_universal`, with two fields of kernels."""

from __future__ import annotations

from dataclasses import replace

from ckh.ops.base import lazily
from ckh.ops.gemm_streamk.features import GEMM_STREAMK
from ckh.ops.gemm_streamk.pool import POOLS
from ckh.ops.gemm_streamk.problem import GemmStreamKProblem
from ckh.ops.gemm_universal.derived import derived
from ckh.schema import Column

_DERIVED = derived(
    __name__,
    "matrix products whose blocks share tiles",
    GemmStreamKProblem,
    POOLS,
    GEMM_STREAMK,
    {},
    own=(
        Column("reduction", "string", "", "how partial sums become a result: atomic, reduction"),
        Column("blocks_per_cu", "int64", "", "blocks per compute unit that share tiles, 0: as many as it holds"),
    ),
    table_sizes=("m", "n", "k"),
)
OPERATION = replace(_DERIVED, kernels=replace(_DERIVED.kernels, lists=lazily("ckh.ops.gemm_streamk.pool:LISTS")))
