"""Workers and supervisors for the stub of the HIP runtime, and the measured problem."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ckh.bench.supervision.protocol import Job, Op, Reply, WorkerConfig
from ckh.bench.supervision.supervisor import Supervisor, SupervisorOptions
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.bench.faults import FaultyDevice
from tests.bench.hip_stub.build import StubKernel

if TYPE_CHECKING:
    from ckh.bench.supervision.process import WorkerProcess

GOOD = StubKernel()


def problem(dtype: str = "fp16") -> ConvProblem:
    """A grouped convolution with strides and padding, 36 products per element."""
    return ConvProblem(
        Direction.FORWARD,
        n=2,
        c=8,
        k=8,
        g=2,
        hi=8,
        wi=8,
        y=3,
        x=3,
        stride_h=2,
        stride_w=2,
        pad_h=1,
        pad_w=1,
        dtype=dtype,
    )


def setup(dtype: str = "fp16") -> Job:
    return Job(Op.PROBLEM, -1, problem=problem(dtype).canonical())


def config(*, gpu: int = 0, flush_bytes: int = 0, load_only: bool = False) -> WorkerConfig:
    """Configuration of a GPU worker, with a limit of address space that would end the worker if it were applied."""
    return WorkerConfig(1 << 20, None, "hip", gpu, flush_bytes, load_only)


def supervise(libraries: list[str], dtype: str = "fp16", flush_bytes: int = 0) -> tuple[list[Reply], int]:
    """Replies of kernels measured one after another, and the number of worker restarts."""
    jobs = [Job(Op.MEASURE, number, library=library, samples=3) for number, library in enumerate(libraries)]
    options = SupervisorOptions(20.0, config(flush_bytes=flush_bytes))
    with Supervisor(FaultyDevice(), options, lambda: False) as supervisor:
        replies = [reply for _, reply in supervisor.run(setup(dtype), jobs)]
    return replies, supervisor.restarts


def ask(worker: WorkerProcess, job: Job) -> Reply:
    """The reply to a job."""
    worker.send(job)
    return worker.receive(time.monotonic() + 20)
