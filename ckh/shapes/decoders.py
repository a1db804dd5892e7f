"""Matrix products of language models, by the rules of their layers.

All products follow from a `Decoder`, the model's published configuration. Projections with the same input are fused, as
in vLLM, SGLang and AITER. Under tensor parallelism column-parallel weights are divided along N, row-parallel ones along
K; the low-rank projections of latent attention, its indexer and the router are replicated on each rank; key-value heads
are replicated if there are fewer than ranks; the vocabulary is padded to a multiple of 64, as in vLLM.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.shapes.layers import ExpertProducts, Layer, Matmul, Scaling
from ckh.shapes.quantisation import Scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ckh.shapes.layers import RunOptions
    from ckh.shapes.quantisation import ModuleSchemes

VOCABULARY_PADDING = 64  # vLLM's DEFAULT_VOCAB_PADDING_SIZE
MAX_SEQUENCES = 256  # vLLM's max_num_seqs: maximum rows of lm_head, one per sequence
_BLOCK = 128  # rows and columns of `Scaling.BLOCK_128`


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """A mixture of experts: each token goes to `per_token` of `count` experts, and through the shared ones."""

    count: int  # number of routed experts
    per_token: int  # experts per token
    intermediate: int  # columns between the two products of an expert
    shared: int = 0  # number of shared experts, used by all tokens
    shared_intermediate: int = 0  # columns between the products of all shared experts together
    shared_gate: bool = False  # whether a gate weights the shared experts, as in Qwen2-MoE
    activation: str = "silu"  # activation between the products


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: queries, keys and values are projected through low-rank spaces."""

    q_rank: int  # rank of queries; 0: they are projected directly
    kv_rank: int  # rank of keys and values
    nope_dim: int  # dimension of a query or key head without position
    rope_dim: int  # dimension of a query or key head with position
    value_dim: int  # dimension of a value head
    index_heads: int = 0  # heads of the indexer of sparse attention; 0: there is none
    index_dim: int = 0  # dimension of an indexer head


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated delta networks (Qwen3-Next) in the layers without full attention."""

    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Decoder:
    """A language model's published configuration."""

    hidden: int  # columns of a layer's input
    intermediate: int  # columns of the feed-forward part of dense layers
    heads: int  # query heads
    kv_heads: int  # key and value heads
    head_dim: int  # dimension of a head
    vocabulary: int  # rows of the output weight
    layers: int
    dense_layers: frozenset[int]  # layers without experts
    linear_layers: frozenset[int] = frozenset()  # layers with linear attention
    gated_attention: bool = False  # whether queries come with a gate of the same size
    experts: MixtureOfExperts | None = None  # mixture of experts of the other layers
    latent: LatentAttention | None = None  # parameters of layers with latent attention
    linear: LinearAttention | None = None  # parameters of layers with linear attention

    @property
    def sparse_layers(self) -> frozenset[int]:
        """Layers with experts."""
        return frozenset(range(self.layers)) - self.dense_layers


@dataclass(frozen=True, slots=True)
class Precision:
    """Element types of a model: `base` of unquantised modules, and the schemes of the others, if any."""

    base: str
    quantisation: ModuleSchemes | None = None

    def schemes(self, modules: Iterable[str], layers: Iterable[int]) -> Counter[Scheme]:
        """Number of layers per scheme of these modules, which are multiplied together."""
        counts: Counter[Scheme] = Counter()
        for layer in sorted(layers):
            own = {module: self._scheme(f"layers.{layer}.{module}") for module in modules}
            kinds = list(dict.fromkeys(own.values()))
            if len(kinds) > 1:
                names = ", ".join(f"{name.rpartition('.')[2]} {scheme.dtype or '?'}" for name, scheme in own.items())
                kinds = [Scheme("", unread=f"fused products of modules with different schemes ({names})")]
            counts[kinds[0]] += 1
        return counts

    def _scheme(self, module: str) -> Scheme:
        return (self.quantisation and self.quantisation.of(module)) or Scheme(self.base)


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight of k inputs on one rank, in some layers."""

    name: str  # displayed name
    outputs: Mapping[str, int]  # module of a layer -> its outputs, fused in this order
    k: int  # inputs
    layers: frozenset[int]  # numbers of the layers
    divided: str = ""  # the dimension divided among ranks, n or k; empty: neither
    is_quantised: bool = True  # whether a quantisation applies
    most_rows: int = 0  # maximum rows of its input; 0: any
    mixture: ExpertProducts | None = None  # the products of a mixture of experts, for one token

    @property
    def n(self) -> int:
        """Outputs of all modules."""
        return sum(self.outputs.values())

    def shape(self, m: int, scheme: Scheme) -> Matmul | ExpertProducts:
        """Its product with m rows."""
        if self.mixture is not None:
            return replace(self.mixture, tokens=m, dtype=scheme.dtype, scaling=scheme.scaling)
        return Matmul(m, self.n, self.k, scheme.dtype, scaling=scheme.scaling)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Tensor parallelism: division of sizes among ranks."""

    count: int

    def share(self, size: int, what: str) -> int:
        """A rank's share of a size."""
        if size % self.count:
            raise UsageError(
                f"{what} {size} cannot be divided among {self.count} ranks",
                f"use a --tp that divides {size}",
                code="indivisible",
            )
        return size // self.count

    def kv_share(self, heads: int) -> int:
        """Key-value heads of a rank, replicated if there are fewer than ranks."""
        if heads < self.count and self.count % heads == 0:
            return 1
        return self.share(heads, "num_key_value_heads")


def weights_of(
    model: Decoder, ranks: Ranks, refuse: Callable[[UsageError], None], *, fuse_shared: bool
) -> Iterator[Weight]:
    """The distinct weights of a rank that are multiplied with tokens, in order of use."""
    mixture = model.experts
    has_shared = mixture is not None and mixture.shared and not fuse_shared
    parts = (
        (model.latent is not None, _latent),
        (model.latent is None and model.layers > len(model.linear_layers), _attention),
        (model.linear is not None, _linear),
        (model.dense_layers, _dense),
        (mixture is not None, _router),
        (has_shared, _shared),
        (True, _outputs),
        (mixture is not None, partial(_routed, fuse_shared=fuse_shared)),
    )
    for is_there, part in parts:
        if is_there:
            try:
                yield from list(part(model, ranks))
            except UsageError as error:
                refuse(error)


def _attention(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    full = frozenset(range(model.layers)) - model.linear_layers
    heads, kv_heads = ranks.share(model.heads, "num_attention_heads"), ranks.kv_share(model.kv_heads)
    queries = heads * (2 if model.gated_attention else 1)
    sizes = {"q": queries * model.head_dim, "k": kv_heads * model.head_dim, "v": kv_heads * model.head_dim}
    outputs = {f"self_attn.{name}_proj": size for name, size in sizes.items()}
    yield Weight("qkv", outputs, model.hidden, full, "n")
    yield Weight("o", {"self_attn.o_proj": model.hidden}, heads * model.head_dim, full, "k")


def _latent(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    latent = model.latent
    assert latent is not None, "the model has it"
    heads, layers = ranks.share(model.heads, "num_attention_heads"), frozenset(range(model.layers))
    kv_a = {"self_attn.kv_a_proj_with_mqa": latent.kv_rank + latent.rope_dim}
    queries = heads * (latent.nope_dim + latent.rope_dim)
    if latent.q_rank:
        yield Weight("qkv_a", {"self_attn.q_a_proj": latent.q_rank, **kv_a}, model.hidden, layers)
        yield Weight("q_b", {"self_attn.q_b_proj": queries}, latent.q_rank, layers, "n")
    else:
        yield Weight("q", {"self_attn.q_proj": queries}, model.hidden, layers, "n")
        yield Weight("kv_a", kv_a, model.hidden, layers)
    outputs = heads * (latent.nope_dim + latent.value_dim)
    yield Weight("kv_b", {"self_attn.kv_b_proj": outputs}, latent.kv_rank, layers, "n")
    if latent.index_heads:
        index_q = {"self_attn.indexer.wq_b": latent.index_heads * latent.index_dim}
        yield Weight("index_q", index_q, latent.q_rank, layers)
        keys = {"self_attn.indexer.wk": latent.index_dim, "self_attn.indexer.weights_proj": latent.index_heads}
        yield Weight("index_k_weights", keys, model.hidden, layers, is_quantised=False)
    yield Weight("o", {"self_attn.o_proj": model.hidden}, heads * latent.value_dim, layers, "k")


def _linear(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    linear = model.linear
    assert linear is not None, "the model has it"
    keys = ranks.share(linear.key_heads, "linear_num_key_heads") * linear.key_dim
    value_heads = ranks.share(linear.value_heads, "linear_num_value_heads")
    values, layers = value_heads * linear.value_dim, model.linear_layers
    qkvz = {"linear_attn.in_proj_qkv": 2 * keys + values, "linear_attn.in_proj_z": values}
    yield Weight("linear_qkvz", qkvz, model.hidden, layers, "n")
    ba = {"linear_attn.in_proj_b": value_heads, "linear_attn.in_proj_a": value_heads}
    yield Weight("linear_ba", ba, model.hidden, layers, "n")
    yield Weight("linear_o", {"linear_attn.out_proj": model.hidden}, values, layers, "k")


def _dense(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    intermediate = ranks.share(model.intermediate, "intermediate_size")
    yield from _feed_forward("", "mlp", model.hidden, intermediate, model.dense_layers)


def _router(model: Decoder, _ranks: Ranks) -> Iterator[Weight]:
    assert model.experts is not None, "the model has them"
    yield Weight("router", {"mlp.gate": model.experts.count}, model.hidden, model.sparse_layers, is_quantised=False)


def _shared(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    assert model.experts is not None, "the model has them"
    intermediate = ranks.share(model.experts.shared_intermediate, "the shared experts' intermediate size")
    yield from _feed_forward("shared_", "mlp.shared_experts", model.hidden, intermediate, model.sparse_layers)
    if model.experts.shared_gate:
        gate = {"mlp.shared_expert_gate": 1}
        yield Weight("shared_gate", gate, model.hidden, model.sparse_layers, is_quantised=False)


def _feed_forward(prefix: str, module: str, hidden: int, intermediate: int, layers: frozenset[int]) -> Iterator[Weight]:
    """Weights of a gated feed-forward part: gate and up are one weight."""
    gate_up = {f"{module}.{name}_proj": intermediate for name in ("gate", "up")}
    yield Weight(f"{prefix}gate_up", gate_up, hidden, layers, "n")
    yield Weight(f"{prefix}down", {f"{module}.down_proj": hidden}, intermediate, layers, "k")


def _outputs(model: Decoder, ranks: Ranks) -> Iterator[Weight]:
    padded = -(-model.vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING
    outputs = {"lm_head": ranks.share(padded, "the padded vocab_size")}
    yield Weight("lm_head", outputs, model.hidden, frozenset({0}), "n", is_quantised=False, most_rows=MAX_SEQUENCES)


def _routed(model: Decoder, ranks: Ranks, *, fuse_shared: bool) -> Iterator[Weight]:
    mixture = model.experts
    assert mixture is not None, "the model has them"
    intermediate, more = ranks.share(mixture.intermediate, "the experts' intermediate size"), 0
    modules = ["mlp.experts.0"]
    if fuse_shared and mixture.shared:
        more = mixture.shared
        modules.append("mlp.shared_experts")
    sizes = {"gate": intermediate, "up": intermediate, "down": model.hidden}
    outputs = {f"{module}.{name}_proj": size for module in modules for name, size in sizes.items()}
    products = ExpertProducts(
        *(1, model.hidden, intermediate, mixture.count + more, mixture.per_token + more), activation=mixture.activation
    )
    yield Weight("experts", outputs, model.hidden, model.sparse_layers, "n", mixture=products)


def decoder_layers(
    model: Decoder, precision: Precision, run: RunOptions, where: str, refuse: Callable[[UsageError], None]
) -> Iterator[Layer]:
    """The layers of one rank for each number of tokens."""
    ranks = Ranks(run.tp)
    weights = list(weights_of(model, ranks, refuse, fuse_shared=run.fuse_shared))
    schemes = [(weight, own) for weight in weights if (own := _schemes(weight, precision, ranks, refuse))]
    for rows, times in run.weights.items():
        for weight, own in schemes:
            m = min(rows, weight.most_rows) if weight.most_rows else rows
            for scheme, count in own.items():
                yield Layer(weight.name, weight.shape(m, scheme), count * times, where, unread=scheme.unread)


def _schemes(
    weight: Weight, precision: Precision, ranks: Ranks, refuse: Callable[[UsageError], None]
) -> Counter[Scheme]:
    """Number of layers per scheme of a weight; none if scales of blocks cannot cover a rank's part of it.

    vLLM and SGLang refuse such models as well: the sizes that are divided or fused must be whole blocks.
    """
    if not weight.is_quantised:
        return Counter({Scheme(precision.base): len(weight.layers)})
    schemes = precision.schemes(weight.outputs, weight.layers)
    outputs, is_divided = list(weight.outputs.values()), ranks.count > 1
    sizes = outputs if weight.divided == "n" and is_divided else outputs[:-1]
    sizes += [weight.k] if weight.divided == "k" and is_divided else []
    size = next((size for size in sizes if size % _BLOCK), 0)
    if not size or all(scheme.scaling is not Scaling.BLOCK_128 for scheme in schemes):
        return schemes
    fitting = [n for n in range(1, ranks.count) if ranks.count % n == 0 == size * ranks.count // n % _BLOCK]
    refuse(
        UsageError(
            f"{weight.name}: {size} on a rank of {ranks.count} is not a multiple of {_BLOCK}, the blocks of its scales",
            f"use --tp {fitting[-1]}" if fitting else "serve it with another quantisation, and pass that as --dtype",
            code="indivisible",
        )
    )
    return Counter()
