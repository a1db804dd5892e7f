"""`Config`: the fields of a Hugging Face `config.json`, validated on access; families of models; built-in models.

A family is an entry of `families.json` with its `model_type`s, its kind, keys of fields with unusual names, and
transformers' defaults of omitted fields. A new family with the usual layers needs only an entry.
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
    name: (model["repository"], model["config"])
    for name, model in json.loads(Path(__file__).with_name("models.json").read_bytes()).items()
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


_TABLES = json.loads(Path(__file__).with_name("families.json").read_bytes())
DECODER_KEYS: dict[str, str] = _TABLES["decoder_keys"]  # field of a decoder -> its usual key
FAMILIES = tuple(
    Family(name, tuple(fields.pop("types")), ModelKind(fields.pop("kind", ModelKind.DECODER)), **fields)
    for name, fields in _TABLES["families"].items()
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
