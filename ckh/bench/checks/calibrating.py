"""Measurements that calibrate the analytic estimate to a GPU: its rates by micro-kernels, and a dozen kernels.

Micro-kernels are compiled as one library and run in a worker, where their results are verified like those of other
kernels. On an emulated GPU they are small, and only verified.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ckh.bench.codegen import ck_tile
from ckh.bench.codegen.unit_source import header_contents
from ckh.bench.compilation.compile import Built
from ckh.bench.compilation.compiling import run_compiler
from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.isolated.micro import CHUNK_BYTES, KINDS, LDS_CHUNKS, MicroProblem
from ckh.bench.isolated.timing import DEFAULT_SAMPLES, summarize
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.limits import DEFAULT_COMPILE_TIMEOUT_S, BenchLimits
from ckh.bench.supervision.runner import measure, on_problem
from ckh.errors import CacheError, DeviceError, UsageError
from ckh.kernels.compiled import shipped
from ckh.learn.analytic.transfer import EstimateModel
from ckh.learn.answers.ranking import rankings_of
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.archs import ArchSpec
    from ckh.bench.devices.device import Device
    from ckh.learn.models.spec import Wanted
    from ckh.ops.base import Kernel, Problem

T = TypeVar("T")
_KIND = attrgetter("tile_m", "tile_n", "tile_k", "pipeline")  # of kernels, which should differ
_TEMPLATES = ck_tile.template_dir().with_name("micro")
_GENERATIONS = {"cdna2": 2, "cdna3": 3, "cdna4": 4}
# Depth of the 32x32 matrix instruction of each type, by generation; the fastest of the type.
_DEPTHS = {
    2: {"fp32": 2, "fp16": 8, "bf16": 8},
    3: {"fp32": 2, "fp16": 8, "bf16": 8, "fp8": 16, "int8": 16},
    4: {"fp32": 2, "fp16": 16, "bf16": 16, "fp8": 64, "int8": 32},
}
_LATENCY_BYTES, _BANDWIDTH_BYTES, _L2_BYTES = 256 << 20, 512 << 20, 2 << 20
_LATENCY_STEPS, _L2_STEPS, _LDS_STEPS, _MATRIX_STEPS = 4000, 1000, 2000, 2000
_L2_STRIDE = 67  # chunks between successive blocks, more than the L1 cache holds
_BLOCKS_PER_CU = 8
_FEW_BLOCKS, _FEW_STEPS, _FEW_CHUNKS = 2, 5, 8  # on the emulated GPU
_KERNELS_PER_PROBLEM, PROBLEMS = 2, 6
_MOST_RANKED = 60  # problems to choose from: ranking a GEMM's pool takes milliseconds
_FLOPS = 2e7, 2e10  # of problems whose reference takes less than some seconds
_NS_PER_US, _MHZ_PER_GHZ = 1e3, 1e3


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A rate measured by a micro-kernel."""

    name: str
    """As in `calibrated.rates_of`."""
    value: float | None
    """None without a time."""
    status: str
    """Result of the micro-kernel."""
    message: str
    """Reason why it failed."""
    spread: float | None
    """Relative median deviation of its time."""


def micro_problems(arch: ArchSpec, num_cus: int, *, is_timed: bool) -> dict[str, MicroProblem]:
    """Problem of each rate's micro-kernel.

    Raises:
        UsageError: there are no micro-kernels for the architecture.
    """
    if arch.family not in _GENERATIONS or arch.peaks is None:
        raise UsageError(
            f"{arch.name} cannot be calibrated: micro-kernels are for CDNA 2 to 4",
            "use an Instinct MI200, MI300 or MI350",
            code="unsupported",
        )
    depths = _DEPTHS[_GENERATIONS[arch.family]]
    blocks = num_cus * _BLOCKS_PER_CU if is_timed else _FEW_BLOCKS
    chunks = _BANDWIDTH_BYTES // CHUNK_BYTES if is_timed else _FEW_BLOCKS * _FEW_STEPS
    latency, l2 = (size // CHUNK_BYTES if is_timed else _FEW_CHUNKS for size in (_LATENCY_BYTES, _L2_BYTES))

    def steps(count: int) -> int:
        return count if is_timed else _FEW_STEPS

    return {
        "launch_us": MicroProblem("copy", 1, 1),
        "latency_clocks": MicroProblem("chase", 1, steps(_LATENCY_STEPS), latency),
        "bandwidth_gb_s": MicroProblem("read", blocks, chunks // blocks, chunks, 1, blocks),
        "l2_bytes_per_clock": MicroProblem("read", blocks, steps(_L2_STEPS), l2, _L2_STRIDE, 1),
        "lds_bytes_per_clock": MicroProblem("read_lds", blocks, steps(_LDS_STEPS), LDS_CHUNKS),
        **{
            dtype: MicroProblem(dtype, blocks, steps(_MATRIX_STEPS), depth=depths[dtype])
            for dtype in KINDS
            if dtype in depths
        },
    }


def rate(name: str, problem: MicroProblem, ns: float, num_cus: int, clock_mhz: int) -> float:
    """The rate that a micro-kernel's time means, in the unit of `calibrated.rates_of`."""
    if name == "launch_us":
        return ns / _NS_PER_US
    clocks = ns * clock_mhz / _MHZ_PER_GHZ
    if name == "latency_clocks":
        return clocks / problem.work
    return problem.work / (ns if name == "bandwidth_gb_s" else clocks * num_cus)


def micro_library(device: Device, should_stop: Callable[[], bool] = lambda: False) -> Built:
    """The compiled micro-kernels of a device's architecture, from the cache if they are there.

    Raises:
        DeviceError: there is no compiler, or it fails.
        CacheError: the cache cannot be written.
    """
    source = f'#define CKH_CDNA {_GENERATIONS[device.arch.family]}\n#include "micro.hpp"\n'
    salt = device.cache_salt() + header_contents(_TEMPLATES) + source.encode()
    key, cache = hashlib.sha256(salt).hexdigest()[:32], KernelCache()
    if result := cache.find(key):
        return Built(Status.OK, str(result.path), key)
    try:
        with cache.workshop() as folder:
            path, library = folder / "micro.cpp", folder / "micro.so"
            path.write_text(source, encoding="utf-8")
            headers = [f"-I{item}" for item in (_TEMPLATES, ck_tile.template_dir())]
            command = [*device.least_command(path, library), *headers]
            run = run_compiler(command, path, DEFAULT_COMPILE_TIMEOUT_S, should_stop)
            if run is None:
                raise KeyboardInterrupt
            if run.status is not Status.OK:
                text = f"the micro-kernels cannot be compiled: {run.message}"
                raise DeviceError(text, "ckh doctor checks the compiler", code="broken-toolchain")
            return Built(Status.OK, str(cache.put(key, library, None).path), key)
    except OSError as error:
        text = f"cannot build kernels in {cache.folder}: {error.strerror}"
        raise CacheError(text, "free disk space, or set CKH_CACHE_DIR") from error


def measured_rates(
    device: Device, problems: dict[str, MicroProblem], timeout_s: float, should_stop: Callable[[], bool]
) -> Iterator[MeasuredRate]:
    """Run the micro-kernel of each problem and verify its result; yields rates until stopped.

    Raises:
        DeviceError: compiler or worker cannot be started.
    """
    built, hardware = micro_library(device, should_stop), device.identity().hardware
    driver = Driver(device, BenchLimits(timeout_s=timeout_s), should_stop, device.worker_configs()[:1])
    with driver.worker() as worker:
        for name, problem in problems.items():
            for _, reply in measure(worker, on_problem(problem.canonical()), [built], DEFAULT_SAMPLES):
                if reply.status is not Status.OK:
                    yield MeasuredRate(name, None, str(reply.status), reply.message, None)
                    continue
                time = summarize(reply.samples_ns)
                value = rate(name, problem, time.median_ns, hardware["num_cus"], hardware["max_clock_mhz"])
                yield MeasuredRate(name, value, str(reply.status), "", time.spread)


def planned(wanted: Wanted, problems: Sequence[Problem]) -> dict[str, list[Kernel]]:
    """A dozen kernels, and the problems that each is measured on, by canonical text.

    Problems are evenly spread by their estimated times. Of each, the first kernels of tiles and pipelines that no other
    problem has chosen are taken, and measured on all problems that they apply to.

    Args:
        wanted: the kind of problems.
        problems: problems of that kind to choose from.
    """
    model = EstimateModel(wanted, uses_calibration=False)
    # Not those of kernels that were compiled for this plan, which would change it when it is continued.
    model.compiled = {name: item.resources for name, item in shipped(wanted.arch, wanted.op_type).items()}
    some = [problem for problem in dict.fromkeys(problems) if _FLOPS[0] <= problem.flops <= _FLOPS[1]]
    some = _spread(sorted(some or problems, key=lambda problem: problem.flops), _MOST_RANKED)
    rankings = [ranking for ranking in rankings_of(some, model) if len(ranking.order)]
    rankings.sort(key=lambda item: -item.score[0])
    chosen = [item.buildable_first for item in _spread(rankings, PROBLEMS)]
    kernels: list[Kernel] = []
    kinds = set[tuple[object, ...]]()
    for item in chosen:
        left = _KERNELS_PER_PROBLEM
        for ranked in item.ranked:
            kernel = ranked.kernel
            kind = _KIND(kernel)
            if kind not in kinds and not ranked.not_in_headers and left:
                kinds.add(kind)
                kernels.append(kernel)
                left -= 1
    applying = {ranking.run.canonical(): {ranking.pool[index] for index in ranking.order} for ranking in chosen}
    return {problem: [kernel for kernel in kernels if kernel in able] for problem, able in applying.items()}


def _spread(some: Sequence[T], count: int) -> list[T]:
    """At most so many elements, evenly spread from the first to the last."""
    places = np.unique(np.linspace(0, len(some) - 1, count).round()) if some else np.empty(0)
    return [some[place] for place in places.astype(int).tolist()]
