"""Matrix products of language models, by the rules of their layers.

A decoder is composed of blocks of weights (`families.json`), each in some layers. Projections with the same input are
fused, as in vLLM, SGLang and AITER. Under tensor parallelism heads, intermediate sizes and the vocabulary, padded to a
multiple of 64 as in vLLM, are divided; key-value heads are replicated if there are fewer than ranks; low-rank
projections, indexers and routers are whole on each rank. Ranks of expert parallelism have whole experts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.problems import dtype_name
from ckh.shapes.config import FIELDS, TABLES, evaluate
from ckh.shapes.layers import ATTENTION, RECURRENCE, BatchedMatmul, ExpertProducts, Layer, Matmul, Scaling
from ckh.shapes.quantisation import Scheme
from ckh.text.log import note_once

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ckh.shapes.config import Config
    from ckh.shapes.layers import RunOptions
    from ckh.shapes.quantisation import ModuleSchemes

VOCABULARY_PADDING = 64  # vLLM's DEFAULT_VOCAB_PADDING_SIZE
_BLOCK = 128  # rows and columns of `Scaling.BLOCK_128`
_EXPERT_ACTIVATIONS = ("silu", "swiglu")  # of AITER's mixtures
# Experts of MX FP4 weights: vLLM pads sizes; AITER's fused_moe.py takes a swiglu, and quantises as many tokens.
_MX_PADDING, _MX_ACTIVATION, _LEAST_QUANTISED = 256, "swiglu", 256


@dataclass(frozen=True, slots=True)
class Ranks:
    """Parallelism: tensor-parallel ranks, and ranks that have whole experts."""

    tp: int = 1
    ep: int = 1

    def share(self, size: int, what: str, count: int | None = None) -> int:
        """A rank's share of a size."""
        count = count or self.tp
        if size % count:
            raise UsageError(
                f"{what} {size} cannot be divided among {count} ranks",
                f"use a --tp that divides {size}",
                code="indivisible",
            )
        return size // count

    def of(self, config: Config, field: str) -> int:
        """A rank's share of a decoder's field."""
        size, how, key = config.of(field), FIELDS[field].share, config.key(field)
        if how == "padded":
            padded = -(-size // VOCABULARY_PADDING) * VOCABULARY_PADDING
            return self.share(padded, f"the padded {key}")
        if how == "repeated" and size < self.tp and self.tp % size == 0:
            return 1
        if how == "experts":
            return -(-size // self.ep)
        if how == "expert":
            if max(self.tp, self.ep) % min(self.tp, self.ep):
                text = f"--ep {self.ep} and --tp {self.tp}: neither divides the other"
                raise UsageError(text, "ranks of whole experts are some or all of them", code="indivisible")
            return self.share(size, key, max(1, self.tp // self.ep))
        return self.share(size, key) if how else size


@dataclass(frozen=True, slots=True)
class Decoder:
    """A language model's configuration, on one rank."""

    config: Config
    layers: Mapping[str, frozenset[int]]  # set of layers -> their numbers
    ranks: Ranks = Ranks()

    def size(self, field: str) -> int:
        """A field's share of the rank."""
        return self.ranks.of(self.config, field)

    def total(self, expression: str) -> int:
        """Value of an expression of fields."""
        return evaluate(expression, self.size)


@dataclass(frozen=True, slots=True)
class Precision:
    """Element types of a model: `base` of unquantised modules, and the schemes of the others, if any."""

    base: str
    quantisation: ModuleSchemes | None = None

    def schemes(self, modules: Iterable[str], layers: Iterable[int]) -> Counter[Scheme]:
        """Number of layers per scheme of these modules, which are multiplied together."""
        counts: Counter[Scheme] = Counter()
        for layer in sorted(layers):
            names = {module: f"layers.{layer}.{module}" for module in modules}
            of = self.quantisation.of if self.quantisation is not None else lambda _: None
            own = {module: of(name) or Scheme(self.base) for module, name in names.items()}
            kinds = list(dict.fromkeys(own.values()))
            if len(kinds) > 1:
                shown = ", ".join(f"{name.rpartition('.')[2]} {scheme.dtype or '?'}" for name, scheme in own.items())
                kinds = [Scheme("", unread=f"fused products of modules with different schemes ({shown})")]
            counts[kinds[0]] += 1
        return counts


@dataclass(frozen=True, slots=True)
class WeightRule:
    """A weight of a block; sizes are expressions of fields. One of 0 outputs or inputs is not there."""

    name: str  # displayed name
    outputs: Mapping[str, str] = field(default_factory=dict)  # module of a layer -> its outputs, fused in this order
    k: str = ""  # inputs
    when: str = ""  # fields that must not be 0, or with ! must be 0
    bias: str = ""  # not 0 if it has a bias
    batch: str = ""  # number of products; those of no module have no weight, and their N or K may be the number of rows
    layout: str = "rcr"  # of such products
    is_recurrent: bool = False  # whether they are those of a recurrent state, else of attention
    # Element types of operands and result, if not the model's; after ?, the key that may state one.
    dtype: str = ""
    result: str = ""
    is_quantised: bool = True  # whether a quantisation applies
    is_mixture: bool = False  # whether it is the routed experts
    most_rows: int = 0  # maximum rows of its input; 0: any
    times: int = 1  # how many a layer has


BLOCKS = {name: tuple(WeightRule(**rule) for rule in rules) for name, rules in TABLES["blocks"].items()}


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight of k inputs on one rank, in some layers."""

    rule: WeightRule
    outputs: Mapping[str, int]  # module of a layer -> its outputs
    k: int
    layers: frozenset[int]  # numbers of the layers
    batch: int = 0
    attended: int = 0  # maximum tokens that a token attends to; 0: all
    has_bias: bool = False
    mixture: ExpertProducts | None = None  # the products of a mixture of experts, for one token

    @property
    def unlisted(self) -> str:
        """Why products without a weight are left out; empty: it is a weight."""
        is_weight = not self.batch or any(self.outputs)
        return "" if is_weight else RECURRENCE if self.rule.is_recurrent else ATTENTION

    def shape(self, m: int, scheme: Scheme, sequences: int = 1) -> Matmul | BatchedMatmul | ExpertProducts:
        """Its product with m rows, of so many sequences."""
        if self.mixture is not None:
            step, dtype = 1, scheme.dtype
            if scheme.is_of_mx_weights:
                step, dtype = _MX_PADDING, "fp8" if m >= _LEAST_QUANTISED else dtype
            sizes = {name: -(-getattr(self.mixture, name) // step) * step for name in ("model_dim", "inter_dim")}
            return replace(self.mixture, tokens=m, dtype=dtype, scaling=scheme.scaling, **sizes)
        n, own = sum(self.outputs.values()), m // sequences
        if self.batch:
            keys = min(own, self.attended or own)
            return BatchedMatmul(self.batch * sequences, own, n or keys, self.k or keys, scheme.dtype, self.rule.layout)
        result = "" if self.rule.result == scheme.dtype else self.rule.result
        return Matmul(m, n, self.k, scheme.dtype, scaling=scheme.scaling, has_bias=self.has_bias, result=result)


def _weight(model: Decoder, rule: WeightRule, layers: frozenset[int], *, fuse_shared: bool) -> Weight | None:
    """A weight on a rank; None: the model does not have it."""
    for name in rule.when.split():
        if bool(model.config.of(name.removeprefix("!"))) == name.startswith("!"):
            return None
    outputs = {module: model.total(size) for module, size in rule.outputs.items()}
    k, batch = (model.total(size) if size else 0 for size in (rule.k, rule.batch))
    if not batch and not (k and sum(outputs.values())):
        return None
    mixture = None
    if rule.is_mixture:
        more = max(1, model.size("shared")) if fuse_shared and model.size("shared_intermediate") else 0
        sizes = (1, k, model.size("expert_intermediate"), model.size("experts") + more, model.size("per_token") + more)
        activation = model.config.family.activation
        mixture = ExpertProducts(*sizes, activation=activation if activation in _EXPERT_ACTIVATIONS else "silu")
        if more:
            outputs |= {name.replace("experts.0", "shared_experts"): size for name, size in outputs.items()}
    own = replace(rule, dtype=_stated_dtype(model, rule.dtype), result=_stated_dtype(model, rule.result))
    has_bias = bool(rule.bias) and evaluate(rule.bias, model.config.of) > 0
    return Weight(own, outputs, k, layers, batch, has_bias=has_bias, mixture=mixture)


def _stated_dtype(model: Decoder, rule: str) -> str:
    """The element type of a rule; empty: the model's."""
    stated = model.config.value(rule[1:]) if rule.startswith("?") else rule
    return dtype_name(str(stated)) if stated else ""


def weights_of(model: Decoder, *, fuse_shared: bool = False) -> Iterator[Weight]:
    """The distinct weights of a rank that are multiplied with tokens, in order of use."""
    for kind, blocks in {**TABLES["usual_blocks"], **model.config.family.blocks}.items():
        for block in blocks if model.layers.get(kind) else ():
            times = model.config.family.times.get(block, 1)
            rules = () if fuse_shared and block == "shared" else BLOCKS[block]
            for rule in rules:
                own = replace(rule, times=rule.times * times)
                weight = _weight(model, own, model.layers[kind], fuse_shared=fuse_shared)
                if weight is not None:
                    yield from _by_window(weight, model)


def _by_window(weight: Weight, model: Decoder) -> Iterator[Weight]:
    """A weight; attention's products with and without a sliding window, or a chunk, which a token attends to."""
    windowed = model.layers.get("windowed", frozenset()) if weight.unlisted == ATTENTION else frozenset()
    for layers, attended in ((weight.layers - windowed, 0), (weight.layers & windowed, model.config.of("attended"))):
        if layers:
            yield replace(weight, layers=layers, attended=attended)


def decoder_layers(
    model: Decoder, precision: Precision, run: RunOptions, where: str, sequences: int = 1
) -> Iterator[Layer]:
    """The layers of one rank for each number of tokens, which are those of so many sequences."""
    weights = [
        (weight, _schemes(weight, model, precision)) for weight in weights_of(model, fuse_shared=run.fuse_shared)
    ]
    if precision.quantisation is not None:
        precision.quantisation.report_unused(where)
    for rows, times in run.weights.items():
        for weight, schemes in weights:
            rule = weight.rule
            m = min(rows, rule.most_rows) if rule.most_rows else rows
            for scheme, count in schemes.items():
                unread = weight.unlisted or _unread(weight, scheme, model)
                shape = weight.shape(m, scheme, sequences)
                yield Layer(rule.name, shape, count * times * rule.times, where, unread=unread)
                if weight.mixture is not None and scheme.is_of_mx_weights and not unread:
                    note_once(f"{where}: experts are padded to {_MX_PADDING}s; AITER's kernels add their biases")


def _unread(weight: Weight, scheme: Scheme, model: Decoder) -> str:
    """Why no operation has a weight; empty: one has it."""
    activation, is_gated = model.config.family.activation, any("gate" in name for name in weight.outputs)
    has_kernels = weight.mixture is not None and scheme.is_of_mx_weights and activation == _MX_ACTIVATION
    if scheme.unread and not has_kernels:
        return scheme.unread
    if weight.mixture is None or (is_gated and activation in _EXPERT_ACTIVATIONS):
        return ""
    return f"experts with {activation}{'' if is_gated else ' and without a gate'}, which AITER's tables do not have"


def _schemes(weight: Weight, model: Decoder, precision: Precision) -> Counter[Scheme]:
    """Number of layers per scheme of a weight, whose part of a rank must be whole blocks of scales.

    vLLM and SGLang refuse such models as well: the sizes that are divided or fused must be whole blocks.
    """
    schemes = Counter() if weight.unlisted else precision.schemes(weight.outputs, weight.layers)
    if not weight.rule.is_quantised or weight.batch:
        return Counter({Scheme(weight.rule.dtype or precision.base): len(weight.layers)})
    size = _uncovered(weight, model)
    if not size or all(scheme.scaling is not Scaling.BLOCK_128 for scheme in schemes):
        return schemes
    tp, ep = model.ranks.tp, model.ranks.ep
    parts = [n for n in range(1, tp) if tp % n == 0 and ep == 1]
    others = {"--tp": [Ranks(n) for n in parts], "--ep": [Ranks(tp, tp // n) for n in reversed(parts)]}
    fitting = {
        option: [ranks for ranks in every if not _uncovered(weight, replace(model, ranks=ranks))]
        for option, every in others.items()
        if option == "--tp" or weight.mixture is not None
    }
    named = [f"{option} {getattr(every[-1], option[2:])}" for option, every in fitting.items() if every]
    raise UsageError(
        f"{weight.rule.name}: {size} on a rank of {tp} is not a multiple of {_BLOCK}, the blocks of its scales",
        f"use {' or '.join(named)}" if named else "serve it with another quantisation, and pass that as --dtype",
        code="indivisible",
    )


def _uncovered(weight: Weight, model: Decoder) -> int:
    """The first size on a rank that blocks of scales do not cover, of those that are divided or fused; 0: none."""
    try:
        sizes = [
            [[owner.total(size) for size in weight.rule.outputs.values()], [owner.total(weight.rule.k)]]
            for owner in (model, replace(model, ranks=Ranks()))
        ]
    except UsageError:  # the ranks cannot share it
        return 1
    (outputs, k), (all_outputs, all_k) = sizes
    parts = (outputs if outputs != all_outputs else outputs[:-1]) + (k if k != all_k else [])
    return next((size for size in parts if size % _BLOCK), 0)
