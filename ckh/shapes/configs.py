"""Layers of the models that Hugging Face's `config.json` describes, with their element types.

ViT, CLIP and Whisper are transformers that process whole images, texts or audio clips; for decoders see
`ckh.shapes.decoders`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.problems import dtype_name
from ckh.shapes.config import FAMILIES, FAMILY_OF, TABLES, USUAL, Config, ModelKind, evaluate
from ckh.shapes.decoders import Decoder, Precision, Ranks, decoder_layers
from ckh.shapes.layers import Convolution, Layer, Matmul, Scaling
from ckh.shapes.quantisation import QUANTISATION_HINT, ModuleSchemes, Scheme, read_quantisation
from ckh.text.log import note_once
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ckh.shapes.layers import RunOptions

_QUANTISATIONS = ("quantization_config", "compression_config")  # the latter of older compressed-tensors
MAX_LAYERS = 1000  # five times those of the deepest models; each has its own element types
_DEFAULT_DTYPE = "bf16"  # of models that state none
# Element types of quantised models, with the usual scaling.
_SCALING_OF = {"fp8": Scaling.ROW, "bf8": Scaling.ROW, "int8": Scaling.ROW, "pk_fp4": Scaling.BLOCK_32}
_MELS = 80  # of Whisper's spectrograms, if a file does not state it
_POSITIONS = 1500
_TOWERS = ("text_config", "vision_config")
_ENCODERS = re.compile("vision|visual|image|video|audio|speech|talker|wav")  # keys of parts that are no text model
# Keys of every language model; keys of which those with the usual layers have one, and those that they do not have.
_USUAL_KEYS = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
_SIGNS_OF_USUAL, _SIGNS_OF_OTHERS = {"num_key_value_heads", "rms_norm_eps"}, re.compile("mamba|ssm|conv|linear_attn")


def config_layers(
    document: Mapping[str, Any], where: str, wanted: RunOptions, refuse: Callable[[UsageError], None]
) -> Iterator[Layer]:
    """The layers of a configuration."""
    config = config_of(document, where)
    precision = _precision(document, config, wanted)
    try:
        match config.family.kind:
            case ModelKind.DECODER:
                model = replace(decoder_of(config), ranks=Ranks(wanted.tp, wanted.ep))
                yield from decoder_layers(model, precision, wanted, where, refuse)
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
    """The configuration of a known family, or with the usual keys; for a model of several parts, that of its text."""
    parts = [document, *_parts(document)]
    named = [(values, FAMILY_OF.get(str(values.get("model_type")))) for values in parts]
    for values, family in sorted(named, key=lambda part: "text_config" in part[0] or "thinker_config" in part[0]):
        if family is not None and (family.kind is ModelKind.DECODER or values is document):
            return Config(where, values, family)
    for values in parts:
        if values.keys() >= set(_USUAL_KEYS) and not _SIGNS_OF_USUAL.isdisjoint(values):
            if any(map(_SIGNS_OF_OTHERS.search, values)) or values.get("hidden_act", "silu") != "silu":
                break
            note_once(f"{where}: model_type {values.get('model_type')!r:.60} is not known: read by the usual keys")
            return Config(where, values, USUAL)
    name = str(parts[-1].get("model_type") or document.get("model_type"))
    known = one_of(name, [family.name for family in FAMILIES], also=FAMILY_OF)
    raise DataError(
        f"{where}: model_type {name[:60]!r} is not of a supported family",
        f"{known}; or trace the module: ckh shapes --torch pkg.module:factory",
        code="unknown-name",
    )


def _parts(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Parts of a configuration that may be the text model, outer ones first."""
    for key, values in document.items():
        if key.endswith("_config") and isinstance(values, dict) and not _ENCODERS.search(key):
            yield values
            yield from _parts(values)


def other_parts(document: Mapping[str, Any]) -> list[str]:
    """Keys of the ignored parts of a configuration: image or audio encoders beside a text model."""
    if (family := FAMILY_OF.get(str(document.get("model_type")))) and family.kind is not ModelKind.DECODER:
        return []
    parts = [document, *_parts(document)]
    return [key for part in parts for key in part if key.endswith("_config") and _ENCODERS.search(key)]


def decoder_of(config: Config) -> Decoder:
    """The language model described by a configuration."""
    count = config.of("layers")
    if count > MAX_LAYERS:
        raise DataError(f"{config.where}: {count} layers are more than {MAX_LAYERS}", code="out-of-range")
    every = frozenset(range(count))
    sets = {
        name: _chosen(config, rules, every)
        for name, rules in {**TABLES["usual_layers"], **config.family.layers}.items()
    }
    sets.setdefault("attention", every - sets["linear"] - sets.get("sliding", frozenset()))
    sets.setdefault("dense", every - sets["experts"])
    return Decoder(config, {**sets, "routed": sets["experts"], "once": frozenset({0})})


def _chosen(config: Config, rules: list[dict[str, Any]], every: frozenset[int]) -> frozenset[int]:
    """Numbers of the layers that the first applicable rule names.

    Of layers from `first` to `last` each `period`-th counts, but those of `other_than`; of a rule with a list also
    see `_listed`.
    """
    for rule in rules:
        if "when" in rule and not config.of(rule["when"]):
            continue
        if (chosen := _listed(config, rule, every)) is None:
            continue
        first, last, period, phase = (
            evaluate(rule.get(name, usual), config.of)
            for name, usual in (("first", "0"), ("last", "layers-1"), ("period", "1"), ("phase", "0"))
        )
        inside = range(first, len(every) if last < 0 else last + 1)
        other = config.value(rule["other_than"]) if "other_than" in rule else None
        chosen &= {number for number in inside if (number + 1 - phase) % period == 0}
        chosen -= {number for number in other if isinstance(number, int)} if isinstance(other, list) else set()
        return every - chosen if rule.get("is_inverse") else chosen
    return frozenset()


def _listed(config: Config, rule: dict[str, Any], every: frozenset[int]) -> frozenset[int] | None:
    """Layers by a list that the configuration may have; every layer of a rule without one; None: it has none.

    `types` is the key of a type of each layer, of which `values` count; `flags` that of a number or truth value of
    each; `numbers` that of the layers' numbers, which begin with `base`.
    """
    how = next((how for how in ("types", "flags", "numbers") if how in rule), None)
    if how is None:
        return every
    stated = config.value(rule[how])
    if not isinstance(stated, (list, str)):
        return None
    if how == "numbers":
        numbers = map(int, re.findall("[0-9]{1,9}", stated)) if isinstance(stated, str) else stated
        return every & {number - rule.get("base", 0) for number in numbers if isinstance(number, int)}
    return every & {number for number, kind in enumerate(stated) if kind in rule.get("values", (1,))}


def _precision(document: Mapping[str, Any], config: Config, wanted: RunOptions) -> Precision:
    """Element types of a configuration.

    A requested type of 16 bits or more replaces all of them; one of 8 or fewer bits replaces the quantised ones.
    """
    asked = wanted.dtype
    named = (values.get(key) for values in (config.values, document) for key in ("dtype", "torch_dtype"))
    base = dtype_name(str(next(filter(None, named), _DEFAULT_DTYPE)))
    every = [values[key] for values in (document, config.values) for key in _QUANTISATIONS if values.get(key)]
    if any(other != every[0] for other in every):
        raise DataError(
            f"{config.where}: two quantisations that differ: {' and '.join(_QUANTISATIONS)}", code="bad-field"
        )
    stated = every[0] if every else None
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
