"""The settings of a run of `ckh bench`, each declared once.

The command's options, the check of a resumed run, and the record of a run are derived from `Settings`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ckh.declared import Declared, declared
from ckh.ops import DEFAULT_OPERATION, operation_names
from ckh.requested import as_option
from ckh.strenum import StrEnum

MAX_SETS = 64  # of operands


class Variant(StrEnum):
    """Values of `--variant`: a direction, or all."""

    FORWARD = "forward"
    BWD_DATA = "bwd_data"
    BWD_WEIGHT = "bwd_weight"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a run, recorded in the journal; a resumed run reads them from there."""

    op: str = declared(
        Declared(f"Operation: {{}}.  [{DEFAULT_OPERATION}]", choices=operation_names, completion="operations"),
        default=DEFAULT_OPERATION,
    )
    variant: str = declared(Declared("Direction.  [forward, or the resumed run's]", kind=Variant))
    problems: str = declared(
        Declared(
            "Problem set, file, or source of ckh shapes.  [host-train or train]",
            metavar="SET|FILE",
            completion="problem_sets",
        )
    )
    kernels: str = declared(Declared("all, sample:N a problem, a pattern, a file of names.  [all]", metavar="WHICH"))
    model: str | None = declared(
        Declared("Model that ranks the kernels.  [the model that predict selects]", kind=Path, completion="models"),
        default=None,
    )
    plan: str | None = declared(
        Declared(
            "Measure the N most informative problems, with the most informative kernels of each; auto: what fits in "
            "--budget.",
            metavar="N|auto",
        ),
        default=None,
    )
    active: bool = False  # whether pairs were selected while results arrived, which earlier versions did
    today: str | None = declared(
        Declared(
            "Kernels in use today: a registry, names, or ckh predict --json; the first that applies is measured too.",
            kind=Path,
        ),
        default=None,
    )
    rule_set: str = declared(
        Declared("default, tiny, tests, full-tests, profiler or full.  [default]", completion="rule_sets"),
        default="default",
    )
    registry: str | None = declared(Declared("Select from the kernels of this JSON registry.", kind=Path), default=None)
    filter: str | None = declared(
        Declared("Condition on the kernels, e.g. 'pipeline == \"mem\" and tile_m >= 64'.", metavar="EXPR"), default=None
    )
    split_k: tuple[int, ...] = declared(
        Declared("bwd_weight: split-K factors to measure.  [1; a GPU's default set: 1,4,16]", metavar="N[,N…]", low=1),
        default=(1,),
    )
    ndim: int | None = declared(Declared("2D or 3D problems only.", low=2, high=3), default=None)
    dtype: str = declared(Declared("Element type; the device's own by default.", completion="dtypes"))
    pad_channels: bool | None = declared(
        Declared(
            "Round C/G and K/G up to a multiple of 8.  [where no kernel applies]",
            typed=("--pad-channels/--no-pad-channels",),
        ),
        default=None,
    )
    seed: int = declared(Declared("Random seed.  [0]"))
    samples: int = declared(Declared("Samples per time.  [5]", low=1, high=100))
    max_scratch: int | None = declared(
        Declared("hip: skip kernels with more scratch memory per lane.", metavar="BYTES", low=0), default=None
    )
    cold: bool = declared(
        Declared(
            "hip: flush the caches before every timed run, or keep one set of operands in them.",
            typed=("--cold/--warm",),
        ),
        default=False,
    )
    rotating: int = 1  # sets of operands that launches rotate through; 0: enough to exceed the caches

    def first_given(self, *names: str) -> str:
        """Return the option of the first of these settings that differs from its default, or an empty string."""
        defaults = {field.name: field.default for field in fields(self)}
        return next((as_option(name) for name in names if getattr(self, name) != defaults[name]), "")


SETTINGS = tuple(field.name for field in fields(Settings))


class Given:
    """Explicitly given settings by name; None means not given."""

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - set(SETTINGS):
            raise TypeError(f"no settings: {', '.join(sorted(unknown))}")
        self.values = {name: value for name, value in values.items() if value is not None}

    def __getitem__(self, name: str) -> Any:
        """Return a setting's value, or None if it was not given."""
        return self.values.get(name)
