"""The settings of a run of `ckh bench`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ckh.ops import DEFAULT_OPERATION


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured. It is recorded in the journal; a resumed run takes it from there."""

    variant: str
    problems: str
    kernels: str
    dtype: str
    ndim: int | None
    seed: int
    samples: int
    rule_set: str = "default"
    registry: str | None = None
    filter: str | None = None
    split_k: tuple[int, ...] = (1,)
    pad_channels: bool = False
    max_scratch: int | None = None
    cold: bool = False
    op: str = DEFAULT_OPERATION
    model: str | None = None

    def first_given(self, *names: str) -> str:
        """The option of the first of these settings that is not the default; empty if all are."""
        defaults = {field.name: field.default for field in fields(self)}
        return next((as_option(name) for name in names if getattr(self, name) != defaults[name]), "")


@dataclass(frozen=True, slots=True)
class Given:
    """The settings that were given; None: not given."""

    variant: str | None = None
    problems: str | None = None
    kernels: str | None = None
    dtype: str | None = None
    ndim: int | None = None
    seed: int | None = None
    samples: int | None = None
    rule_set: str | None = None
    registry: str | None = None
    filter: str | None = None
    split_k: tuple[int, ...] | None = None
    pad_channels: bool | None = None
    max_scratch: int | None = None
    cold: bool | None = None
    op: str | None = None
    model: str | None = None


def as_option(setting: str) -> str:
    """The option of `ckh bench` that gives a setting."""
    return "--" + setting.replace("_", "-")
