"""`Config`: the fields of a Hugging Face `config.json`, validated on access; families of models; built-in models.

A family is a row with its `model_type`s, its kind, keys of fields with unusual names, and transformers' defaults of
omitted fields. A new family with the usual layers needs only a row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.shapes.layers import MAX_SIZE
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Mapping

# Built-in models: name -> repository on Hugging Face and the fields of its configuration that determine shapes.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    name: (entry["repository"], entry["config"])
    for name, entry in json.loads(Path(__file__).with_name("models.json").read_bytes()).items()
}


class ModelKind(StrEnum):
    """Kinds of models, each with its own layer rules."""

    DECODER = "decoder"
    VISION = "vision"
    TWO_TOWERS = "two towers"
    SPEECH = "speech"


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models."""

    name: str  # displayed name
    types: tuple[str, ...]  # values of `model_type`
    kind: ModelKind = ModelKind.DECODER  # kind of model
    # field -> key of the configuration, if it is not the usual one
    keys: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, int | bool] = field(default_factory=dict)  # key -> value if omitted
    activation: str = "silu"  # activation of its experts


# Field of a decoder -> its usual key.
DECODER_KEYS = {
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "vocabulary": "vocab_size",
    "layers": "num_hidden_layers",
    "experts": "num_experts",
    "per_token": "num_experts_per_tok",
    "expert_intermediate": "moe_intermediate_size",
    "shared": "n_shared_experts",
    "shared_intermediate": "shared_expert_intermediate_size",
    "first_dense": "first_k_dense_replace",
}
_ROUTED = {"experts": "n_routed_experts"}
_LOCAL = {"experts": "num_local_experts", "expert_intermediate": "intermediate_size"}
_GEMMA = {"head_dim": 256, "num_key_value_heads": 4, "num_attention_heads": 8, "vocab_size": 262208}

FAMILIES = (
    Family("Llama", ("llama",)),
    Family("Mistral", ("mistral", "ministral", "ministral3")),
    Family("Qwen2", ("qwen2", "qwen2_5_vl_text", "qwen2_vl_text")),
    Family("Qwen3", ("qwen3", "qwen3_vl_text")),
    Family("Phi-3", ("phi3",)),
    Family("Gemma", ("gemma", "gemma2"), defaults={"head_dim": 256, "vocab_size": 256000}),
    Family("Gemma 3", ("gemma3_text",), defaults=_GEMMA),
    Family("GLM", ("glm", "glm4")),
    Family("Mixtral", ("mixtral",), keys=_LOCAL),
    Family("gpt-oss", ("gpt_oss",), keys=_LOCAL, defaults={"head_dim": 64}, activation="swiglu"),
    Family("Qwen2-MoE", ("qwen2_moe",), defaults={"n_shared_experts": 1}),
    Family("Qwen3-MoE", ("qwen3_moe", "qwen3_vl_moe_text")),
    Family("Qwen3-Next", ("qwen3_next", "qwen3_5_moe_text", "qwen3_5_text"), defaults={"attn_output_gate": True}),
    Family("DeepSeek-V2", ("deepseek_v2",), keys=_ROUTED),
    Family("DeepSeek-V3", ("deepseek_v3", "kimi_k2"), keys=_ROUTED),
    Family("DeepSeek-V3.2", ("deepseek_v32",), keys=_ROUTED, defaults={"index_n_heads": 64, "index_head_dim": 128}),
    Family("GLM-4-MoE", ("glm4_moe",), keys=_ROUTED),
    Family("GLM-5", ("glm_moe_dsa",), keys=_ROUTED, defaults={"index_n_heads": 32, "index_head_dim": 128}),
    Family("ViT", ("vit", "deit"), ModelKind.VISION),
    Family("CLIP", ("clip",), ModelKind.TWO_TOWERS),
    Family("Whisper", ("whisper",), ModelKind.SPEECH),
)
FAMILY_OF = {name: family for family in FAMILIES for name in family.types}


@dataclass(frozen=True, slots=True)
class Config:
    """The fields of a configuration, validated on access."""

    where: str  # the file, for messages
    values: Mapping[str, Any]  # contents of the file
    family: Family

    def size(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a size; `default` if both file and family omit it, and without one it is required."""
        value = self.values.get(key)
        if value is None:
            value = self.family.defaults.get(key, default)
        if value is None:
            raise DataError(
                f"{self.where}: {key} is missing, which {self.family.name} models have",
                "name the model's whole config.json",
                code="missing-field",
            )
        if isinstance(value, bool) or not isinstance(value, int):
            raise DataError(f"{self.where}: {key} is {value!r:.60}, not an integer", code="bad-number")
        if not least <= value <= MAX_SIZE:
            raise DataError(
                f"{self.where}: {key} must be {least} or more (and below 2^31), not {value}", code="out-of-range"
            )
        return value

    def of(self, field: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a field of a decoder, by the family's key."""
        return self.size(self.key(field), default, least=least)

    def key(self, field: str) -> str:
        """The key of a decoder's field."""
        return self.family.keys.get(field, DECODER_KEYS[field])

    def has(self, key: str) -> bool:
        """True if the file or the family states a value other than 0 and false."""
        return bool(self.values.get(key, self.family.defaults.get(key)))


def is_config(document: object) -> bool:
    """True if a JSON document is a model's configuration."""
    return isinstance(document, dict) and bool(document.keys() & {"model_type", "architectures"})
