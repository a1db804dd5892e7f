"""Times of compiling and measuring on this node, for plans that fit a budget.

Compiling takes CPU seconds of a kernel, divided by the compilers. Measuring takes a worker's seconds of each problem
(drawing inputs, computing the reference) and of each kernel on it (loading, launches, checks), divided by the workers.
Both are those of this run or of an earlier one, once it has measured enough; before, they are constants.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from ckh.bench.compilation.compile import CompileCosts, default_jobs
from ckh.bench.computation import computation_of
from ckh.bench.devices.device import HIP_KIND
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.driver import COMPILE_PHASE
from ckh.bench.supervision.protocol import Phase
from ckh.ops import operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ckh.bench.devices.device import Device
    from ckh.bench.planning.plan import Task
    from ckh.bench.planning.results import History, PairResults
    from ckh.ops.base import Kernel, Problem

# Seconds of a problem per element of its inputs and of its result, and per GFLOP of its reference on one core: a bf16
# GEMM of 4 GFLOP on an x86 server of 2025, in CPU time. BLAS computes the reference with a worker's share of the cores.
_INPUT_S, _OUTPUT_S, _REFERENCE_S = 8e-9, 31e-9, 0.055
_SET_UPS = 2  # of a problem: for its first kernels, and for those that are compiled afterwards
# Seconds of a kernel on a problem, with its share of repeated rounds. On a CPU, its runs take most of them. On a GPU,
# these are not measured: loading, warming up and five samples, and the host's checks of some ten results.
_HOST_PAIR_S, _HOST_GFLOP_S = 0.004, 0.015
_GPU_PAIR_S, _GPU_OUTPUT_S = 0.1, 2e-8
_FLOPS_PER_GFLOP = 1e9
_LEAST_SEEN_S = 1.0  # of work by these constants, to trust its measured time
_SET_UP = (Phase.INPUTS, Phase.REFERENCE)
_PAIR = (Phase.LOAD, Phase.RUN, Phase.VERIFY, Phase.CALIBRATE, Phase.TIME)

Visits = list[tuple["Problem", int]]  # problems that a worker has set up, each with the number of kernels measured then


@dataclass(frozen=True, slots=True)
class Work:
    """Problems and kernels that a run has measured so far, and the seconds that this took by phase."""

    visits: Visits
    phase_s: Mapping[str, float]
    jobs: int
    workers: int
    compiled: tuple[Kernel, ...] = ()


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations of compiling and measuring with some compilers and workers."""

    costs: CompileCosts
    jobs: int = 1
    workers: int = 1
    is_gpu: bool = False
    threads: int = 1
    """Cores for the reference of a worker."""
    slower: float = 1.0
    """Ratio of measured times of kernels to the constants."""
    slower_set_up: float = 1.0
    """Ratio of measured times of inputs and references to the constants."""
    slower_compiling: float = 1.0
    """Ratio of measured times of compiling to the CPU seconds of the kernels, divided by the compilers."""
    to_compile: Callable[[Sequence[Kernel]], Sequence[Kernel]] = lambda kernels: kernels
    done: PairResults | None = None
    """Measured pairs, which take no more time."""

    @classmethod
    def of(cls, device: Device, op: str, jobs: int | None, history: History | None) -> Pace:
        """Pace of a device for an operation, with the times of earlier runs."""
        costs = CompileCosts.of_device(device, operation(op))
        configs = device.worker_configs()
        workers, is_gpu = len(configs), configs[0].kind == HIP_KIND
        threads = max(1, len(os.sched_getaffinity(0)) // workers) if is_gpu else 1
        pace = cls(costs, jobs or default_jobs(device.job_bytes), workers, is_gpu, threads)
        return pace if history is None else pace.measured(*_ended(history))

    def measured(self, visits: Visits, phase_s: Mapping[str, float], compiled: Sequence[Kernel] = ()) -> Pace:
        """The pace of work that took some seconds by phase, where there was enough of it."""
        plain = replace(self, slower=1.0, slower_set_up=1.0)
        pairs_s = sum(kernels * plain.pair_s(problem) for problem, kernels in visits)
        set_up_s = sum(plain.set_up_s(problem) for problem, _ in visits)
        return replace(
            self,
            slower=_ratio(phase_s, _PAIR, pairs_s) or self.slower,
            slower_set_up=_ratio(phase_s, _SET_UP, set_up_s) or self.slower_set_up,
            slower_compiling=_ratio(phase_s, (COMPILE_PHASE,), sum(map(self.costs.of, compiled)) / self.jobs)
            or self.slower_compiling,
        )

    def kernel_s(self, kernels: Sequence[Kernel]) -> float:
        """Mean seconds to compile one of many kernels like these."""
        return self.slower_compiling * sum(map(self.costs.of, kernels)) / len(kernels) / self.jobs

    def compiling_s(self, kernels: Sequence[Kernel]) -> float:
        """Seconds to compile those of the kernels that are not compiled yet."""
        costs = [self.slower_compiling * self.costs.of(kernel) for kernel in self.to_compile(kernels)]
        return max(sum(costs) / self.jobs, max(costs, default=0.0))

    def set_up_s(self, problem: Problem) -> float:
        """Seconds of a worker for a problem's inputs and reference."""
        inputs, outputs = _elements(problem)
        reference_s = problem.flops / _FLOPS_PER_GFLOP * _REFERENCE_S / self.threads
        return self.slower_set_up * (inputs * _INPUT_S + outputs * _OUTPUT_S + reference_s)

    def pair_s(self, problem: Problem) -> float:
        """Seconds of a worker to measure a kernel on a problem."""
        if self.is_gpu:
            return self.slower * (_GPU_PAIR_S + _elements(problem)[1] * _GPU_OUTPUT_S)
        return self.slower * (_HOST_PAIR_S + problem.flops / _FLOPS_PER_GFLOP * _HOST_GFLOP_S)

    def task_s(self, problem: Problem, kernels: int) -> float:
        """Seconds of a worker to measure some kernels on a problem."""
        return _SET_UPS * self.set_up_s(problem) + kernels * self.pair_s(problem) if kernels else 0.0

    def measuring_s(self, tasks: Iterable[Task]) -> float:
        """Seconds to measure what is left of tasks: each is measured by one worker."""
        each = [self.task_s(task.problem, self._left(task)) for task in tasks]
        return max(sum(each) / self.workers, max(each, default=0.0))

    def spent(self, tasks: Iterable[Task]) -> tuple[int, float]:
        """Number of kernels that were measured on the problems of tasks, and the seconds that this took by the pace."""
        problems = {task.problem.canonical(): task.problem for task in tasks}
        done = [] if self.done is None else [pair for pair in self.done.by_problem() if pair[0] in problems]
        kernels = set[str]().union(*(names for _, _, names in done))
        return len(kernels), sum(self.task_s(problems[text], len(names)) for text, _, names in done) / self.workers

    def _left(self, task: Task) -> int:
        if self.done is None:
            return len(task.kernels)
        canonical = task.problem.canonical()
        return sum(not self.done.has(canonical, full_name(kernel)) for kernel in task.kernels)


def _ratio(phase_s: Mapping[str, float], phases: Iterable[str], expected_s: float) -> float:
    """Ratio of the seconds of phases to those expected; 0 if they were too few."""
    return sum(phase_s.get(phase, 0.0) for phase in phases) / expected_s if expected_s >= _LEAST_SEEN_S else 0.0


def _elements(problem: Problem) -> tuple[int, int]:
    """Numbers of elements of a problem's inputs and of its result."""
    inputs, result = computation_of(problem).operands_of(problem)
    return sum(prod(operand.shape) for operand in inputs), prod(result.shape)


def _ended(history: History) -> tuple[Visits, dict[str, float]]:
    """Work of the runs that ended, and their seconds by phase."""
    ends = {end.run_id: end for end in history.ends}
    op_of_run = {run.run_id: operation(run.op) for run in history.runs}
    visits = [
        (op_of_run[run_id].problems.parse(problem), rows)
        for (run_id, problem), rows in history.measured.items()
        if run_id in ends
    ]
    phases = {phase for end in ends.values() for phase in end.phase_s}
    return visits, {phase: sum(end.phase_s.get(phase, 0.0) for end in ends.values()) for phase in phases}
