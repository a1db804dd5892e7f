"""Record of the operation `gemm_batched`: that of `gemm_universal`, with a batch and distances."""

from __future__ import annotations

from dataclasses import replace
from math import log2

from ckh.ops.base import TiledSizes, lazily
from ckh.ops.gemm_batched.features import GEMM_BATCHED
from ckh.ops.gemm_batched.pool import POOLS, batched_rule_key
from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_universal.derived import GEMM, derived, sliced_by

_DERIVED = derived(
    __name__,
    "batches of equal matrix products",
    GemmBatchedProblem,
    POOLS,
    GEMM_BATCHED,
    {
        "batch": "number of products",
        **{f"ld{text}": f"distance of the lines of {text.upper()} in elements, 0: dense" for text in "abc"},
        **{
            f"batch_stride_{text}": f"distance of the matrices of {text.upper()} in elements, 0: dense"
            for text in "abc"
        },
    },
    table_sizes=("batch", "m", "n", "k"),
)


def _tiled(problem: GemmBatchedProblem) -> TiledSizes:
    k = -(-problem.k // problem.split_k)
    return TiledSizes(problem.m, problem.n, k, problem.split_k * problem.batch)


OPERATION = replace(
    _DERIVED,
    problems=replace(
        _DERIVED.problems,
        slices={**GEMM.problems.slices, "batch": sliced_by("batch", "products", few=16, many=256)},
        place=lambda problem: [*GEMM.problems.place(problem), log2(problem.batch)],
        batch="batch",
        shaped=lazily("ckh.ops.gemm_batched.shaped:SHAPED"),
        tiled=_tiled,
    ),
    kernels=replace(_DERIVED.kernels, key_of=batched_rule_key, lists=lazily("ckh.ops.gemm_batched.pool:LISTS")),
)
