"""Rules of kernels that read a shuffled B.

Source: the checks of AMD's tile engine, which repeat the assertions of CK Tile's pipeline and of its epilogue.
"""

from __future__ import annotations

from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING

from ckh.kernels.judging import RuleBook, Rules
from ckh.kernels.pipelines import Scheduler
from ckh.ops.gemm_preshuffle.kernel import GemmPreshuffleKernel, order_read
from ckh.ops.gemm_preshuffle.problem import DTYPES, FLATMM, LAYOUT, PRESHUFFLE, StoredOrder
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH
from ckh.ops.gemm_universal.kernels.arch_rules import COMPLETE_RULES, RULES_OF_ANY_PIPELINE
from ckh.ops.gemm_universal.kernels.problem_rules import PROBLEM_RULES, rule_key
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ckh.archs import ArchSpec, Triple
    from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem

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
