"""How models of matrix products become C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.export.groups import DTYPE, Code, Exported, ProblemKind, element_types, ruled_group
from ckh.ops.gemm_universal.kernels.pool import POOLS
from ckh.ops.gemm_universal.kernels.problem_rules import PROBLEM_RULES
from ckh.ops.gemm_universal.problem import GEMM_COLUMNS, GEMM_LAYOUTS, GemmProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.export.groups import Group
    from ckh.learn.models.artifact import Model

KIND = ProblemKind(
    "gemm",
    1,
    "C (M x N) = A (M x K) x B (K x N), where `split_k` blocks share the sum over K; `layout` is that of A, B and C.",
    (DTYPE, Code("layout", "layout", 2, GEMM_LAYOUTS, "CKH_GEMM_", "CKH_GEMM_LAYOUTS", added=1)),
    GEMM_COLUMNS,
    GemmProblem,
    {"m": 128, "n": 1536, "k": 7168},
)


def _groups(model: Model) -> Iterator[Group]:
    arch = load_arch(model.spec.arch)
    for dtype in element_types(model):
        for layout in GEMM_LAYOUTS:
            example = GemmProblem(1, 1, 1, dtype, layout)
            pool = POOLS.sequence(arch, dtype, layout, model=model.candidates_of, only=model.only)
            yield ruled_group(KIND, example, pool, PROBLEM_RULES, arch)


EXPORTED = Exported(KIND, _groups)
