"""Record of the operation `gemm_batched`: that of `gemm_universal`, with a batch and distances."""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Feature
from ckh.ops.base import TiledSizes, lazily
from ckh.ops.gemm_batched.pool import POOLS, batched_rule_key
from ckh.ops.gemm_batched.problem import BATCH_STRIDES, LEADING, OP_TYPE, GemmBatchedProblem
from ckh.ops.gemm_universal.derived import GEMM, derived, sliced_by
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.features.engine import Columns

_POWERS = 12


def _tiles(c: Columns) -> Any:
    """Workgroups of all products, apart from the split of K."""
    return c["num_tiles_m"] * c["num_tiles_n"] * c["batch"]


def _powers_of_two(name: str) -> Callable[[Columns], Any]:
    """Exponent of the largest power of two that divides a distance, at most 12; 0: dense."""
    return lambda c: sum(
        ((c[name] > 0) & (np.mod(c[name], 2.0**power) == 0)).astype(float) for power in range(1, _POWERS + 1)
    )


_FEATURES = (
    Feature("batch", "products", lambda c: c["batch"]),
    Feature("log2_batch", "log2", lambda c: np.log2(np.maximum(c["batch"], 1))),
    Feature("tiles_per_product", "tiles", lambda c: c["num_tiles_m"] * c["num_tiles_n"]),
    Feature("waves_of_workgroups", "", lambda c: np.ceil(_tiles(c) * c["split_k"] / np.maximum(c["hw_num_cus"], 1))),
    Feature(
        "strided",
        "category",
        lambda c: sum((c[name] > 0) * 2.0**place for place, name in enumerate((*LEADING, *BATCH_STRIDES))),
    ),
    *(Feature(f"powers_of_two_{name}", "", _powers_of_two(name)) for name in LEADING),
)

GEMM_BATCHED = GEMM_UNIVERSAL.extended(
    OP_TYPE, _FEATURES, categorical=("strided",), derived={"total_output_tiles": _tiles}
)

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


def _shaped() -> object:
    from ckh.shapes.layers import BatchedMatmul
    from ckh.shapes.shaped import Shaped

    def problem(shape: BatchedMatmul, dtype: str) -> GemmBatchedProblem:
        return GemmBatchedProblem(shape.m, shape.n, shape.k, shape.dtype or dtype, shape.layout, batch=shape.batch)

    def shape(of: GemmBatchedProblem) -> BatchedMatmul:
        return BatchedMatmul(of.batch, of.m, of.n, of.k, of.dtype, of.layout)

    return Shaped(BatchedMatmul, problem, shape)


OPERATION = replace(
    _DERIVED,
    problems=replace(
        _DERIVED.problems,
        slices={**GEMM.problems.slices, "batch": sliced_by("batch", "products", few=16, many=256)},
        place=lambda problem: [*GEMM.problems.place(problem), log2(problem.batch)],
        batch="batch",
        shaped=_shaped,
        tiled=_tiled,
    ),
    kernels=replace(_DERIVED.kernels, key_of=batched_rule_key, lists=lazily("ckh.ops.gemm_batched.pool:LISTS")),
)
