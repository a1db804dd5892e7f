"""The suite "Evil GPU": any GPU fault becomes a row of the current kernel, or one line that ends the run.

Kernels are compiled with the exported functions of real ones (`exports.hpp`), and run on stub.c.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.supervision import process, runner, sweep
from ckh.bench.supervision.limits import BenchLimits, StopReason
from ckh.bench.supervision.process import WorkerProcess
from ckh.bench.supervision.protocol import HIP, WorkerConfig
from ckh.commands.bench.output import machine_lines
from ckh.errors import DeviceError, ExitCode
from ckh.schema import Status
from tests.bench.campaigns import HANGING, LIMITS, Runs
from tests.bench.faults import OTHER_PROBLEM, PROBLEM, THIRD_PROBLEM
from tests.bench.hip_stub.build import build_runtime
from tests.bench.hip_stub.gpu import GpuKernel, StubGpus
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.data.journal import ResultRow
    from ckh.ops.grouped_conv.problem import ConvProblem

GOOD = GpuKernel()
RIGHT = 4  # kernels


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, the required status of the kernel's row, and a part of its message."""

    faults: str
    status: Status
    message: str = ""


# Faults during a kernel's execution, triggered by the kernel in its first run.
AT_WORK = {
    "hangs in a launch": Fault("hipLaunchKernel=hang", Status.TIMEOUT, "no result within"),
    "hangs when it is waited for": Fault("hipDeviceSynchronize=hang", Status.TIMEOUT, "no result within"),
    "hangs when it is timed": Fault("hipEventSynchronize=hang", Status.TIMEOUT, "no result within"),
    "illegal address": Fault(
        "hipDeviceSynchronize=700!", Status.CRASH, "hipDeviceSynchronize: an illegal memory access was encountered"
    ),
    "illegal address at the launch": Fault("hipLaunchKernel=700!", Status.CRASH, "hipLaunchKernel: an illegal memory"),
    "illegal address while it is timed": Fault("hipEventSynchronize=700!", Status.CRASH, "an illegal memory access"),
    "access to no page": Fault("hipDeviceSynchronize=page", Status.CRASH, "Memory access fault by GPU node-1"),
    "an error that lasts, seen when the result is read": Fault(
        "hipMemcpy=719!", Status.CRASH, "hipMemcpy: unspecified launch failure (error 719)"
    ),
    "uncorrectable bits of memory": Fault("hipDeviceSynchronize=214!", Status.CRASH, "uncorrectable ECC error"),
    "reset": Fault("hipDeviceSynchronize=reset", Status.CRASH, "reason :GPU Hang"),
    "no memory for a launch": Fault("hipLaunchKernel=2", Status.OUT_OF_MEMORY, "hipLaunchKernel: out of memory"),
    "an error that does not last": Fault("hipDeviceSynchronize@1=999", Status.LAUNCH_ERROR, "unknown error"),
    "no event": Fault("hipEventCreate=2", Status.OUT_OF_MEMORY, "hipEventCreate: out of memory"),
    "an event that is never recorded": Fault("hipEventElapsedTime=400", Status.LAUNCH_ERROR, "invalid resource handle"),
    "events at one time": Fault("hipEventElapsedTime=ms:0", Status.IMPOSSIBLE_TIME, "it took 0 ns"),
    "events back in time": Fault("hipEventElapsedTime=ms:-0.5", Status.IMPOSSIBLE_TIME, "it took -"),
    "events that stand still": Fault("hipEventElapsedTime=ms:0.1", Status.IMPOSSIBLE_TIME, "report the same time"),
    "events without a time": Fault("hipEventElapsedTime=ms:nan", Status.IMPOSSIBLE_TIME, "it took nan ns"),
}

# Faults that occur once, and are not caused by the current kernel.
ONCE = {
    "uncorrectable bits of memory": "hipDeviceSynchronize=214!",
    "reset": "hipDeviceSynchronize=reset",
    "lost while a kernel is timed": "hipEventSynchronize=999!",
    "hangs": "hipDeviceSynchronize=hang",
}

# Faults at the start of a worker, and the resulting line.
AT_START = {
    "no GPU": ("hipGetDeviceCount=100", "HIP finds no GPU"),
    "no GPUs": ("hipGetDeviceCount=count:0", "HIP finds no GPU"),
    "fewer GPUs than none": ("hipGetDeviceCount=count:-1", "HIP finds no GPU"),
    "fewer GPUs than the driver lists": ("hipGetDeviceCount=count:1", "no GPU 1: HIP has 1, numbered from 0"),
    "one GPU, which was eight partitions": ("hipGetDeviceCount=count:1", "no GPU 7: HIP has 1, numbered from 0"),
    "a GPU that cannot be chosen": ("hipSetDevice=101", "hipSetDevice: invalid device ordinal (error 101)"),
    "no memory": ("hipMalloc=2", "hipMalloc of 0.0 MB: out of memory (error 2)"),
    "a GPU that is lost": ("hipMalloc=999!", "hipMalloc of 0.0 MB: unknown error (error 999)"),
    "a GPU that was reset": ("hipMemset=709!", "hipMemset: context is destroyed (error 709)"),
    "a runtime that crashes": ("hipGetDeviceCount=crash", "killed by SIGSEGV"),
    "a runtime that is ended": ("hipSetDevice=reset", "killed by SIGABRT; stderr: HW Exception by GPU node-1"),
    "a runtime that hangs": ("hipGetDeviceCount=hang", "no reply in time"),
    "a GPU whose memory hangs": ("hipMalloc=hang", "no reply in time"),
}

# A fault that makes the GPU unavailable during measurements.
LOST = "always *=999!"


class StubRuns(Runs):
    """Runs of kernels on the stub."""

    def __init__(
        self, folder: Path, device: StubGpus, patch: pytest.MonkeyPatch, problems: Sequence[ConvProblem]
    ) -> None:
        super().__init__(folder, device, patch, problems)
        self.state = folder / "state"
        patch.setenv("CKH_STUB_STATE", str(self.state))

    @property
    def by_kernel(self) -> list[list[ResultRow]]:
        """Rows of the first pass of each kernel."""
        return [self.of_kernel(number) for number in range(len(self.device.names))]

    @property
    def statuses(self) -> Counter[Status]:
        """Number of these rows by status."""
        return Counter(row.status for rows in self.by_kernel for row in rows)


@dataclass(frozen=True, slots=True)
class Stub:
    """The stub of this session; makes runs on it."""

    runtime: Path
    exported: Path
    patch: pytest.MonkeyPatch

    def runs(self, folder: Path, *kernels: GpuKernel, gpus: int = 1, problems: int = 1) -> StubRuns:
        """Runs of these kernels."""
        device = StubGpus(self.runtime, self.exported, kernels, gpus)
        self.patch.setenv("CKH_STUB_GPUS", str(gpus))
        return StubRuns(folder, device, self.patch, (PROBLEM, OTHER_PROBLEM, THIRD_PROBLEM)[:problems])


@pytest.fixture
def stub(hip_library: Path, exported: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """The stub, as used by the workers of this test."""
    return Stub(hip_library, exported, monkeypatch)


@pytest.fixture(scope="module")
def met(
    hip_library: Path, exported: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, list[ResultRow]], list[ResultRow]]:
    """One run with all faults during execution: rows by fault, and those of right kernels between them."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("faults")
        patch.setenv("CKH_CACHE_DIR", str(folder / "cache"))
        patch.setenv("CKH_HIP_LIBRARY", str(hip_library))
        patch.setenv("LD_PRELOAD", str(hip_library))
        faulty = [GpuKernel(fault=fault.faults) for fault in AT_WORK.values()]
        runs = Stub(hip_library, exported, patch).runs(folder, *faulty, *[GOOD] * RIGHT)
        assert runs.run(limits=HANGING).reason is StopReason.COMPLETE
        rows = runs.by_kernel
    return dict(zip(AT_WORK, rows, strict=False)), [row for of_one in rows[len(AT_WORK) :] for row in of_one]


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_WORK)
def test_each_fault_is_a_row_of_its_kernel(name: str, met: tuple[dict[str, list[ResultRow]], Any]) -> None:
    """There is one row, with its status and the reason."""
    (row,) = met[0][name]
    assert (row.status, AT_WORK[name].message in row.message, row.latency_ms) == (AT_WORK[name].status, True, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clock", "fault"),
    [
        ("", ""),
        *((f"events={factor}", "") for factor in ("0.1", "0.5", "10", "1000", "0.5 host=2")),
        ("noise=0", ""),
        *(("", f"hipEventElapsedTime@60+=ms:{ms}") for ms in (0.6, 5, 500)),  # from the warm-up on
    ],
)
def test_events_are_held_against_the_hosts_clock(
    clock: str, fault: str, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that say another time than passes for the host give no times, for kernels with and without graphs."""
    monkeypatch.setenv("CKH_STUB_CLOCK", clock)
    runs = stub.runs(tmp_path, *(GpuKernel(us, fault) for us in (4.0, 4.4, 9.0, 9.9)))
    runs.run()
    expected = Status.IMPOSSIBLE_TIME if clock or fault else Status.OK
    assert [{row.status for row in rows} for rows in runs.by_kernel] == [{expected}] * 4
    if clock or fault:
        assert all("events" in row.message for rows in runs.by_kernel for row in rows)


@pytest.mark.slow
def test_a_run_stops_after_several_impossible_times(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end it with one line; when the clock is right, all pairs are measured by a resumed run."""
    monkeypatch.setattr(sweep, "MOST_IMPOSSIBLE", 2)
    monkeypatch.setenv("CKH_STUB_CLOCK", "noise=0")
    runs = stub.runs(tmp_path, *[GOOD] * 3)
    with expect_refusal(DeviceError, "impossible-time", 2):
        runs.run()
    assert runs.statuses == {Status.IMPOSSIBLE_TIME: 2}
    monkeypatch.delenv("CKH_STUB_CLOCK")
    outcome = runs.run(resume=True)
    assert (outcome.pairs_left, outcome.totals.statuses) == (0, {"ok": 3})


@pytest.mark.slow
@pytest.mark.parametrize("insists", [False, True])
def test_times_above_the_peak_are_taken_from_who_insists(
    insists: bool, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --no-peak-check a kernel of 0.1 ms has its time, though it is half of the least possible one."""
    monkeypatch.setattr(runner, "least_ms", lambda *_: 0.2)
    runs = stub.runs(tmp_path, GOOD)
    runs.run(limits=replace(LIMITS, no_peak_check=insists))
    ((row,),) = runs.by_kernel
    assert row.status is (Status.OK if insists else Status.IMPOSSIBLE_TIME)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["3", "3+"])
def test_pairs_without_memory_are_measured_by_a_resumed_run(
    call: str, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One allocation, or all, fail while inputs are made: each kernel has a row with the reason until then."""
    monkeypatch.setenv("CKH_STUB_FAULTS", f"hipMalloc@{call}=2")
    runs = stub.runs(tmp_path, GOOD, GOOD)
    assert (runs.run().pairs_left, runs.statuses) == (2, {Status.OUT_OF_MEMORY: 2})
    assert all("hipMalloc" in row.message for rows in runs.by_kernel for row in rows)
    monkeypatch.delenv("CKH_STUB_FAULTS")
    outcome = runs.run(resume=True)
    assert (outcome.pairs_left, outcome.totals.statuses) == (0, {"ok": 2})


@pytest.mark.slow
def test_leaders_are_remeasured_beside_a_kernel_without_memory(stub: Stub, tmp_path: Path) -> None:
    """That kernel is left to the next run, and tried once in this one."""
    outcome = stub.runs(tmp_path, GOOD, GOOD, GpuKernel(fault="hipLaunchKernel=2")).run()
    assert outcome.totals.statuses == {"ok": 2, "out_of_memory": 1}
    assert (outcome.totals.remeasured, outcome.pairs_left) == (2, 1)


@pytest.mark.slow
def test_a_new_worker_without_memory_is_no_lost_gpu(stub: Stub, tmp_path: Path) -> None:
    """The output's allocation fails in later workers: the kernel left has that status, the leaders keep their times."""
    short, crashes = GpuKernel(fault="always hipMalloc@4+=2"), GpuKernel(fault="hipDeviceSynchronize=700!")
    runs = stub.runs(tmp_path, crashes, GOOD, short)
    assert runs.run().reason is StopReason.COMPLETE
    assert [row.status for row in runs.rows] == [*[Status.OK] * 2, Status.OUT_OF_MEMORY]


@pytest.mark.slow
def test_launches_take_turns_with_as_many_operands_as_fit(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where three copies of the operands do not fit, one is made, and the row says so."""
    monkeypatch.setenv("CKH_STUB_MEMORY", "40000")
    runs = stub.runs(tmp_path, GOOD)
    configs = [replace(config, rotating=4) for config in runs.device.worker_configs()]
    monkeypatch.setattr(runs.device, "worker_configs", lambda: configs)
    runs.run()
    ((row,),) = runs.by_kernel
    assert row.status is Status.OK
    expect_values(row.message, 2, 4)


@pytest.mark.slow
def test_kernels_between_faults_are_measured(met: tuple[Any, list[ResultRow]]) -> None:
    """Each right kernel has its time, unaffected by the faults."""
    times = [row.latency_ms for row in met[1] if row.status is Status.OK]
    assert times == pytest.approx([GOOD.us / 1e3] * RIGHT, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONCE)
def test_a_transient_fault_is_not_blamed_on_a_kernel(name: str, stub: Stub, tmp_path: Path) -> None:
    """The current kernel, though the first of its worker, is retried and measured."""
    runs = stub.runs(tmp_path, *[GpuKernel(fault=f"once {ONCE[name]}")] * 3)
    outcome = runs.run(limits=HANGING)
    assert (runs.statuses, outcome.totals.restarts) == ({Status.OK: 3}, 1)


@pytest.mark.slow
def test_a_reset_of_all_gpus_is_not_blamed_on_a_kernel(stub: Stub, tmp_path: Path) -> None:
    """A kernel resets its GPU and another worker's: that continues in a new worker, and all kernels are measured."""
    resets = GpuKernel(fault="once hipDeviceSynchronize=all")
    runs = stub.runs(tmp_path, resets, *[GOOD] * 9, gpus=2, problems=3)
    outcome = runs.run()
    assert outcome.reason is StopReason.COMPLETE
    assert runs.statuses == {Status.OK: 30}
    assert outcome.totals.restarts >= 1


@pytest.mark.parametrize("name", AT_START)
def test_a_failing_worker_start_is_one_line(
    name: str, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with the exit code of a missing device and the reason, without rows."""
    faults, message = AT_START[name]
    if "hang" in faults:
        monkeypatch.setattr(process, "_START_TIMEOUT_S", 1.5)
    monkeypatch.setenv("CKH_STUB_FAULTS", faults)
    device = StubGpus(stub.runtime, stub.exported, [])
    with pytest.raises(DeviceError) as caught:
        WorkerProcess(device, WorkerConfig(0, None, HIP, gpu=next((n for n in (1, 7) if f"GPU {n}:" in message), 0)))
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code is ExitCode.NO_DEVICE
    if faults.startswith("hipGetDeviceCount=") and "crash" not in faults:
        assert caught.value.hint  # for permissions, drivers and hangs


@pytest.mark.slow
def test_a_problem_without_inputs_is_a_row_of_each_kernel(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hanging allocation is a launch error of each kernel, and the run is completed."""
    monkeypatch.setenv("CKH_STUB_FAULTS", "hipMalloc@3+=hang")
    runs = stub.runs(tmp_path, GOOD, GOOD)
    assert runs.run(limits=BenchLimits(timeout_s=0.4, jobs=2)).reason is StopReason.COMPLETE
    assert runs.statuses == {Status.LAUNCH_ERROR: 2}
    assert all("no result" in row.message for rows in runs.by_kernel for row in rows)


@pytest.mark.slow
def test_kernels_of_another_rocm_are_launch_errors(stub: Stub, tmp_path: Path) -> None:
    """Each is a launch error that names the missing library."""
    other = build_runtime(tmp_path, "libamdhip64.so.99")
    runs = replace(stub, runtime=other).runs(tmp_path, GOOD, GOOD)
    assert runs.run().reason is StopReason.COMPLETE
    assert runs.statuses == {Status.LAUNCH_ERROR: 2}
    assert all("libamdhip64.so.99" in row.message for rows in runs.by_kernel for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "status", "us"),
    [
        ("", Status.OK, 1.0),
        ("hipStreamBeginCapture=801", Status.LAUNCH_BOUND, 2.0),
        ("hipStreamEndCapture=901", Status.LAUNCH_BOUND, 2.0),
        ("hipGraphInstantiateWithFlags=2", Status.LAUNCH_BOUND, 2.0),
        ("hipGraphLaunch=999", Status.LAUNCH_BOUND, 2.0),
    ],
)
def test_kernels_of_half_a_microsecond(
    fault: str, status: Status, us: float, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are timed by a graph, as half a microsecond; without graphs their times are those of launches."""
    monkeypatch.setenv("CKH_STUB_CLOCK", "gap=0.5 launch=2")
    runs = stub.runs(tmp_path, GpuKernel(0.5, fault), GpuKernel(0.5, fault))
    runs.run()
    rows = [row for rows in runs.by_kernel for row in rows]
    assert [(row.status, row.by_graph) for row in rows] == [(status, not fault)] * 2
    assert [row.latency_ms for row in rows] == pytest.approx([us / 1e3] * 2, rel=0.02)


@pytest.mark.slow
def test_times_beside_another_process_are_right_or_unstable(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process uses half of the GPU, half a millisecond at a time."""
    monkeypatch.setenv("CKH_STUB_CLOCK", "other=0.5,0.5 seed=2 noise=0")
    runs = stub.runs(tmp_path, GOOD, GOOD, GOOD)
    runs.run()
    result = [(row.status, row.latency_ms) for rows in runs.by_kernel for row in rows]
    assert Status.UNSTABLE in {status for status, _ in result}
    assert [ms for status, ms in result if status is Status.OK] == pytest.approx(
        [GOOD.us / 1e3] * runs.statuses[Status.OK], rel=0.05
    )


def test_a_shared_gpu_is_a_warning_at_both_ends(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is measured, with the GPU's number, and in the summary with the number of measurements."""
    runs = stub.runs(tmp_path, GOOD)
    shared = "from ckh.bench.isolated import worker as w; w.read_card = lambda *_: {'other_processes': 2.0}; w.main()"
    monkeypatch.setattr(StubGpus, "worker_command", lambda _self: [sys.executable, "-c", shared])
    monkeypatch.setattr(StubGpus, "worker_configs", lambda _self: (WorkerConfig(0, None, HIP, pci="0000:0c:00.0"),))
    totals = runs.run().totals
    expect_values(capsys.readouterr().err.splitlines()[0], "GPU 0", "[shared-gpu]")
    assert totals.shared == len(runs.rows) == 1
    assert len(machine_lines(totals)) == 2


@pytest.mark.slow
def test_a_gpu_that_is_lost_ends_the_run_and_nothing_else(stub: Stub, tmp_path: Path) -> None:
    """It ends with one line; results are in the journal, and a resumed run measures the rest when the GPU is back."""
    runs = stub.runs(tmp_path, GOOD, GOOD, GpuKernel(fault=LOST), GOOD, problems=2)
    with pytest.raises(DeviceError) as caught:
        runs.run()
    assert (caught.value.code, caught.value.exit_code) == ("no-device", ExitCode.NO_DEVICE)
    assert "hipGetDeviceCount" in caught.value.message
    before = runs.statuses
    assert before[Status.CRASH] == 1  # of the current kernel
    runs.state.write_text("over\n", encoding="utf-8")
    outcome = runs.run(resume=True)
    assert (outcome.reason, outcome.totals.statuses.total()) == (StopReason.COMPLETE, 8 - before.total())
    assert runs.statuses == {Status.OK: 7, Status.CRASH: 1}
