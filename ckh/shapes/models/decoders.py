"""The matrix products of language models, by the rules of their layers.

A `Decoder` is a model's published configuration; every product follows from it. Projections that read the same input
are fused, as vLLM, SGLang and AITER run them. Under tensor parallelism column-parallel weights are divided along N,
row-parallel ones along K; the low-rank projections of latent attention, its indexer and the router are whole on each
rank; key-value heads that are too few are repeated; the vocabulary is padded to a multiple of 64, as vLLM does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.shapes.layers import ExpertProducts, Layer, Matmul, Scaling

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VOCABULARY_PADDING = 64  # vLLM's DEFAULT_VOCAB_PADDING_SIZE
MAX_SEQUENCES = 256  # vLLM's max_num_seqs: rows of lm_head at most, one for each sequence


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """A mixture of experts: each token goes to `per_token` of `count` experts, and through the shared one.

    Attributes:
        count: how many there are to choose from.
        per_token: how many a token chooses.
        intermediate: columns between the two products of an expert.
        shared: how many experts all tokens go through.
        shared_intermediate: columns between the products of all shared experts together.
    """

    count: int
    per_token: int
    intermediate: int
    shared: int = 0
    shared_intermediate: int = 0


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: queries, and keys with values, pass through spaces of low rank.

    Attributes:
        q_rank: rank of queries; 0: they are projected at once.
        kv_rank: rank of keys and values.
        nope_dim: of a query's and key's head, without position.
        rope_dim: of it, with position.
        value_dim: of a value's head.
        index_heads: heads of the indexer of sparse attention; 0: there is none.
        index_dim: of each.
    """

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    index_heads: int = 0
    index_dim: int = 0


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated delta networks (Qwen3-Next) in the layers without full attention."""

    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Decoder:
    """A language model's published configuration.

    Attributes:
        hidden: columns of a layer's input.
        intermediate: of the dense layers' feed-forward.
        heads: of queries.
        kv_heads: of keys and of values.
        head_dim: of each.
        vocabulary: rows of the output's weight.
        layers: how many.
        dense_layers: those without experts.
        linear_layers: those with linear attention.
        gated_attention: whether queries come with a gate of their size.
        experts: of the other layers.
        latent: of layers with latent attention.
        linear: of layers with linear attention.
    """

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    layers: int
    dense_layers: int
    linear_layers: int = 0
    gated_attention: bool = False
    experts: MixtureOfExperts | None = None
    latent: LatentAttention | None = None
    linear: LinearAttention | None = None


@dataclass(frozen=True, slots=True)
class Precision:
    """Element types of a model: `base` of what stays unquantised, `dtype` and `scaling` of the others."""

    base: str
    dtype: str
    scaling: Scaling = Scaling.NONE


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight of n outputs and k inputs on one rank, in `count` layers."""

    name: str
    n: int
    k: int
    count: int
    is_quantised: bool = True
    most_rows: int = 0


@dataclass(frozen=True, slots=True)
class Ranks:
    """Tensor parallelism: how sizes are divided among ranks."""

    count: int

    def share(self, size: int, what: str) -> int:
        """A rank's share of a size.

        Raises:
            UsageError: it cannot be divided evenly.
        """
        if size % self.count:
            raise UsageError(
                f"{what} {size} cannot be divided among {self.count} ranks",
                f"use a --tp that divides {size}",
                code="indivisible",
            )
        return size // self.count

    def kv_share(self, heads: int) -> int:
        """Key-value heads of a rank, which are repeated where there are fewer than ranks.

        Raises:
            UsageError: neither divides the other.
        """
        if heads < self.count and self.count % heads == 0:
            return 1
        return self.share(heads, "num_key_value_heads")


def weights_of(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    """The distinct weights of a rank that tokens are multiplied with, in the order they are met.

    Raises:
        UsageError: a size cannot be divided among the ranks.
    """
    full = model.layers - model.linear_layers
    if model.latent is not None:
        yield from _latent(model, model.latent, ranks)
    elif full:
        heads = ranks.share(model.heads, "num_attention_heads")
        queries = heads * (2 if model.gated_attention else 1)
        yield Weight("qkv", (queries + 2 * ranks.kv_share(model.kv_heads)) * model.head_dim, model.hidden, full)
        yield Weight("o", model.hidden, heads * model.head_dim, full)
    if model.linear is not None:
        yield from _linear(model, model.linear, ranks)
    if model.dense_layers:
        yield from _feed_forward("", model.hidden, ranks.share(model.intermediate, "intermediate_size"), model)
    if model.experts is not None:
        sparse = model.layers - model.dense_layers
        yield Weight("router", model.experts.count, model.hidden, sparse, is_quantised=False)
    padded = -(-model.vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING
    outputs = ranks.share(padded, "the padded vocab_size")
    yield Weight("lm_head", outputs, model.hidden, 1, is_quantised=False, most_rows=MAX_SEQUENCES)


def _latent(model: Decoder, latent: LatentAttention, ranks: Ranks) -> Iterator[Weight]:
    heads, layers = ranks.share(model.heads, "num_attention_heads"), model.layers
    kv_a = latent.kv_rank + latent.rope_dim
    queries = heads * (latent.nope_dim + latent.rope_dim)
    if latent.q_rank:
        yield Weight("qkv_a", latent.q_rank + kv_a, model.hidden, layers)
        yield Weight("q_b", queries, latent.q_rank, layers)
    else:
        yield Weight("q", queries, model.hidden, layers)
        yield Weight("kv_a", kv_a, model.hidden, layers)
    yield Weight("kv_b", heads * (latent.nope_dim + latent.value_dim), latent.kv_rank, layers)
    if latent.index_heads:
        yield Weight("index_q", latent.index_heads * latent.index_dim, latent.q_rank, layers)
        keys = latent.index_dim + latent.index_heads
        yield Weight("index_k_weights", keys, model.hidden, layers, is_quantised=False)
    yield Weight("o", model.hidden, heads * latent.value_dim, layers)


def _linear(model: Decoder, linear: LinearAttention, ranks: Ranks) -> Iterator[Weight]:
    keys = ranks.share(linear.key_heads, "linear_num_key_heads") * linear.key_dim
    value_heads = ranks.share(linear.value_heads, "linear_num_value_heads")
    values = value_heads * linear.value_dim
    yield Weight("linear_qkvz", 2 * keys + 2 * values, model.hidden, model.linear_layers)
    yield Weight("linear_ba", 2 * value_heads, model.hidden, model.linear_layers)
    yield Weight("linear_o", model.hidden, values, model.linear_layers)


def _feed_forward(prefix: str, hidden: int, intermediate: int, model: Decoder) -> Iterator[Weight]:
    """Gated: gate and up are one weight."""
    count = model.layers - model.dense_layers if prefix else model.dense_layers
    yield Weight(f"{prefix}gate_up", 2 * intermediate, hidden, count)
    yield Weight(f"{prefix}down", hidden, intermediate, count)


def decoder_layers(
    model: Decoder, precision: Precision, tp: int, tokens: Sequence[int], *, fuse_shared: bool, where: str
) -> Iterator[Layer]:
    """The layers of one rank for each number of tokens.

    Args:
        model: the configuration.
        precision: element types.
        tp: ranks of tensor parallelism.
        tokens: rows of the products.
        fuse_shared: whether shared experts are further experts that each token chooses, as AITER can run them.
        where: the file, for messages.

    Raises:
        UsageError: a size cannot be divided among the ranks, or is out of range.
    """
    ranks = Ranks(tp)
    mixture = model.experts
    weights = list(weights_of(model, ranks))
    if mixture is not None and mixture.shared and not fuse_shared:
        shared = ranks.share(mixture.shared_intermediate, "the shared experts' intermediate size")
        weights[-1:-1] = _feed_forward("shared_", model.hidden, shared, model)
    for rows in tokens:
        for one in weights:
            dtype, scaling = (
                (precision.dtype, precision.scaling) if one.is_quantised else (precision.base, Scaling.NONE)
            )
            m = min(rows, one.most_rows) if one.most_rows else rows
            yield Layer(one.name, Matmul(m, one.n, one.k, dtype, scaling=scaling), one.count, where)
        if mixture is not None:
            yield _experts(model, mixture, precision, ranks, rows, fuse_shared=fuse_shared, where=where)


def _experts(
    model: Decoder,
    mixture: MixtureOfExperts,
    precision: Precision,
    ranks: Ranks,
    rows: int,
    *,
    fuse_shared: bool,
    where: str,
) -> Layer:
    more = mixture.shared if fuse_shared else 0
    shape = ExpertProducts(
        rows,
        model.hidden,
        ranks.share(mixture.intermediate, "the experts' intermediate size"),
        mixture.count + more,
        mixture.per_token + more,
        precision.dtype,
        precision.scaling,
    )
    return Layer("experts", shape, model.layers - model.dense_layers, where)
