"""How models of AITER's matrix products become C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.export.groups import DTYPE, Code, Exported, ProblemKind, ruled_group
from ckh.ops.aiter_gemm.kernels.pool import kernel_pool
from ckh.ops.aiter_gemm.problem import FAMILIES, LIBRARIES, SIZES, AiterGemm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.export.groups import Group
    from ckh.learn.models.artifact import Model

KIND = ProblemKind(
    "aiter_gemm",
    2,
    "a GEMM of AITER: M tokens, B of N x K; `num_cus` compute units must be stated.",
    (
        DTYPE,
        Code("family", "family", 2, tuple(FAMILIES), "CKH_AITER_", "CKH_AITER_FAMILIES", added=1),
        Code("library", "library", 3, LIBRARIES, "CKH_AITER_", "CKH_AITER_LIBRARIES"),
    ),
    SIZES,
    AiterGemm,
    {"m": 16, "n": 7168, "k": 2048, "num_cus": 256},
)


def _groups(model: Model) -> Iterator[Group]:
    arch = load_arch(model.spec.arch)
    for family, dtypes in FAMILIES.items():
        for library in LIBRARIES:
            for dtype in dtypes:
                example = AiterGemm(1, 1, 1, family, dtype, library, num_cus=1)
                yield ruled_group(KIND, example, kernel_pool(family, library, arch.name), (), arch)


EXPORTED = Exported(KIND, _groups)
