"""Pipeline variants and tiles of grouped convolutions, and the restrictions of each direction, pipeline and option.

Source: AMD's `grouped_config_rules` (the table of 30) and the static assertions and support checks of CK Tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ckh.errors import DataError
from ckh.kernels.pipelines import (
    CONV_PIPELINES,
    DOUBLE_SMEM_PIPELINES,
    FORWARD_PIPELINES,
    INTERWAVE_PIPELINES,
    TABLE_PIPELINES,
    Scheduler,
)
from ckh.problems import Direction

if TYPE_CHECKING:
    from ckh.archs import ArchSpec, Triple


class PipelineVariant(NamedTuple):
    """A pipeline with its scheduler, double smem buffer and split image."""

    pipeline: str
    scheduler: Scheduler
    double_smem_buffer: bool
    split_image: bool


# The 30 variants, in AMD's order.
PIPELINE_VARIANTS: tuple[PipelineVariant, ...] = tuple(
    PipelineVariant(pipeline, scheduler, double_smem_buffer, split_image)
    for pipeline in sorted(TABLE_PIPELINES)
    for scheduler in Scheduler
    if scheduler is Scheduler.INTRAWAVE or pipeline in INTERWAVE_PIPELINES
    for split_image in (False, True)
    for double_smem_buffer in (False, True)
    if double_smem_buffer or pipeline not in DOUBLE_SMEM_PIPELINES
)

VARIANT_PIPELINES: dict[Direction, tuple[str, ...]] = dict.fromkeys(Direction, CONV_PIPELINES)

# AMD's sources contradict each other for the backward directions (compv3 and mem only, or all but compv5). ckh rejects
# only what the table of variants rejects; nothing is replaced by compv3.
REJECTED_PIPELINES: dict[Direction, frozenset[str]] = {
    Direction.FORWARD: frozenset(),
    Direction.BWD_DATA: FORWARD_PIPELINES,
    Direction.BWD_WEIGHT: FORWARD_PIPELINES,
}

DEFAULT_SPECIALIZATION = "default"
FILTER1X1_PAD0 = "filter1x1_pad0"
FILTER1X1_STRIDE1_PAD0 = "filter1x1_stride1_pad0"
FILTER3X3 = "filter3x3"
SPECIALIZATIONS: tuple[str, ...] = (DEFAULT_SPECIALIZATION, FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0, FILTER3X3)

STREAMK_STRATEGIES: tuple[str, ...] = ("tree", "linear")

# The backward-data kernel does not check merged groups; AMD notes page faults.
MERGING_DIRECTIONS: frozenset[Direction] = frozenset({Direction.FORWARD, Direction.BWD_WEIGHT})


@dataclass(frozen=True, slots=True)
class ConvTile:
    """A block tile with its waves and the tile of one matrix instruction, along M, N, K."""

    tile: Triple
    wave: Triple
    warp_tile: Triple


def read_columns(path: Path, count: int) -> tuple[list[str], ...]:
    """Read the lines of a table, split at bars, without comments and empty lines."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line and not line.startswith("#"):
            columns = [column.strip() for column in line.split("|")]
            if len(columns) != count:
                raise DataError(f"{path}:{number}: there are {len(columns)} columns, not {count}", code="bad-row")
            rows.append(columns)
    return tuple(rows)


def triple(text: str, separator: str = "x") -> Triple:
    """Parse three integers such as 64x64x32."""
    a, b, c = map(int, text.split(separator))
    return a, b, c


def _tiles(architecture: str) -> tuple[ConvTile, ...]:
    rows = read_columns(Path(__file__).with_name("tiles.txt"), 4)
    return tuple(ConvTile(*map(triple, sizes)) for name, *sizes in rows if name == architecture)


CONV_TILES, RDNA_TILES = _tiles("cdna"), _tiles("rdna")


def tiles_of(arch: ArchSpec) -> tuple[ConvTile, ...]:
    """The tiles of an architecture's candidates."""
    return RDNA_TILES if arch.architecture == "rdna" else CONV_TILES
