"""The suite "Evil GPU", clocks: rankings are right whatever the clock does during measurements.

A whole sweep runs in this process, on a GPU with simulated time (stub.c), forty times for each kind of clock.
"""

from __future__ import annotations

import ctypes
import random
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.isolated import timing
from ckh.bench.isolated.hip_runtime import HipRuntime
from ckh.bench.isolated.measure import Bench, answer
from ckh.bench.isolated.memory import HipMemory
from ckh.bench.planning.results import PairResults
from ckh.bench.supervision import campaign as campaign_module
from ckh.bench.supervision.campaign import Campaign
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.limits import BenchLimits, Stop
from ckh.bench.supervision.protocol import Job, Op, PhaseClock, Reply
from ckh.bench.supervision.runner import new_record
from ckh.bench.supervision.sweep import Sweep
from ckh.data.journal import JournalWriter
from ckh.data.settings import Given
from ckh.schema import Status
from tests.bench.faults import PROBLEM
from tests.bench.hip_stub.build import build_exported
from tests.bench.hip_stub.gpu import GpuKernel, StubGpus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ckh.bench.planning.plan import Plan
    from ckh.data.journal_records import RunRecord

TIMES_US = (100.0, 103.0, 107.0, 112.0, 125.0, 150.0, 200.0, 320.0)
RUNS = {"short": 40, "long": 1000}
RIGHT_SHARE = 0.95
ALWAYS = "noise=0.005 host=0.5"
THROTTLES_MS, RUN_MS = 30000.0, 500.0

CLOCKS = {
    "steady": "",
    "half until 200 ms": "ramp=200,0.5",
    "half until 400 ms": "ramp=400,0.5",
    "lower from 30 s on": f"throttle={THROTTLES_MS:g},0.7",
    "to and fro": "steps=300,0.8",
    "another process": "other=100,3",
}


class Worker:
    """A worker in this process."""

    node = ""
    restarts = 0

    def __init__(self) -> None:
        self.phase_s: dict[str, float] = {}
        bench = Bench(HipMemory(HipRuntime(0), 0), PhaseClock())
        self._work = {Op.PROBLEM: bench.set_problem, Op.MEASURE: bench.measure, Op.TIME: bench.time}
        self._set_up = ""

    def run(self, setup: Job | None, jobs: Sequence[Job]) -> Iterator[tuple[Job, Reply]]:
        """Do jobs on a problem."""
        assert setup is not None
        if setup.problem != self._set_up:
            assert answer(setup, self._work[Op.PROBLEM]).status is Status.OK
            self._set_up = setup.problem
        for job in jobs:
            yield job, answer(job, self._work[job.op])


class LocalDriver(Driver):
    """Builds kernels, and measures in this process."""

    @contextmanager
    def worker(self, *_: Any, **__: Any) -> Iterator[Worker]:
        """Return a new worker."""
        yield Worker()


@dataclass(frozen=True, slots=True)
class Gpu:
    """The simulated GPU and its kernels, whose names are in the order of their true times."""

    stub: ctypes.CDLL
    driver: LocalDriver
    plan: Plan
    record: RunRecord
    names: tuple[str, ...]
    folder: Path

    def ranking(self, clock: str, seed: int) -> tuple[str, ...]:
        """Measure in a random order; returns the kernels that have a time, fastest first."""
        task = self.plan.tasks[0]
        kernels = random.Random(seed).sample(task.kernels, len(task.kernels))
        plan = replace(self.plan, tasks=(replace(task, kernels=tuple(kernels)),))
        self.stub.stub_clock(f"{ALWAYS} {clock} seed={seed}".encode())
        results = PairResults()
        journal = JournalWriter(self.folder / f"{seed}", replace=True)
        try:
            journal.start_run(self.record, ())
            with Stop() as stop:
                Sweep(self.driver, self.record, journal, stop).measure(plan, results)
        finally:
            journal.close()
        times = results.times(task.problem.canonical())
        return tuple(sorted(times, key=times.__getitem__))


@pytest.fixture(scope="module")
def gpu(hip_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    """A GPU of this process."""
    folder = tmp_path_factory.mktemp("clock")
    device = StubGpus(hip_library, build_exported(folder), [GpuKernel(us) for us in TIMES_US])
    (folder / "problems.txt").write_text(PROBLEM.canonical(), encoding="utf-8")
    (folder / "kernels").write_text("\n".join(device.names), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CKH_CACHE_DIR", str(folder / "cache"))
        patch.setattr(campaign_module, "open_device", lambda _kind, _options: device)
        given = Given(problems=str(folder / "problems.txt"), kernels=str(folder / "kernels"))
        campaign = Campaign("host", given, folder / "run", resume=False)
        driver = LocalDriver(device, BenchLimits(jobs=2), lambda: False)
        record = new_record(device.identity(), campaign.settings)
        stub = ctypes.CDLL(str(hip_library))
        stub.stub_now_ms.restype = ctypes.c_double
        patch.setattr(timing, "perf_counter_ns", lambda: int(stub.stub_now_ms() * 1e6))
        patch.setattr(timing, "monotonic", lambda: stub.stub_now_ms() / 1e3)
        yield Gpu(stub, driver, campaign.plan, record, device.names, folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLOCKS)
def test_rankings_are_right(name: str, gpu: Gpu, reliability: str) -> None:
    """In 95 % of the runs, kernels that differ by 3 % or more are in the order of their true times.

    Runs of a clock that falls after 30 s are started so that it falls during the run.
    """
    runs = RUNS[reliability]
    right = 0
    for seed in range(runs):
        before_ms = random.Random(seed).uniform(0, RUN_MS)
        start = f"start={THROTTLES_MS - before_ms}" if "30 s" in name else ""
        right += gpu.ranking(f"{CLOCKS[name]} {start}", seed) == gpu.names
    assert right >= RIGHT_SHARE * runs
