"""Named sets of GEMMs with further tensors: layers of known models, and drawn products.

Layers: projections with a bias (`add v`), projections whose result is added to the residual stream (`add r`, with a
bias `add vr`), the first layer of a feed-forward network with bias and activation (`add_gelu v`), and the up-projection
that is multiplied with the activated gate (`mul r`). Training sets contain no weight of these models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.ops.gemm_universal.problem_sets import GPU_LIMITS, TOKENS, held_out_weights
from ckh.ops.gemm_universal.problem_sets.drawn import FAMILIES, draw_problems
from ckh.ops.gemm_universal.problem_sets.files import NamedSets, by_name

if TYPE_CHECKING:
    from collections.abc import Iterator

_COUNT = 600
_KINDS = (
    ("add", "v"),
    ("add", "r"),
    ("mul", "r"),
    ("add_relu", "v"),
    ("add_gelu", "v"),
    ("add_silu", "v"),
    ("add", "vr"),
)


@dataclass(frozen=True, slots=True)
class _Transformer:
    """Sizes of a transformer from its published configuration.

    `qkv` are the outputs of the fused projections of queries, keys and values.
    """

    hidden: int
    qkv: int
    intermediate: int
    has_bias: bool
    activation: str = ""
    """Activation of a feed-forward network without gate; empty: gated."""


# Source: config.json of each model on Hugging Face.
_MODELS = {
    "qwen2-7b": _Transformer(3584, 4608, 18944, has_bias=True),
    "llama3-8b": _Transformer(4096, 6144, 14336, has_bias=False),
    "llama3-70b": _Transformer(8192, 10240, 28672, has_bias=False),
    "gpt2-xl": _Transformer(1600, 4800, 6400, has_bias=True, activation="add_gelu"),
    "vit-b16": _Transformer(768, 2304, 3072, has_bias=True, activation="add_gelu"),
    "whisper-large-v3": _Transformer(1280, 3840, 5120, has_bias=True, activation="add_gelu"),
}


def _layers(name: str) -> Iterator[GemmMultiDProblem]:
    model = _MODELS[name]
    residual = "vr" if model.activation else "r"
    for rows in TOKENS:
        if model.has_bias:
            yield GemmMultiDProblem(rows, model.qkv, model.hidden)
        yield GemmMultiDProblem(rows, model.hidden, model.hidden, ds=residual)
        if model.activation:
            yield GemmMultiDProblem(rows, model.intermediate, model.hidden, function=model.activation)
        else:
            yield GemmMultiDProblem(rows, model.intermediate, model.hidden, function="mul", ds="r")
        yield GemmMultiDProblem(rows, model.hidden, model.intermediate, ds=residual)


def _drawn() -> Iterator[GemmMultiDProblem]:
    """Yield `gemm_universal`'s training products; kinds and layouts take turns."""
    known = held_out_weights() | {(problem.n, problem.k) for name in _MODELS for problem in _layers(name)}
    for index, drawn in enumerate(draw_problems(FAMILIES, _COUNT, GPU_LIMITS, known)):
        function, ds = _KINDS[index % len(_KINDS)]
        layout = GEMM_LAYOUTS[index % len(GEMM_LAYOUTS)]
        yield GemmMultiDProblem(drawn.m, drawn.n, drawn.k, layout=layout, function=function, ds=ds)


SETS = NamedSets(GemmMultiDProblem, {"multi-d-train": _drawn, **by_name("epilogues", _MODELS, _layers)})
