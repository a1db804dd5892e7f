"""Matrix products of language models, by the rules of their layers.

All products follow from a `Decoder`, the model's published configuration. Projections with the same input are fused, as
in vLLM, SGLang and AITER. Under tensor parallelism column-parallel weights are divided along N, row-parallel ones along
K; the low-rank projections of latent attention, its indexer and the router are replicated on each rank; key-value heads
are replicated if there are fewer than ranks; the vocabulary is padded to a multiple of 64, as in vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.shapes.layers import ExpertProducts, Layer, Matmul, Scaling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ckh.shapes.run_options import RunOptions

VOCABULARY_PADDING = 64  # vLLM's DEFAULT_VOCAB_PADDING_SIZE
MAX_SEQUENCES = 256  # vLLM's max_num_seqs: maximum rows of lm_head, one per sequence


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """A mixture of experts: each token goes to `per_token` of `count` experts, and through the shared ones.

    Attributes:
        count: number of routed experts.
        per_token: experts per token.
        intermediate: columns between the two products of an expert.
        shared: number of shared experts, used by all tokens.
        shared_intermediate: columns between the products of all shared experts together.
    """

    count: int
    per_token: int
    intermediate: int
    shared: int = 0
    shared_intermediate: int = 0


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: queries, keys and values are projected through low-rank spaces.

    Attributes:
        q_rank: rank of queries; 0: they are projected directly.
        kv_rank: rank of keys and values.
        nope_dim: dimension of a query or key head without position.
        rope_dim: dimension of a query or key head with position.
        value_dim: dimension of a value head.
        index_heads: heads of the indexer of sparse attention; 0: there is none.
        index_dim: dimension of an indexer head.
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
        intermediate: columns of the feed-forward part of dense layers.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: dimension of a head.
        vocabulary: rows of the output weight.
        layers: number of layers.
        dense_layers: number of layers without experts.
        linear_layers: number of layers with linear attention.
        gated_attention: whether queries come with a gate of the same size.
        experts: mixture of experts of the other layers.
        latent: parameters of layers with latent attention.
        linear: parameters of layers with linear attention.
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

    @property
    def sparse_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers


@dataclass(frozen=True, slots=True)
class Precision:
    """Element types of a model: `base` of unquantised layers, `dtype` and `scaling` of the others."""

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
    """Tensor parallelism: division of sizes among ranks."""

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
        """Key-value heads of a rank, replicated if there are fewer than ranks.

        Raises:
            UsageError: neither number divides the other.
        """
        if heads < self.count and self.count % heads == 0:
            return 1
        return self.share(heads, "num_key_value_heads")


def weights_of(
    model: Decoder, ranks: Ranks, refuse: Callable[[UsageError], None], *, fuse_shared: bool
) -> Iterator[Weight]:
    """The distinct weights of a rank that are multiplied with tokens, in order of use.

    Args:
        model: the configuration.
        ranks: the tensor parallelism.
        refuse: handles a part of a layer whose sizes cannot be divided.
        fuse_shared: whether shared experts are fused with the routed ones.
    """
    mixture = model.experts
    has_shared = mixture is not None and mixture.shared and not fuse_shared
    parts = (
        (model.latent is not None, _latent),
        (model.latent is None and model.layers > model.linear_layers, _attention),
        (model.linear is not None, _linear),
        (model.dense_layers, _dense),
        (mixture is not None, _router),
        (has_shared, _shared),
        (True, _outputs),
    )
    for is_there, part in parts:
        if is_there:
            try:
                yield from list(part(model, ranks))
            except UsageError as error:
                refuse(error)


def _attention(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    full = model.layers - model.linear_layers
    heads = ranks.share(model.heads, "num_attention_heads")
    queries = heads * (2 if model.gated_attention else 1)
    yield Weight("qkv", (queries + 2 * ranks.kv_share(model.kv_heads)) * model.head_dim, model.hidden, full)
    yield Weight("o", model.hidden, heads * model.head_dim, full)


def _latent(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    latent = model.latent
    assert latent is not None, "the model has it"
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


def _linear(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    linear = model.linear
    assert linear is not None, "the model has it"
    keys = ranks.share(linear.key_heads, "linear_num_key_heads") * linear.key_dim
    value_heads = ranks.share(linear.value_heads, "linear_num_value_heads")
    values = value_heads * linear.value_dim
    yield Weight("linear_qkvz", 2 * keys + 2 * values, model.hidden, model.linear_layers)
    yield Weight("linear_ba", 2 * value_heads, model.hidden, model.linear_layers)
    yield Weight("linear_o", model.hidden, values, model.linear_layers)


def _dense(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    intermediate = ranks.share(model.intermediate, "intermediate_size")
    yield from _feed_forward("", model.hidden, intermediate, model.dense_layers)


def _router(model: Decoder, _ranks: Ranks) -> Iterator[Weight]:
    assert model.experts is not None, "the model has them"
    yield Weight("router", model.experts.count, model.hidden, model.sparse_layers, is_quantised=False)


def _shared(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    assert model.experts is not None, "the model has them"
    intermediate = ranks.share(model.experts.shared_intermediate, "the shared experts' intermediate size")
    yield from _feed_forward("shared_", model.hidden, intermediate, model.sparse_layers)


def _feed_forward(prefix: str, hidden: int, intermediate: int, count: int) -> Iterator[Weight]:
    """Weights of a gated feed-forward part: gate and up are one weight."""
    yield Weight(f"{prefix}gate_up", 2 * intermediate, hidden, count)
    yield Weight(f"{prefix}down", hidden, intermediate, count)


def _outputs(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    padded = -(-model.vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING
    outputs = ranks.share(padded, "the padded vocab_size")
    yield Weight("lm_head", outputs, model.hidden, 1, is_quantised=False, most_rows=MAX_SEQUENCES)


def decoder_layers(
    model: Decoder, precision: Precision, run: RunOptions, where: str, refuse: Callable[[UsageError], None]
) -> Iterator[Layer]:
    """The layers of one rank for each number of tokens.

    Args:
        model: the configuration.
        precision: element types.
        run: ranks, tokens, and whether shared experts are fused with the routed ones.
        where: the file, for messages.
        refuse: handles a part of a layer whose sizes cannot be divided among the ranks.

    Raises:
        UsageError: a size is out of range.
    """
    ranks = Ranks(run.tp)
    weights = list(weights_of(model, ranks, refuse, fuse_shared=run.fuse_shared))
    experts = None
    if model.experts is not None:
        experts = _expert_sizes(model.experts, ranks, refuse, fuse_shared=run.fuse_shared)
    for rows in run.tokens:
        for weight in weights:
            dtype, scaling = (
                (precision.dtype, precision.scaling) if weight.is_quantised else (precision.base, Scaling.NONE)
            )
            m = min(rows, weight.most_rows) if weight.most_rows else rows
            yield Layer(weight.name, Matmul(m, weight.n, weight.k, dtype, scaling=scaling), weight.count, where)
        if experts is not None:
            intermediate, count, per_token = experts
            shape = ExpertProducts(
                rows, model.hidden, intermediate, count, per_token, precision.dtype, precision.scaling
            )
            yield Layer("experts", shape, model.sparse_layers, where)


def _expert_sizes(
    mixture: MixtureOfExperts, ranks: Ranks, refuse: Callable[[UsageError], None], *, fuse_shared: bool
) -> tuple[int, int, int] | None:
    """Columns between an expert's products, number of experts, and experts per token; None: refused."""
    more = mixture.shared if fuse_shared else 0
    try:
        intermediate = ranks.share(mixture.intermediate, "the experts' intermediate size")
    except UsageError as error:
        refuse(error)
        return None
    return intermediate, mixture.count + more, mixture.per_token + more
