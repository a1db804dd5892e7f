"""`aiter_moe`: the two kernels for the two matrix products of a mixture of experts in AITER."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.ops.aiter.devices import completed
from ckh.requested import Requested, SizeOption, as_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.ops.aiter_moe.problem import AiterMoe

STAGE, DTYPE, QUANT, ACTIVATION = "both", "fp8", "per_token", "silu"
_QUANTS = {"fp8": QUANT, "bf16": "none", "pk_fp4": "per_1x32"}  # default by element type
_NEEDED = ("tokens", "model_dim", "inter_dim", "experts", "topk")
_OPTIONS = (
    SizeOption("tokens", "Tokens"),
    SizeOption("model_dim", "Hidden size of the model"),
    SizeOption("inter_dim", "Intermediate size of the experts, on one GPU"),
    SizeOption("experts", "Number of experts"),
    SizeOption("topk", "Experts per token"),
    SizeOption("stage", "Stage: both, stage1 or stage2", STAGE, str),
    SizeOption("quant", "Quantization: per_token, per_1x32, per_1x128 or none", "by the element type", str),
    SizeOption("activation", "Activation: silu or swiglu", ACTIVATION, str),
    SizeOption("num_cus", "Compute units of the GPU", "304 on gfx942, 256 on gfx950"),
)


def _problem(given: Mapping[str, Any], _variant: str, dtype: str) -> AiterMoe:
    from ckh.ops.aiter_moe.problem import AiterMoe

    if missing := [name for name in _NEEDED if name not in given]:
        needed = ", ".join(map(as_option, _NEEDED))
        raise UsageError(
            f"a mixture of experts needs {needed}: {as_option(missing[0])} is missing", code="missing-option"
        )
    return AiterMoe(**{"quant": _QUANTS.get(dtype, QUANT), **given}, dtype=dtype)


def _pool(given: Mapping[str, Any]) -> str:
    kinds = {"stage": STAGE, "quant": QUANT, "activation": ACTIVATION}
    return " ".join(str(given.get(name, value)) for name, value in kinds.items())


_KERNEL = r"moe_ck2stages_gemm\d_(?P<tile>\d+x\d+x\d+x\d+)_(?P<waves>\d+x\d+)_(?P<others>.+)"
REQUESTED = Requested(_OPTIONS, _problem, pool=_pool, default_dtype=DTYPE, completed=completed, kernel=_KERNEL)
