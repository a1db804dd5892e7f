"""Rules of an architecture that kernels of several operations share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.kernels.judging import Rule, RuleBook
from ckh.kernels.name_grammar import by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec, Triple

rule = RuleBook().rule


@rule
def runs_dtype(arch: ArchSpec, dtype: str) -> Iterator[str]:
    """Reject other element types than the architecture's."""
    if dtype not in arch.dtypes:
        yield f"{arch.name} does not run {dtype} (it runs {', '.join(arch.dtypes)})"


@rule
def has_pipeline(arch: ArchSpec, pipeline: str) -> Iterator[str]:
    """Reject pipelines that the architecture does not list."""
    if pipeline not in arch.pipelines:
        yield f"{arch.name} does not have the pipeline {pipeline}"


@rule
def has_waves(arch: ArchSpec, wave: Triple) -> Iterator[str]:
    """Reject arrangements of waves that the architecture does not list."""
    if not arch.supports_wave(wave):
        yield f"{arch.name} does not have the waves {by(wave)} (it has {', '.join(map(by, arch.wave_configs))})"


def operator_tile(arch: ArchSpec, operator: str, tile: Triple) -> Iterator[str]:
    """Yield what a tile violates of the limits of an operator, if the architecture has limits for it."""
    limits = arch.common.operators.get(operator)
    if limits is None:
        return
    whose = operator.removesuffix("_2d").removesuffix("_3d")
    for axis, size, least, step in zip("mnk", tile, limits.minimum, limits.alignment, strict=True):
        if size < least:
            yield f"tile_{axis} {size} is less than the {least} that {whose} needs"
        elif size % step:
            yield f"tile_{axis} {size} is not a multiple of the {step} that {whose} needs"


def divides(axis: str) -> Rule:
    """Return the rule that a tile is whole along an axis: a multiple of waves x tile of an instruction."""

    def check(size: int, waves: int, width: int) -> Iterator[str]:
        step = waves * width
        if min(size, waves, width) < 1:
            yield f"tile, waves and warp tile must be positive along {axis}, not {size}, {waves}, {width}"
        elif size % step:
            yield f"tile_{axis} {size} is not a multiple of {waves} waves x warp tile {width} = {step}"

    return Rule(check, (), (f"tile_{axis}", f"wave_{axis}", f"warp_tile_{axis}"), {})
