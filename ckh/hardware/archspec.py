"""`ArchSpec`: capabilities and limits of an architecture."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import inf, isinf
from typing import TYPE_CHECKING

from ckh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.files.jsonfields import Triple
    from ckh.hardware.machine import Machine


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """Properties of a device used by features. Clock in MHz, caches in KB, LDS in bytes."""

    num_cus: int
    simds_per_cu: int
    shader_engines: int
    max_clock_mhz: int
    max_waves_per_cu: int
    wavefront_size: int
    lds_capacity: int
    l1_cache_kb: int
    l2_cache_kb: int
    l3_cache_kb: int
    num_xcd: int

    def to_dict(self) -> dict[str, int]:
        """All properties by name, in the order of the dataset's columns."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False)
class Peaks:
    """Peak rates of a GPU: memory bandwidth in GB/s; per CU: operations per clock, LDS read rate, registers.

    `matrix_flops_per_cu_clock` has the operations of matrix instructions by element type and tile; tiles that are not
    listed have the type's rate (benchmarks/matrix_rates.py). Rates with defaults are those of all GPUs that were not
    calibrated: time of a launch; latency of loads (addresses, load, store to LDS, barrier), which prefetching hides in
    iterations, but not at the start and end of a block; and L2 bytes per CU and clock.
    """

    bandwidth_gb_s: float
    flops_per_cu_clock: Mapping[str, float]
    matrix_flops_per_cu_clock: Mapping[str, Mapping[Triple, float]]
    lds_bytes_per_clock: float
    register_kb_per_cu: int
    source: str
    launch_us: float = 3.0
    latency_clocks: float = 2000.0
    l2_bytes_per_clock: float = 64.0


@dataclass(frozen=True, slots=True)
class LdsRule:
    """Share of the LDS that a pipeline may use for its tiles of A and B."""

    fraction: float
    double_smem_buffer_halves: bool


@dataclass(frozen=True, slots=True)
class OperatorTile:
    """Minimum tile of an operator, and the divisors of its tiles, along M, N, K."""

    minimum: Triple
    alignment: Triple


@dataclass(frozen=True, slots=True, eq=False)
class CommonRules:
    """Rules common to all architectures."""

    pipeline_lds: Mapping[str, LdsRule]
    unsupported_traits: frozenset[tuple[str, str, str]]
    dtype_combinations: tuple[tuple[str, str, str], ...]
    preshuffle_pipelines: tuple[str, ...]
    operators: Mapping[str, OperatorTile]


@dataclass(frozen=True, slots=True, eq=False)
class ArchSpec:
    """An architecture: limits, kernel capabilities, and hardware profile.

    `gpus` are products with their compute units (of a die, where one is a device);
    `options` names the kernel options that it offers beyond the plain ones; `vector_divisibility` says that channels
    must be multiples of the vector widths; `fnuz_floats` that floats of eight bits have no negative zero;
    `least_trips` is the minimum number of iterations over K of some backward-weight pipelines; `peaks` is
    None on the host and where they are not public, and `machine` set on the host only; `unverified` says what was never
    tried or is not known, empty if kernels have been compiled. `amd_num_cus` are the compute units in the features of
    AMD's own models, whatever the GPU.
    """

    name: str
    family: str
    target_family: str
    architecture: str
    description: str
    unverified: str
    gpus: Mapping[str, int]
    default_dtype: str
    dtypes: tuple[str, ...]
    pipelines: tuple[str, ...]
    epilogues: tuple[str, ...]
    options: tuple[str, ...]
    vector_divisibility: bool
    fnuz_floats: bool
    least_trips: int
    wave_configs: tuple[Triple, ...]
    warp_tiles: Mapping[str, tuple[Triple, ...]]
    preshuffle_warp_tiles: Mapping[str, tuple[Triple, ...]]
    hardware: HardwareProfile
    hardware_source: str
    amd_num_cus: int
    peaks: Peaks | None
    common: CommonRules
    machine: Machine | None

    @property
    def wavefront_size(self) -> int:
        """Lanes of a wavefront."""
        return self.hardware.wavefront_size

    @property
    def lds_capacity(self) -> int:
        """Maximum bytes of LDS of a block."""
        return self.hardware.lds_capacity

    @property
    def is_gpu(self) -> bool:
        """True if kernels are CK Tile's."""
        return self.machine is None

    @property
    def is_whole(self) -> bool:
        """False if no known GPU of the architecture has this number of compute units: it is a mask or a partition."""
        return not self.gpus or self.hardware.num_cus in self.gpus.values()

    def sized(self, num_cus: int) -> ArchSpec:
        """The same architecture with another number of compute units; 0: itself."""
        if num_cus in (0, self.hardware.num_cus):
            return self
        return replace(self, hardware=replace(self.hardware, num_cus=num_cus))

    def shortest_s(
        self, dtype: str, traffic: int, flops: int, num_cus: int | None = None
    ) -> tuple[float, float] | None:
        """Shortest times in seconds of bytes to move and of operations at peak rates; None: unknown rates.

        `num_cus` are the compute units of the device; None: those of `hardware`.
        """
        tflops = self.peak_tflops(dtype, num_cus or self.hardware.num_cus)
        if self.peaks is None or isinf(tflops):
            return None
        return traffic / (self.peaks.bandwidth_gb_s * 1e9), flops / (tflops * 1e12)

    @property
    def largest_gpu(self) -> int:
        """Compute units of the architecture's largest GPU."""
        return max(self.hardware.num_cus, *self.gpus.values()) if self.gpus else self.hardware.num_cus

    def peak_tflops(self, dtype: str, num_cus: float = 0, clock_mhz: float = 0) -> float:
        """Peak rate of operations on an element type, by default of the largest GPU at most; infinite if unknown."""
        rate = 0 if self.peaks is None else self.peaks.flops_per_cu_clock.get(dtype, 0)
        clock_hz = (clock_mhz or self.hardware.max_clock_mhz) * 1e6
        return rate * (num_cus or self.largest_gpu) * clock_hz / 1e12 or inf

    def lds_budget(self, pipeline: str, *, double_smem_buffer: bool = False) -> int:
        """Maximum bytes of the tiles of A and B together."""
        if pipeline not in self.common.pipeline_lds:
            raise UsageError(
                f"unknown pipeline {pipeline!r}", "one of " + ", ".join(self.common.pipeline_lds), code="unknown-name"
            )
        rule = self.common.pipeline_lds[pipeline]
        halved = double_smem_buffer and rule.double_smem_buffer_halves
        return int(self.lds_capacity * rule.fraction) // (2 if halved else 1)

    def supports_wave(self, wave: Triple) -> bool:
        """True if a block may have this arrangement of waves."""
        return wave in self.wave_configs

    def supports_option(self, option: str) -> bool:
        """True if kernels may use an option such as "two_stage"."""
        return option in self.options

    def accumulator(self, dtype: str, dtype_b: str | None = None) -> str:
        """Accumulator type of products of A's `dtype` and B's (the same by default)."""
        pair = (dtype, dtype_b or dtype)
        for a, b, accumulator in self.common.dtype_combinations:
            if (a, b) == pair:
                return accumulator
        raise UsageError(f"there is no accumulator for {pair[0]} x {pair[1]}", code="unsupported")

    def warp_tiles_for(self, dtype: str, *, dtype_b: str | None = None, preshuffle: bool = False) -> tuple[Triple, ...]:
        """Tiles of the matrix instructions for a dtype; empty if there are none."""
        table = self.preshuffle_warp_tiles if preshuffle else self.warp_tiles
        key = f"{dtype}_{dtype_b or dtype}_{self.accumulator(dtype, dtype_b)}"
        return table.get(key, ())

    def is_trait_unsupported(self, pipeline: str, epilogue: str, scheduler: str) -> bool:
        """True if this combination is known not to work."""
        return (pipeline, epilogue, scheduler) in self.common.unsupported_traits
