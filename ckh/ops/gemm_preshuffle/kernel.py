"""`GemmPreshuffleKernel`: a kernel with the parameters of `gemm_universal`'s that reads a shuffled B.

Names are those of `GemmKernel` that begin with `gemm_preshuffle_`, or with `gemm_preshuffle_permute_n_`. Those of AMD's
tile engine are parsed too: they have the scheduler `default`, since the pipeline has only one way, which ckh's names
call intrawave, and do not state whether N is permuted, which its configuration says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ckh.ops.gemm_preshuffle.problem import OP_TYPE, StoredOrder
from ckh.ops.gemm_universal.kernel import GROUP_FIELDS, GemmKernel
from ckh.ops.gemm_universal.kernels.names import parser_of
from ckh.problems import DTYPE_BYTES

_PERMUTED = "_permute_n"
# Parts of K of a matrix instruction, for its number of columns: each lane has one of them.
_LANE_GROUPS = {16: 4, 32: 2}


@dataclass(frozen=True, slots=True, order=True)
class GemmPreshuffleKernel(GemmKernel):
    """A kernel that reads B in the order of its matrix instructions.

    Attributes:
        permute_n: whether consecutive columns of B are in different instructions of a wave (`TiledMMAPermuteN`).
    """

    group_fields = (*GROUP_FIELDS, "permute_n")

    permute_n: bool = False

    @property
    def op_type(self) -> str:  # type: ignore[override]
        """First part of names."""
        return OP_TYPE + _PERMUTED * self.permute_n


def order_read(
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
    if not permute_n:
        return StoredOrder(columns, piece)
    return StoredOrder(columns, piece, wave[1], tile[1] // (columns * wave[1]), permutes_n=True)


def order_of(kernel: GemmPreshuffleKernel) -> StoredOrder | None:
    """Return the order in which a complete kernel reads B; None if its instruction has no such order."""
    return order_read(kernel.dtype, kernel.tile, kernel.wave, kernel.warp_tile, permute_n=kernel.permute_n)


def _intrawave(text: str) -> str:
    """Return a name with the scheduler that ckh calls intrawave where AMD's have `default`."""
    return re.sub(r"(_preshufflev2(?:_cshuffle|_default|))_default(?=_|$)", r"\1_intrawave", text, count=1)


_parse = parser_of(
    GemmPreshuffleKernel,
    rf"{OP_TYPE}(?P<permute_n>{_PERMUTED})?",
    lambda match: {"permute_n": match["permute_n"] is not None},
)


def parse_preshuffle_kernel(text: str) -> GemmPreshuffleKernel:
    """Parse a kernel's name: ckh's, or AMD's.

    Raises:
        DataError: it is not a name of a kernel.
    """
    return _parse(_intrawave(text))
