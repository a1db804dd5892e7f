"""Large language models as the matrix products of their layers.

A model is its published configuration (`ckh.shapes.config`), from which every product is derived. y = x W^T: A is
the activations (tokens x inputs, row-major), B the weight, stored as outputs x inputs, that is a column-major K x N:
layout rcr. `ckh shapes` has the same models as servers run them, with more projections fused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckh.shapes.config import MODELS as READY
from ckh.shapes.configs import config_of, decoder_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.shapes.decoders import LatentAttention, MixtureOfExperts


@dataclass(frozen=True, slots=True)
class Projection:
    """A weight of n outputs and k inputs; if it is an expert's, only `routed` tokens pass through it."""

    name: str
    n: int
    k: int
    routed: bool = False


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A published configuration; `intermediate` is the size of the dense layers, 0 if there are none."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    experts: MixtureOfExperts | None = None
    latent: LatentAttention | None = None

    def projections(self) -> Iterator[Projection]:
        """Yield the distinct weights that tokens are multiplied with, in execution order."""
        yield from self._attention() if self.latent is None else self._latent_attention(self.latent)
        if self.intermediate:
            yield from _feed_forward("", self.hidden, self.intermediate)
        if self.experts is not None:
            yield Projection("router", self.experts.count, self.hidden)
            yield from _feed_forward("expert_", self.hidden, self.experts.intermediate, routed=True)
            if self.experts.shared:
                yield from _feed_forward("shared_", self.hidden, self.experts.shared * self.experts.intermediate)
        yield Projection("lm_head", self.vocabulary, self.hidden)

    def rows(self, projection: Projection, tokens: int) -> int:
        """Rows of A for a batch of tokens: experts get equal shares, rounded up."""
        if not projection.routed or self.experts is None:
            return tokens
        return -(-tokens * self.experts.per_token // self.experts.count)

    def shard(self, ranks: int) -> LanguageModel:
        """Return one rank's share under tensor parallelism.

        Heads, intermediate sizes and the vocabulary are divided; hidden size, ranks of latent attention and the router
        are not. If there are fewer key-value heads than ranks, they are replicated.
        """
        experts = self.experts and replace(self.experts, intermediate=self.experts.intermediate // ranks)
        return replace(
            self,
            intermediate=self.intermediate // ranks,
            heads=self.heads // ranks,
            kv_heads=max(1, self.kv_heads // ranks),
            vocabulary=self.vocabulary // ranks,
            experts=experts,
        )

    def _attention(self) -> Iterator[Projection]:
        yield Projection("qkv", (self.heads + 2 * self.kv_heads) * self.head_dim, self.hidden)
        yield Projection("o", self.hidden, self.heads * self.head_dim)

    def _latent_attention(self, latent: LatentAttention) -> Iterator[Projection]:
        yield Projection("q_a", latent.q_rank, self.hidden)
        yield Projection("q_b", self.heads * (latent.nope_dim + latent.rope_dim), latent.q_rank)
        yield Projection("kv_a", latent.kv_rank + latent.rope_dim, self.hidden)
        yield Projection("kv_b", self.heads * (latent.nope_dim + latent.value_dim), latent.kv_rank)
        yield Projection("o", self.hidden, self.heads * latent.value_dim)


def _feed_forward(prefix: str, hidden: int, intermediate: int, *, routed: bool = False) -> Iterator[Projection]:
    """Yield the projections of a gated feed-forward layer: gate and up are one weight."""
    yield Projection(f"{prefix}gate_up", 2 * intermediate, hidden, routed)
    yield Projection(f"{prefix}down", hidden, intermediate, routed)


def _language_model(name: str) -> LanguageModel:
    """Return a known model as the hold-out sets use it."""
    _, fields = READY[name]
    model = decoder_of(config_of(fields, name))
    sizes = (model.hidden, model.intermediate, model.heads, model.kv_heads, model.head_dim, model.vocabulary)
    return LanguageModel(*sizes, model.experts, model.latent)


# The models of hold-out sets; a further model would change which weights training sets exclude.
_NAMES = (
    *("llama3-8b", "llama3-70b", "deepseek-v3", "qwen3-0.6b", "qwen3-8b", "qwen3-32b", "qwen3-30b-a3b"),
    "mixtral-8x7b",
)
MODELS: dict[str, LanguageModel] = {name: _language_model(name) for name in _NAMES}
