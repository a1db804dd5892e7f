"""The pipelines of CK Tile's kernels: one table with all that ckh knows of each.

A pipeline moves operands from memory to the matrix instructions. Rules, features, emitted sources and sets of kernels
use this table; a test compares it with the C++ templates. Source: AMD's `grouped_config_rules` and feature engines, and
CK Tile's headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import ceil
from typing import TYPE_CHECKING

from ckh.problems import DTYPE_BYTES
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from ckh.files.jsonfields import Triple


class Scheduler(StrEnum):
    """Scheduling of the waves of a block."""

    INTRAWAVE = "intrawave"
    INTERWAVE = "interwave"


class Buffers(Enum):
    """Number of LDS buffers that a pipeline supports: a double smem buffer is two."""

    ONE = auto()
    EITHER = auto()
    TWO = auto()


@dataclass(frozen=True, slots=True)
class WaveGroups:
    """Groups of waves that a pipeline alternates between on a GPU, and the required waves per block."""

    count: int
    waves: Triple

    def __str__(self) -> str:
        """Return the text for messages."""
        return f"waves {'x'.join(map(str, self.waves))} in {self.count} wave groups"


class Stage(Enum):
    """Location of an operand in the host's kernels during multiplication."""

    IN_PLACE = auto()
    PREFETCHED = auto()
    BY_TILE = auto()
    UP_FRONT = auto()


@dataclass(frozen=True, slots=True)
class Staging:
    """Implementation of a pipeline on the host."""

    a: Stage  # location of A: in place, in place with the next tile prefetched, or packed tile by tile
    b: Stage
    """Location of B: in place, or packed tile by tile or completely up front. (bwd_weight has no filter to pack up
    front: there A, the output gradient, is packed, and B is in place.)."""
    loops: str = "nmk"  # axes of the loops over tiles, outermost first. Unless k is innermost, tiles of C are revisited

    def constants(self) -> dict[str, bool]:
        """Constants of `templates/host/nest.hpp`, by name."""
        return {
            "prefetches_a": self.a is Stage.PREFETCHED,
            "packs_a": self.a is Stage.BY_TILE,
            "packs_b": self.b is Stage.BY_TILE,
            "packs_b_up_front": self.b is Stage.UP_FRONT,
            "streams_rows": self.loops == "nkm",
            "shares_a": self.loops == "mkn",
        }


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline."""

    name: str  # as in the names of kernels
    buffers: Buffers = Buffers.EITHER  # whether it supports a double smem buffer
    interwave: bool = False  # whether it supports the interwave scheduler
    wave_groups: WaveGroups | None = None  # required groups of waves on a GPU, if it alternates between groups
    code: int | None = None  # its number in AMD's feature engines; None if unknown to them
    curated: str = ""  # its name in the curated tables of rule sets; empty if it is not in them
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

    @property
    def in_table(self) -> bool:
        """True if it is in AMD's table of variants."""
        return self.staging is not None


_V = "gemm_pipeline_{}.hpp".format

_IN_PLACE, _PREFETCHED, _BY_TILE, _UP_FRONT = Stage

_TABLE = (
    Pipeline(
        "basic_v1",
        interwave=True,
        code=5,
        curated="v1",
        header=_V("agmem_bgmem_creg_v1"),
        staging=Staging(_IN_PLACE, _IN_PLACE),
    ),
    Pipeline(
        "mem",
        interwave=True,
        code=3,
        curated="mem",
        header=_V("ag_bg_cr_mem"),
        marked_padded=True,
        staging=Staging(_PREFETCHED, _BY_TILE, "nkm"),
    ),
    Pipeline(
        "compv3",
        code=0,
        curated="c3",
        header=_V("ag_bg_cr_comp_v3"),
        stages=2,
        staging=Staging(_BY_TILE, _BY_TILE, "nkm"),
    ),
    Pipeline(
        "compv4",
        Buffers.TWO,
        code=1,
        curated="c4",
        header=_V("ag_bg_cr_comp_v4"),
        overruns=True,
        stages=2,
        tails=2,
        reads_beyond=(1, 3),
        staging=Staging(_BY_TILE, _BY_TILE),
    ),
    Pipeline(
        "compv5",
        # One group of waves loads while the other computes: with one group neither happens, and nothing is written.
        wave_groups=WaveGroups(2, (1, 1, 2)),
        code=2,
        header=_V("ag_bg_cr_comp_v5"),
        of_backward=False,
        staging=Staging(_BY_TILE, _UP_FRONT, "mkn"),
    ),
    Pipeline(
        "compv6",
        code=6,
        curated="c6",
        header=_V("ag_bg_cr_comp_v6"),
        since_late_2025=True,
        fills_threads=True,
        has_least_trips=True,
        stages=3,
        tails=2,
        reads_beyond=(1,),
        repeats_packs=True,
        staging=Staging(_IN_PLACE, _UP_FRONT),
    ),
    Pipeline(
        "comp_async",
        Buffers.TWO,
        header=_V("ag_bg_cr_comp_async"),
        since_late_2025=True,
        stages=2,
        tails=2,
        reads_beyond=(3,),
    ),
    Pipeline("basic_async_v1", Buffers.ONE, curated="async", header=_V("agmem_bgmem_creg_async_v1")),
    Pipeline("wavelet", Buffers.ONE, curated="wav", of_convolutions=False),
    Pipeline("preshufflev2", code=4, of_convolutions=False),
    Pipeline("flatmm", Buffers.TWO, of_convolutions=False),
    *(Pipeline(name, Buffers.ONE, of_convolutions=False) for name in ("compv1", "basic_v2", "compv2")),
)

PIPELINES: dict[str, Pipeline] = {row.name: row for row in _TABLE}

INTERWAVE_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.interwave)
DOUBLE_SMEM_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.buffers is Buffers.TWO)
NO_DOUBLE_SMEM_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.buffers is Buffers.ONE)
CONV_PIPELINES: tuple[str, ...] = tuple(row.name for row in _TABLE if row.of_convolutions)
TABLE_PIPELINES: tuple[str, ...] = tuple(row.name for row in _TABLE if row.in_table)
FORWARD_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if not row.of_backward)  # forward only
MARKED_PADDED_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.marked_padded)
LATE_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.since_late_2025)
THREAD_FILLING_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.fills_threads)
LEAST_TRIPS_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.has_least_trips)
OVERRUNNING_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.overruns)
READS_BEYOND: dict[str, tuple[int, ...]] = {row.name: row.reads_beyond for row in _TABLE if row.reads_beyond}
PACK_REPEATING_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.repeats_packs)

# Name -> number in AMD's feature engines, sorted by number, which is also the order of AMD's lists.
PIPELINE_CODES: dict[str, int] = dict(
    sorted(((row.name, row.code) for row in _TABLE if row.code is not None), key=lambda pair: pair[1])
)


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
