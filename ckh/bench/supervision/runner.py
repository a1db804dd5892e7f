"""Interface for running jobs on one device, of this machine or of a cluster node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ckh.bench.supervision.protocol import Job, Op, Reply
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.bench.compilation.compile import Built


class JobRunner(Protocol):
    """A runner of jobs on one device: a `Supervisor`, or that of a cluster node."""

    node: str  # name of machine and device; empty: the only device of this machine
    phase_s: dict[str, float]
    restarts: int

    def run(self, setup: Job | None, jobs: Sequence[Job], /) -> Iterator[tuple[Job, Reply]]:
        """Run jobs on the problem of `setup`; yields each with its reply, in order, until done or stopped."""


def on_problem(problem: str, best_ns: float = 0.0) -> Job:
    """Job that sets up a problem; `best_ns` is its best known time, 0 if unknown."""
    return Job(Op.PROBLEM, -1, problem=problem, best_ns=best_ns)


def measure(runner: JobRunner, setup: Job, built: Sequence[Built], samples: int) -> Iterator[tuple[int, Reply]]:
    """Measure kernels on the problem of `setup`; yields index and reply of each, failed builds first."""
    numbers = [number for number, item in enumerate(built) if item.status is Status.OK]
    for number, item in enumerate(built):
        if item.status is not Status.OK:
            yield number, Reply(number, item.status, item.message)
    jobs = [Job(Op.MEASURE, number, library=built[number].library, samples=samples) for number in numbers]
    for job, reply in runner.run(setup, jobs):
        yield job.id, reply
