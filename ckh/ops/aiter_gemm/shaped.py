"""Conversion of shapes to AITER's matrix products, and reasons why the lookup of a shape missed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.ops.aiter_gemm.problem import FAMILIES, AiterGemm
from ckh.ops.aiter_gemm.problem_files import MISSED, is_untuned, missed_problem, stated_family, stated_key, untuned_rows
from ckh.ops.aiter_gemm.readers.tuned_csv import key_cells, looked_up
from ckh.ops.aiter_gemm.tuned_device import compute_units
from ckh.shapes.layers import Matmul, Scaling
from ckh.shapes.logs.misses import Lookup, nearest_key
from ckh.shapes.shaped import Shaped

if TYPE_CHECKING:
    from ckh.shapes.logs.misses import KeyTables
    from ckh.shapes.shaped import MissedLookup, NearKey

_FAMILY_OF = {
    (Scaling.ROW, False): "a8w8",
    (Scaling.ROW, True): "a8w8_bpreshuffle",
    (Scaling.BLOCK_128, False): "a8w8_blockscale",
    (Scaling.BLOCK_128, True): "a8w8_blockscale_bpreshuffle",
    (Scaling.BLOCK_32, False): "a4w4_blockscale",
}
_SCALING_OF = {family: key for key, family in _FAMILY_OF.items()}
_LOOKUP = Lookup(rows="M", columns="N", others=("K",), dtypes=("q_dtype_w",))


def _problem(shape: Matmul, dtype: str) -> AiterGemm:
    family = _FAMILY_OF.get((shape.scaling, shape.is_shuffled))
    if family is None:
        raise UsageError(
            f"products in {shape.dtype or dtype} without scales, which AITER's tables of quantised GEMMs need",
            "pass --dtype fp8 if the model is served quantised",
            code="unsupported",
        )
    return AiterGemm(shape.m, shape.n, shape.k, family, shape.dtype or FAMILIES[family][0])


def _shape(problem: AiterGemm) -> Matmul:
    if problem.family not in _SCALING_OF:
        raise UsageError(f"{problem.family} is several products, not one", code="unsupported")
    scaling, is_shuffled = _SCALING_OF[problem.family]
    return Matmul(problem.m, problem.n, problem.k, problem.dtype, scaling=scaling, is_shuffled=is_shuffled)


def _is_scaled(shape: Matmul) -> bool:
    return bool(shape.scaling)


def _nearest(missed: MissedLookup[AiterGemm], tables: KeyTables) -> NearKey:
    num_cus = compute_units(missed.problem.num_cus or missed.num_cus, missed.arch)
    asked = replace(missed.problem, num_cus=num_cus)
    key = {name: str(value) for name, value in key_cells(missed.arch, asked).items()} | dict(missed.stated)
    table = tables.joined(lambda name: stated_family(name) in ("", asked.family))
    return nearest_key(_LOOKUP, key, looked_up(asked), table)


SHAPED = Shaped(
    Matmul,
    _problem,
    _shape,
    prefers=_is_scaled,
    row_dtype="fp8",
    marks=(MISSED,),
    line=missed_problem,
    recognises=is_untuned,
    rows=untuned_rows,
    stated=stated_key,
    nearest=_nearest,
)
