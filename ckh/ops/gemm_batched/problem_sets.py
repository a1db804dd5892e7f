"""Named sets of batched GEMMs: the products of attention in known models, and drawn ones.

Attention computes, for every head of every request, the scores S = Q K^T (layout rcr: a key is a row of K) and the
values P V (rrr). In a decode step the heads that share keys and values are the rows of one product. Latent attention
multiplies each head's queries and results with its own part of a weight. Training sets contain no product of these.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.ops.gemm_universal.problem_sets.drawn import FAMILIES, SizeLimits, draw_problems
from ckh.ops.gemm_universal.problem_sets.files import NamedSets, by_name
from ckh.shapes.config import MODELS
from ckh.shapes.configs import config_of, decoder_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.shapes.decoders import Decoder

_DECODERS = ("llama3-8b", "llama3-70b", "qwen3-8b", "qwen3-32b", "qwen3-next-80b-a3b", "gemma3-27b", "deepseek-v3")
# Heads, rows and size of a head of the transformers that process whole images, texts and clips.
_ENCODERS = {"vit-b16": (12, 197, 64), "clip-vit-l14": (16, 257, 64), "whisper-large-v3": (20, 1500, 64)}
_PREFILL = tuple(product((1, 4), (512, 2048, 8192)))  # requests, tokens of each
_DECODE = tuple(product((1, 16, 64), (1024, 8192)))  # requests, tokens before
_TOKENS = (1, 16, 128, 2048)  # rows of a head's own weight
_IMAGES = (1, 8, 64)

_BATCHES = (2, 3, 4, 8, 12, 16, 32, 48, 64, 128, 256)
_GPU = SizeLimits(flops=(1e6, 4e11), size=8192, bytes=1_000_000_000)
_HOST = SizeLimits(flops=(1e6, 2e8), size=1024, bytes=64_000_000)
_GPU_COUNT, _HOST_COUNT = 600, 200
_HOST_LAYOUTS = ("rcr", "rrr")
_NAMES = (*_DECODERS, *_ENCODERS)


def _products(batch: int, rows: int, tokens: int, key: int, value: int) -> Iterator[GemmBatchedProblem]:
    """Yield the products of attention of `rows` queries to `tokens` keys and values."""
    yield GemmBatchedProblem(rows, tokens, key, layout="rcr", batch=batch)
    yield GemmBatchedProblem(rows, value, tokens, layout="rrr", batch=batch)


def _decoder(model: Decoder) -> Iterator[GemmBatchedProblem]:
    heads, kv_rank, value = map(model.size, ("heads", "kv_rank", "value_dim"))
    key = model.total("nope_dim+rope_dim" if kv_rank else "head_dim")
    if kv_rank:
        for tokens in _TOKENS:
            yield GemmBatchedProblem(tokens, kv_rank, model.size("nope_dim"), layout="rrr", batch=heads)
            yield GemmBatchedProblem(tokens, value, kv_rank, layout="rrr", batch=heads)
    for requests, tokens in _PREFILL:
        yield from _products(requests * heads, tokens, tokens, key, value)
    for requests, tokens in () if kv_rank else _DECODE:
        kv_heads = model.size("kv_heads")
        yield from _products(requests * kv_heads, heads // kv_heads, tokens, key, value)


def _of_model(name: str) -> Iterator[GemmBatchedProblem]:
    if name in _ENCODERS:
        heads, rows, size = _ENCODERS[name]
        for images in _IMAGES:
            yield from _products(images * heads, rows, rows, size, size)
    else:
        yield from _decoder(decoder_of(config_of(MODELS[name][1], name)))


def _drawn(limits: SizeLimits, count: int, layouts: tuple[str, ...]) -> Iterator[GemmBatchedProblem]:
    """Yield `gemm_universal`'s training products in batches that stay within the limits."""
    known = {(problem.m, problem.n, problem.k) for name in _NAMES for problem in _of_model(name)}
    for index, problem in enumerate(draw_problems(FAMILIES, count, limits, frozenset())):
        most = min(limits.bytes // problem.bytes, limits.flops[1] // problem.flops)
        fitting = [batch for batch in _BATCHES if batch <= most]
        if fitting and (problem.m, problem.n, problem.k) not in known:
            batch, layout = fitting[index % len(fitting)], layouts[index % len(layouts)]
            yield GemmBatchedProblem(problem.m, problem.n, problem.k, layout=layout, batch=batch)


SETS = NamedSets(
    GemmBatchedProblem,
    {
        "batched-train": lambda: _drawn(_GPU, _GPU_COUNT, GEMM_LAYOUTS),
        "host-batched-train": lambda: _drawn(_HOST, _HOST_COUNT, _HOST_LAYOUTS),
        **by_name("attention", _NAMES, _of_model),
    },
)
