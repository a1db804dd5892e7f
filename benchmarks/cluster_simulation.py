"""Simulated run of `ckh bench --cluster` on many GPUs: their utilisation, the client's load, and the bottleneck.

Nothing here is measured on a GPU. Problems and kernels are those of AMD's data, whose latencies determine the time of a
pair; seconds for everything else are arguments. The client's work for a row (making and journalling it) is timed here.
Devices take problems one after the other, as assigned by `ClusterDriver.serve`; some are slow, some are lost and return
later, and their problem begins again elsewhere. Before that, compile nodes build the kernels in units, which are
assigned in the same way, with the times of `benchmarks/compile_cost.py`.

    python benchmarks/cluster_simulation.py
    python benchmarks/cluster_simulation.py --gpus 100 1000 10000 --lost-a-day 0.05
"""

from __future__ import annotations

import argparse
import heapq
import math
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ckh.bench.compilation.compile import unit_size
from ckh.data.dataset import read_dataset
from ckh.data.journal import JournalWriter, ResultRow
from ckh.schema import Status

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Run:
    """Result of a simulated run.

    Attributes:
        hours: time until the last problem is done.
        busy: share of the devices' time spent on measurements that count.
        again: problems that were begun a second time.
        rows_a_second: rows processed by the client.
    """

    hours: float
    busy: float
    again: int
    rows_a_second: float


def problem_seconds(path: Path, pair_s: float, inputs_s: float, runs: int) -> tuple[np.ndarray, int]:
    """Seconds of each problem of a dataset, and its number of kernels."""
    frame = read_dataset(path).valid().frame
    frame = frame.assign(problem=read_dataset(path).valid().problem_ids)
    kernels = frame.groupby("problem").size()
    seconds = inputs_s + kernels * pair_s + frame.groupby("problem")["latency_ms"].sum() * runs / 1e3
    return np.asarray(seconds, dtype=np.float64), int(kernels.median())


def unit_seconds(options: argparse.Namespace, compilers: int) -> np.ndarray:
    """Seconds of each unit of kernels on one of `compilers` compilers: some half of the mean, few several times it."""
    units = math.ceil(options.pool / unit_size(options.pool, options.unit, compilers))
    spread = np.random.default_rng(1).lognormal(-(options.spread**2) / 2, options.spread, units)
    further = (options.unit * options.kernel_s - options.alone_s) / (options.unit - 1)
    return np.asarray((options.alone_s + further * (options.pool / units - 1)) * spread, dtype=np.float64)


def simulate(seconds: np.ndarray, kernels: int, gpus: int, options: argparse.Namespace) -> Run:
    """Assign the problems to devices as they become free, or units to compilers."""
    random = np.random.default_rng(0)
    slowness = np.where(random.random(gpus) < options.slow, options.slow_by, 1.0) * random.normal(1.0, 0.01, gpus)
    left, again, end, useful = list(range(len(seconds)))[::-1], 0, 0.0, 0.0
    free = [(0.0, gpu) for gpu in range(gpus)]
    while left:
        now, gpu = heapq.heappop(free)
        problem = left.pop()
        takes = float(seconds[problem] * slowness[gpu]) + options.latency_ms / 1e3
        lost_after = random.exponential(_DAY_S / options.lost_a_day) if options.lost_a_day else float("inf")
        if lost_after < takes:
            left.append(problem)
            again += 1
            heapq.heappush(free, (now + lost_after + options.back_s, gpu))
            continue
        useful += float(seconds[problem] * slowness[gpu])
        end = max(end, now + takes)
        heapq.heappush(free, (now + takes, gpu))
    return Run(end / 3600, useful / (end * gpus), again, len(seconds) * kernels / end)


def rows_a_second(count: int) -> tuple[float, float]:
    """Rows per second that a client can journal on this machine, and bytes of memory per row."""
    with tempfile.TemporaryDirectory() as folder:
        journal = JournalWriter(Path(folder))
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        kept = []
        for number in range(count):
            row = ResultRow("run", f"problem{number // 100}", f"kernel{number % 100}", Status.OK, "", 1.0, 1.0, 0.01)
            journal.add(row)
            kept.append(row)
        seconds = time.monotonic() - start
        journal.close()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return count / seconds, grown / count


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/amd-gfx950-conv-30kernels.parquet"))
    parser.add_argument("--gpus", type=int, nargs="*", default=[100, 1000, 2000])
    parser.add_argument("--times", type=int, default=1000, help="the problems of the data, so many times")
    parser.add_argument("--kernels", type=int, default=300, help="of a problem: those of the data, repeated")
    parser.add_argument(
        "--pair-ms", type=float, default=60.0, help="of a pair besides its runs: load, check, calibrate"
    )
    parser.add_argument("--inputs-s", type=float, default=1.0, help="inputs and reference of a problem")
    parser.add_argument("--runs", type=int, default=60, help="of a kernel: warm-up and samples")
    parser.add_argument("--latency-ms", type=float, default=160.0, help="between client and worker, for a problem")
    parser.add_argument("--slow", type=float, default=0.02, help="share of devices that are slow")
    parser.add_argument("--slow-by", type=float, default=1.05)
    parser.add_argument("--lost-a-day", type=float, default=0.01, help="share of devices that are lost a day")
    parser.add_argument("--back-s", type=float, default=600.0, help="until a lost one is back")
    parser.add_argument("--pool", type=int, default=14_000, help="kernels to compile")
    parser.add_argument("--unit", type=int, default=12, help="kernels that are compiled as one at most")
    parser.add_argument("--kernel-s", type=float, default=8.5, help="compiling a kernel of so many (compile_cost.py)")
    parser.add_argument("--alone-s", type=float, default=27.0, help="compiling a kernel alone (compile_cost.py)")
    parser.add_argument("--spread", type=float, default=0.2, help="of units' times, as standard deviation of the log")
    parser.add_argument("--compile-nodes", type=int, nargs="*", default=[10, 100])
    parser.add_argument("--compilers", type=int, default=8, help="of a node at a time")
    options = parser.parse_args()
    seconds, kernels = problem_seconds(options.data, options.pair_ms / 1e3, 0.0, options.runs)
    seconds = np.tile(seconds * options.kernels / kernels + options.inputs_s, options.times)
    limit, memory = rows_a_second(200_000)
    print(f"{len(seconds)} problems of {options.kernels} kernels, {seconds.mean():.1f} s each on the mean (simulated)")
    total_gb = memory * len(seconds) * options.kernels / 1e9
    print(
        f"the client journals {limit:.0f} rows a second here, and keeps {memory:.0f} bytes of each: {total_gb:.1f} GB"
    )
    print("  GPUs   hours   busy  begun again  rows/s  of what the client can")
    for gpus in options.gpus:
        run = simulate(seconds, options.kernels, gpus, options)
        share = run.rows_a_second / limit
        print(f"{gpus:6}  {run.hours:6.2f}  {run.busy:5.1%}  {run.again:11}  {run.rows_a_second:6.0f}  {share:22.1%}")
    print(f"{options.pool} kernels are compiled (simulated)")
    print(" nodes  units  s each   hours   busy  begun again")
    for nodes in options.compile_nodes:
        units = unit_seconds(options, nodes * options.compilers)
        run = simulate(units, options.unit, nodes * options.compilers, options)
        print(f"{nodes:6}  {len(units):5}  {units.mean():6.0f}  {run.hours:6.2f}  {run.busy:5.1%}  {run.again:11}")


if __name__ == "__main__":
    main()
