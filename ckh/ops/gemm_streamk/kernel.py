"""`GemmStreamKKernel`: a kernel of `gemm_universal` whose blocks share tiles.

Names are those of `GemmKernel` with another beginning, which states how partial sums are reduced and the number of
blocks per compute unit: `gemm_streamk_atomic_2_fp16_rcr_...`. Names of AMD's tile engine, which state the reduction
before the tile and no number of blocks, are parsed too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ckh.kernels.name_grammar import either
from ckh.ops.gemm_streamk.problem import PREFIX
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.names import parser_of

# Name -> CK Tile's enumerator. Blocks add to C by atomic operations, or the block that begins a tile adds the partial
# sums that the others stored.
REDUCTIONS = {"atomic": "Atomic", "reduction": "Reduction"}
ALL_HELD = 0
MOST_BLOCKS = 16


@dataclass(frozen=True, slots=True, order=True)
class GemmStreamKKernel(GemmKernel):
    """A kernel whose blocks share tiles.

    Attributes:
        reduction: how partial sums become a result, one of `REDUCTIONS`.
        blocks_per_cu: blocks per compute unit that share tiles; 0: as many as a compute unit holds.
    """

    reduction: str = "atomic"
    blocks_per_cu: int = 1

    @property
    def op_type(self) -> str:  # type: ignore[override]
        """First part of names."""
        return f"{PREFIX}{self.reduction}_{self.blocks_per_cu}"


_HEAD = rf"{PREFIX}(?P<reduction>{either(REDUCTIONS)})_(?P<blocks>0|[1-9][0-9]?)"
_parse = parser_of(
    GemmStreamKKernel,
    _HEAD,
    lambda match: {"reduction": match["reduction"], "blocks_per_cu": int(match["blocks"])},
)
# "linear" is the later name of CK Tile's reduction of 2025.
_AMD = re.compile(rf"{PREFIX}(?P<kind>\w+?)_(?P<reduction>atomic|reduction|linear)_(?P<sizes>[0-9]+x.*)")


def parse_streamk_kernel(text: str) -> GemmStreamKKernel:
    """Parse a kernel's name."""
    if matched := _AMD.fullmatch(text):
        reduction = "atomic" if matched["reduction"] == "atomic" else "reduction"
        return _parse(f"{PREFIX}{reduction}_{ALL_HELD}_{matched['kind']}_{matched['sizes']}")
    return _parse(text)
