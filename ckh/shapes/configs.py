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
    from collections.abc import Iterator, Mapping

    from ckh.shapes.layers import RunOptions

_QUANTISATIONS = ("quantization_config", "compression_config")  # the latter of older compressed-tensors
MAX_LAYERS = 1000  # five times those of the deepest models; each has its own element types
_DEFAULT_DTYPE = "bf16"  # of models that state none
# Element types of quantised models, with the usual scaling.
_SCALING_OF = {"fp8": Scaling.ROW, "bf8": Scaling.ROW, "int8": Scaling.ROW, "pk_fp4": Scaling.BLOCK_32}
_TOWERS = ("text_config", "vision_config")
_ENCODERS = re.compile("vision|visual|image|video|audio|speech|talker|wav")  # keys of parts that are no text model
# Keys of every language model; keys of which those with the usual layers have one, and those that they do not have.
_USUAL_KEYS = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
_SIGNS_OF_USUAL, _SIGNS_OF_OTHERS = {"num_key_value_heads", "rms_norm_eps"}, re.compile("mamba|ssm|conv|linear_attn")


def config_layers(document: Mapping[str, Any], where: str, wanted: RunOptions) -> Iterator[Layer]:
    """The layers of a configuration."""
    config = config_of(document, where)
    precision = _precision(document, config, wanted)
    tower = _Tower(config, "", precision, wanted)
    try:
        match config.family.kind:
            case ModelKind.DECODER:
                model = replace(decoder_of(config), ranks=Ranks(wanted.tp, wanted.ep))
                yield from decoder_layers(model, precision, wanted, where)
            case ModelKind.VISION:
                for batch in wanted.batch:
                    yield from _image_layers(tower, batch)
            case ModelKind.TWO_TOWERS:
                yield from _clip_layers(tower)
            case ModelKind.SPEECH:
                yield from _whisper_layers(tower)
    except UsageError as error:
        message = error.message.removeprefix(f"{where}: ")
        raise UsageError(f"{where}: {message}", error.hint, code=error.code) from error


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
class _Tower:
    """A transformer of whole images, texts or clips."""

    config: Config
    prefix: str  # of its layers' names
    precision: Precision
    wanted: RunOptions

    def layers(self, rows: int, block: str = "encoder", times: int = 1, sequences: int = 1) -> Iterator[Layer]:
        """Its products of a block with the rows of so many sequences."""
        numbers = frozenset(range(1 if block == "projection" else self.config.of("layers")))
        model = Decoder(self.config, {block: numbers}, Ranks(self.wanted.tp))
        run = replace(self.wanted, tokens=(rows,), times=(times,))
        for layer in decoder_layers(model, self.precision, run, self.config.where, sequences):
            yield replace(layer, name=self.prefix + layer.name)


def _image_layers(tower: _Tower, batch: int) -> Iterator[Layer]:
    """Patch embedding by a convolution, then a transformer's layers on the patches and one more token."""
    config = tower.config
    size, patch = config.size("image_size"), config.size("patch_size")
    if size < patch:
        raise DataError(f"{config.where}: image_size {size} is below patch_size {patch}", code="impossible-problem")
    channels, taps = (config.size("num_channels", 3), config.of("hidden")), (patch, patch)
    patches = Convolution(batch, *channels, (size, size), taps, stride=taps, dtype=tower.precision.base)
    yield Layer(f"{tower.prefix}patches", patches, 1, config.where)
    yield from tower.layers(batch * ((size // patch) ** 2 + 1), sequences=batch)


def _clip_layers(whole: _Tower) -> Iterator[Layer]:
    """The layers of CLIP's two towers for each number of images and texts."""
    config, towers = whole.config, []
    for name in _TOWERS:
        if not isinstance(config.values.get(name), dict):
            raise DataError(f"{config.where}: {name} is missing, which CLIP models have", code="missing-field")
        values = {**config.values[name], "projection_dim": config.size("projection_dim", 512)}
        towers.append(replace(whole, config=replace(config, values=values), prefix=name.replace("config", "")))
    texts, images = towers
    for batch in whole.wanted.batch:
        yield from texts.layers(batch * texts.config.size("max_position_embeddings", 77), sequences=batch)
        yield from _image_layers(images, batch)
        for tower in towers:
            yield from tower.layers(batch, "projection")


def _whisper_layers(whole: _Tower) -> Iterator[Layer]:
    """The layers of Whisper: the encoder for each number of clips, the decoder for each number of its tokens.

    The convolutions over time are two-dimensional ones of height 1.
    """
    config, base = whole.config, whole.precision.base
    keys = {"heads": "attention_heads", "intermediate": "ffn_dim", "layers": "layers"}
    encoder, decoder = (
        replace(
            whole,
            config=replace(
                config, family=replace(config.family, keys={name: [f"{part}_{key}"] for name, key in keys.items()})
            ),
            prefix=f"{part}_",
        )
        for part in ("encoder", "decoder")
    )
    positions, hidden = config.of("positions"), config.of("hidden")
    for batch in whole.wanted.batch:
        for number, (inputs, stride) in enumerate(((config.of("mels"), 1), (hidden, 2)), 1):
            spatial = (1, 2 * positions)
            shape = Convolution(batch, inputs, hidden, spatial, (1, 3), stride=(1, stride), pad=(0, 1), dtype=base)
            yield Layer(f"conv{number}", shape, 1, config.where)
        yield from encoder.layers(batch * positions, sequences=batch)
        for tokens, times in whole.wanted.weights.items():
            yield from decoder.layers(tokens, times=times)
            yield from decoder.layers(tokens, "crossed", times)
            yield from decoder.layers(batch * positions, "crossed_kv", times)
    for tokens, times in whole.wanted.weights.items():
        yield Layer("proj_out", Matmul(tokens, config.size("vocab_size"), hidden, base), times, config.where)
