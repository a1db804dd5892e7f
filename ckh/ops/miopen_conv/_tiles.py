"""How well block tiles fit a problem's GEMM, as formulas over columns."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.ops.miopen_conv._sizes import power_of_two_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.features.engine import Columns

# Block tiles that tuned kernels choose from.
_TILES = (
    *((256, 256), (256, 128), (128, 256), (256, 64), (64, 256), (128, 128), (128, 64), (64, 128), (256, 32), (32, 256)),
    *((64, 64), (128, 32), (32, 128), (64, 32), (32, 64), (32, 32), (64, 16), (16, 64)),
)
# A tile of a x b takes this share more for each of 1 / a and 1 / b: small tiles load more for each product.
_LOADS = 24.0
_LARGEST_EXACT_TILE = 256.0


def _tuned_work(m: str, n: str, batch: str) -> Callable[[Columns], Any]:
    """Work of the best of `_TILES` in whole waves over the compute units, over the work that is needed."""

    def work_of(c: Columns, tile_m: int, tile_n: int) -> Any:
        waves = np.ceil(np.ceil(c[m] / tile_m) * np.ceil(c[n] / tile_n) * c[batch] / c["hw_num_cus"])
        return waves * tile_m * tile_n * (1 + _LOADS * (1 / tile_m + 1 / tile_n))

    def formula(c: Columns) -> Any:
        best = reduce(np.minimum, (work_of(c, *tile) for tile in _TILES))
        return best * c["hw_num_cus"] / (c[m] * c[n] * c[batch])

    return formula


def _exact_tile(c: Columns) -> Any:
    """Area of the largest tile whose sides are powers of two up to 256 that divide the GEMM's."""
    sides = [power_of_two_in(c[side], _LARGEST_EXACT_TILE) for side in ("gemm_m", "gemm_n")]
    return sides[0] * sides[1]


TILES: dict[str, Callable[[Columns], Any]] = {
    "tuned_gemm_work": _tuned_work("gemm_m", "gemm_n", "G"),
    # Of one image: its calls follow each other.
    "tuned_blas_work": _tuned_work("blas_m", "blas_n", "one"),
    "one": lambda _: np.ones(1),
    "exact_tile": _exact_tile,
    "exact_tiles_per_cu": lambda c: c["gemm_m"] * c["gemm_n"] * c["G"] / (c["exact_tile"] * c["hw_num_cus"]),
}
