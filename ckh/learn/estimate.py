"""An analytic estimate of kernels' times on a GPU, for what nobody measured: an order without data, and no model.

A kernel is blocks that each make trips over K. A trip of the blocks that share a compute unit, as many as LDS,
registers and waves allow, takes as long as the slowest of their matrix operations, reads of LDS and loads from the L2
cache, and no less than a trip's latency; without prefetching, both together. Blocks come in rounds over the compute
units; memory bounds the whole. Peaks are those of `archspecs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.kernels.table import column_of
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.archspec import Peaks
    from ckh.ops.base import Problem, TiledSizes

_LAUNCH_US = 3.0
# Of a trip that nothing hides: addresses, load, store to LDS, barrier. Of 300 to 4,000, tried on the data of gfx950,
# 2,000 and more are about equally good; the other numbers are the makers'.
_LATENCY_CLOCKS = 2000.0
_WITHOUT_PREFETCH = "basic"  # what the names of such pipelines begin with
_LDS_BYTES_PER_CLOCK = 128.0
_L2_BYTES_PER_CLOCK = 64.0
_REGISTER_BYTES = 512 * 1024  # of a compute unit: four SIMDs of 512 vector registers of 64 lanes
_REGISTERS_BESIDE_SUMS = 2.0  # registers of a kernel over those of its sums
_SUM_BYTES = 4
_SIMDS = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Shapes:
    """Kernels as columns, shape (kernels,): tiles and waves along M and N, depth, buffers of LDS, and waves."""

    tile_m: NDArray[np.float64]
    tile_n: NDArray[np.float64]
    tile_k: NDArray[np.float64]
    wave_m: NDArray[np.float64]
    wave_n: NDArray[np.float64]
    waves: NDArray[np.float64]
    buffers: NDArray[np.float64]


def estimated_us(problem: Problem, sizes: TiledSizes, kernels: Sequence[Any], arch: ArchSpec) -> NDArray[np.float64]:
    """The estimated times of kernels in microseconds, shape (kernels,); only their order means anything.

    Args:
        problem: what is to be computed.
        sizes: its matrix products.
        kernels: complete kernels with tiles and waves.
        arch: a GPU, whose peaks are known.
    """
    assert arch.peaks is not None
    shape, width = _shapes(kernels), DTYPE_BYTES[problem.dtype]
    blocks = _tiles(sizes.m, shape.tile_m) * _tiles(sizes.n, shape.tile_n) * sizes.batches
    trips = _tiles(sizes.k, shape.tile_k)
    in_flight = _blocks_per_cu(shape, width, arch)
    cus = arch.hardware.num_cus
    at_once = np.clip(np.ceil(blocks / cus), 1, in_flight)
    work = at_once * _trip_clocks(shape, width, problem.dtype, arch.peaks)
    prefetches = ~np.char.startswith(_pipelines(kernels), _WITHOUT_PREFETCH)
    trip = np.where(prefetches, np.maximum(work, _LATENCY_CLOCKS), work + _LATENCY_CLOCKS)
    ends = 2 * _LATENCY_CLOCKS + at_once * shape.tile_m * shape.tile_n * width / _L2_BYTES_PER_CLOCK
    clocks = np.ceil(blocks / (cus * at_once)) * (trips * trip + ends)
    memory_us = problem.bytes / arch.peaks.bandwidth_gb_s / 1e3
    return np.asarray(_LAUNCH_US + np.maximum(clocks / arch.hardware.max_clock_mhz, memory_us))


def _tiles(size: int, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.ceil(size / tile))


def _trip_clocks(shape: _Shapes, width: float, dtype: str, peaks: Peaks) -> NDArray[np.float64]:
    """Clocks that a trip of one block keeps its compute unit busy."""
    used = np.minimum(shape.waves / _SIMDS, 1.0)
    compute = 2 * shape.tile_m * shape.tile_n * shape.tile_k / (peaks.flops_per_cu_clock[dtype] * used)
    read = (shape.tile_m * shape.wave_n + shape.tile_n * shape.wave_m) * shape.tile_k * width / _LDS_BYTES_PER_CLOCK
    load = (shape.tile_m + shape.tile_n) * shape.tile_k * width / _L2_BYTES_PER_CLOCK
    return np.asarray(np.maximum(np.maximum(compute, read), load))


def _blocks_per_cu(shape: _Shapes, width: float, arch: ArchSpec) -> NDArray[np.float64]:
    """How many blocks LDS, registers and waves allow on a compute unit at once, 1 at least."""
    lds = (shape.tile_m + shape.tile_n) * shape.tile_k * width * shape.buffers
    registers = shape.tile_m * shape.tile_n * _SUM_BYTES * _REGISTERS_BESIDE_SUMS
    waves = arch.hardware.max_waves_per_cu / shape.waves
    return np.asarray(
        np.maximum(np.floor(np.minimum.reduce([arch.lds_capacity / lds, _REGISTER_BYTES / registers, waves])), 1)
    )


def _shapes(kernels: Sequence[Any]) -> _Shapes:
    tile_m, tile_n, tile_k, wave_m, wave_n, wave_k = (
        column_of(kernels, name).astype(np.float64)
        for name in ("tile_m", "tile_n", "tile_k", "wave_m", "wave_n", "wave_k")
    )
    return _Shapes(tile_m, tile_n, tile_k, wave_m, wave_n, wave_m * wave_n * wave_k, 1 + _have_two_buffers(kernels))


def _have_two_buffers(kernels: Sequence[Any]) -> NDArray[np.float64]:
    from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES

    if len(kernels) and hasattr(kernels[0], "double_smem_buffer"):
        return column_of(kernels, "double_smem_buffer").astype(np.float64)
    return np.isin(_pipelines(kernels), sorted(DOUBLE_SMEM_PIPELINES)).astype(np.float64)


def _pipelines(kernels: Sequence[Any]) -> NDArray[np.str_]:
    return column_of(kernels, "pipeline").astype(np.str_)
