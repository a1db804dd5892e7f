"""The supervisor: any behaviour of a kernel becomes one reply, and later kernels are measured."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.supervision.protocol import Job, Op, Reply, WorkerConfig
from ckh.bench.supervision.supervisor import Supervisor, SupervisorOptions
from ckh.schema import Status
from tests.bench.faults import (
    CLAIMED_MS,
    FAULTS,
    FRAGILE,
    GOOD,
    HANG,
    HOARD,
    OTHER_PROBLEM,
    POISON,
    PROBLEM,
    SEGFAULT,
    SLOW,
    THIRD_PROBLEM,
    Fault,
    FaultyDevice,
    claims,
)
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.ops.grouped_conv.problem import ConvProblem

MEMORY_BYTES = 1 << 30
# Has a static initializer that aborts.
LOAD_ABORTS = Fault("return 0; } struct Abort { Abort() { abort(); } } at_load; int32_t other() { return 0;")
SETUP = Job(Op.PROBLEM, -1, problem=PROBLEM.canonical())
RUNNING = {name: fault for name, fault in FAULTS.items() if fault[1] is not Status.COMPILE_ERROR}


def supervise(
    *faults: Fault, timeout_s: float = 20.0, should_stop: Callable[[], bool] = lambda: False
) -> tuple[list[Reply], int]:
    """Measure kernels on the problem; returns their replies and the number of worker restarts."""
    device = FaultyDevice(*faults)
    built = KernelBuilder(device).build(device.kernels, 2, lambda _count, _text: None)
    jobs = [Job(Op.MEASURE, i, library=built[kernel].library, samples=5) for i, kernel in enumerate(device.kernels)]
    options = SupervisorOptions(timeout_s, WorkerConfig(MEMORY_BYTES, None))
    with Supervisor(device, options, should_stop) as supervisor:
        done = list(supervisor.run(SETUP, jobs))
    assert [job for job, _ in done] == jobs[: len(done)]
    assert [reply.id for _, reply in done] == list(range(len(done)))
    return [reply for _, reply in done], supervisor.restarts


def statuses(replies: list[Reply]) -> list[Status]:
    """Statuses of replies."""
    return [reply.status for reply in replies]


@pytest.mark.slow
def test_each_fault_becomes_a_reply_and_the_next_kernel_is_measured() -> None:
    """With one supervisor, each has its status and reason; the right kernels between them are measured."""
    faults = [item for name, item in RUNNING.items() if "hang" not in name]
    replies, _ = supervise(*(kernel for fault, *_ in faults for kernel in (fault, GOOD)))
    assert statuses(replies[::2]) == [status for _, status, _ in faults]
    assert all(said in reply.message for reply, (_, _, said) in zip(replies[::2], faults, strict=True))
    assert {reply.samples_ns for reply in replies[1::2]} == {(CLAIMED_MS * 1e6,) * 5}


@pytest.mark.slow
def test_a_crash_in_a_used_worker_is_tried_again_in_a_new_one() -> None:
    """A kernel that only crashes because of earlier kernels is ok, after one restart."""
    replies, restarts = supervise(GOOD, POISON, FRAGILE, GOOD)
    assert statuses(replies) == [Status.OK] * 4
    assert restarts == 1


@pytest.mark.slow
def test_a_crash_in_a_new_worker_counts_at_once() -> None:
    """The first kernel of a worker is the only possible cause: one crash, one restart."""
    replies, restarts = supervise(SEGFAULT, SEGFAULT, GOOD)
    assert statuses(replies) == [Status.CRASH, Status.CRASH, Status.OK]
    assert restarts == 2


@pytest.mark.slow
def test_a_hang_is_ended() -> None:
    """Two endless loops cost their timeouts and a restart each, no more."""
    replies, restarts = supervise(HANG, HANG, GOOD, timeout_s=1.5)
    assert statuses(replies) == [Status.TIMEOUT, Status.TIMEOUT, Status.OK]
    expect_values(replies[0].message, "1.5 s")
    assert restarts == 2


@pytest.mark.slow
def test_a_kernel_that_keeps_all_memory_does_not_fail_its_successors() -> None:
    """Memory leaked by a kernel does not make right kernels fail."""
    replies, _ = supervise(GOOD, HOARD, GOOD, claims(1.0), claims(2.0))
    assert statuses(replies) == [Status.OK, Status.LAUNCH_ERROR, *[Status.OK] * 3]


@pytest.mark.slow
def test_a_problem_after_a_kernel_that_keeps_all_memory_is_set_up() -> None:
    """Inputs that do not fit into the worker's memory are made in a new one."""
    device = FaultyDevice(HOARD, GOOD)
    built = KernelBuilder(device).build(device.kernels, 2, lambda _count, _text: None)
    hoard, good = [Job(Op.MEASURE, 0, library=built[kernel].library, samples=1) for kernel in device.kernels]
    wide = "conv_forward_fp32_nhwgc_2d_n4_c64_k64_g1_i64x64_f1x1_s1x1_p0x0_d1x1"
    with Supervisor(device, SupervisorOptions(20.0, WorkerConfig(MEMORY_BYTES, None)), lambda: False) as supervisor:
        first = list(supervisor.run(SETUP, [hoard]))
        second = list(supervisor.run(Job(Op.PROBLEM, -1, problem=wide), [good]))
    assert statuses([reply for _, reply in (*first, *second)]) == [Status.LAUNCH_ERROR, Status.OK]


@pytest.mark.slow
def test_a_hang_in_a_used_worker_is_tried_again_in_a_new_one() -> None:
    """A kernel that only hangs because of earlier kernels is ok, after one restart."""
    waits = Fault(FRAGILE.run.replace("abort()", HANG.run))
    replies, restarts = supervise(GOOD, POISON, waits, GOOD, timeout_s=1.5)
    assert statuses(replies) == [Status.OK] * 4
    assert restarts == 1


def on_problems(
    faults: Sequence[Fault], problems: Sequence[ConvProblem], timeout_s: float = 20.0
) -> tuple[list[list[Reply]], int]:
    """Measure kernels on one problem after another; returns their replies and the number of worker restarts."""
    device = FaultyDevice(*faults)
    built = KernelBuilder(device).build(device.kernels, 2, lambda _count, _text: None)
    jobs = [Job(Op.MEASURE, i, library=built[kernel].library, samples=1) for i, kernel in enumerate(device.kernels)]
    options = SupervisorOptions(timeout_s, WorkerConfig(MEMORY_BYTES, None))
    with Supervisor(device, options, lambda: False) as supervisor:
        setups = [Job(Op.PROBLEM, -1, problem=problem.canonical()) for problem in problems]
        return [[reply for _, reply in supervisor.run(setup, jobs)] for setup in setups], supervisor.restarts


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "status"), [(SEGFAULT, Status.CRASH), (HANG, Status.TIMEOUT)])
def test_a_kernel_that_fails_on_two_problems_is_not_run_again(fault: Fault, status: Status) -> None:
    """From the third problem on it is answered at once, in order, without a restart; the others are measured."""
    problems = [PROBLEM, PROBLEM, OTHER_PROBLEM, PROBLEM, THIRD_PROBLEM]
    result, restarts = on_problems([GOOD, fault, GOOD], problems, 1.5 if fault is HANG else 20.0)
    assert [statuses(replies) for replies in result[:3]] == [[Status.OK, status, Status.OK]] * 3
    assert [statuses(replies) for replies in result[3:]] == [[Status.OK, Status.CRASH, Status.OK]] * 2
    expected = f"quarantined: crashed on {PROBLEM.canonical()} and {OTHER_PROBLEM.canonical()}"
    assert [replies[1].message for replies in result[3:]] == [expected] * 2
    assert [[reply.id for reply in replies] for replies in result] == [[0, 1, 2]] * 5
    # Every failure is confirmed in a new worker, which then ends too.
    assert restarts == 3 * 2


def test_a_kernel_that_races_on_two_problems_is_not_run_again() -> None:
    """It might be right by chance on the next problem, or in a new worker, so it is not retried."""
    problems = [PROBLEM, OTHER_PROBLEM, THIRD_PROBLEM]
    result, restarts = on_problems([GOOD, FAULTS["another bit when timed"][0]], problems)
    assert [statuses(replies) for replies in result] == [[Status.OK, Status.NONDETERMINISTIC]] * 3
    assert "differ" in result[1][1].message
    expected = f"quarantined: nondeterministic on {PROBLEM.canonical()} and {OTHER_PROBLEM.canonical()}"
    assert (result[2][1].message, restarts) == (expected, 0)


@pytest.mark.slow
def test_a_problem_with_only_quarantined_kernels_is_not_set_up() -> None:
    """No worker is started for it."""
    result, restarts = on_problems([SEGFAULT], [PROBLEM, OTHER_PROBLEM, THIRD_PROBLEM])
    assert [statuses(replies) for replies in result] == [[Status.CRASH]] * 3
    assert restarts == 1


@pytest.mark.slow
def test_other_failures_cause_no_quarantine() -> None:
    """Wrong results and error codes are determined again on every problem."""
    faults = [FAULTS["zeros"][0], FAULTS["error code"][0]]
    result, _ = on_problems(faults, [PROBLEM, OTHER_PROBLEM, THIRD_PROBLEM])
    assert [statuses(replies) for replies in result] == [[Status.WRONG_RESULT, Status.LAUNCH_ERROR]] * 3
    assert "returned 7" in result[2][1].message


@pytest.mark.slow
def test_libraries_are_loaded_without_a_problem() -> None:
    """Libraries that cannot be loaded, and one that ends the loading process, have different replies."""
    device = FaultyDevice(GOOD, FAULTS["does not load"][0], LOAD_ABORTS, GOOD)
    built = KernelBuilder(device).build(device.kernels, 2, lambda _count, _text: None)
    jobs = [Job(Op.LOAD, i, library=built[kernel].library) for i, kernel in enumerate(device.kernels)]
    options = SupervisorOptions(20.0, WorkerConfig(MEMORY_BYTES, None, load_only=True))
    with Supervisor(device, options, lambda: False) as supervisor:
        done = list(supervisor.run(None, jobs))
    assert [job for job, _ in done] == jobs
    replies = [reply for _, reply in done]
    assert statuses(replies) == [Status.OK, Status.LAUNCH_ERROR, Status.CRASH, Status.OK]
    assert "undefined symbol" in replies[1].message
    assert "SIGABRT" in replies[2].message


@pytest.mark.slow
def test_a_stop_lets_running_kernels_finish_and_starts_no_new_ones() -> None:
    """After a stop, jobs already sent are done, the others are not."""
    asked: list[float] = []

    def should_stop() -> bool:
        asked.append(time.monotonic())
        return asked[-1] - asked[0] > 0.7

    replies, _ = supervise(*[SLOW] * 40, should_stop=should_stop)
    assert len(replies) < 30
    assert set(statuses(replies)) <= {Status.OK}


@pytest.mark.slow
def test_a_stop_ends_a_hang_after_the_grace() -> None:
    """A kernel that does not finish within the grace period after a stop gets no reply, whatever its timeout."""
    start = time.monotonic()
    replies, _ = supervise(HANG, timeout_s=9999, should_stop=lambda: time.monotonic() - start > 1)
    assert replies == []


def test_problems_follow_each_other_in_one_worker() -> None:
    """A new problem needs no new worker, and its time is counted by phase."""
    device = FaultyDevice(GOOD)
    built = KernelBuilder(device).build(device.kernels, 1, lambda _count, _text: None)
    job = Job(Op.MEASURE, 0, library=built[device.kernels[0]].library, samples=2)
    options = SupervisorOptions(20.0, WorkerConfig(MEMORY_BYTES, None))
    with Supervisor(device, options, lambda: False) as supervisor:
        for problem in (PROBLEM, OTHER_PROBLEM, PROBLEM):
            setup = Job(Op.PROBLEM, -1, problem=problem.canonical())
            assert [reply.status for _, reply in supervisor.run(setup, [job])] == [Status.OK]
    assert supervisor.restarts == 0
    assert {"inputs", "reference", "load", "run", "verify", "time", "wait", "other"} <= set(supervisor.phase_s)


def test_a_problem_that_cannot_be_set_up_is_a_reply() -> None:
    """If there is no memory for the inputs, every kernel of the problem gets a reply with the reason."""
    device = FaultyDevice(GOOD, GOOD)
    big = "conv_forward_fp32_nhwgc_2d_n64_c512_k512_g1_i256x256_f3x3_s1x1_p1x1_d1x1"
    jobs = [Job(Op.MEASURE, i, library="none", samples=1) for i in range(2)]
    options = SupervisorOptions(20.0, WorkerConfig(MEMORY_BYTES, None))
    with Supervisor(device, options, lambda: False) as supervisor:
        replies = [reply for _, reply in supervisor.run(Job(Op.PROBLEM, -1, problem=big), jobs)]
    assert statuses(replies) == [Status.OUT_OF_MEMORY] * 2
    assert [reply.id for reply in replies] == [0, 1]
    assert "inputs" in replies[0].message
