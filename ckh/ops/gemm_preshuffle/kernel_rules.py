"""Kernels that read a shuffled B: names, orders of B, rules, pools and lists.

Names are those of `GemmKernel` that begin with `gemm_preshuffle_`, or with `gemm_preshuffle_permute_n_`. The pipeline
has one schedule, which they call intrawave. AMD's tile engine calls it `default`, and its names do not state whether N
is permuted, which its configuration says: these are refused.

Source of the rules: the checks of AMD's tile engine, which repeat the assertions of CK Tile's pipeline and of its
epilogue. Source of the pools: the tile engine's configuration; for flatmm, which it does not build, the same tiles,
smaller ones along M, and in 8 bits those of AITER's row-wise fp8 GEMMs with flatmm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.kernels.declaration import mark, named
from ckh.kernels.judging import RuleBook, Rules
from ckh.kernels.pipelines import Scheduler
from ckh.kernels.pools import Pools
from ckh.ops.gemm_preshuffle.problem import DTYPES, FLATMM, LAYOUT, OP_TYPE, PRESHUFFLE, StoredOrder
from ckh.ops.gemm_universal.kernel import GROUP_FIELDS, NATIVE_WIDTH, GemmKernel, kernel_name, parser_of
from ckh.ops.gemm_universal.kernels.amd_lists import ListedKernels, lists_of
from ckh.ops.gemm_universal.kernels.family import KernelFamily
from ckh.ops.gemm_universal.kernels.pool import GPU, GemmSpace
from ckh.ops.gemm_universal.kernels.problem_rules import COMPLETE_RULES, PROBLEM_RULES, RULES_OF_ANY_PIPELINE, rule_key
from ckh.ops.gemm_universal.kernels.search_space import searched_in
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.kernels.lists import ListFormat
    from ckh.kernels.table import KernelTable
    from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem
    from ckh.search.product import Searched


_PERMUTED = "permute_n"
# Parts of K of a matrix instruction, for its number of columns: each lane has one of them.
_LANE_GROUPS = {16: 4, 32: 2}
FLATMM_BYTES = 16  # that a lane reads at once, with flatmm


@dataclass(frozen=True, slots=True, order=True)
class GemmPreshuffleKernel(GemmKernel):
    """A kernel that reads B in the order of its matrix instructions."""

    op_type = OP_TYPE
    group_fields = (*GROUP_FIELDS, "permute_n")

    permute_n: bool = field(default=False, metadata=named(mark("permutation of N", _PERMUTED)))
    """Whether N is permuted (CK Tile's `TiledMMAPermuteN`), so that a lane stores adjacent columns of C."""

    @property
    def b_order(self) -> str:
        """Order in which it reads B; empty if its name omits it, or if its instruction has none."""
        return str(order_of(self) or "") if self.is_complete else ""


def order_read(
    pipeline: str,
    dtype: str,
    tile: tuple[int, int, int],
    wave: tuple[int, int, int],
    warp_tile: tuple[int, int, int],
    *,
    permute_n: bool,
) -> StoredOrder | None:
    """Return the order in which a kernel with these parameters reads B; None if its instruction has no such order."""
    _, columns, depth = warp_tile
    if columns not in _LANE_GROUPS:
        return None
    piece = int(depth // _LANE_GROUPS[columns] * DTYPE_BYTES[dtype])
    if pipeline == FLATMM:
        piece = min(piece, FLATMM_BYTES)
    if not permute_n:
        return StoredOrder(columns, piece)
    return StoredOrder(columns, piece, wave[1], tile[1] // (columns * wave[1]), permutes_n=True)


def order_of(kernel: GemmPreshuffleKernel) -> StoredOrder | None:
    """Return the order in which a complete kernel reads B; None if its instruction has no such order."""
    sizes = kernel.tile, kernel.wave, kernel.warp_tile
    return order_read(kernel.pipeline, kernel.dtype, *sizes, permute_n=kernel.permute_n)


_AMDS = re.compile(r"_preshufflev2_(?:(?:cshuffle|default)_)?default(?=_(?:True|False|0|1)_|$)")
_parse = parser_of(GemmPreshuffleKernel, OP_TYPE, "permute_n")


def parse_preshuffle_kernel(text: str) -> GemmPreshuffleKernel:
    """Parse a kernel's name."""
    if _AMDS.search(text):
        raise DataError(
            f"{text!r} does not state whether N is permuted, as all names of AMD's tile engine",
            f"begin with {OP_TYPE}_{_PERMUTED}_ if it is, and write intrawave for the scheduler default",
            code="bad-kernel",
        )
    return _parse(text)


_LANES = 64
_WAVES = ((1, 4, 1), (2, 2, 1), (4, 1, 1))
_BUFFERS = 2  # of A in LDS, with flatmm
_SWIZZLED = (16, 16)  # rows and columns of instructions for which they have no further row between the parts of K
_LOAD_BYTES = 16  # that a lane loads of a row of A at once

_book = RuleBook()
rule = _book.rule


@_book.quantity
def order(
    pipeline: str, dtype: str, tile: Triple, wave: Triple, warp_tile: Triple, permute_n: bool
) -> StoredOrder | None:
    """Return the order in which a kernel reads B."""
    return order_read(pipeline, dtype, tile, wave, warp_tile, permute_n=permute_n)


@rule
def _reads_shuffled(arch: ArchSpec, pipeline: str) -> Iterator[str]:
    if not arch.is_gpu:
        yield "the host device has no kernels with a shuffled B"
    elif arch.wavefront_size != _LANES:
        yield f"kernels with a shuffled B are for waves of {_LANES} lanes, {arch.name} has {arch.wavefront_size}"
    elif pipeline not in {PRESHUFFLE, FLATMM}:
        yield f"{pipeline} reads no shuffled B, {PRESHUFFLE} and {FLATMM} do"


@rule
def _kind(dtype: str, layout: str | None, scheduler: Scheduler) -> Iterator[str]:
    if dtype not in DTYPES:
        yield f"kernels with a shuffled B are of {', '.join(DTYPES)}, not {dtype}"
    if layout != LAYOUT:
        yield f"kernels with a shuffled B have the layout {LAYOUT}, not {layout}"
    if scheduler is not Scheduler.INTRAWAVE:
        yield f"kernels with a shuffled B are not {scheduler}"


@rule
def _unpadded(pads: tuple[bool, bool, bool], vectors: Triple) -> Iterator[str]:
    if any(pads):
        yield "kernels with a shuffled B are not padded"
    if vectors != (NATIVE_WIDTH,) * 3:
        yield "kernels with a shuffled B have native vector widths"


@rule
def _blocks(wave: Triple) -> Iterator[str]:
    if wave not in _WAVES:
        yield f"kernels with a shuffled B have four waves along M and N, not {'x'.join(map(str, wave))}"


@rule
def _instruction(order: StoredOrder | None, warp_tile: Triple) -> Iterator[str]:
    if order is None:
        yield f"B is shuffled for instructions with 16 or 32 columns, not {warp_tile[1]}"


@rule
def _loads_a(pipeline: str, dtype: str, tile: Triple, wave: Triple, warp_tile: Triple) -> Iterator[str]:
    """Tiles of A that the threads of a block, or the lanes of a wave, cannot share in whole loads."""
    element = DTYPE_BYTES.get(dtype, 1)
    of_row = int(tile[2] * element) // _LOAD_BYTES
    if of_row == 0 or _LANES % of_row:
        yield f"{tile[2]} elements of a row of A are {of_row} loads of {_LOAD_BYTES} bytes, not a divisor of {_LANES}"
    elif tile[0] % (rows := _LANES // of_row * prod(wave)):
        yield f"tile_m {tile[0]} is not a multiple of the {rows} rows of A that a block loads at once"
    repeats = 1 if pipeline == FLATMM else tile[0] // (wave[0] * warp_tile[0])
    if int(warp_tile[0] * warp_tile[2] * element * repeats) % (_LANES * _LOAD_BYTES):
        yield f"{repeats} x {warp_tile[0]} x {warp_tile[2]} elements of A are no whole loads of {_LOAD_BYTES} bytes"


@rule
def _flatmm(
    arch: ArchSpec,
    pipeline: str,
    dtype: str,
    tile: Triple,
    wave: Triple,
    warp_tile: Triple,
    epilogue: str | None,
    persistent: bool | None,
) -> Iterator[str]:
    if pipeline != FLATMM:
        return
    if wave[0] != 1:
        yield f"{FLATMM} has no waves along M, not {wave[0]}"
    if epilogue != "cshuffle":
        yield f"{FLATMM} is not built with the epilogue {epilogue}"
    if persistent:
        yield f"persistent kernels of {FLATMM} are not emitted: its waves do not wait for each other between tiles"
    rows = tile[0] + (warp_tile[:2] != _SWIZZLED)
    used = int(_BUFFERS * rows * tile[2] * DTYPE_BYTES.get(dtype, 1))
    if used > arch.hardware.lds_capacity:
        yield f"two tiles of A take {used} bytes of LDS, {arch.name} has {arch.hardware.lds_capacity}"


@rule
def _permuted(permute_n: bool, epilogue: str | None, tile_n: int, wave_n: int, warp_tile_n: int) -> Iterator[str]:
    if not permute_n:
        return
    if epilogue != "cshuffle":
        yield f"the epilogue {epilogue} stores permuted columns as if they were not"
    if (repeats := tile_n // (wave_n * warp_tile_n)) % 2:
        yield f"columns are permuted in pairs of a wave's instructions along N, which are {repeats}"


@rule
def _same_order(
    problem: GemmPreshuffleProblem, is_complete: bool, order: StoredOrder | None, warp_tile: Triple
) -> Iterator[str]:
    if is_complete and order != problem.stored_order:
        instruction = "x".join(map(str, warp_tile))
        yield f"the instruction {instruction} reads B in the order {order}, the problem has {problem.b_order}"


PRESHUFFLE_RULES: Rules[GemmPreshuffleKernel] = Rules(
    (*RULES_OF_ANY_PIPELINE, _reads_shuffled, _kind),
    (*COMPLETE_RULES, _unpadded, _blocks, _instruction, _loads_a, _flatmm, _permuted),
    (*PROBLEM_RULES, _same_order),
    attrgetter("missing"),
)


def preshuffle_rule_key(problem: GemmPreshuffleProblem) -> Hashable:
    """Return the part of a problem that the rules read: problems of one key have the same applicable kernels."""
    return rule_key(problem), problem.b_order


_SIZES = (64, 128, 192, 256)
_ROWS = (16, 32, *_SIZES)  # the first two are of flatmm
_TILES = tuple(product(_ROWS, _SIZES, _SIZES))
_SEARCHED_TILES = tuple(product(_ROWS, _SIZES, (32, *_SIZES)))
# Further ones of AITER's list (`gemm_a8w8_bpreshuffle_cktile_common.py`), except 48, 80 and 112 rows: an odd number of
# instructions along M, which the epilogue of headers of 2025 stores wrongly.
_AITERS = (
    *product((16,), (64, 128, 256), (512,)),
    (16, 512, 256),
    (32, 64, 512),
    *product((96,), _SIZES, (128, 256)),
    (160, 192, 128),
    *product((224,), (64, 128, 192), (128,)),
)


class PreshuffleSpace(GemmSpace):
    """A space of pipelines that the specifications list apart from the others."""

    def narrowed(self, arch: ArchSpec, dtype: str) -> GemmSpace:
        """Remove values that the architecture does not list, except for pipelines."""
        return replace(super().narrowed(arch, dtype), pipelines=self.pipelines)


# The tile engine's, and flatmm, with fewer rows too.
SPACE = PreshuffleSpace(
    tiles=_TILES,
    blocks=GPU.blocks,
    pipelines=(PRESHUFFLE, FLATMM),
    schedulers=(Scheduler.INTRAWAVE,),
    epilogues=GPU.epilogues,
    pads=((False,) * 3,),
    persistent=GPU.persistent,
)


# AITER's flatmm.
_FURTHER = replace(SPACE, tiles=_AITERS, pipelines=(FLATMM,))


def _searched(dtype: str, _arch: ArchSpec) -> GemmSpace:
    return replace(SPACE, tiles=(*_SEARCHED_TILES, *(_AITERS if DTYPE_BYTES[dtype] == 1 else ())))


def _table(arch: ArchSpec, *group: Any) -> KernelTable[GemmPreshuffleKernel]:
    fields = dict(zip(GemmPreshuffleKernel.group_fields, group, strict=True))
    spaces = (SPACE, _FURTHER) if DTYPE_BYTES[fields["dtype"]] == 1 else (SPACE,)
    table: KernelTable[GemmPreshuffleKernel]
    table, *further = (
        space.narrowed(arch, fields["dtype"]).table(kind=GemmPreshuffleKernel, **fields) for space in spaces
    )
    for added in further:
        table = table.joined(added)
    return table.take(PRESHUFFLE_RULES.judge(table, arch).passed)


POOLS = Pools(
    GemmPreshuffleKernel,
    PRESHUFFLE_RULES,
    _table,
    attrgetter(*GemmPreshuffleKernel.group_fields),
    parse_preshuffle_kernel,
    kernel_name,
)


class _PreshuffleFamily(KernelFamily[GemmPreshuffleKernel]):
    """The kernels, whose spaces are not parts of `gemm_universal`'s."""

    @cached_property
    def pools(self) -> Pools[GemmPreshuffleKernel]:
        """The pools, of a bench run too."""
        return POOLS

    @cached_property
    def searched(self) -> Searched[Any]:
        """The kernels that a search may propose."""
        return searched_in(_searched, self.rules, self.kind)

    @cached_property
    def lists(self) -> ListFormat:
        """AMD's file formats for lists of these kernels."""
        flags = (_PERMUTED,)
        return lists_of(ListedKernels(self.kind, self.rules, self.parse, PreshuffleSpace, flags))


FAMILY = _PreshuffleFamily(GemmPreshuffleKernel, PRESHUFFLE_RULES, parse_preshuffle_kernel, (PRESHUFFLE, FLATMM))
