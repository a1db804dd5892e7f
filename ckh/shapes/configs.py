"""Layers of the models that Hugging Face's `config.json` describes, with their element types.

ViT, CLIP and Whisper are transformers that process whole images, texts or audio clips; for decoders see
`ckh.shapes.decoders`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.problems import dtype_name
from ckh.shapes.config import FAMILIES, FAMILY_OF, Config, ModelKind
from ckh.shapes.decoders import (
    Decoder,
    LatentAttention,
    LinearAttention,
    MixtureOfExperts,
    Precision,
    Ranks,
    decoder_layers,
)
from ckh.shapes.layers import Convolution, Layer, Matmul, Scaling
from ckh.shapes.quantisation import QUANTISATION_HINT, ModuleSchemes, Scheme, read_quantisation
from ckh.text.log import note_once
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ckh.shapes.layers import RunOptions

_READ_PARTS = ("text_config", "quantization_config", "generation_config")
_DENSE, _LINEAR = "dense", "linear_attention"
_QUANTISATIONS = ("quantization_config", "compression_config")  # the latter of older compressed-tensors
MAX_LAYERS = 1000  # five times those of the deepest models; each has its own element types
_DEFAULT_DTYPE = "bf16"  # of models that state none
# Element types of quantised models, with the usual scaling.
_SCALING_OF = {"fp8": Scaling.ROW, "bf8": Scaling.ROW, "int8": Scaling.ROW, "pk_fp4": Scaling.BLOCK_32}
_MELS = 80  # of Whisper's spectrograms, if a file does not state it
_POSITIONS = 1500
_TOWERS = ("text_config", "vision_config")


def config_layers(
    document: Mapping[str, Any], where: str, wanted: RunOptions, refuse: Callable[[UsageError], None]
) -> Iterator[Layer]:
    """The layers of a configuration."""
    config = config_of(document, where)
    precision = _precision(document, config, wanted)
    try:
        match config.family.kind:
            case ModelKind.DECODER:
                yield from decoder_layers(decoder_of(config), precision, wanted, where, refuse)
            case ModelKind.VISION:
                for batch in wanted.batch:
                    yield from _image_layers(config, _block(config, "", precision, wanted), batch)
            case ModelKind.TWO_TOWERS:
                yield from clip_layers(config, precision, wanted)
            case ModelKind.SPEECH:
                yield from whisper_layers(config, precision, wanted)
    except UsageError as error:
        refuse(error)


def config_of(document: Mapping[str, Any], where: str) -> Config:
    """The configuration of a known family; for a model of several parts, that of its text model."""
    text = document.get("text_config")
    for values in (document, text):
        if isinstance(values, dict) and (family := FAMILY_OF.get(str(values.get("model_type")))) is not None:
            return Config(where, values, family)
    name = str((text if isinstance(text, dict) else document).get("model_type") or document.get("model_type"))
    known = one_of(name, [family.name for family in FAMILIES], also=FAMILY_OF)
    raise DataError(
        f"{where}: model_type {name[:60]!r} is not of a supported family",
        f"{known}; or trace the module: ckh shapes --torch pkg.module:factory",
        code="unknown-name",
    )


def other_parts(document: Mapping[str, Any]) -> list[str]:
    """Keys of the ignored parts of a configuration: image or audio encoders beside a text model."""
    if str(document.get("model_type")) in FAMILY_OF:
        return []
    return [key for key in document if key.endswith("_config") and key not in _READ_PARTS]


def decoder_of(config: Config) -> Decoder:
    """The language model described by a configuration."""
    hidden, heads, layers = config.of("hidden"), config.of("heads"), config.of("layers")
    if layers > MAX_LAYERS:
        raise DataError(f"{config.where}: {layers} layers are more than {MAX_LAYERS}", code="out-of-range")
    latent = _latent(config) if config.has("kv_lora_rank") else None
    head_dim = config.of("head_dim", max(1, hidden // heads))
    linear = _linear(config) if config.has("linear_num_value_heads") else None
    experts = _experts(config) if config.has(config.key("experts")) else None
    every = frozenset(range(layers))
    dense = every if experts is None else _dense_layers(config, every)
    return Decoder(
        hidden=hidden,
        intermediate=config.of("intermediate") if dense else 0,
        heads=heads,
        kv_heads=config.of("kv_heads", heads),
        head_dim=head_dim,
        vocabulary=config.of("vocabulary"),
        layers=layers,
        dense_layers=dense,
        linear_layers=frozenset() if linear is None else _linear_layers(config, every),
        gated_attention=config.has("attn_output_gate"),
        experts=experts if dense < every else None,
        latent=latent,
        linear=linear,
    )


def _latent(config: Config) -> LatentAttention:
    return LatentAttention(
        q_rank=config.size("q_lora_rank", 0, least=0),
        kv_rank=config.size("kv_lora_rank"),
        nope_dim=config.size("qk_nope_head_dim"),
        rope_dim=config.size("qk_rope_head_dim"),
        value_dim=config.size("v_head_dim"),
        index_heads=config.size("index_n_heads", 0, least=0),
        index_dim=config.size("index_head_dim", 0, least=0),
    )


def _linear(config: Config) -> LinearAttention:
    return LinearAttention(
        key_heads=config.size("linear_num_key_heads"),
        key_dim=config.size("linear_key_head_dim"),
        value_heads=config.size("linear_num_value_heads"),
        value_dim=config.size("linear_value_head_dim"),
    )


def _experts(config: Config) -> MixtureOfExperts:
    intermediate = config.of("expert_intermediate")
    stated = config.values.get(config.key("shared_intermediate"))
    shared = config.of("shared", int(bool(stated)), least=0)
    together = config.of("shared_intermediate", shared * intermediate, least=0) if shared else 0
    return MixtureOfExperts(
        *(config.of("experts"), config.of("per_token"), intermediate, shared, together),
        shared_gate=bool(stated),  # the families with this key weight their shared expert
        activation=config.family.activation,
    )


def _dense_layers(config: Config, every: frozenset[int]) -> frozenset[int]:
    """Layers without experts."""
    types = config.values.get("mlp_layer_types")
    if isinstance(types, list):
        return frozenset(number for number in every if number < len(types) and types[number] == _DENSE)
    only = config.values.get("mlp_only_layers")
    step, first = config.size("decoder_sparse_step", 1), config.of("first_dense", 0, least=0)
    named = {number for number in only if isinstance(number, int)} if isinstance(only, list) else set()
    return frozenset(number for number in every if number < first or number in named or (number + 1) % step)


def _linear_layers(config: Config, every: frozenset[int]) -> frozenset[int]:
    """Layers with linear attention."""
    types = config.values.get("layer_types")
    if isinstance(types, list):
        return frozenset(number for number in every if number < len(types) and types[number] == _LINEAR)
    interval = config.size("full_attention_interval", 4)
    return frozenset(number for number in every if (number + 1) % interval)


def _precision(document: Mapping[str, Any], config: Config, wanted: RunOptions) -> Precision:
    """Element types of a configuration.

    A requested type of 16 bits or more replaces all of them; one of 8 or fewer bits replaces the quantised ones.
    """
    asked = wanted.dtype
    named = (values.get(key) for values in (config.values, document) for key in ("dtype", "torch_dtype"))
    base = dtype_name(str(next(filter(None, named), _DEFAULT_DTYPE)))
    stated = next(
        (values[key] for values in (document, config.values) for key in _QUANTISATIONS if values.get(key)), None
    )
    if asked is not None and (stated or asked != base):
        own = base if stated is None else f"{base} and its quantisation"
        note_once(f"{config.where}: listed in {asked} instead of {own}")
    if asked is not None and asked not in _SCALING_OF:
        return Precision(asked)
    scheme = None if asked is None else Scheme(asked, _SCALING_OF[asked])
    if stated is None:
        return Precision(base, None if scheme is None else ModuleSchemes(scheme))
    quantisation = read_quantisation(stated, config.where, is_replaced=scheme is not None)
    if scheme is not None:
        quantisation = quantisation.replaced(scheme)
    if quantisation.depends_on_names and config.family.kind is not ModelKind.DECODER:
        raise DataError(
            f"{config.where}: quantization_config names modules, which are not known of {config.family.name} models",
            QUANTISATION_HINT,
            code="unsupported",
        )
    return Precision(base, quantisation)


@dataclass(frozen=True, slots=True)
class _Block:
    """A transformer's layers: `hidden` columns, `intermediate` between its two products, on `ranks`."""

    prefix: str
    hidden: int
    intermediate: int
    heads: int
    layers: int
    precision: Precision
    ranks: Ranks
    where: str

    def product(self, name: str, m: int, n: int, k: int, count: int | None = None) -> Layer:
        """A matrix product with a weight."""
        (scheme,) = self.precision.schemes((name,), (0,))
        shape = Matmul(m, n, k, scheme.dtype, scaling=scheme.scaling)
        layers = self.layers if count is None else count
        return Layer(self.prefix + name, shape, layers, self.where, unread=scheme.unread)

    def attention(self, rows: int, name: str = "") -> Iterator[Layer]:
        """Self-attention of rows."""
        share = self.ranks.share(self.heads, "num_attention_heads") * (self.hidden // self.heads)
        yield self.product(f"{name}qkv", rows, 3 * share, self.hidden)
        yield self.product(f"{name}o", rows, self.hidden, share)

    def crossed(self, rows: int, encoded: int) -> Iterator[Layer]:
        """Cross-attention of rows to the encoder's."""
        share = self.ranks.share(self.heads, "num_attention_heads") * (self.hidden // self.heads)
        yield self.product("cross_q", rows, share, self.hidden)
        yield self.product("cross_kv", encoded, 2 * share, self.hidden)
        yield self.product("cross_o", rows, self.hidden, share)

    def feed_forward(self, rows: int) -> Iterator[Layer]:
        """The two products of a feed-forward part without a gate."""
        share = self.ranks.share(self.intermediate, "the intermediate size")
        yield self.product("fc1", rows, share, self.hidden)
        yield self.product("fc2", rows, self.hidden, share)


def _block(config: Config, prefix: str, precision: Precision, wanted: RunOptions) -> _Block:
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    intermediate = config.size("intermediate_size", 4 * hidden)
    layers = config.size("num_hidden_layers")
    return _Block(prefix, hidden, intermediate, heads, layers, precision, Ranks(wanted.tp), config.where)


def _image_layers(config: Config, block: _Block, batch: int) -> Iterator[Layer]:
    """Patch embedding by a convolution, then a transformer's layers on the patches and one more token."""
    size, patch = config.size("image_size"), config.size("patch_size")
    if size < patch:
        raise DataError(f"{config.where}: image_size {size} is below patch_size {patch}", code="impossible-problem")
    patches = Convolution(
        batch,
        config.size("num_channels", 3),
        block.hidden,
        (size, size),
        (patch, patch),
        stride=(patch, patch),
        dtype=block.precision.base,
    )
    yield Layer(f"{block.prefix}patches", patches, 1, config.where)
    rows = batch * ((size // patch) ** 2 + 1)
    yield from block.attention(rows)
    yield from block.feed_forward(rows)


def clip_layers(config: Config, precision: Precision, wanted: RunOptions) -> Iterator[Layer]:
    """The layers of CLIP's two towers for each number of images and texts."""
    for name in _TOWERS:
        if not isinstance(config.values.get(name), dict):
            raise DataError(f"{config.where}: {name} is missing, which CLIP models have", code="missing-field")
    text, vision = (replace(config, values=config.values[name]) for name in _TOWERS)
    texts, images = _block(text, "text_", precision, wanted), _block(vision, "vision_", precision, wanted)
    positions, projection = text.size("max_position_embeddings", 77), config.size("projection_dim", 512)
    for batch in wanted.batch:
        yield from texts.attention(batch * positions)
        yield from texts.feed_forward(batch * positions)
        yield from _image_layers(vision, images, batch)
        for block in (texts, images):
            yield block.product("projection", batch, projection, block.hidden, 1)


def whisper_layers(config: Config, precision: Precision, wanted: RunOptions) -> Iterator[Layer]:
    """The layers of Whisper: the encoder for each number of clips, the decoder for each number of its tokens.

    The convolutions over time are two-dimensional ones of height 1.
    """
    hidden, ranks = config.size("d_model"), Ranks(wanted.tp)
    encoder, decoder = (
        _Block(
            f"{part}_",
            hidden,
            config.size(f"{part}_ffn_dim"),
            config.size(f"{part}_attention_heads"),
            config.size(f"{part}_layers"),
            precision,
            ranks,
            config.where,
        )
        for part in ("encoder", "decoder")
    )
    positions = config.size("max_source_positions", _POSITIONS)
    vocabulary = config.size("vocab_size")
    for batch in wanted.batch:
        channels = config.size("num_mel_bins", _MELS)
        for number, (inputs, stride) in enumerate(((channels, 1), (hidden, 2)), 1):
            spatial = (1, 2 * positions)
            shape = Convolution(batch, inputs, hidden, spatial, (1, 3), stride=(1, stride), pad=(0, 1))
            yield Layer(f"conv{number}", replace(shape, dtype=precision.base), 1, config.where)
        rows = batch * positions
        yield from encoder.attention(rows)
        yield from encoder.feed_forward(rows)
        for tokens, times in wanted.weights.items():
            for part in (decoder.attention(tokens), decoder.crossed(tokens, rows), decoder.feed_forward(tokens)):
                yield from (replace(layer, count=layer.count * times) for layer in part)
    for tokens, times in wanted.weights.items():
        shape_out = Matmul(tokens, vocabulary, hidden, precision.base, scaling=Scaling.NONE)
        yield Layer("proj_out", shape_out, times, config.where)
