"""The pipelines of CK Tile's kernels: each stands here once, with all that ckh knows of it.

How operands get from memory to the matrix instructions. Rules, features, the sources that are emitted and the sets of
kernels read this table; a test compares it with what the C++ templates have. Source: AMD's `grouped_config_rules` and
feature engines, and CK Tile's headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckh.files.jsonfields import Triple


class Buffers(Enum):
    """The number of LDS buffers that a pipeline can have: a double smem buffer is two."""

    ONE = auto()
    EITHER = auto()
    TWO = auto()


@dataclass(frozen=True, slots=True)
class WaveGroups:
    """Groups of waves that a pipeline steps through in turn on a GPU, and the waves per block that it does so with."""

    count: int
    waves: Triple

    def __str__(self) -> str:
        """As it stands in messages."""
        return f"waves {'x'.join(map(str, self.waves))} in {self.count} wave groups"


class Stage(Enum):
    """Where the host's kernels have an operand while they multiply it."""

    IN_PLACE = auto()
    PREFETCHED = auto()
    BY_TILE = auto()
    UP_FRONT = auto()


@dataclass(frozen=True, slots=True)
class Staging:
    """The form of a pipeline on the host.

    Attributes:
        a: where A is: in place, also with the next tile prefetched, or packed tile by tile.
        b: where B is: in place, or packed tile by tile or whole, up front. (bwd_weight has no filter to pack up front:
            there A, the output gradient, is, and B is in place.)
        loops: axes of the loops over tiles, the outermost first. Unless k is innermost, tiles of C are touched again.
    """

    a: Stage
    b: Stage
    loops: str = "nmk"

    def constants(self) -> dict[str, bool]:
        """The constants of `templates/host/nest.hpp`, by name."""
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
    """A pipeline.

    Attributes:
        name: as in the names of kernels.
        buffers: whether it can have a double smem buffer.
        interwave: whether waves can take turns at more than instructions.
        wave_groups: what it needs on a GPU to compute anything, if it steps through groups of waves.
        code: its number in AMD's feature engines; None if they do not know it.
        curated: its word in the curated tables of rule sets; empty if they do not have it.
        header: of CK Tile's GEMM pipelines the one that has it; empty if ckh does not emit it.
        of_convolutions: whether AMD's convolutions list it.
        of_backward: whether AMD's table of variants has it for backward convolutions, if it has it.
        pads_itself: whether its GEMMs on a GPU take any size, whatever their names say of padding.
        since_late_2025: whether CK Tile's headers of mid-2025 lack it.
        fills_threads: whether each thread of its convolutions' blocks on a GPU must have a vector of A and B to load.
        has_least_trips: whether its backward-weight convolutions take no fewer trips over K than the architecture says.
        overruns: whether its main loop on a GPU takes five trips over K where three are needed, as CK Tile's tail of
            three follows a loop that is entered once.
        repeats_packs: whether its GEMMs of current headers multiply a tile once for each vector that a thread takes
            from LDS.
        staging: what it is on the host, which has all of AMD's table of variants and no others.
    """

    name: str
    buffers: Buffers = Buffers.EITHER
    interwave: bool = False
    wave_groups: WaveGroups | None = None
    code: int | None = None
    curated: str = ""
    header: str = ""
    of_convolutions: bool = True
    of_backward: bool = True
    pads_itself: bool = False
    since_late_2025: bool = False
    fills_threads: bool = False
    has_least_trips: bool = False
    overruns: bool = False
    repeats_packs: bool = False
    staging: Staging | None = None

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
        pads_itself=True,
        staging=Staging(_PREFETCHED, _BY_TILE, "nkm"),
    ),
    Pipeline("compv3", code=0, curated="c3", header=_V("ag_bg_cr_comp_v3"), staging=Staging(_BY_TILE, _BY_TILE, "nkm")),
    Pipeline(
        "compv4",
        Buffers.TWO,
        code=1,
        curated="c4",
        header=_V("ag_bg_cr_comp_v4"),
        overruns=True,
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
        repeats_packs=True,
        staging=Staging(_IN_PLACE, _UP_FRONT),
    ),
    Pipeline("comp_async", Buffers.TWO, header=_V("ag_bg_cr_comp_async"), since_late_2025=True),
    Pipeline("basic_async_v1", Buffers.ONE, curated="async", header=_V("agmem_bgmem_creg_async_v1")),
    Pipeline("wavelet", Buffers.ONE, curated="wav", of_convolutions=False),
    Pipeline("preshufflev2", code=4, of_convolutions=False),
    *(Pipeline(name, Buffers.ONE, of_convolutions=False) for name in ("compv1", "basic_v2", "compv2")),
)

PIPELINES: dict[str, Pipeline] = {row.name: row for row in _TABLE}

INTERWAVE_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.interwave)
DOUBLE_SMEM_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.buffers is Buffers.TWO)
NO_DOUBLE_SMEM_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.buffers is Buffers.ONE)
CONV_PIPELINES: tuple[str, ...] = tuple(row.name for row in _TABLE if row.of_convolutions)
TABLE_PIPELINES: tuple[str, ...] = tuple(row.name for row in _TABLE if row.in_table)
FORWARD_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if not row.of_backward)  # forward alone
ALWAYS_PADDED_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.pads_itself)
LATE_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.since_late_2025)
THREAD_FILLING_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.fills_threads)
LEAST_TRIPS_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.has_least_trips)
OVERRUNNING_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.overruns)
PACK_REPEATING_PIPELINES: frozenset[str] = frozenset(row.name for row in _TABLE if row.repeats_packs)

# Name -> number in AMD's feature engines, by number: the order of AMD's lists, too.
PIPELINE_CODES: dict[str, int] = dict(
    sorted(((row.name, row.code) for row in _TABLE if row.code is not None), key=lambda pair: pair[1])
)


def wave_groups_of(pipeline: str) -> WaveGroups | None:
    """The groups of waves that a pipeline needs on a GPU; None if it has no such needs or is unknown."""
    row = PIPELINES.get(pipeline)
    return None if row is None else row.wave_groups


def wave_group_reason(pipeline: str, wave: Triple, groups: int | None = None) -> str:
    """Why a pipeline computes wrong results on a GPU with these waves; empty if it does not.

    Args:
        pipeline: its name.
        wave: waves per block along M, N, K.
        groups: groups of waves; those that the pipeline needs unless given.
    """
    needed = wave_groups_of(pipeline)
    if needed is None:
        is_right = groups in (None, 1)
        return "" if is_right else f"{pipeline} does not step through wave groups, so it is wrong in several"
    is_right = wave == needed.waves and groups in (None, needed.count)
    return "" if is_right else f"{pipeline} computes nothing unless it has {needed}"
