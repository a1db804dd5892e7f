"""Running jobs on one device: what a supervisor here and a node of a cluster have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ckh.bench.supervision.protocol import Job, Op, Reply
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.bench.compilation.compile import Built


class JobRunner(Protocol):
    """A runner of jobs on one device: a `Supervisor`, or a node's for a cluster.

    Attributes:
        node: which machine and device it is; empty: the only one of this machine.
        phase_s: seconds by phase.
        restarts: of the device's process.
    """

    node: str
    phase_s: dict[str, float]
    restarts: int

    def run(self, setup: Job | None, jobs: Sequence[Job], /) -> Iterator[tuple[Job, Reply]]:
        """Do jobs on the problem of `setup`; yields each with its reply, in order, until all are done or stopped."""


def on_problem(problem: str, best_ns: float = 0.0) -> Job:
    """The job that sets a problem up, of which a time is known, or none (0)."""
    return Job(Op.PROBLEM, -1, problem=problem, best_ns=best_ns)


def measure(runner: JobRunner, setup: Job, built: Sequence[Built], samples: int) -> Iterator[tuple[int, Reply]]:
    """Measure kernels on the problem of `setup`; yields each one's number and reply, first those not built."""
    found = [number for number, one in enumerate(built) if one.status is Status.OK]
    for number, one in enumerate(built):
        if one.status is not Status.OK:
            yield number, Reply(number, one.status, one.message)
    jobs = [Job(Op.MEASURE, number, library=built[number].library, samples=samples) for number in found]
    for job, reply in runner.run(setup, jobs):
        yield job.id, reply
