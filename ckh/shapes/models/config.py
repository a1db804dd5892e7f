"""`Config`: the fields of a Hugging Face `config.json`, validated on access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.shapes.layers import MAX_SIZE
from ckh.shapes.models.families import DECODER_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.shapes.models.families import Family


@dataclass(frozen=True, slots=True)
class Config:
    """The fields of a configuration, validated on access.

    Attributes:
        where: the file, for messages.
        values: contents of the file.
        family: its family.
    """

    where: str
    values: Mapping[str, Any]
    family: Family

    def size(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a size.

        Args:
            key: its key.
            default: value if both file and family omit it; None: it is required.
            least: minimum value.

        Raises:
            DataError: it is missing, not an integer or out of range.
        """
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
