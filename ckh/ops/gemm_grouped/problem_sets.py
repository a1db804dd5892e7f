"""Named sets of grouped GEMMs: experts' layers of known models, and drawn products in groups.

A layer of experts is two grouped products: the fused gate and up projections, and the down projection. A group is an
expert, its rows are the tokens routed to it: tokens x experts per token, spread over the experts

- evenly, the rest of the division one by one to the first, or
- unevenly: a quarter of the experts has half of the rows, another quarter a quarter, the others the rest.

Experts of DeepSeek-V3 and Qwen3-235B are on eight GPUs, each with an eighth of experts and rows. Training sets contain
no weight of these models.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from ckh.ops.gemm_grouped.problem import GemmGroupedProblem, groups_text
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.ops.gemm_universal.problem_sets import held_out_weights
from ckh.ops.gemm_universal.problem_sets.drawn import FAMILIES, SizeLimits, draw_problems
from ckh.ops.gemm_universal.problem_sets.files import NamedSets, by_name
from ckh.shapes.config import MODELS
from ckh.shapes.configs import config_of, decoder_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Model -> GPUs that its experts are spread over.
_MODELS = {"mixtral-8x7b": 1, "qwen3-30b-a3b": 1, "qwen3-235b-a22b": 8, "deepseek-v3": 8}
_TOKENS = (1, 8, 64, 512, 2048, 8192, 32768)

_GROUPS = (4, 8, 16, 32, 64, 128)
_GPU = SizeLimits(flops=(1e6, 1e12), size=8192, bytes=4_000_000_000)
_HOST = SizeLimits(flops=(1e6, 2e8), size=1024, bytes=64_000_000)
_GPU_COUNT, _HOST_COUNT = 600, 200
_HOST_LAYOUTS = ("rcr", "rrr")
_FP32_BYTES = 4


def evenly(rows: int, experts: int) -> str:
    """Return the M of experts that share rows evenly."""
    return groups_text(_shares(rows, experts))


def unevenly(rows: int, experts: int) -> str:
    """Return the M of at least four experts: a quarter has half of the rows, another one a quarter, half the rest."""
    quarter, half, fourth = experts // 4, rows // 2, rows // 4
    parts = ((half, quarter), (fourth, quarter), (rows - half - fourth, experts - 2 * quarter))
    return groups_text(tuple(run for part in parts for run in _shares(*part)))


def _shares(rows: int, experts: int) -> tuple[tuple[int, int], ...]:
    share, more = divmod(rows, experts)
    runs = ((share + 1, more), (share, experts - more))
    return tuple(run for run in runs if run[1])


def _of_model(name: str) -> Iterator[GemmGroupedProblem]:
    model, gpus = decoder_of(config_of(MODELS[name][1], name)), _MODELS[name]
    hidden, intermediate, count = map(model.size, ("hidden", "expert_intermediate", "experts"))
    for tokens, spread in product(_TOKENS, (evenly, unevenly)):
        ms = spread(-(-tokens * model.size("per_token") // gpus), count // gpus)
        for n, k in ((2 * intermediate, hidden), (hidden, intermediate)):
            yield GemmGroupedProblem(ms=ms, n=n, k=k)


def _drawn(limits: SizeLimits, count: int, layouts: tuple[str, ...]) -> Iterator[GemmGroupedProblem]:
    """Yield `gemm_universal`'s training products with their rows in groups; numbers, spreads and layouts take turns."""
    known = held_out_weights() | {(problem.n, problem.k) for name in _MODELS for problem in _of_model(name)}
    for index, problem in enumerate(draw_problems(FAMILIES, count, limits, known)):
        fitting = [number for number in _GROUPS if number * problem.n * problem.k * _FP32_BYTES <= limits.bytes]
        if fitting:
            number, spread = fitting[index % len(fitting)], (evenly, unevenly)[index // 2 % 2]
            layout = layouts[index % len(layouts)]
            yield GemmGroupedProblem(ms=spread(problem.m, number), n=problem.n, k=problem.k, layout=layout)


SETS = NamedSets(
    GemmGroupedProblem,
    {
        "grouped-train": lambda: _drawn(_GPU, _GPU_COUNT, GEMM_LAYOUTS),
        "host-grouped-train": lambda: _drawn(_HOST, _HOST_COUNT, _HOST_LAYOUTS),
        **by_name("experts", _MODELS, _of_model),
    },
)
