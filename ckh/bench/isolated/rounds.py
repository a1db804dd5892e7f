"""Interleaved timing of a few kernels: in rounds, each kernel once per round, in random order.

Clock drift then affects all kernels alike, and no kernel always follows the same other one.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from ckh.bench.isolated.timing import DEFAULT_SAMPLES
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.journal_rows import with_times
from ckh.bench.supervision.limits import BenchLimits, Stop
from ckh.bench.supervision.protocol import Job, Op, Reply
from ckh.bench.supervision.runner import measure, on_problem
from ckh.schema import Status
from ckh.text.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ckh.bench.compilation.compile import Built
    from ckh.bench.devices.device import Device
    from ckh.bench.supervision.runner import JobRunner
    from ckh.ops.base import Kernel


def time_in_rounds(
    runner: JobRunner, setup: Job, kernels: Sequence[tuple[str, int]], rounds: int, seed: str
) -> list[Reply] | None:
    """One reply for each (library, loops): the samples of all rounds, or the first failure. None if stopped early."""
    order = random.Random(seed)
    jobs: list[Job] = []
    for _ in range(rounds):
        turn = list(enumerate(kernels))
        order.shuffle(turn)
        jobs += [Job(Op.TIME, i, library=library, samples=1, loops=loops) for i, (library, loops) in turn]
    replies: list[list[Reply]] = [[] for _ in kernels]
    for job, reply in runner.run(setup, jobs):
        replies[job.id].append(reply)
    if any(len(of_one) < rounds for of_one in replies):
        return None
    joined: list[Reply] = []
    for of_one in replies:
        timed = [with_times(reply) for reply in of_one]
        samples_ns = tuple(sample for reply in timed for sample in reply.samples_ns)
        failure = next((reply for reply in timed if reply.status is not Status.OK), None)
        joined.append(failure or replace(timed[-1], samples_ns=samples_ns))
    return joined


def measure_interleaved(
    driver: Driver, tasks: Mapping[str, Sequence[Kernel]], rounds: int
) -> Iterator[tuple[str, list[Reply]]]:
    """Check and time the kernels of each problem, given by its canonical string.

    Replies are in the order of the kernels. When stopped, ends early with the problems finished so far.
    """
    built = driver.build([kernel for kernels in tasks.values() for kernel in kernels])
    with driver.worker() as worker:
        for problem, kernels in tasks.items():
            if any(kernel not in built for kernel in kernels):
                return
            replies = _measure_one(worker, problem, [built[kernel] for kernel in kernels], rounds)
            if replies is None:
                return
            yield problem, replies


def compare_kernels(
    device: Device,
    tasks: Mapping[str, Sequence[Kernel]],
    timeout_s: float,
    title: str,
    take: Callable[[str, list[Reply]], None],
) -> None:
    """Run `measure_interleaved` with a progress bar and Ctrl-C; `take` gets each problem's replies at once."""
    with Stop() as stop, progress(title, len(tasks)) as advance:
        driver = Driver(device, BenchLimits(timeout_s=timeout_s), stop)
        for problem, replies in measure_interleaved(driver, tasks, DEFAULT_SAMPLES):
            take(problem, replies)
            advance(1, problem)
        if stop():
            raise KeyboardInterrupt


def _measure_one(worker: JobRunner, problem: str, built: Sequence[Built], rounds: int) -> list[Reply] | None:
    setup = on_problem(problem)
    result = dict(measure(worker, setup, built, samples=1))
    if len(result) < len(built):
        return None
    good = [i for i in range(len(built)) if result[i].status is Status.OK]
    timed = time_in_rounds(worker, setup, [(built[i].library, result[i].loops) for i in good], rounds, problem)
    if timed is None:
        return None
    result |= dict(zip(good, timed, strict=True))
    return [result[i] for i in range(len(built))]
