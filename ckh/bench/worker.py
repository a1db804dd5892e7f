"""`python -m ckh.bench.worker CONFIG`: a program that measures kernels and may die.

It reads jobs from stdin and writes replies to what was its stdout when it started; whatever a kernel prints goes to
stderr. It ends when stdin does, or when its supervisor is gone.
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

from ckh.bench.measure import Bench, PhaseClock, answer
from ckh.bench.protocol import Op, Phase, Reply, WorkerConfig, job_from_line
from ckh.data.schema import Status

READY_ID = -1
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve jobs until stdin ends."""
    config = WorkerConfig(**json.loads(sys.argv[1]))
    replies = os.dup(1)
    os.dup2(2, 1)
    _settle(config)
    clock = PhaseClock()
    bench = Bench(clock)
    work = {Op.PROBLEM: bench.set_problem, Op.MEASURE: bench.measure, Op.TIME: bench.time}
    _write(replies, Reply(READY_ID, Status.OK))
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


def _settle(config: WorkerConfig) -> None:
    """Die with the supervisor, keep to the memory limit, stay on one core, leave no core files."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if config.memory_limit_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (config.memory_limit_bytes, config.memory_limit_bytes))
    if config.cpu is not None:
        os.sched_setaffinity(0, {config.cpu})


def _write(descriptor: int, reply: Reply) -> None:
    line = reply.to_line()
    while line:
        line = line[os.write(descriptor, line) :]


if __name__ == "__main__":
    main()
