"""Pairs per second of a bench on 1, 2, 4 and 8 workers of a Dask cluster, and the overhead.

Workers are processes of this machine whose kernels only sleep, so that two cores suffice to measure the overhead of the
cluster: each pair takes the given time, and a problem's inputs ten times as long. Everything else is the code of a real
run: problems are assigned one by one, jobs and replies sent, rows made and journalled. The client's CPU time per pair
is that of its process, which also runs the scheduler of `local:N`; it depends less on other load of the machine.

    python benchmarks/cluster.py                  # 10 ms a pair
    python benchmarks/cluster.py --pair-ms 50 --workers 8
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.devices.device import HOST_KIND, DeviceOptions
from ckh.bench.devices.device_choice import HostDevice
from ckh.bench.supervision import remote
from ckh.bench.supervision.cluster_driver import ClusterDriver
from ckh.bench.supervision.driver import in_order
from ckh.bench.supervision.limits import BenchLimits
from ckh.bench.supervision.protocol import Job, Op, Reply
from ckh.bench.supervision.runner import NS_PER_MS, on_problem
from ckh.cluster.connection import connected
from ckh.data.journal import JournalWriter, ResultRow
from ckh.schema import Status

if TYPE_CHECKING:
    from ckh.cluster.calls import Cluster

_INPUTS = 10  # time of a problem's inputs, in pairs


class _Waiting:
    """A supervisor whose kernels only sleep."""

    def __init__(self, *_: object) -> None:
        self.phase_s: dict[str, float] = {}
        self.restarts = 0

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def run(self, _setup: Job, jobs: list[Job]) -> Any:
        """Sleep for each job, whose samples state the duration."""
        pair_s = jobs[0].samples / 1e6
        time.sleep(_INPUTS * pair_s)
        for job in jobs:
            time.sleep(pair_s)
            yield job, Reply(job.id, Status.OK, samples_ns=(pair_s * 1e9,), loops=1)


def _prepare() -> None:
    """Make this worker sleep instead of measuring, as a separate machine."""
    name = f"node{os.getpid()}"
    # All of them share one CPU without a lock.
    changed = {"Supervisor": _Waiting, "machine_name": lambda: name, "_device_lock": nullcontext}
    for item, value in changed.items():
        setattr(remote, item, value)


def pairs_per_second(cluster: Cluster, pair_s: float, problems: int, kernels: int) -> tuple[float, float]:
    """Pairs per second of a run with a journal, and CPU seconds of this process per pair."""
    cluster.everywhere(_prepare)
    driver = ClusterDriver(
        cluster, remote.DeviceRequest(HOST_KIND, DeviceOptions()), HostDevice(), BenchLimits(), lambda: False
    )
    jobs = [Job(Op.MEASURE, number, samples=round(pair_s * 1e6)) for number in range(kernels)]
    with tempfile.TemporaryDirectory() as folder:
        journal = JournalWriter(Path(folder))

        def work(runner: Any, task: int) -> None:
            for job, reply in runner.run(on_problem(f"problem{task}"), jobs):
                times = reply.samples_ns[0] / NS_PER_MS
                journal.add(ResultRow("run", f"problem{task}", f"kernel{job.id}", Status.OK, "", times, times, 0.0))

        driver.serve(in_order(range(len(driver.devices()))), work)  # warm-up
        start, used = time.monotonic(), time.process_time()
        driver.serve(in_order(range(problems)), work)
        seconds, used = time.monotonic() - start, time.process_time() - used
        journal.close()
    return problems * kernels / seconds, used / (problems * kernels)


def _alone(pair_s: float, problems: int, kernels: int) -> float:
    """Pairs per second of the same sleeping in this process, without a cluster and a journal."""
    jobs = [Job(Op.MEASURE, number, samples=round(pair_s * 1e6)) for number in range(kernels)]
    start = time.monotonic()
    for task in range(problems):
        list(_Waiting().run(on_problem(f"problem{task}"), jobs))
    return problems * kernels / (time.monotonic() - start)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair-ms", type=float, default=10.0, help="what a pair takes")
    parser.add_argument("--kernels", type=int, default=100, help="of a problem")
    parser.add_argument("--problems", type=int, default=12, help="for each worker")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4, 8])
    arguments = parser.parse_args()
    pair_s = arguments.pair_ms / 1e3
    possible = _alone(pair_s, arguments.problems, arguments.kernels)
    print(f"{arguments.pair_ms:g} ms a pair, {arguments.kernels} kernels a problem")
    print("workers  pairs/s  of this process alone  orchestration  client's CPU, ms")
    for workers in arguments.workers:
        with connected(f"local:{workers}") as cluster:
            rate, used_s = pairs_per_second(cluster, pair_s, arguments.problems * workers, arguments.kernels)
        share = rate / (possible * workers)
        print(
            f"{workers:7}  {rate:7.1f}  {share * workers:21.2f}x  {1 - share:12.1%}  {1e3 * used_s:17.3f}", flush=True
        )


if __name__ == "__main__":
    main()
