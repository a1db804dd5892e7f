"""Register counts of the kernels compiled here, by their tiles, and their occupancy in waves per SIMD.

    python benchmarks/compiled_registers.py

It reads the reports kept by `ckh bench --device hip`, its `--compile-only` and `ckh validate kernels` for AMD Instinct
GPUs from gfx90a on, and prints a least-squares fit of their registers to sums and loads (rounded coefficients are in
`ckh/learn/analytic/estimate.py`), and for how many kernels the compiler's occupancy agrees with AMD's table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ckh.archs import load_arch
from ckh.kernels.compiled import compiled
from ckh.ops import operation, operation_names
from ckh.problems import DTYPE_BYTES

ARCHS = ("gfx90a", "gfx942", "gfx950")
SIMDS = 4
# Maximum registers per lane for a number of waves per SIMD: 512 in granules of 8 (LLVM review D138443, gfx90a, gfx940).
WAVES = {64: 8, 72: 7, 80: 6, 96: 5, 128: 4, 168: 3, 256: 2, 512: 1}
MOST_SGPRS = 100  # for eight waves, else seven


def main() -> None:
    """Fit and count."""
    rows, registers, as_expected = [], [], []
    for op in map(operation, operation_names()):
        for arch in ARCHS:
            lds_capacity = load_arch(arch).lds_capacity
            for name, taken in compiled(arch, op.name).items():
                kernel: Any = op.kernels.parse(name)
                waves = kernel.wave_m * kernel.wave_n * kernel.wave_k
                width = next(size for dtype, size in DTYPE_BYTES.items() if f"_{dtype}_" in name)
                lanes = waves * 64
                loads = (kernel.tile_m + kernel.tile_n) * kernel.tile_k * width / 4 / lanes
                rows.append((1.0, kernel.tile_m * kernel.tile_n / lanes, loads))
                vectors = -(-taken.vgprs // 4) * 4 if taken.agprs else taken.vgprs
                registers.append(vectors + taken.agprs)
                by_registers = next(count for most, count in WAVES.items() if registers[-1] <= most)
                by_lds = -(-(lds_capacity // max(taken.lds_bytes, 1)) * waves // SIMDS)
                by_scalars = 8 if taken.sgprs <= MOST_SGPRS else 7
                as_expected.append(taken.occupancy == min(by_registers, by_lds, by_scalars))
    terms, result = np.array(rows), np.array(registers, dtype=float)
    factors = np.linalg.lstsq(terms, result, rcond=None)[0]
    r2 = 1 - ((terms @ factors - result) ** 2).sum() / ((result - result.mean()) ** 2).sum()
    print(
        f"{len(result)} kernels: registers = {factors[0]:.1f} + {factors[1]:.2f} sums + {factors[2]:.2f} loads, "
        f"R2 {r2:.2f}"
    )
    print(f"occupancy as AMD's table has it: {sum(as_expected)} of {len(result)}")


if __name__ == "__main__":
    main()
