"""ckh's analytic estimate compared with AMD's Origami (PyPI: rocm-origami), on AITER's pools of GEMM kernels.

    python benchmarks/origami_pools.py [--problems N]

For 150 random shapes of each pool in data/: how often is the kernel that won AMD's tuning first, and among the first
five, given only its tile, waves and matrix instruction? Ties are in random order, and so are all kernels if Origami
finds none that fits. Splits of K are chosen by the estimates: a kernel counts as its best split. Building Origami
requires ROCm's headers; without it, its columns are left out. It states no support for Composable Kernel: kernels are
passed as tiles.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.assess.winners import winner_rows
from ckh.data.dataset import read_dataset
from ckh.learn.analytic.estimate import estimated_us
from ckh.ops.aiter_gemm.kernel import kernel_pool, parse_kernel
from ckh.ops.base import TiledSizes

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.ops.aiter_gemm.kernel import AiterKernel
    from ckh.ops.aiter_gemm.problem import AiterGemm

try:
    import origami  # type: ignore[import-not-found]
except ImportError:
    origami = None

DATA = Path(__file__).parents[1] / "data"
L2_BYTES = 4 << 20  # per XCD
# K of the deepest matrix instruction for a tile of 16 x 16; half of it for 32 x 32.
MFMA_K = {
    ("gfx942", "fp8"): 32,
    ("gfx942", "int8"): 32,
    ("gfx950", "fp8"): 128,
    ("gfx950", "int8"): 64,
    ("gfx950", "pk_fp4"): 128,
}
FEW = 5


def by_estimate(problem: AiterGemm, kernels: list[AiterKernel], arch: ArchSpec) -> np.ndarray:
    """Estimated times of kernels, each with the best split of K."""
    shapes = [
        SimpleNamespace(
            tile_m=kernel.tile_m,
            tile_n=kernel.tile_n,
            tile_k=kernel.tile_k,
            wave_m=kernel.wave_m,
            wave_n=kernel.wave_n,
            wave_k=1,
            warp_tile_m=kernel.mfma_m,
            warp_tile_n=kernel.mfma_n,
            warp_tile_k=MFMA_K[arch.name, problem.dtype] * 16 // max(kernel.mfma_m, 1),
            pipeline="",
            double_smem_buffer=False,
        )
        for kernel in kernels
    ]
    splits = [
        estimated_us(problem, TiledSizes(problem.m, problem.n, math.ceil(problem.k / parts), parts), shapes, arch)
        for parts in (1, 2, 4, 8)
    ]
    return np.asarray(np.min(splits, axis=0))


def by_origami(problem: AiterGemm, kernels: list[AiterKernel], arch: ArchSpec) -> np.ndarray:
    """Latencies that Origami predicts for kernels as tiles."""
    types = origami.data_type_t
    names = {"fp8": types.Float8 if arch.name == "gfx950" else types.Float8_fnuz, "int8": types.Int8}
    dtype = names.get(problem.dtype, types.Float4)
    hardware = origami.get_hardware_for_arch(
        getattr(origami.architecture_t, arch.name),
        problem.num_cus,
        arch.lds_capacity,
        L2_BYTES,
        arch.hardware.max_clock_mhz * 1000,
    )
    asked = origami.problem_t()
    asked.size, asked.batch = origami.dim3_t(problem.m, problem.n, problem.k), 1
    asked.a_transpose, asked.b_transpose = origami.transpose_t.T, origami.transpose_t.N
    asked.a_dtype = asked.b_dtype = asked.mi_dtype = dtype
    asked.c_dtype = asked.d_dtype = types.BFloat16
    k = MFMA_K[arch.name, problem.dtype]
    tiles = [
        (kernel.tile_m, kernel.tile_n, kernel.tile_k, kernel.mfma_m, kernel.mfma_n, k * 16 // kernel.mfma_m)
        for kernel in kernels
    ]
    configs = []
    for tile in sorted(set(tiles)):
        config = origami.config_t()
        config.mt, config.mi, config.occupancy = origami.dim3_t(*tile[:3]), origami.dim3_t(*tile[3:]), 1
        configs.append(config)
    try:
        ranked = origami.rank_configs(asked, hardware, configs)
    except RuntimeError:  # no tile fits
        return np.zeros(len(kernels))
    latency = {
        tuple(
            int(size) for dim in (candidate.config.mt, candidate.config.mi) for size in (dim.m, dim.n, dim.k)
        ): candidate.latency
        for candidate in ranked
    }
    return np.array([latency.get(tile, math.inf) for tile in tiles])


def hits(times: np.ndarray, winner: int) -> tuple[float, float]:
    """Probabilities that the winner is first, and in the first five, with ties in random order."""
    better, equal = int((times < times[winner]).sum()), int((times == times[winner]).sum())
    return tuple(min(max((few - better) / equal, 0.0), 1.0) for few in (1, FEW))  # type: ignore[return-value]


def main() -> None:
    """Print a row for each pool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=150)
    most = parser.parse_args().problems
    ways: dict[str, Any] = {"estimate": by_estimate} | ({} if origami is None else {"Origami": by_origami})
    heads = " | ".join(f"{way + ': first':>14}  first 5" for way in ("random", *ways))
    print(f"{'pool':48} problems kernels {heads}")
    for name in ("gfx950", "gfx942"):
        dataset, arch = read_dataset(DATA / f"aiter-gemm-{name}.parquet").valid(), load_arch(name)
        problems = dataset.problems()
        winners = dataset.frame["kernel"].to_numpy(dtype=str)[winner_rows(dataset)]
        pools: dict[tuple[str, str, int], list[int]] = {}
        for number, problem in enumerate(problems):
            pools.setdefault((problem.family, problem.library, problem.num_cus), []).append(number)
        for (family, library, cus), numbers in sorted(pools.items()):
            bases = {kernel.base: kernel for kernel in kernel_pool(family, library, name)}
            drawn = np.random.default_rng(0).permutation(numbers)[:most]
            result: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            for number in drawn:
                winner = list(bases).index(parse_kernel(winners[number]).base)
                for way, times_of in ways.items():
                    result[way].append(hits(times_of(problems[number], list(bases.values()), arch.sized(cus)), winner))
            chance = [min(few / len(bases), 1.0) for few in (1, FEW)]
            shares = [chance, *(np.mean(result[way], axis=0) for way in ways)]
            cells = " | ".join(f"{first:14.1%} {few:8.1%}" for first, few in shares)
            print(f"{f'{name} {cus} {family} {library}':48} {len(drawn):8} {len(bases):7} {cells}", flush=True)


if __name__ == "__main__":
    main()
