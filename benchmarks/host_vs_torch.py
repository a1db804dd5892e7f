"""The best host kernel of each hold-out layer against PyTorch's CPU convolution, on one thread, in one run.

    pip install '.[benchmark]' && python benchmarks/host_vs_torch.py [--limit N]

For every 2D forward layer of data/host-holdout-forward.parquet, the three fastest kernels are compiled, checked and
timed again, interleaved; PyTorch (contiguous and channels-last, the faster counts) is timed right after them on the
same core, with the same rules: warm-up, loops of half a millisecond, median of five samples.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch

from ckh.assess.metrics import places
from ckh.assess.times import times_of
from ckh.bench.devices.host_device import HostDevice
from ckh.bench.isolated.timing import DEFAULT_SAMPLES, loops_for
from ckh.bench.supervision.driver import Driver, measure_interleaved
from ckh.bench.supervision.limits import BenchLimits
from ckh.data.dataset import read_dataset
from ckh.ops.grouped_conv.kernels.names import amd_short_name, parse_kernel_name
from ckh.ops.grouped_conv.problem import parse_conv_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.ops.grouped_conv.kernel import ConvKernel
    from ckh.ops.grouped_conv.problem import ConvProblem

DATA = Path(__file__).resolve().parents[1] / "data" / "host-holdout-forward.parquet"
KERNELS = 3
TIMEOUT_S = 60.0


def tasks(limit: int | None) -> dict[str, list[ConvKernel]]:
    """The fastest kernels of each 2D layer, by canonical problem."""
    dataset = read_dataset(DATA)
    times = times_of(dataset)
    place = places(-times.latency_ms, times.problem)
    problems = dataset.problems()
    result: dict[str, list[ConvKernel]] = {}
    for row in np.flatnonzero(place < KERNELS):
        problem = problems[times.problem[row]]
        if problem.ndim == 2:  # noqa: PLR2004
            result.setdefault(problem.canonical(), []).append(parse_kernel_name(dataset.frame["kernel"][row]))
    return dict(list(result.items())[:limit])


def torch_ns(problem: ConvProblem) -> float:
    """PyTorch's time, the better of its two memory formats."""
    image = torch.rand(problem.n, problem.c, problem.hi, problem.wi) * 2 - 1
    weight = torch.rand(problem.k, problem.c_per_group, problem.y, problem.x) * 2 - 1
    options = {
        "stride": (problem.stride_h, problem.stride_w),
        "padding": (problem.pad_h, problem.pad_w),
        "dilation": (problem.dilation_h, problem.dilation_w),
        "groups": problem.g,
    }
    times = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x, w = image.contiguous(memory_format=memory_format), weight.contiguous(memory_format=memory_format)
        times.append(_time(lambda x=x, w=w: torch.nn.functional.conv2d(x, w, **options)))  # type: ignore[misc]
    return min(times)


def _time(run: Callable[[], object]) -> float:
    run()
    first = _sample(run, 1)
    loops = loops_for(_sample(run, loops_for(first, 250_000.0)))
    return median(_sample(run, loops) for _ in range(DEFAULT_SAMPLES))


def _sample(run: Callable[[], object], loops: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(loops):
        run()
    return (time.perf_counter_ns() - start) / loops


def main() -> None:
    """Measure and print each layer's ratio and their geometric mean."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, help="only this many layers")
    wanted = tasks(parser.parse_args().limit)
    torch.set_num_threads(1)
    device = HostDevice()
    (config,) = device.worker_configs()
    if config.cpu is not None:
        os.sched_setaffinity(0, {config.cpu})
    ratios = []
    driver = Driver(device, BenchLimits(timeout_s=TIMEOUT_S), lambda: False, [config])
    measured = measure_interleaved(driver, wanted, DEFAULT_SAMPLES)
    print(f"PyTorch {torch.__version__}, one thread; ratio = PyTorch's time / best host kernel's time")
    with torch.inference_mode():
        for name, replies in measured:
            best = min(range(len(replies)), key=lambda i: median(replies[i].samples_ns or (float("inf"),)))
            ours = median(replies[best].samples_ns)
            theirs = torch_ns(parse_conv_problem(name))
            ratios.append(theirs / ours)
            both = f"{ratios[-1]:6.2f}  {ours / 1e6:9.4f} ms  {theirs / 1e6:9.4f} ms"
            print(f"{both}  {name}  {amd_short_name(wanted[name][best])}", flush=True)
    geomean = float(np.exp(np.mean(np.log(ratios))))
    low, middle = np.percentile(ratios, [10, 50])
    print(
        f"{len(ratios)} layers: geometric mean {geomean:.2f}, median {middle:.2f}, P10 {low:.2f}, min {min(ratios):.2f}"
    )


if __name__ == "__main__":
    main()
