"""Large language models as the matrix products that their layers are.

A model is its published configuration (`config.json` of its release, under the field names' usual meaning); every
product follows from it by rule. y = x W^T: A is the activations (tokens x inputs, row-major), B the weight, stored
outputs x inputs, that is a column-major K x N: layout rcr.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: each token goes to `per_token` of `count` experts, and to all shared ones."""

    count: int
    per_token: int
    intermediate: int
    shared: int = 0


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: queries, and keys with values, pass through spaces of low rank."""

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Projection:
    """A weight of n outputs and k inputs; `routed` tokens only pass through it if it is an expert's."""

    name: str
    n: int
    k: int
    routed: bool = False


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A published configuration; `intermediate` is that of the dense layers, 0 if there are none."""

    source: str
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    experts: Experts | None = None
    latent: LatentAttention | None = None

    def projections(self) -> Iterator[Projection]:
        """The distinct weights that tokens are multiplied with, in the order they are met."""
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
        """Rows of A for a batch of tokens: an expert gets its even share, rounded up."""
        if not projection.routed or self.experts is None:
            return tokens
        return -(-tokens * self.experts.per_token // self.experts.count)

    def shard(self, ranks: int) -> LanguageModel:
        """One rank's share under tensor parallelism.

        Heads, intermediate sizes and the vocabulary are divided, hidden size, ranks of latent attention and the router
        are not; key-value heads that are too few for all ranks are repeated.
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
    """Gated: gate and up are one weight."""
    yield Projection(f"{prefix}gate_up", 2 * intermediate, hidden, routed)
    yield Projection(f"{prefix}down", hidden, intermediate, routed)


MODELS: dict[str, LanguageModel] = {
    "llama3-8b": LanguageModel("meta-llama/Meta-Llama-3-8B", 4096, 14336, 32, 8, 128, 128256),
    "llama3-70b": LanguageModel("meta-llama/Meta-Llama-3-70B", 8192, 28672, 64, 8, 128, 128256),
    "deepseek-v3": LanguageModel(
        "deepseek-ai/DeepSeek-V3",
        hidden=7168,
        intermediate=18432,
        heads=128,
        kv_heads=128,
        head_dim=128,
        vocabulary=129280,
        experts=Experts(count=256, per_token=8, intermediate=2048, shared=1),
        latent=LatentAttention(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128),
    ),
    "qwen3-0.6b": LanguageModel("Qwen/Qwen3-0.6B", 1024, 3072, 16, 8, 128, 151936),
    "qwen3-8b": LanguageModel("Qwen/Qwen3-8B", 4096, 12288, 32, 8, 128, 151936),
    "qwen3-32b": LanguageModel("Qwen/Qwen3-32B", 5120, 25600, 64, 8, 128, 151936),
    "qwen3-30b-a3b": LanguageModel("Qwen/Qwen3-30B-A3B", 2048, 0, 32, 4, 128, 151936, Experts(128, 8, 768)),
    "mixtral-8x7b": LanguageModel("mistralai/Mixtral-8x7B-v0.1", 4096, 0, 32, 8, 128, 32000, Experts(8, 2, 14336)),
}
