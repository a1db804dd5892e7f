"""How long compiling and measuring take: as seen here, or else by constants of the kind of device.

Compiling is counted in CPU seconds: a busy machine takes longer for a kernel, which says nothing about the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.bench.compilation.compile import default_jobs
from ckh.bench.planning.compile_cost import CompileCosts
from ckh.bench.supervision.driver import COMPILE_PHASE
from ckh.ops import operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ckh.bench.devices.device import Device
    from ckh.bench.planning.history import History
    from ckh.bench.planning.plan import Task
    from ckh.ops.base import Kernel

# Seconds of a pair, and what its operations add, where none are known yet.
_PAIR_S = 0.004
_PAIR_S_PER_GFLOP = 0.02
_FLOPS_PER_GFLOP = 1e9


def _all(kernels: Sequence[Kernel]) -> Sequence[Kernel]:
    return kernels


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take.

    Attributes:
        costs: what compiling takes.
        jobs: compilers at a time.
        slower: how much longer measuring takes than by the constants.
        to_compile: those of some kernels that are not compiled yet.
    """

    costs: CompileCosts
    jobs: int = 1
    slower: float = 1.0
    to_compile: Callable[[Sequence[Kernel]], Sequence[Kernel]] = _all

    @classmethod
    def of(cls, device: Device, op: str, jobs: int | None, history: History | None) -> Pace:
        """The pace of a device for an operation, with runs as what was seen of measuring."""
        slower = 1.0 if history is None else _slower(history)
        costs = CompileCosts.of_device(device, operation(op))
        return cls(costs, jobs or default_jobs(device.job_bytes), slower)

    def compiling_s(self, kernels: Sequence[Kernel]) -> float:
        """Seconds that compiling those of some kernels takes that are not compiled yet, on a machine that is idle."""
        costs = [self.costs.of(kernel) for kernel in self.to_compile(kernels)]
        return max(sum(costs) / self.jobs, max(costs, default=0.0))

    def pair_s(self, flops: int) -> float:
        """Seconds that a kernel takes on a problem of so many operations, with what surrounds it."""
        return self.slower * (_PAIR_S + flops / _FLOPS_PER_GFLOP * _PAIR_S_PER_GFLOP)

    def measuring_s(self, tasks: Iterable[Task]) -> float:
        """Seconds that measuring tasks takes."""
        return float(sum(len(task.kernels) * self.pair_s(task.problem.flops) for task in tasks))


def _slower(history: History) -> float:
    """The time that measuring took in complete runs, by what the constants say; 1 if there was none."""
    ended = {end.run_id: end.wall_s - end.phase_s.get(COMPILE_PHASE, 0.0) for end in history.ends}
    op_of_run = {run.run_id: operation(run.op) for run in history.runs}
    by_constants, plain = 0.0, Pace(CompileCosts({}))
    for (run_id, problem), rows in history.measured.items():
        if run_id in ended and rows:
            by_constants += rows * plain.pair_s(op_of_run[run_id].parse_problem(problem).flops)
    return sum(ended.values()) / by_constants if by_constants and sum(ended.values()) > 0 else 1.0
