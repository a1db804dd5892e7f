"""Plans of `ckh bench --plan auto` for nodes of GPUs and cores, and simulated runs of them.

    python benchmarks/node_plans.py [--budget-s 900]

Nothing here is measured: a simulated clock runs the real planner and the real `Sweep`, and compilers and workers take
the assumed seconds of `SimulatedNode`, which are not those that plans begin with. "before" are plans by 4 ms and 20 ms
per GFLOP for each pair, whatever the GPUs, as ckh made them at first.
"""

from __future__ import annotations

import argparse
import heapq
import math
import tempfile
import zlib
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ckh.archs import load_arch
from ckh.bench.compilation.compile import Built, CompileCosts, kind_of
from ckh.bench.computation import computation_of, measured_of
from ckh.bench.devices.device import HIP_KIND, DeviceIdentity
from ckh.bench.planning.pace import Pace, Work
from ckh.bench.planning.plan import ALL, Plan, full_name, make_plan
from ckh.bench.planning.planner import AUTO, KnownBefore, few_plan
from ckh.bench.planning.results import PairResults
from ckh.bench.supervision.campaign import settle
from ckh.bench.supervision.driver import COMPILE_PHASE, NO_PROBLEM_LEFT
from ckh.bench.supervision.limits import BenchLimits, Stop
from ckh.bench.supervision.protocol import Job, Op, Phase, Reply
from ckh.bench.supervision.runner import new_record
from ckh.bench.supervision.sweep import Sweep
from ckh.data.journal import JournalWriter
from ckh.data.settings import Given
from ckh.ops import operation, operation_of
from ckh.schema import Status
from ckh.text.progress import ProgressStyle, show_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ARCH, SOURCE, OP = "gfx942", "llama3-8b", "gemm_universal"
BUDGET_S = 900.0
WAITING = "waiting for inputs and references"


class PaceBefore(Pace):
    """The constants of every pair, for one worker."""

    def set_up_s(self, problem: Any) -> float:
        """None."""
        del problem
        return 0.0

    def pair_s(self, problem: Any) -> float:
        """4 ms, and 20 ms per GFLOP."""
        return 0.004 + 0.02 * float(problem.flops) / 1e9


@cache
def whole_plan() -> tuple[Plan, KnownBefore]:
    """All kernels of Llama-3-8B's GEMMs, and what is known of them."""
    arch, measured = load_arch(ARCH), measured_of(operation(OP))
    settings = settle(Given(op=OP, problems=SOURCE), HIP_KIND, "bf16")
    plan = make_plan(measured.problems(settings), ALL, arch, 0, measured.candidate_source(settings))
    return plan, KnownBefore(ARCH, None, arch.hardware.num_cus)


def pace_of(gpus: int, cores: int, kind: type[Pace] = Pace) -> Pace:
    """The pace that a plan begins with on a node."""
    hip = measured_of(operation(OP)).hip
    assert hip is not None
    workers = gpus if kind is Pace else 1
    return kind(CompileCosts(hip.compile_s), cores, workers, is_gpu=True, threads=max(1, cores // gpus))


def planned(pace: Pace, budget_s: float) -> Plan:
    """The plan for a budget."""
    plan, known = whole_plan()
    return few_plan(plan, AUTO, known, 0, budget_s, pace)


class SimulatedNode:
    """A driver whose compilers and workers take assumed seconds of a simulated clock."""

    compile_s, compile_mem_s = 30.0, 70.0  # of a kernel, on one core
    input_s, output_s, reference_s = 10e-9, 40e-9, 0.07  # of an element, an element, a GFLOP on one core
    pair_s, pair_output_s = 0.15, 25e-9
    round_s, round_output_s = 0.02, 6e-9  # of a sample of the repeated rounds
    is_spread = False

    def __init__(self, gpus: int, cores: int) -> None:
        self.now, self.jobs, self.threads = 0.0, cores, max(1, cores // gpus)
        self.limits = BenchLimits(no_peak_check=True)
        self.configs: Any = [SimpleNamespace(kind=HIP_KIND)] * gpus
        self.names = frozenset(f"node/hip{number}" for number in range(gpus))
        self.phase_s = {COMPILE_PHASE: 0.0}
        self.worker_s: dict[str, dict[str, float]] = {name: {} for name in sorted(self.names)}
        self.restarts, self.first_unit_s = 0, 0.0
        self.built: set[Any] = set()
        self.stop = Stop()

    def monotonic(self) -> float:
        """The clock."""
        return self.now

    def missing(self, kernels: Sequence[Any]) -> list[Any]:
        """Kernels that are not compiled."""
        return [kernel for kernel in dict.fromkeys(kernels) if kernel not in self.built]

    def build(self, kernels: Sequence[Any], title: str = "") -> dict[Any, Built]:
        """Compile with one compiler per core."""
        del title
        return self.begin_build(kernels)()

    def begin_build(self, kernels: Sequence[Any]) -> Callable[[], dict[Any, Built]]:
        """Compile each next kernel by the first core that is free, until the budget ends; GPUs measure meanwhile."""
        start, left_s = self.now, self.stop.left_s
        new = set[Any]()
        free, end = [start] * self.jobs, math.inf if left_s is None else start + left_s
        for kernel in self.missing(kernels):
            done = free[0] + (self.compile_mem_s if kind_of(kernel) == "mem" else self.compile_s)
            heapq.heapreplace(free, done)
            new |= {kernel} if done <= end else set()
        ended = min(max(free), end)

        def finish() -> dict[Any, Built]:
            self.now, self.built = max(self.now, ended), self.built | new
            self.first_unit_s = self.first_unit_s or self.now
            self.phase_s[COMPILE_PHASE] += ended - start
            names = {kernel: full_name(kernel) for kernel in kernels if kernel in self.built}
            return {kernel: Built(Status.OK, name, name) for kernel, name in names.items()}

        return finish

    def possible(self, reply: Reply, problem: str) -> Reply:
        """Simulated times are held against no peak."""
        del problem
        return reply

    def require_alike(self, alike: Any) -> None:
        """The devices are equal."""

    def serve(self, choose: Callable[[str], Any], work: Callable[[Any, Any], None]) -> None:
        """Give each next task to the worker that is free first."""
        free = [(self.now, name, SimulatedWorker(self, name)) for name in sorted(self.names)]
        ended: dict[str, float] = {}
        while free:
            self.now, name, worker = heapq.heappop(free)
            task = None if self.stop() else choose(name)
            if task is None:
                ended[name] = self.now
                continue
            work(worker, task)
            heapq.heappush(free, (self.now, name, worker))
        self.now = max(ended.values())
        for name, at in ended.items():
            self.worker_s[name][NO_PROBLEM_LEFT] = self.worker_s[name].get(NO_PROBLEM_LEFT, 0.0) + self.now - at


class SimulatedWorker:
    """A worker of a simulated node; kernels take a time by their name, so that some are close to the fastest."""

    def __init__(self, node: SimulatedNode, name: str) -> None:
        self._node, self.node, self._problem = node, name, ""
        self.phase_s: dict[str, float] = {}
        self.restarts = 0

    def _spend(self, phase: Phase, seconds: float) -> None:
        self._node.now += seconds
        for spent in (self._node.phase_s, self._node.worker_s[self.node]):
            spent[phase] = spent.get(phase, 0.0) + seconds

    def run(self, setup: Job, jobs: Sequence[Job]) -> Iterator[tuple[Job, Reply]]:
        """Take the seconds of the inputs and the reference, if the problem is new, and of each job."""
        node, problem = self._node, operation_of(setup.problem).problems.parse(setup.problem)
        inputs, result = computation_of(problem).operands_of(problem)
        outputs = prod(result.shape)
        if jobs and setup.problem != self._problem and not node.stop():
            self._spend(Phase.INPUTS, node.input_s * sum(prod(operand.shape) for operand in inputs))
            self._spend(
                Phase.REFERENCE, node.output_s * outputs + node.reference_s * problem.flops / 1e9 / node.threads
            )
            self._problem = setup.problem
        for job in jobs:
            if node.stop():
                return
            is_first = job.op is Op.MEASURE
            self._spend(Phase.VERIFY, outputs * (node.pair_output_s if is_first else node.round_output_s))
            self._spend(Phase.TIME, node.pair_s if is_first else node.round_s)
            slower = 1 + zlib.crc32(f"{setup.problem} {job.library}".encode()) / 2**32
            yield job, Reply(job.id, Status.OK, samples_ns=(slower * 1e5,) * job.samples, loops=job.loops or 5)


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """Result of a simulated run."""

    pairs: int
    planned: int
    """Pairs of the first plan."""
    compiled: int
    waiting: float
    """Largest share of a GPU's time after the first compiled unit that it waited for inputs and references."""
    uses: dict[str, dict[str, float]]
    ended_s: float


def simulated(gpus: int, cores: int, budget_s: float = BUDGET_S) -> SimulatedRun:
    """Run a plan on a simulated node."""
    node, results, pace = SimulatedNode(gpus, cores), PairResults(), pace_of(gpus, cores)
    plan = planned(pace, budget_s)
    settings = settle(Given(op=OP, problems=SOURCE, plan=AUTO), HIP_KIND, "bf16")
    identity = DeviceIdentity(HIP_KIND, ARCH, "simulated", 0, {}, "simulated", ())
    plans = [plan]

    def again(work: Work, left_s: float) -> Plan | None:
        if len(plans) > 1:
            return None
        own = CompileCosts(pace.costs.usual, {"": (node.compile_s, 1), "mem": (node.compile_mem_s, 1)})
        known = replace(pace, costs=own, to_compile=node.missing, done=results).measured(work.visits, work.phase_s)
        measured = plan.without(lambda problem, kernel: not results.has(problem, kernel))
        plans.append(planned(known, left_s).joined(measured))
        return plans[-1]

    show_progress(ProgressStyle.NONE)
    try:
        with tempfile.TemporaryDirectory() as folder, patch("time.monotonic", node.monotonic):
            journal = JournalWriter(Path(folder) / "run", replace=False, is_new=True)
            stop = Stop(budget_s)
            node.stop = stop
            record = new_record(identity, settings, plan.pairs)
            journal.start_run(record)
            totals = Sweep(node, record, journal, stop, (), again).measure(plan, results)  # type: ignore[arg-type]
            journal.close()
    finally:
        show_progress(ProgressStyle.AUTO)
    measuring_s = node.now - node.first_unit_s
    waiting = max(uses[WAITING] for uses in totals.uses.values()) / measuring_s
    compiled = len(node.built)
    return SimulatedRun(totals.statuses.total(), plan.pairs, compiled, waiting, totals.uses, node.now)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget-s", type=float, default=BUDGET_S)
    budget_s = parser.parse_args().budget_s
    print("GPUs cores | pairs planned before | now || simulated: pairs, kernels, GPU waits for inputs and references")
    for gpus in (1, 8):
        for cores in (1, 8, 64):
            before, run = planned(pace_of(gpus, cores, PaceBefore), budget_s), simulated(gpus, cores, budget_s)
            counts = f"{gpus:4d} {cores:5d} | {before.pairs:20d} | {run.planned:4d}"
            print(f"{counts} || {run.pairs:5d} {run.compiled:4d} {run.waiting:6.1%}")
    shares = {
        name: sum(uses[name] for uses in run.uses.values()) / gpus / run.ended_s
        for name in next(iter(run.uses.values()))
    }
    print("8 GPUs, 64 cores, simulated: " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()))


if __name__ == "__main__":
    main()
