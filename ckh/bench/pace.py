"""How long compiling and measuring take: as seen here, or else by constants of the kind of device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.bench.compile import default_jobs
from ckh.bench.device import EMULATED_KIND, HIP_KIND, HOST_KIND
from ckh.bench.driver import COMPILE_PHASE
from ckh.bench.kernel_cache import KernelCache
from ckh.ops import operation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckh.bench.device import Device
    from ckh.bench.history import History
    from ckh.bench.plan import Task

# Seconds where none are known yet: a kernel's compiler; a pair, and what its operations add.
_COMPILE_S = {HOST_KIND: 0.9, HIP_KIND: 8.0, EMULATED_KIND: 8.0}
_PAIR_S = 0.004
_PAIR_S_PER_GFLOP = 0.02
_FLOPS_PER_GFLOP = 1e9


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take.

    Attributes:
        compile_s: a kernel, with all compilers at work.
        seen_compile_s: what compiling one took on this machine on average; None: none was compiled.
        slower: how much longer measuring takes than by the constants.
    """

    compile_s: float
    seen_compile_s: float | None
    slower: float = 1.0

    @classmethod
    def of(cls, kind: str, device: Device, op: str, jobs: int | None, history: History | None) -> Pace:
        """The pace of a device of a kind for an operation, with runs as what was seen of measuring."""
        seen_s = KernelCache().seconds_each(device.arch.name, op)
        each_s = _COMPILE_S[kind] if seen_s is None else seen_s
        slower = 1.0 if history is None else _slower(history)
        return cls(each_s / (jobs or default_jobs(device.job_bytes)), seen_s, slower)

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
    by_constants, plain = 0.0, Pace(0.0, None)
    for (run_id, problem), rows in history.measured.items():
        if run_id in ended and rows:
            by_constants += rows * plain.pair_s(op_of_run[run_id].parse_problem(problem).flops)
    return sum(ended.values()) / by_constants if by_constants and sum(ended.values()) > 0 else 1.0
