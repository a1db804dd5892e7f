"""Hugging Face's `config.json`: its family, element types and layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.problems import dtype_name
from ckh.shapes.layers import Scaling
from ckh.shapes.models.config import FAMILIES, FAMILY_OF, Config, ModelKind
from ckh.shapes.models.decoders import (
    Decoder,
    LatentAttention,
    LinearAttention,
    MixtureOfExperts,
    Precision,
    decoder_layers,
)
from ckh.shapes.models.encoders import clip_layers, vision_layers, whisper_layers
from ckh.shapes.models.quantisation import QUANTISATION_HINT, ModuleSchemes, Scheme, read_quantisation
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ckh.shapes.layers import Layer
    from ckh.shapes.run_options import RunOptions

_READ_PARTS = ("text_config", "quantization_config", "generation_config")
_DENSE, _LINEAR = "dense", "linear_attention"
_QUANTISATIONS = ("quantization_config", "compression_config")  # the latter of older compressed-tensors
MAX_LAYERS = 1000  # five times those of the deepest models; each has its own element types
_DEFAULT_DTYPE = "bf16"  # of models that state none
# Element types of quantised models, with the usual scaling.
_SCALING_OF = {"fp8": Scaling.ROW, "bf8": Scaling.ROW, "int8": Scaling.ROW, "pk_fp4": Scaling.BLOCK_32}


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
                yield from vision_layers(config, precision, wanted)
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
    named = {item for item in only if isinstance(item, int)} if isinstance(only, list) else set()
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
    if asked is not None and asked not in _SCALING_OF:
        return Precision(asked)
    named = (item.get(key) for item in (config.values, document) for key in ("dtype", "torch_dtype"))
    base = dtype_name(str(next(filter(None, named), _DEFAULT_DTYPE)))
    scheme = None if asked is None else Scheme(asked, _SCALING_OF[asked])
    stated = next(
        (values[key] for values in (document, config.values) for key in _QUANTISATIONS if values.get(key)), None
    )
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
