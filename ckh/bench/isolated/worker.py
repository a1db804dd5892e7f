"""`python -m ckh.bench.isolated.worker CONFIG`: a program that measures kernels and may crash.

It reads jobs from stdin, and writes replies to its original stdout; whatever a kernel prints goes to stderr. It ends at
the end of stdin, and after a reply marked as the last. The first line of its output says whether it is ready, or why it
has no device. It runs below a guard (`ckh.bench.supervision.guard`).

Threads or processes that a kernel leaves running would disturb later kernels: this is a failure of the kernel, and ends
the worker.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from ckh.bench.isolated.measure import Bench, KernelFailure, answer
from ckh.bench.isolated.memory import HostMemory
from ckh.bench.isolated.sensors import read_card
from ckh.bench.supervision.guard import adopt_orphans
from ckh.bench.supervision.protocol import (
    READY,
    Job,
    Op,
    Phase,
    PhaseClock,
    Reply,
    WorkerConfig,
    job_from_line,
)
from ckh.errors import DeviceError
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ckh.bench.isolated.checks import GpuChecks
    from ckh.bench.isolated.memory import Memory

_THREADS = Path("/proc/self/task")


def main() -> int:
    """Serve jobs until the end of stdin; returns the exit code."""
    config = WorkerConfig(**json.loads(sys.argv[1]))
    replies = os.dup(1)
    os.dup2(2, 1)
    _settle(config)
    clock = PhaseClock()
    try:
        memory, checks = _memory(config)
        card = partial(read_card, config.pci, config.kfd_id) if config.pci else dict[str, float]
        has_times = not config.is_emulated
        bench = Bench(memory, clock, card, checks, fnuz_floats=config.fnuz_floats, has_times=has_times)
    except DeviceError as error:
        _write(replies, Reply(READY.id, Status.LAUNCH_ERROR, f"{error.message}\n{error.hint}", is_last=True))
        return error.exit_code
    _write(replies, Reply(READY.id, Status.OK, card=card() or None))
    for reply in _answers(clock, _work(bench, config), counts_threads=not config.is_hip):
        _write(replies, reply)
        if reply.is_last:
            break
    return 0


def _memory(config: WorkerConfig) -> tuple[Memory, GpuChecks | None]:
    """Memory of the device, and its kernels that check results."""
    if not config.is_hip:
        return HostMemory(), None
    from ckh.bench.isolated.checks import GpuChecks
    from ckh.bench.isolated.hip_runtime import LIBRARY_VARIABLE, HipRuntime, preload
    from ckh.bench.isolated.memory import HipMemory

    if config.load_only:
        preload()
        return HostMemory(), None

    if config.is_emulated:
        from ckh.emulator.launch import attach

        attach(os.environ[LIBRARY_VARIABLE], config.arch)
    runtime = HipRuntime(config.gpu)
    memory = HipMemory(runtime, config.flush_bytes, config.rotating, config.rotating_bytes)
    memory.probe()
    return memory, GpuChecks(config.checks, runtime, memory) if config.checks else None


def _work(bench: Bench, config: WorkerConfig) -> dict[Op, Callable[[Job], Reply]]:
    if config.load_only:
        return {**dict.fromkeys(Op, _refuse), Op.LOAD: bench.load}
    return {
        Op.PROBLEM: bench.set_problem,
        Op.MEASURE: bench.measure,
        Op.TIME: bench.time,
        Op.LOAD: bench.load,
        Op.RUN: bench.run,
    }


def _refuse(job: Job) -> Reply:
    raise KernelFailure(Status.LAUNCH_ERROR, f"a worker that only loads libraries got a job to {job.op}")


def _answers(clock: PhaseClock, work: dict[Op, Callable[[Job], Reply]], *, counts_threads: bool) -> Iterator[Reply]:
    """Yield a reply to each job that is read, until there are no more."""
    mark = perf_counter()
    for line in sys.stdin:
        start = perf_counter()
        clock.add(Phase.WAIT, start - mark)
        job = job_from_line(line)
        threads = _threads() if counts_threads else 0
        reply = answer(job, work[job.op])
        if job.op is not Op.PROBLEM:
            reply = _unless_left_behind(reply, threads)
        seconds = clock.take()
        mark = perf_counter()
        inner = sum(phase_s for phase, phase_s in seconds.items() if phase != Phase.WAIT.value)
        seconds[Phase.OTHER.value] = mark - start - inner
        yield replace(reply, seconds=seconds)


def _unless_left_behind(reply: Reply, threads: int) -> Reply:
    """Return the reply, or a failure if the kernel left something running; `threads` is the limit, 0 for none."""
    left = "a process" if _has_children() else "a thread" if threads and _threads() > threads else ""
    if not left:
        return reply
    message = f"the kernel left {left} behind" + (f"; {reply.message}" if reply.message else "")
    return Reply(reply.id, Status.CRASH, message, is_last=True)


def _threads() -> int:
    return sum(1 for _ in _THREADS.iterdir())


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _settle(config: WorkerConfig) -> None:
    """Apply the memory limit, pin to one core, disable core dumps, and adopt all processes that kernels start.

    A GPU's runtime reserves far more address space than it uses, so its address space cannot be limited.
    """
    adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if config.memory_limit_bytes and not config.is_hip:
        resource.setrlimit(resource.RLIMIT_AS, (config.memory_limit_bytes, config.memory_limit_bytes))
    if config.cpu is not None:
        os.sched_setaffinity(0, {config.cpu})


def _write(descriptor: int, reply: Reply) -> None:
    line = reply.to_line()
    while line:
        line = line[os.write(descriptor, line) :]


if __name__ == "__main__":
    sys.exit(main())
