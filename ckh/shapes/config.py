"""`Config`: the fields of a Hugging Face `config.json`, validated on access; families of models; built-in models.

`families.json` has the fields of decoders, their blocks of weights, the rules by which layers have them, and the
families: `model_type`s, and what differs from the usual decoder. A new family needs only an entry.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.shapes.layers import MAX_SIZE
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
class Field:
    """A size of decoders, or a flag: 1 or 0."""

    keys: Sequence[str]  # keys that state it, the usual one first; dots separate those of nested objects
    default: str | None = None  # its expression if none does; None: it is required
    share: str = ""  # how ranks share it (`decoders.Ranks`); empty: each has all of it
    least: int | None = None  # minimum; None: 0 with the default 0, otherwise 1


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models."""

    name: str  # displayed name
    types: Sequence[str] = ()  # values of `model_type`
    kind: ModelKind = ModelKind.DECODER  # kind of model
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)  # field -> its keys, if not the usual ones
    defaults: Mapping[str, int | str] = field(default_factory=dict)  # field -> value or expression if omitted
    layers: Mapping[str, Any] = field(default_factory=dict)  # set of layers -> its rules, if not the usual ones
    blocks: Mapping[str, Sequence[str]] = field(default_factory=dict)  # set of layers -> blocks of weights, likewise
    times: Mapping[str, int] = field(default_factory=dict)  # block -> how many a layer has, if not one
    activation: str = "silu"  # activation of its experts


TABLES = json.loads(Path(__file__).with_name("families.json").read_bytes())
FIELDS = {name: Field(**spec) for name, spec in TABLES["fields"].items()}
FAMILIES = tuple(
    Family(name, kind=ModelKind(fields.pop("kind", ModelKind.DECODER)), **fields)
    for name, fields in TABLES["families"].items()
)
FAMILY_OF = {name: family for family in FAMILIES for name in family.types}
# Models of an unknown type with the usual keys.
USUAL = Family("usual", keys={"expert_intermediate": [*FIELDS["expert_intermediate"].keys, "intermediate_size"]})


def evaluate(expression: str, of: Callable[[str], int]) -> int:
    """Value of sums of products of fields and numbers, e.g. heads*head_dim+2; division is exact or rounded down."""
    total = 0
    for sign, product in re.findall(r"([+-]?)([^+-]+)", expression):
        value = 1
        for operator, name in re.findall(r"([*/]?)(\w+)", product):
            factor = int(name) if name.isdecimal() else of(name)
            value = value // factor if operator == "/" else value * factor
        total += -value if sign == "-" else value
    return total


@dataclass(frozen=True, slots=True)
class Config:
    """The fields of a configuration, validated on access."""

    where: str  # the file, for messages
    values: Mapping[str, Any]  # contents of the file
    family: Family

    def value(self, key: str) -> Any:
        """Return the value of a key, unchecked; dots separate the keys of nested objects."""
        value: Any = self.values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return None if value == "auto" else value

    def size(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a size; `default` if the file omits it, and without one it is required."""
        value = self.value(key)
        if isinstance(value, list) and value:  # by layer
            value = len(value) if isinstance(value[0], str) else self._of_all_layers(key, value)
        elif isinstance(value, str) and set(value) <= set("M*-E|"):  # a letter per layer
            value = len(value)
        if value is None:
            value = default
        if value is None:
            raise DataError(
                f"{self.where}: {key} is missing, which {self.family.name} models have",
                "name the model's whole config.json",
                code="missing-field",
            )
        if not isinstance(value, int) or (isinstance(value, bool) and least > 0):
            raise DataError(f"{self.where}: {key} is {value!r:.60}, not an integer", code="bad-number")
        if not least <= value <= MAX_SIZE:
            raise DataError(
                f"{self.where}: {key} must be {least} or more (and below 2^31), not {value}", code="out-of-range"
            )
        return int(value)

    def _of_all_layers(self, key: str, values: list[Any]) -> Any:
        if any(value != values[0] for value in values):
            text = f"{self.where}: {key} differs by layer: {values[:4]!r:.40}, …"
            raise DataError(text, "trace the module: ckh shapes --torch pkg.module:factory", code="unsupported")
        return values[0]

    def of(self, field: str) -> int:
        """Return a field of a decoder, by the first of its keys that the file states."""
        spec, key = FIELDS[field], self.key(field)
        default = self.family.defaults.get(field, spec.default)
        least = spec.least if spec.least is not None else int(spec.default != "0")
        computed = default is not None and self.value(key) is None
        return self.size(key, evaluate(str(default), self.of) if computed else None, least=least)

    def key(self, field: str) -> str:
        """The key of a decoder's field: the first that the file states, or the usual one."""
        keys = self.family.keys.get(field, FIELDS[field].keys)
        return next((key for key in keys if self.value(key) is not None), keys[0] if keys else field)


def is_config(document: object) -> bool:
    """True if a JSON document is a model's configuration."""
    return isinstance(document, dict) and bool(document.keys() & {"model_type", "architectures"})
