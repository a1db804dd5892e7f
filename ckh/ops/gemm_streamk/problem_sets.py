"""Named sets of Stream-K GEMMs: layers of known models, and drawn products.

They are `gemm_universal`'s with a K of whole steps of 64: kernels share tiles by whole steps along K.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.ops.gemm_streamk.problem import GemmStreamKProblem
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.ops.gemm_universal.problem_sets import GPU_LIMITS, MODELS, TOKENS, held_out_weights, layers
from ckh.ops.gemm_universal.problem_sets.drawn import FAMILIES, draw_problems
from ckh.ops.gemm_universal.problem_sets.files import NamedSets, by_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.ops.gemm_universal.problem import GemmProblem

_COUNT = 600
_STEP = 64


def _whole(problem: GemmProblem, layout: str = "rcr") -> GemmStreamKProblem:
    return GemmStreamKProblem(problem.m, problem.n, -(-problem.k // _STEP) * _STEP, layout=layout)


def _layers(model: str) -> Iterator[GemmStreamKProblem]:
    return map(_whole, layers(MODELS[model], TOKENS))


def _drawn() -> Iterator[GemmStreamKProblem]:
    """Yield `gemm_universal`'s training products without weights of the models; layouts take turns."""
    known = held_out_weights()
    for index, drawn in enumerate(draw_problems(FAMILIES, _COUNT, GPU_LIMITS, known)):
        problem = _whole(drawn, GEMM_LAYOUTS[index % len(GEMM_LAYOUTS)])
        if (problem.n, problem.k) not in known:
            yield problem


SETS = NamedSets(GemmStreamKProblem, {"streamk-train": _drawn, **by_name("streamk", MODELS, _layers, "streamk-llm")})
