"""Analytic estimate of kernel times on a GPU without measurements: for ranking only, not a predicted time.

A kernel is blocks that each iterate over K. In an iteration a block loads from the L2 cache, writes to LDS, reads from
it and multiplies; blocks that share a compute unit, as many as LDS, registers and waves allow, take turns. A block with
one wave on each SIMD does these one after another, and waits for what prefetching leaves of the latency of loads: few
blocks take that time. Without prefetching, the whole latency is added. When a block ends, the next starts; memory
bandwidth bounds the total. Blocks that share tiles (Stream-K) have equal numbers of iterations; what they add to the
result, or store and add up, is further traffic. Peak rates and the rates of matrix instructions are from `archspecs`;
registers and LDS are the compiler's for kernels compiled on this machine, else estimated from the tile.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature, FeatureEngine
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.kernels.table import column_of
from ckh.problems import DTYPE_BYTES
from ckh.ranking.axes import coded, keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.hardware.archspec import Peaks
    from ckh.ops.base import EstimatedProduct, Problem, TiledSizes
    from ckh.schema import Resources

_WITHOUT_PREFETCH = "basic"  # prefix of such pipelines' names
# Clocks of an iteration beside a block's own work where loads are prefetched, and the share of peak bandwidth that
# kernels reach: of CK's fp8 GEMMs on an MI355X (benchmarks/estimate.md), and of hardware counters of MI300 and MI350.
_WAIT_CLOCKS, _REACHED_BANDWIDTH = 600.0, 0.8
LDS_WRITE_BYTES_PER_CLOCK = 128.0  # CDNA 4 doubled only the read rate
_ISSUE_CLOCKS = 4  # of a matrix instruction, in addition to its own
# Registers per lane, vector and accumulation: one for each sum, three for each filled by an iteration's elements, and
# 60 more. Fitted by least squares to 681 kernels compiled for AMD's Instinct (R2 0.77), independent of times.
_REGISTERS, _REGISTERS_A_LOAD = 60, 3
_REGISTER_BYTES = 4
# Instructions of a SIMD's 16 lanes for each sum that a kernel scales between products, and what an iteration is longer
# by where rows beyond M are checked load by load: both of the fp8 GEMMs above.
_OF_SCALING, _LANES, _VALUES_OF_A_SCALE = 10, 16, 128
_CHECKED, _FEWEST_CHECKED, _LOADED_BYTES = 1.34, 2, 16
# Of AITER: the families of kernels with such scales, the pipelines that apply them last, those that check loads, and
# among these those that hide half of it, since they load two iterations ahead.
_BLOCK_SCALED, _SCALES_LAST = "blockscale", "cktile"
_CHECKS_LOADS, _HIDES_HALF = ("intrawave_v1", "interwave_v1", "intrawave_v3"), "intrawave_v3"
# Among ties, kernels with less LDS and shorter iterations come first; before those with a second buffer in LDS by as
# much as two measurements of a kernel differ. Where memory bounds a kernel's time, it hides this share of its work.
_LESS_LDS, _SECOND_BUFFER = 1e-12, 0.05
_LESS_WORK = 0.5
# Bytes of a line of the L2 cache, which rows of a tile load whole, and the layout with rows along K.
_LINE_BYTES, _ROWS_ALONG_K = 128, "rcr"
_PARTIAL_BYTES = 8  # of a partial sum, in float32, stored and loaded
_KB = 1024

ESTIMATE = "analytic estimate"  # its name in answers
ESTIMATE_FEATURE = "estimate"
_TILED_M = "tiled_m"
PROBLEM_INPUTS = (_TILED_M, "tiled_n", "tiled_k", "tiled_batches", "moved_bytes")
_TILE_M, _TILE_N, _LATER = "estimate_tile_m", "estimate_tile_n", "estimate_later"
_SHARING, _ADDED, _PARTS = "estimate_sharing", "estimate_added", "estimate_parts"
_LEAD, _COUNTED = "estimate_lead", "estimate_counted"
# The block's tile, maximum blocks per compute unit, clocks of an iteration: busy, fewest, those added to all blocks'
# without prefetching, and a factor of the fewest where M is no multiple of the tile; clocks of a block's end, a tie
# breaker; blocks per compute unit that share tiles (0: none do), and bytes of an element of the result that every tile
# is added to (0: none is); parts of K; and the lead in score that an unmeasured kernel needs.
_OF_KERNELS = (
    _TILE_M,
    _TILE_N,
    "estimate_tile_k",
    "estimate_in_flight",
    "estimate_trip_clocks",
    "estimate_fewest_clocks",
    "estimate_exposed_clocks",
    "estimate_checked",
    "estimate_end_clocks",
    _LATER,
    _SHARING,
    _ADDED,
    _PARTS,
    _LEAD,
)
_NOT_SHARED = _AS_OF_AN_OPERAND = -1.0


@dataclass(frozen=True, slots=True, eq=False)
class KernelShapes:
    """Kernels as columns, shape (kernels,)."""

    tile_m: NDArray[np.float64]
    tile_n: NDArray[np.float64]
    tile_k: NDArray[np.float64]
    wave_m: NDArray[np.float64]
    wave_n: NDArray[np.float64]
    waves: NDArray[np.float64]
    buffers: NDArray[np.float64]
    prefetches: NDArray[np.bool_]
    instruction: NDArray[np.float64]
    sharing: NDArray[np.float64]  # blocks per compute unit that share tiles, 0: as many as it holds; -1: none do
    added: NDArray[np.float64]  # bytes of atomic operations for an element of the result, -1: as of an operand; 0: none
    parts: NDArray[np.float64]  # of K
    bound: NDArray[np.float64]  # blocks of a compute unit that the kernel was compiled for
    scales: NDArray[np.bool_]  # sums are scaled in every iteration, after its products
    checks: NDArray[np.float64]  # share shown of checks of each load of rows where M is no multiple of the tile
    is_rcr: NDArray[np.bool_]  # both operands have rows along K

    @classmethod
    def of(cls, kernels: Sequence[Any]) -> KernelShapes:
        """Read the columns of complete kernels with tiles and waves."""
        tile_m, tile_n, tile_k, wave_m, wave_n, wave_k = (
            column_of(kernels, name).astype(np.float64)
            for name in ("tile_m", "tile_n", "tile_k", "wave_m", "wave_n", "wave_k")
        )
        has_scales = np.char.find(_stated(kernels, "family", "").astype(np.str_), _BLOCK_SCALED) >= 0
        pipelines = column_of(kernels, "pipeline").astype(np.str_)
        buffers = 1 + _stated(kernels, "double_smem_buffer", np.isin(pipelines, sorted(DOUBLE_SMEM_PIPELINES)))
        parts = _stated(kernels, "parts", 1.0)
        adds = (_stated(kernels, "reduction", "") == "atomic") | (parts > 1)
        added = np.where(adds, _AS_OF_AN_OPERAND, _stated(kernels, "added", 0.0))
        instruction = [column_of(kernels, f"warp_tile_{axis}").astype(np.float64) for axis in "mnk"]
        sizes = (tile_m, tile_n, tile_k, wave_m, wave_n, wave_m * wave_n * wave_k)
        return cls(
            *sizes,
            buffers,
            ~np.char.startswith(pipelines, _WITHOUT_PREFETCH),
            np.stack(instruction, axis=-1),
            _stated(kernels, "blocks_per_cu", _NOT_SHARED),
            added,
            parts,
            np.maximum(_stated(kernels, "per_cu", 1.0), 1.0),
            has_scales & (pipelines == _SCALES_LAST),
            np.isin(pipelines, _CHECKS_LOADS) - 0.5 * (pipelines == _HIDES_HALF),
            _stated(kernels, "layout", "") == _ROWS_ALONG_K,
        )

    def distinct(self) -> tuple[KernelShapes, NDArray[np.intp]]:
        """Return the distinct shapes, far fewer than kernels, and the index of each kernel's shape."""
        columns = [getattr(self, field.name) for field in fields(self)]
        rows = np.column_stack(columns)
        numbers = keys([coded(column) for column in rows.T], len(rows))
        return KernelShapes(*(column[numbers.first] for column in columns)), numbers.of


@dataclass(frozen=True, slots=True)
class EstimatedParts:
    """Parts of an estimated time."""

    launch_us: float
    trips_us: float
    ends_us: float
    memory_us: float
    rounds: float
    blocks_at_once: int

    @property
    def us(self) -> float:
        """The estimated time."""
        return self.launch_us + float(bounded_us(self.trips_us + self.ends_us, self.memory_us))


def estimated_us(
    problem: Problem | EstimatedProduct,
    sizes: TiledSizes,
    kernels: Sequence[Any] | KernelShapes,
    arch: ArchSpec,
    compiled: Sequence[Resources | None] = (),
) -> NDArray[np.float64]:
    """Estimate the times of kernels in microseconds, shape (kernels,); only their order is meaningful."""
    shapes = kernels if isinstance(kernels, KernelShapes) else KernelShapes.of(kernels)
    of_kernels = kernel_inputs(shapes, problem.dtype, arch, compiled)
    return np.asarray(-minus_us([problem], [sizes], of_kernels, arch)[0])


def minus_us(
    problems: Sequence[Problem | EstimatedProduct],
    sizes: Sequence[TiledSizes],
    kernels: Mapping[str, NDArray[np.float64]],
    arch: ArchSpec,
) -> NDArray[np.float64]:
    """Negative estimated times in microseconds, shape (problems, kernels)."""
    score = np.empty((len(problems), len(kernels[_TILE_M])))
    for row, problem, tiled in zip(score, problems, sizes, strict=True):
        row[:] = _minus_us(arch, _columns(problem, tiled, kernels))
    return score


def estimate_engine(op_type: str, arch: ArchSpec) -> FeatureEngine:
    """Build an engine with an architecture's estimate as its only feature: the negative time in microseconds."""
    feature = Feature(ESTIMATE_FEATURE, "-us", partial(_minus_us, arch))
    return FeatureEngine(op_type, (feature,), (), {}, {}, frozenset(_OF_KERNELS))


def with_estimate(engine: FeatureEngine, products: Sequence[Sequence[str]], arch: ArchSpec) -> FeatureEngine:
    """Add a feature: minus the logarithm of an architecture's estimate, less the lead that the kernel needs.

    `products` are the columns of each product's sizes; those of its kernel are numbered, unless it is the only one.
    """
    parts = [_renamed(sizes, suffix) for sizes, suffix in zip(products, suffixes(products), strict=True)]

    def formula(c: Columns) -> Any:
        cus: Any = float(arch.hardware.num_cus)
        if len(parts) == 1:
            us = -_minus_us(arch, _Renamed(c, parts[0]), cus)
        else:  # of which a kernel may be for some
            cus = np.where(c["num_cus"] > 0, c["num_cus"], cus)
            us = sum(-_minus_us(arch, own, cus) * own[_COUNTED] for own in (_Renamed(c, part) for part in parts))
        return -np.log(us) - c[_LEAD]

    features = (Feature(ESTIMATE_FEATURE, "-log us", formula), *engine.features)
    of_kernels = {part[name] for part in parts for name in (*_OF_KERNELS, _COUNTED)}
    return replace(engine, features=features, kernel_columns=engine.kernel_columns | of_kernels | {_LEAD})


def inputs_of_products(
    products: Sequence[EstimatedProduct | None], kernels: Sequence[Any], arch: ArchSpec, lead: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Inputs of the estimate for the kernels of several products; a product that is not computed does not count."""
    columns, any_part = {_LEAD: lead}, next(part for part in products if part is not None)
    for suffix, part in zip(suffixes(products), products, strict=True):
        own = part or any_part
        made = kernel_inputs(KernelShapes.of(own.kernels(kernels)), own.dtype, arch)
        made[_COUNTED] = np.full(len(kernels), float(part is not None))
        columns |= {f"{name}{suffix}": column for name, column in made.items()}
    return columns


def suffixes(products: Sequence[Any]) -> list[str]:
    """Ends of the names of the columns of each product's kernels."""
    return [""] if len(products) == 1 else [str(number) for number in range(len(products))]


def _renamed(sizes: Sequence[str], suffix: str) -> dict[str, str]:
    of_kernel = {name: f"{name}{suffix}" for name in (*_OF_KERNELS, _COUNTED)}
    return {**of_kernel, **dict(zip(PROBLEM_INPUTS, sizes, strict=True))}


@dataclass(frozen=True, slots=True)
class _Renamed:
    """Columns by other names."""

    columns: Columns
    names: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.columns[self.names[name]]


def problem_inputs(problem: Problem | EstimatedProduct, sizes: TiledSizes) -> dict[str, float]:
    """Inputs of the estimate for a problem, by the names of `PROBLEM_INPUTS`."""
    values = sizes.m, sizes.n, sizes.k, sizes.batches, problem.bytes
    return dict(zip(PROBLEM_INPUTS, values, strict=True))


def kernel_inputs(
    shape: KernelShapes,
    dtype: str,
    arch: ArchSpec,
    compiled: Sequence[Resources | None] = (),
    lead: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Inputs of the estimate for kernels, independent of the problem, as columns."""
    assert arch.peaks is not None
    width = DTYPE_BYTES[dtype]
    lds = (shape.tile_m + shape.tile_n) * shape.tile_k * width * shape.buffers
    in_flight = _blocks_per_cu(shape, width, lds, arch)
    for index, resources in enumerate(compiled):
        if resources is not None:
            lds[index] = resources.lds_bytes
            in_flight[index] = compiled_blocks_per_cu(resources, int(shape.waves[index]), arch)
    busy = _trip_clocks(shape, width, _flops_per_clock(shape, dtype, arch.peaks), arch)
    is_alone = shape.waves <= arch.hardware.simds_per_cu  # other waves of a SIMD work while one waits
    spilled = _spilled(shape, width, arch, shape.bound) / arch.peaks.l2_bytes_per_clock
    fewest = _WAIT_CLOCKS + np.where(is_alone, busy + _scaling_clocks(shape, arch) + spilled, 0.0)
    loads = shape.tile_m * shape.tile_k * width / (shape.waves * arch.wavefront_size * _LOADED_BYTES)
    checked = 1 + (_CHECKED - 1) * shape.checks * (loads >= _FEWEST_CHECKED)
    exposed = np.where(shape.prefetches, 0.0, arch.peaks.latency_clocks)
    ends = shape.tile_m * shape.tile_n * width / arch.peaks.l2_bytes_per_clock
    later = _LESS_LDS * (lds + busy) + _SECOND_BUFFER * (shape.buffers - 1)
    sharing = np.where(shape.sharing > 0, shape.sharing, np.where(shape.sharing == 0, in_flight, 0.0))
    columns = (
        shape.tile_m,
        shape.tile_n,
        shape.tile_k,
        in_flight,
        busy,
        fewest,
        exposed,
        checked,
        ends,
        later,
        sharing,
        np.where(shape.added == _AS_OF_AN_OPERAND, width, shape.added),
        shape.parts,
        np.zeros(len(lds)) if lead is None else lead,
    )
    return dict(zip(_OF_KERNELS, columns, strict=True))


def estimated_parts(
    problem: Problem, sizes: TiledSizes, kernel: Any, arch: ArchSpec, compiled: Resources | None = None
) -> EstimatedParts:
    """Split the estimated time of a kernel into its parts; arguments as for `estimated_us`, for one kernel."""
    of_kernel = kernel_inputs(KernelShapes.of([kernel]), problem.dtype, arch, [compiled])
    parts = _clocks(arch, _columns(problem, sizes, of_kernel))
    rounds, trips, ends, memory_us, at_once = (float(np.ravel(part)[0]) for part in parts)
    mhz = float(arch.hardware.max_clock_mhz)
    assert arch.peaks is not None
    return EstimatedParts(
        arch.peaks.launch_us, rounds * trips / mhz, rounds * ends / mhz, memory_us, rounds, int(at_once)
    )


def _columns(
    problem: Problem | EstimatedProduct, sizes: TiledSizes, kernels: Mapping[str, NDArray[np.float64]]
) -> Columns:
    """Inputs of the estimate for a problem and kernels; M is in whole tiles, since products may have separate M."""
    of_problem = {**problem_inputs(problem, sizes), _TILED_M: sizes.tiled_m(kernels[_TILE_M])}
    return Columns({**of_problem, **kernels}, {}, {})


def _minus_us(arch: ArchSpec, c: Columns | _Renamed, cus: Any = None) -> Any:
    """Negative time: a NumPy formula, which is also traced for C."""
    rounds, trips, ends, memory_us, _ = _clocks(arch, c, cus)
    assert arch.peaks is not None
    work_us = rounds * (trips + ends) / float(arch.hardware.max_clock_mhz)
    return -((arch.peaks.launch_us + bounded_us(work_us, memory_us)) * (1 + c[_LATER]))


def bounded_us(work_us: Any, memory_us: Any) -> Any:
    """Time of a kernel after its launch, by the time of its blocks' work and of memory."""
    return np.maximum(work_us, memory_us + _LESS_WORK * work_us)


def _clocks(arch: ArchSpec, c: Columns | _Renamed, cus: Any = None) -> tuple[Any, Any, Any, Any, Any]:
    """Waves of blocks; clocks of a wave in iterations and outside; microseconds of memory; blocks per compute unit."""
    assert arch.peaks is not None
    m, n, k, batches, moved = (c[name] for name in PROBLEM_INPUTS)
    tile_m, tile_n, tile_k, in_flight, busy, fewest, exposed, checked, block_ends, *_ = (
        c[name] for name in _OF_KERNELS
    )
    cus = float(arch.hardware.num_cus) if cus is None else cus
    blocks = np.ceil(m / tile_m) * np.ceil(n / tile_n) * batches * c[_PARTS]
    steps = np.ceil(k / (tile_k * c[_PARTS]))
    grid = np.maximum(c[_SHARING] * cus, 1.0)
    # As CK Tile shares them: unless tiles fill the grid, or there are fewer iterations than blocks.
    is_shared = (c[_SHARING] > 0) & (np.mod(blocks, grid) > 0) & (blocks * steps >= grid)
    at_once = np.minimum(np.maximum(np.ceil(blocks / cus), 1.0), in_flight)
    at_once = np.where(is_shared, np.minimum(c[_SHARING], in_flight), at_once)
    fewest = np.where(np.mod(m, tile_m) > 0, fewest * checked, fewest)
    trip = np.maximum(at_once * busy + exposed, fewest)
    ends = 2 * arch.peaks.latency_clocks + at_once * block_ends
    stored = np.where(is_shared, _PARTIAL_BYTES * grid, 0.0)
    extra = np.where(c[_ADDED] > 0, 2 * c[_ADDED] * blocks, stored)  # zeroed, and read to be added to
    memory_us = (moved + extra * tile_m * tile_n) / (_REACHED_BANDWIDTH * arch.peaks.bandwidth_gb_s * 1e3)
    rounds = np.ceil(blocks / cus) / at_once  # fractional, since the next block starts when one ends
    shared_rounds, shared_ends = _shared_rounds(blocks, steps, grid)
    ends = np.where(is_shared, ends * shared_ends / shared_rounds, ends)
    rounds = np.where(is_shared, shared_rounds * c[_SHARING] / at_once, rounds)
    loaded = np.where(is_shared & (c[_ADDED] == 0), _loaded_bytes(c, blocks, grid), 0.0) / arch.peaks.l2_bytes_per_clock
    return rounds, steps * trip, ends + loaded / rounds, memory_us, at_once


def _shared_rounds(blocks: Any, steps: Any, grid: Any) -> tuple[Any, Any]:
    """Tiles of a block that shares tiles, in iterations of a whole one, and the number of tiles that it begins or ends.

    The tiles of the last, incomplete round and of the one before are shared.
    """
    whole = np.maximum(np.floor(blocks / grid) - 1.0, 0.0)
    return whole + np.ceil((blocks - whole * grid) * steps / grid) / steps, blocks / grid + 1.0


def _loaded_bytes(c: Columns | _Renamed, blocks: Any, grid: Any) -> Any:
    """Bytes that the block that begins a tile loads of what the others stored, one after another."""
    return np.maximum(grid / blocks - 1.0, 0.0) * c[_TILE_M] * c[_TILE_N] * _PARTIAL_BYTES / 2


def compiled_blocks_per_cu(resources: Resources, waves: int, arch: ArchSpec) -> int:
    """Number of concurrent blocks per compute unit, at least 1, from the compiler's report.

    The compiler's waves per SIMD account for vector, accumulation and scalar registers, each in the architecture's
    granularity, and for LDS; for blocks with fewer waves than SIMDs, LDS may be the stricter limit.
    """
    by_waves = resources.occupancy * arch.hardware.simds_per_cu // waves
    by_lds = arch.lds_capacity // resources.lds_bytes if resources.lds_bytes else by_waves
    return max(1, min(by_waves, by_lds))


def _flops_per_clock(shape: KernelShapes, dtype: str, peaks: Peaks) -> NDArray[np.float64]:
    """Operations per clock of a compute unit with each kernel's matrix instruction."""
    rates = np.full(len(shape.tile_m), float(peaks.flops_per_cu_clock[dtype]))
    for tile, rate in peaks.matrix_flops_per_cu_clock.get(dtype, {}).items():
        rates[(shape.instruction == tile).all(axis=1)] = rate
    return rates


def _trip_clocks(shape: KernelShapes, width: float, flops: NDArray[np.float64], arch: ArchSpec) -> NDArray[np.float64]:
    """Clocks that an iteration of one block keeps its compute unit busy, given the operations per clock."""
    assert arch.peaks is not None
    used = np.minimum(shape.waves, arch.hardware.simds_per_cu)
    share = used / arch.hardware.simds_per_cu
    products = shape.tile_m * shape.tile_n * shape.tile_k
    compute = 2 * products / (flops * share)
    issue = _ISSUE_CLOCKS * products / shape.instruction.prod(axis=1) / used
    tiles = (shape.tile_m + shape.tile_n) * shape.tile_k * width
    read = (shape.tile_m * shape.wave_n + shape.tile_n * shape.wave_m) * shape.tile_k * width
    in_lds = tiles / LDS_WRITE_BYTES_PER_CLOCK + read / arch.peaks.lds_bytes_per_clock
    lines = np.where(shape.is_rcr, (shape.tile_m + shape.tile_n) * np.maximum(shape.tile_k * width, _LINE_BYTES), tiles)
    return np.asarray(
        compute + issue + in_lds + (lines + _spilled(shape, width, arch, 1.0)) / arch.peaks.l2_bytes_per_clock
    )


def _blocks_per_cu(shape: KernelShapes, width: float, lds: NDArray[np.float64], arch: ArchSpec) -> NDArray[np.float64]:
    """Number of concurrent blocks per compute unit that LDS, registers and waves allow, at least 1, by their tiles."""
    assert arch.peaks is not None
    bytes_of_registers = _registers(shape, width, arch) * shape.waves * arch.wavefront_size * _REGISTER_BYTES
    by_registers = arch.peaks.register_kb_per_cu * _KB / bytes_of_registers
    by_waves = arch.hardware.max_waves_per_cu / shape.waves
    return np.asarray(np.maximum(np.floor(np.minimum.reduce([arch.lds_capacity / lds, by_registers, by_waves])), 1))


def _registers(shape: KernelShapes, width: float, arch: ArchSpec) -> NDArray[np.float64]:
    """Registers that a lane needs, by the tile."""
    lanes = shape.waves * arch.wavefront_size
    loads = (shape.tile_m + shape.tile_n) * shape.tile_k * width / _REGISTER_BYTES / lanes
    return np.asarray(_REGISTERS + shape.tile_m * shape.tile_n / lanes + _REGISTERS_A_LOAD * loads)


def _scaling_clocks(shape: KernelShapes, arch: ArchSpec) -> NDArray[np.float64]:
    """Clocks of an iteration in which a block scales its sums."""
    lanes = _LANES * np.minimum(shape.waves, arch.hardware.simds_per_cu)
    times = np.maximum(shape.tile_k / _VALUES_OF_A_SCALE, 1.0)
    return np.asarray(shape.scales * _OF_SCALING * times * shape.tile_m * shape.tile_n / lanes)


def _spilled(
    shape: KernelShapes, width: float, arch: ArchSpec, blocks: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Bytes that a block stores and loads in an iteration, since so many blocks share a compute unit's registers."""
    assert arch.peaks is not None
    simds = arch.hardware.simds_per_cu
    of_lane = arch.peaks.register_kb_per_cu * _KB / (simds * arch.wavefront_size * _REGISTER_BYTES)
    missing = np.maximum(_registers(shape, width, arch) - of_lane / np.ceil(blocks * shape.waves / simds), 0.0)
    return np.asarray(2 * _REGISTER_BYTES * missing * shape.waves * arch.wavefront_size)


def _stated(kernels: Sequence[Any], name: str, default: Any) -> NDArray[Any]:
    """A column that only some operations' kernels have, or else a default."""
    is_known = len(kernels) and hasattr(kernels[0], name)
    values = column_of(kernels, name) if is_known else np.broadcast_to(default, len(kernels))
    return values if values.dtype.kind in "UO" else values.astype(np.float64)
