"""`python -m ckh.bench.worker CONFIG`: a program that measures kernels and may die.

It reads jobs from stdin and writes replies to what was its stdout when it started; whatever a kernel prints goes to
stderr. It ends when stdin does, when its supervisor is gone, and after a reply that says it is the last. The first line
that it writes says whether it is ready, or why it has no device.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from ckh.bench.measure import Bench, KernelFailure, answer
from ckh.bench.memory import HostMemory
from ckh.bench.protocol import Job, Op, Phase, PhaseClock, Reply, WorkerConfig, job_from_line
from ckh.data.schema import Status
from ckh.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.bench.memory import Memory

READY_ID = -1
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve jobs until stdin ends; the exit code."""
    config = WorkerConfig(**json.loads(sys.argv[1]))
    replies = os.dup(1)
    os.dup2(2, 1)
    _settle(config)
    clock = PhaseClock()
    try:
        bench = Bench(_memory(config), clock, fnuz_floats=config.fnuz_floats)
    except DeviceError as error:
        _write(replies, Reply(READY_ID, Status.LAUNCH_ERROR, error.message, is_last=True))
        return error.exit_code
    _write(replies, Reply(READY_ID, Status.OK))
    _serve(replies, clock, _work(bench, config))
    return 0


def _memory(config: WorkerConfig) -> Memory:
    if config.load_only or not config.is_hip:
        return HostMemory()
    from ckh.bench.hip_memory import HipMemory
    from ckh.bench.hip_runtime import HipRuntime

    memory = HipMemory(HipRuntime(config.gpu), config.flush_bytes)
    memory.probe()
    return memory


def _work(bench: Bench, config: WorkerConfig) -> dict[Op, Callable[[Job], Reply]]:
    if config.load_only:
        return {**dict.fromkeys(Op, _refuse), Op.LOAD: bench.load}
    return {Op.PROBLEM: bench.set_problem, Op.MEASURE: bench.measure, Op.TIME: bench.time, Op.LOAD: bench.load}


def _refuse(job: Job) -> Reply:
    raise KernelFailure(Status.LAUNCH_ERROR, f"a worker that only loads libraries was asked to {job.op}")


def _serve(replies: int, clock: PhaseClock, work: dict[Op, Callable[[Job], Reply]]) -> None:
    mark = perf_counter()
    for line in sys.stdin:
        start = perf_counter()
        clock.add(Phase.WAIT, start - mark)
        job = job_from_line(line)
        reply = answer(job, work[job.op])
        seconds = clock.take()
        mark = perf_counter()
        inner = sum(value for phase, value in seconds.items() if phase != Phase.WAIT.value)
        _write(replies, replace(reply, seconds={**seconds, Phase.OTHER.value: mark - start - inner}))
        if reply.is_last:
            return


def _settle(config: WorkerConfig) -> None:
    """Die with the supervisor, keep to the memory limit, stay on one core, leave no core files.

    A GPU's runtime reserves far more address space than it uses, so it cannot be held to a limit of that.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
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
