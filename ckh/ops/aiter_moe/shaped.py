"""Conversion of shapes to AITER's mixtures of experts, and reasons why the lookup of a shape missed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.ops.aiter_gemm.tuned_device import compute_units
from ckh.ops.aiter_moe.problem import QUANTS, AiterMoe
from ckh.ops.aiter_moe.problem_files import MARK, is_untuned, missed_problem, stated_key, untuned_rows
from ckh.ops.aiter_moe.readers.tuned_csv import TunedMixture, looked_up
from ckh.shapes.layers import ExpertProducts, Scaling
from ckh.shapes.logs.misses import Lookup, nearest_key
from ckh.shapes.shaped import Shaped

if TYPE_CHECKING:
    from ckh.shapes.logs.misses import KeyTables
    from ckh.shapes.shaped import MissedLookup, NearKey

_QUANT_OF = {
    Scaling.NONE: "none",
    Scaling.ROW: "per_token",
    Scaling.BLOCK_128: "per_1x128",
    Scaling.BLOCK_32: "per_1x32",
}
_SCALING_OF = {quant: scaling for scaling, quant in _QUANT_OF.items()}
_LOOKUP = Lookup(
    rows="token",
    columns="inter_dim",
    others=("model_dim", "expert", "topk", "act_type", "q_type"),
    dtypes=("q_dtype_a", "q_dtype_w"),
)


def _problem(shape: ExpertProducts, dtype: str) -> AiterMoe:
    quant = _QUANT_OF[shape.scaling]
    own = shape.dtype or dtype
    if own != QUANTS[quant]:
        raise UsageError(
            f"mixtures of experts in {own} ({quant}), not supported by AITER's kernels", code="unsupported"
        )
    sizes = (shape.tokens, shape.model_dim, shape.inter_dim, shape.experts, shape.topk)
    return AiterMoe(*sizes, dtype=own, quant=quant, activation=shape.activation)


def _shape(problem: AiterMoe) -> ExpertProducts:
    sizes = (problem.tokens, problem.model_dim, problem.inter_dim, problem.experts, problem.topk)
    return ExpertProducts(*sizes, problem.dtype, _SCALING_OF[problem.quant], problem.activation)


def _nearest(missed: MissedLookup[AiterMoe], tables: KeyTables) -> NearKey:
    num_cus = compute_units(missed.problem.num_cus or missed.num_cus, missed.arch)
    asked = replace(missed.problem, num_cus=num_cus)
    line = TunedMixture(missed.arch, asked, "", 0.0, is_predicted=True)
    key = {name: str(value) for name, value in line.key_cells().items()} | dict(missed.stated)
    return nearest_key(_LOOKUP, key, (looked_up(asked).tokens,), tables.joined(lambda _: True))


SHAPED = Shaped(
    ExpertProducts,
    _problem,
    _shape,
    marks=(MARK,),
    line=missed_problem,
    recognises=is_untuned,
    rows=untuned_rows,
    stated=stated_key,
    nearest=_nearest,
)
