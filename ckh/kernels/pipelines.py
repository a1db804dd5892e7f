"""The pipelines of CK Tile's kernels: one table with all that ckh knows of each.

A pipeline moves operands from memory to the matrix instructions. Rules, features, emitted sources and sets of kernels
use this table; a test compares it with the C++ templates. Source: AMD's `grouped_config_rules` and feature engines, and
CK Tile's headers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.problems import DTYPE_BYTES
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from ckh.files.jsonfields import Triple


class Scheduler(StrEnum):
    """Scheduling of the waves of a block."""

    INTRAWAVE = "intrawave"
    INTERWAVE = "interwave"


@dataclass(frozen=True, slots=True)
class WaveGroups:
    """Groups of waves that a pipeline alternates between on a GPU, and the required waves per block."""

    count: int
    waves: Triple

    def __str__(self) -> str:
        """Return the text for messages."""
        return f"waves {'x'.join(map(str, self.waves))} in {self.count} wave groups"


@dataclass(frozen=True, slots=True)
class Staging:
    """Implementation of a pipeline on the host."""

    a: str  # location of A: in_place, in place with the next tile prefetched, or packed by_tile
    b: str
    """Location of B: in_place, or packed by_tile or completely up_front. (bwd_weight has no filter to pack up front:
    there A, the output gradient, is packed, and B is in place.)."""
    loops: str = "nmk"  # axes of the loops over tiles, outermost first. Unless k is innermost, tiles of C are revisited

    def constants(self) -> dict[str, bool]:
        """Constants of `templates/host/nest.hpp`, by name."""
        return {
            "prefetches_a": self.a == "prefetched",
            "packs_a": self.a == "by_tile",
            "packs_b": self.b == "by_tile",
            "packs_b_up_front": self.b == "up_front",
            "streams_rows": self.loops == "nkm",
            "shares_a": self.loops == "mkn",
        }


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline."""

    name: str  # as in the names of kernels
    buffers: str = ""  # number of LDS buffers that it needs, a double smem buffer is "two"; empty: either
    interwave: bool = False  # whether it supports the interwave scheduler
    wave_groups: WaveGroups | None = None
    """Required groups of waves on a GPU, if it alternates between groups: one loads while the other computes. With one
    group neither happens, and nothing is written."""
    code: int | None = None  # its number in AMD's feature engines; None if unknown to them
    curated: str = ""  # its name in the curated tables of rule sets; empty if it is not in them
    instance: str = ""  # its name in the texts of CK Tile's instances; empty if they have none
    header: str = ""  # CK Tile's GEMM pipeline header that defines it; empty if ckh does not emit it
    of_convolutions: bool = True  # whether AMD's convolutions list it
    of_backward: bool = True  # whether AMD's table of variants has it for backward convolutions, if at all
    marked_padded: bool = False
    """Whether AMD's converter of measurements marks its GEMMs as padded, whatever their names state; it holds for
    features alone, since AMD's builders pad as the name states."""
    since_late_2025: bool = False  # whether CK Tile's headers of mid-2025 lack it
    fills_threads: bool = False
    """Whether each thread of its convolutions' blocks on a GPU must load a vector of A and B."""
    has_least_trips: bool = False
    """Whether its backward-weight convolutions need a minimum number of iterations over K, given by the
    architecture."""
    overruns: bool = False
    """Whether its main loop on a GPU does five iterations over K where three are needed, since CK Tile's tail of
    three follows a loop that is entered once."""
    stages: int = 0
    """Tiles along K that a GPU kernel prefetches before its main loop; 0: its loop has no separate ends or, of
    `mem`, they depend on the tile (`loaded_ahead`)."""
    tails: int = 1  # distinct ends of the main loop
    reads_beyond: tuple[int, ...] = ()  # numbers of tiles along K for which its GEMMs of 2025 load tiles beyond K
    repeats_packs: bool = False
    """Whether its GEMMs with current headers multiply a tile once for each vector that a thread loads from LDS."""
    staging: Staging | None = None  # its implementation on the host, which has exactly AMD's table of variants


def _read(values: dict[str, Any]) -> Any:
    """Return a pipeline of the table's file, or a part of one."""
    kind: Any = Staging if "a" in values else WaveGroups if "waves" in values else Pipeline
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


_TABLE: list[Pipeline] = json.loads(Path(__file__).with_name("pipelines.json").read_bytes(), object_hook=_read)

PIPELINES: dict[str, Pipeline] = {row.name: row for row in _TABLE}

INTERWAVE_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.interwave)
DOUBLE_SMEM_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.buffers == "two")
NO_DOUBLE_SMEM_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.buffers == "one")
CONV_PIPELINES: tuple[str, ...] = tuple(row.name for row in _TABLE if row.of_convolutions)
TABLE_PIPELINES: tuple[str, ...] = tuple(row.name for row in _TABLE if row.staging is not None)
FORWARD_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if not row.of_backward)  # forward only
MARKED_PADDED_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.marked_padded)
LATE_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.since_late_2025)
THREAD_FILLING_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.fills_threads)
LEAST_TRIPS_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.has_least_trips)
OVERRUNNING_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.overruns)
READS_BEYOND: dict[str, tuple[int, ...]] = {row.name: row.reads_beyond for row in _TABLE if row.reads_beyond}
PACK_REPEATING_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.repeats_packs)

# Name in the texts of CK Tile's instances -> name.
INSTANCE_PIPELINES: dict[str, str] = {row.instance: row.name for row in _TABLE if row.instance}
# Name -> number in AMD's feature engines, sorted by number, which is also the order of AMD's lists.
PIPELINE_CODES: dict[str, int] = dict(
    sorted(((row.name, row.code) for row in _TABLE if row.code is not None), key=lambda pair: pair[1])
)


def blocks_per_cu(pipeline: str) -> int:
    """Blocks per CU that the compiler optimizes for: one if tiles are double-buffered, else two."""
    return 1 if pipeline in DOUBLE_SMEM_PIPELINES else 2


def wave_groups_of(pipeline: str) -> WaveGroups | None:
    """Return the groups of waves that a pipeline needs on a GPU; None if it needs none or is unknown."""
    row = PIPELINES.get(pipeline)
    return None if row is None else row.wave_groups


def wave_group_reason(pipeline: str, wave: Triple, groups: int | None = None) -> str:
    """Reason why a pipeline computes wrong results on a GPU with these waves; empty if it does not."""
    needed = wave_groups_of(pipeline)
    if needed is None:
        is_right = groups in (None, 1)
        return "" if is_right else f"{pipeline} does not step through wave groups, so it is wrong in several"
    is_right = wave == needed.waves and groups in (None, needed.count)
    return "" if is_right else f"{pipeline} computes nothing unless it has {needed}"


_STEPS = 6  # twice the stages of every pipeline except mem
_MEM = "mem"
_SIMDS = 4  # per compute unit
_BYTES_IN_FLIGHT = 32768  # prefetched by mem per compute unit, within these limits of stages:
_FEWEST, _MOST = 2, 8


def loaded_ahead(pipeline: str, tile: Triple, waves: int, dtype: str) -> int:
    """Tiles along K that `mem` prefetches, equal to the number of tails of its loop; 0 for other pipelines."""
    if pipeline != _MEM:
        return 0
    m, n, k = tile
    block_bytes = _BYTES_IN_FLIGHT // max(1, _SIMDS // waves)
    stages = ceil(block_bytes / (int((m + n) * DTYPE_BYTES[dtype]) * k))
    return min(max(stages, _FEWEST), _MOST)


def most_steps(pipeline: str, tile: Triple, waves: int, dtype: str) -> int:
    """Largest number of tiles along K needed to reach all tails of a main loop (arguments as for `loaded_ahead`)."""
    return max(_STEPS, 2 * loaded_ahead(pipeline, tile, waves, dtype))


def loop_of(pipeline: str, tile: Triple, waves: int, dtype: str) -> tuple[int, int]:
    """Return the tiles that are prefetched before a main loop, and its number of tails (arguments as above)."""
    if ahead := loaded_ahead(pipeline, tile, waves, dtype):
        return ahead, ahead
    row = PIPELINES.get(pipeline)
    return (0, 1) if row is None else (row.stages, row.tails)


def end_alike(loop: tuple[int, int], steps: int, other_steps: int) -> bool:
    """True if a main loop of so many tiles along K runs and ends like one of the other number.

    Kernels of the interfaces of 2025 know this at compile time, so all parts of a launch must be alike.
    """
    stages, tails = loop
    if stages == 0:
        return True
    if steps > stages and other_steps > stages:
        return (steps - other_steps) % tails == 0
    # Without the loop even pipelines with one tail distinguish odd and even numbers of tiles.
    return steps <= stages and other_steps <= stages and (steps - other_steps) % max(tails, 2) == 0
