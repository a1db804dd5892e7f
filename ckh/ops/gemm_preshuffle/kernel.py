"""`GemmPreshuffleKernel`: a kernel with the parameters of `gemm_universal`'s that reads a shuffled B.

Names are those of `GemmKernel` that begin with `gemm_preshuffle_`, or with `gemm_preshuffle_permute_n_`. The pipeline
has one schedule, which they call intrawave. AMD's tile engine calls it `default`, and its names do not state whether N
is permuted, which its configuration says: these are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ckh.errors import DataError
from ckh.ops.gemm_preshuffle.problem import FLATMM, OP_TYPE, StoredOrder
from ckh.ops.gemm_universal.kernel import GROUP_FIELDS, GemmKernel
from ckh.ops.gemm_universal.kernels.names import parser_of
from ckh.problems import DTYPE_BYTES

_PERMUTED = "_permute_n"
# Parts of K of a matrix instruction, for its number of columns: each lane has one of them.
_LANE_GROUPS = {16: 4, 32: 2}
FLATMM_BYTES = 16  # that a lane reads at once, with flatmm


@dataclass(frozen=True, slots=True, order=True)
class GemmPreshuffleKernel(GemmKernel):
    """A kernel that reads B in the order of its matrix instructions.

    Attributes:
        permute_n: whether N is permuted (CK Tile's `TiledMMAPermuteN`), so that a lane stores adjacent columns of C.
    """

    group_fields = (*GROUP_FIELDS, "permute_n")

    permute_n: bool = False

    @property
    def op_type(self) -> str:  # type: ignore[override]
        """First part of names."""
        return OP_TYPE + _PERMUTED * self.permute_n

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
_parse = parser_of(
    GemmPreshuffleKernel,
    rf"{OP_TYPE}(?P<permute_n>{_PERMUTED})?",
    lambda match: {"permute_n": match["permute_n"] is not None},
)


def parse_preshuffle_kernel(text: str) -> GemmPreshuffleKernel:
    """Parse a kernel's name."""
    if _AMDS.search(text):
        raise DataError(
            f"{text!r} does not state whether N is permuted, as all names of AMD's tile engine",
            f"begin with {OP_TYPE}{_PERMUTED}_ if it is, and write intrawave for the scheduler default",
            code="bad-kernel",
        )
    return _parse(text)
