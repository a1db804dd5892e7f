"""How models of mixtures of experts become C."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.export.groups import DTYPE, Code, Exported, ProblemKind, ruled_group
from ckh.ops.aiter_moe.kernels.pool import RULES, moe_pool
from ckh.ops.aiter_moe.problem import KINDS, SIZES, AiterMoe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.export.groups import Group
    from ckh.learn.models.artifact import Model

KIND = ProblemKind(
    "aiter_moe",
    3,
    "the two products of a mixture of experts; `num_cus` compute units must be stated.",
    (
        Code("stage", "stage", 0, KINDS["stage"], "CKH_MOE_", "CKH_MOE_STAGES"),
        DTYPE,
        Code("quant", "quant", 2, KINDS["quant"], "CKH_MOE_", "CKH_MOE_QUANTS", added=1),
        Code("activation", "activation", 3, KINDS["activation"], "CKH_MOE_", "CKH_MOE_ACTIVATIONS"),
    ),
    SIZES,
    AiterMoe,
    {"tokens": 64, "model_dim": 7168, "inter_dim": 256, "experts": 256, "topk": 8, "num_cus": 256},
)


def _groups(model: Model) -> Iterator[Group]:
    arch = load_arch(model.spec.arch)
    for values in product(*KINDS.values()):
        example = AiterMoe(1, 1, 1, 1, 1, **dict(zip(KINDS, values, strict=True)), num_cus=1)
        yield ruled_group(KIND, example, moe_pool(arch.name, *values), RULES, arch)


EXPORTED = Exported(KIND, _groups)
