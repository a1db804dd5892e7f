"""Effects of a missing, full or broken GPU on kernels, worker and run."""

from __future__ import annotations

import ctypes
import os
import time
from typing import TYPE_CHECKING

import pytest

from ckh.bench.isolated import timing
from ckh.bench.isolated.hip_runtime import HipRuntime
from ckh.bench.isolated.measure import Bench, answer
from ckh.bench.isolated.memory import HipMemory
from ckh.bench.supervision.process import WorkerDiedError, WorkerProcess
from ckh.bench.supervision.protocol import Job, Op, PhaseClock
from ckh.bench.supervision.supervisor import Supervisor, SupervisorOptions
from ckh.errors import DeviceError, ExitCode
from ckh.schema import Status
from tests.bench.faults import FaultyDevice
from tests.bench.hip_stub.build import StubKernel
from tests.bench.hip_stub.workers import GOOD, ask, config, setup, supervise
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STICKY = 'stub_arm("stub_launch=700!"); reason = "illegal access"; return stub_launch()'
LOST = "hipMalloc of 0.0 MB: unspecified launch failure (error 719)"


def test_a_permanent_error_ends_the_worker(build: Callable[[StubKernel], str]) -> None:
    """The kernel that breaks the GPU's context is a crash, with its own message and HIP's, and the worker ends."""
    worker = WorkerProcess(FaultyDevice(), config())
    try:
        assert ask(worker, setup()).status is Status.OK
        reply = ask(worker, Job(Op.MEASURE, 5, library=build(StubKernel(before=STICKY)), samples=1))
        assert (reply.id, reply.status, reply.is_last) == (5, Status.CRASH, True)
        expect_values(reply.message, 700, "hipMemset: ", "(error 700)")
        with pytest.raises(WorkerDiedError, match="exited with code 0"):
            worker.receive(time.monotonic() + 20)
    finally:
        worker.kill()


def test_a_transient_error_is_a_launch_error(build: Callable[[StubKernel], str]) -> None:
    """A kernel that returns an error and leaves the GPU usable reports the reason, and the worker continues."""
    refuses = StubKernel(before='reason = "no such tile"; return 3')
    worker = WorkerProcess(FaultyDevice(), config())
    try:
        ask(worker, setup())
        reply = ask(worker, Job(Op.MEASURE, 1, library=build(refuses), samples=1))
        assert reply.status == Status.LAUNCH_ERROR
        expect_values(reply.message, 3, "no such tile")
        assert not reply.is_last
        assert ask(worker, Job(Op.MEASURE, 2, library=build(GOOD), samples=1)).status is Status.OK
    finally:
        worker.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("hipMalloc=719", "no usable device: " + LOST),
        (
            "hipMalloc@2+=719",
            "no usable device: in a new worker, no inputs and reference: " + LOST,
        ),
    ],
)
def test_a_permanently_broken_gpu_ends_the_run(
    build: Callable[[StubKernel], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    lost: str,
    message: str,
) -> None:
    """If a new worker cannot use the GPU either, the kernel that broke it gets its reply before the error."""
    monkeypatch.setenv("CKH_STUB_STATE", str(tmp_path / "state"))
    breaks = StubKernel(before=f'stub_arm("always {lost}"); {STICKY}')
    libraries = [build(GOOD), build(breaks), build(GOOD)]
    jobs = [Job(Op.MEASURE, number, library=library, samples=1) for number, library in enumerate(libraries)]
    statuses: list[Status] = []
    with Supervisor(FaultyDevice(), SupervisorOptions(20.0, config()), lambda: False) as supervisor:
        replies = supervisor.run(setup(), jobs)
        with pytest.raises(DeviceError) as caught:
            statuses.extend(reply.status for _, reply in replies)
    assert statuses == [Status.OK, Status.CRASH]
    assert caught.value.message == message
    assert caught.value.exit_code is ExitCode.NO_DEVICE


WRONG_GPU = {
    "98": 'reason = "hipLaunchKernel: invalid device function"; return 1',
    "209": 'reason = "hipLaunchKernel: no kernel image is available for execution on the device"; return 1',
    "abort": 'fputs("hipErrorNoBinaryForGpu: Unable to find code object for all current devices!\\n", stderr); abort()',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_GPU)
def test_kernels_of_another_architecture_end_the_run(
    name: str, build: Callable[[StubKernel], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, with --arch and HSA_OVERRIDE_GFX_VERSION, unless a kernel has run: then it is a reply."""
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
    other = build(StubKernel(before=WRONG_GPU[name]))
    with pytest.raises(DeviceError) as caught:
        supervise([other, build(GOOD)])
    assert (caught.value.code, caught.value.exit_code) == ("wrong-gpu", ExitCode.NO_DEVICE)
    expect_values(caught.value.message, "host", "device" if name != "abort" else "hipErrorNoBinaryForGpu")
    expect_values(caught.value.hint, "--arch", "HSA_OVERRIDE_GFX_VERSION (11.0.0)")
    replies, _ = supervise([build(GOOD), other])
    assert [reply.status for reply in replies] == [Status.OK, Status.CRASH if name == "abort" else Status.LAUNCH_ERROR]


def test_out_of_memory_for_a_problem_is_a_reply(
    build: Callable[[StubKernel], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernels get replies with the reason, and the device is not lost."""
    monkeypatch.setenv("CKH_STUB_MEMORY", "8300")
    replies, _ = supervise([build(GOOD)] * 2)
    assert [reply.status for reply in replies] == [Status.OUT_OF_MEMORY] * 2
    expect_values(replies[0].message, "hipMalloc", "(error 2)")


def test_out_of_memory_for_a_workspace_is_a_reply(
    build: Callable[[StubKernel], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel cannot be launched; the next one can."""
    monkeypatch.setenv("CKH_STUB_MEMORY", str(1 << 20))
    replies, _ = supervise([build(StubKernel(workspace="1 << 30")), build(GOOD)])
    assert [reply.status for reply in replies] == [Status.OUT_OF_MEMORY, Status.OK]
    expect_values(replies[0].message, "1074 MB", "hipMalloc of 1073.8 MB", "(error 2)")


@pytest.mark.slow
def test_any_allocation_may_fail(build: Callable[[StubKernel], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in turn, of inputs, output, copies and workspace: kernels have a time or the reason, later a time."""
    libraries = [build(StubKernel(workspace="1 << 16", short=short)) for short in ("20000", "30000")]
    stub = ctypes.CDLL(os.environ["CKH_HIP_LIBRARY"])
    stub.stub_now_ms.restype = ctypes.c_double
    monkeypatch.setattr(timing, "perf_counter_ns", lambda: int(stub.stub_now_ms() * 1e6))
    results = list[list[str]]()
    while not results or any(results[-1]):
        bench = Bench(HipMemory(HipRuntime(0), 0, rotating=4), PhaseClock())
        stub.stub_arm(f"hipMalloc@{len(results) + 1}=2".encode())
        jobs = [Job(Op.MEASURE, number, library=library, samples=3) for number, library in enumerate(libraries)]
        work = {Op.PROBLEM: bench.set_problem, Op.MEASURE: bench.measure}
        first, then = ([answer(job, work[job.op]) for job in (setup(), *jobs)] for _ in range(2))
        results.append([reply.message and str(reply.status) for reply in first])
        assert {reply.status for reply in then} == {Status.OK} or not any(results[-1])
    lost, late = str(Status.OUT_OF_MEMORY), str(Status.LAUNCH_ERROR)
    assert results == [
        *[[lost, late, late]] * 4,  # two inputs, the output and its copy
        ["", lost, ""],  # the workspace, before there are copies that could be given up
        ["", "ok", "ok"],  # the copies, of which there are fewer
        ["", "", ""],
    ]


@pytest.mark.slow
def test_libraries_are_loaded_without_a_gpu(
    build: Callable[[StubKernel], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker for loading replies with the kernel's name, and refuses all other jobs."""
    monkeypatch.setenv("CKH_STUB_GPUS", "0")
    jobs = [Job(Op.LOAD, 0, library=build(GOOD)), Job(Op.LOAD, 1, library="/nonexistent.so")]
    jobs.append(Job(Op.MEASURE, 2, library=build(GOOD), samples=1))
    options = SupervisorOptions(20.0, config(load_only=True))
    with Supervisor(FaultyDevice(), options, lambda: False) as supervisor:
        replies = [reply for _, reply in supervisor.run(None, jobs)]
    assert [reply.status for reply in replies] == [Status.OK, Status.LAUNCH_ERROR, Status.LAUNCH_ERROR]
    assert replies[0].message == "stub kernel"
    expect_values(replies[1].message, "/nonexistent.so")
    assert replies[2].message
