"""Named sets of GEMMs with a shuffled B: the weights of language models, and drawn products.

Weights are those of `gemm_universal`'s sets, where the default order of B divides them. Training sets contain none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem
from ckh.ops.gemm_universal.problem_sets import GPU_LIMITS, MODELS, TOKENS, held_out_weights, layers
from ckh.ops.gemm_universal.problem_sets.drawn import FAMILIES, draw_problems
from ckh.ops.gemm_universal.problem_sets.files import NamedSets, by_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ckh.ops.gemm_universal.problem import GemmProblem

_COUNT = 1200
_STEP_N, _STEP_K = 64, 64  # the smallest tile of N and K: kernels are not padded


def _in_tiles(problems: Iterable[GemmProblem]) -> Iterator[GemmPreshuffleProblem]:
    for problem in problems:
        if problem.n % _STEP_N == 0 and problem.k % _STEP_K == 0:
            yield GemmPreshuffleProblem(problem.m, problem.n, problem.k, "fp16")


def _of_model(name: str) -> Iterator[GemmPreshuffleProblem]:
    return _in_tiles(layers(MODELS[name], TOKENS))


def _drawn() -> Iterator[GemmPreshuffleProblem]:
    return _in_tiles(draw_problems(FAMILIES, _COUNT, GPU_LIMITS, held_out_weights()))


SETS = NamedSets(GemmPreshuffleProblem, {"preshuffle-train": _drawn, **by_name("weights", MODELS, _of_model)})
