"""Plans of few problems: pairs measured by `ckh bench --plan`."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh import GemmProblem
from ckh.archs import load_arch
from ckh.bench.compilation.compile import CompileCosts
from ckh.bench.devices.device import HOST_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.planning.pace import Pace
from ckh.bench.planning.plan import ALL, Plan, Task, make_plan
from ckh.bench.planning.planner import AUTO, KERNELS, KnownBefore, few_plan, first_choices, total_times
from ckh.bench.supervision.driver import COMPILE_PHASE
from ckh.errors import UsageError
from ckh.learn.analytic.estimate import ESTIMATE
from ckh.learn.models.artifact import find_model, wanted_for
from ckh.ops.grouped_conv.measuring.measured import SetCandidates
from ckh.ops.grouped_conv.problem_sets import load_problems
from ckh.problems import Direction
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.ops.base import Kernel, Problem

PACE = Pace(CompileCosts({"": 1.0}))


@pytest.fixture(scope="module")
def whole() -> Plan:
    """All kernels of 40 layers in 2D on the host."""
    layers = load_problems("host-holdout", Direction.FORWARD, "fp32")
    problems = [layer for layer in layers if layer.ndim == 2][:40]
    return make_plan(problems, ALL, load_arch("host"), 0, SetCandidates())


def small_tiles(_problem: Problem, kernels: Sequence[Kernel], numbers: NDArray[np.int64], /) -> NDArray[np.float64]:
    """Small tiles first."""
    chosen = [kernels[number] for number in numbers]
    return -np.array([kernel.tile_m * kernel.tile_n for kernel in chosen], dtype=np.float64)


def nothing(_problem: Problem, _kernels: Sequence[Kernel], _numbers: NDArray[np.int64], /) -> None:
    """Unknown scores."""


def test_a_plan_of_few_problems_has_few_kernels(whole: Plan) -> None:
    """Seven problems have twelve kernels each, of some; the first are the first of the order."""
    few = few_plan(whole, "7", small_tiles, 0, None, PACE)
    assert [len(task.kernels) for task in few.tasks] == [12] * 7
    assert len(few.kernels) <= KERNELS
    everything = {task.problem: set(task.kernels) for task in whole.tasks}
    area = {kernel: kernel.tile_m * kernel.tile_n for kernel in whole.kernels}  # type: ignore[attr-defined]
    for task in few.tasks:
        assert set(task.kernels) <= everything[task.problem]
        assert area[task.kernels[0]] == min(area[kernel] for kernel in everything[task.problem])
    assert few == few_plan(whole, "7", small_tiles, 0, None, PACE)


def test_longer_plans_extend_shorter_ones(whole: Plan) -> None:
    """A plan of four is the first four problems of a plan of nine: an early stop keeps the most informative ones."""
    four, nine = (few_plan(whole, count, small_tiles, 0, None, PACE) for count in ("4", "9"))
    assert [task.problem for task in four.tasks] == [task.problem for task in nine.tasks][:4]
    assert len(few_plan(whole, "99", small_tiles, 0, None, PACE).tasks) == 40


def test_problems_that_run_often_come_first(whole: Plan) -> None:
    """A problem with nearly all of the time is first in a plan, and others are not left out."""
    problems = [task.problem for task in few_plan(whole, "40", small_tiles, 0, None, PACE).tasks]
    last = problems[-1]
    times = dict.fromkeys(problems, 1.0) | {last: 1e9}
    weighted = [task.problem for task in few_plan(whole, "40", small_tiles, 0, None, PACE, times).tasks]
    assert weighted[0] == last
    assert set(weighted) == set(problems)


def test_without_knowledge_kernels_are_sampled_from_all(whole: Plan) -> None:
    """Without an order each problem has twelve of its own kernels at random."""
    few = few_plan(whole, "40", nothing, 0, None, PACE)
    assert [len(task.kernels) for task in few.tasks] == [12] * 40
    assert len(few.kernels) > KERNELS


def test_the_pace_is_that_of_complete_runs() -> None:
    """Set-ups and kernels have ratios of their own; runs that did not end, or are short, do not count."""
    problem = GemmProblem(1024, 1024, 1024, "fp32")
    plain = Pace(CompileCosts({}))
    phase_s = {
        COMPILE_PHASE: 100.0,
        "inputs": plain.set_up_s(problem),
        "reference": 4 * plain.set_up_s(problem),
        "run": 1000 * plain.pair_s(problem),
        "time": 2000 * plain.pair_s(problem),
    }
    history: Any = SimpleNamespace(
        ends=[SimpleNamespace(run_id="a", phase_s=phase_s)],
        runs=[SimpleNamespace(run_id=name, op="gemm_universal") for name in "ab"],
        measured={("a", problem.canonical()): 1000, ("b", problem.canonical()): 1000},
    )
    device = open_device(HOST_KIND, DeviceOptions())
    pace = Pace.of(device, "gemm_universal", 1, history)
    assert pace.slower == pytest.approx(3.0)
    assert pace.slower_set_up == 1.0  # one set-up is too short to tell
    pace = plain.measured([(problem, 1)] * 10, phase_s)
    assert pace.slower == 1.0
    assert pace.slower_set_up == pytest.approx(0.5)
    assert pace.set_up_s(problem) == pytest.approx(0.5 * plain.set_up_s(problem))
    assert pace.measured([(problem, 1)], {}) == pace
    kernels: list[Any] = [SimpleNamespace()] * 40  # of 2 CPU seconds, by 4 compilers in 100 s
    pace = Pace(SimpleNamespace(of=lambda _: 2.0), jobs=4).measured([], phase_s, kernels)  # type: ignore[arg-type]
    assert pace.slower_compiling == pytest.approx(5.0)
    assert (pace.compiling_s(kernels), pace.kernel_s(kernels)) == pytest.approx((100.0, 2.5))
    history.ends = []
    assert Pace.of(device, "gemm_universal", 1, history).slower == 1.0


def test_measuring_is_shared_by_the_workers() -> None:
    """Seconds of problems and kernels are divided by the GPUs, but a problem is one GPU's; cores share references."""
    one, two = GemmProblem(4096, 4096, 4096, "bf16"), GemmProblem(16, 4096, 4096, "bf16")
    kernels: list[Any] = [SimpleNamespace()] * 40
    pace = Pace(CompileCosts({}), is_gpu=True)
    # 137.4 GFLOP at 55 ms, 2 * 4096^2 inputs at 8 ns, 4096^2 outputs at 31 ns; 0.1 s a kernel, and 20 ns an output
    assert pace.set_up_s(one) == pytest.approx(7.559 + 0.268 + 0.520, rel=1e-3)
    assert replace(pace, threads=8).set_up_s(one) == pytest.approx(0.945 + 0.268 + 0.520, rel=1e-3)
    assert pace.pair_s(one) == pytest.approx(0.1 + 0.3355, rel=1e-3)
    assert replace(pace, slower=2.0).pair_s(one) == 2 * pace.pair_s(one)
    each = [2 * pace.set_up_s(problem) + 40 * pace.pair_s(problem) for problem in (one, two)]
    tasks = [Task(one, kernels), Task(two, kernels), Task(two, [])]
    assert pace.measuring_s(tasks) == pytest.approx(sum(each))
    assert replace(pace, workers=8).measuring_s(tasks) == pytest.approx(max(each))
    assert replace(pace, workers=8).measuring_s([Task(two, kernels)] * 16) == pytest.approx(2 * each[1])


def test_compiling_takes_as_long_as_the_jobs_need() -> None:
    """Seconds are shared by the jobs, but never fewer than those of the slowest kernel."""
    kernels: list[Any] = [SimpleNamespace(cost=cost) for cost in (1.0, 2.0, 9.0)]
    costs: Any = SimpleNamespace(of=lambda kernel: kernel.cost)
    assert [Pace(costs, jobs).compiling_s(kernels) for jobs in (1, 2)] == [12.0, 9.0]
    assert Pace(costs, 2).compiling_s(kernels[:2]) == 2.0
    assert Pace(costs, to_compile=lambda given: given[:1]).compiling_s(kernels) == 1.0


@pytest.mark.parametrize("budget_s", [20.0, 120.0, 900.0])
def test_auto_fills_the_budget(whole: Plan, budget_s: float) -> None:
    """Compiling and measuring fill 85 % of the budget, as they are estimates; more time gives no fewer pairs."""
    few = few_plan(whole, AUTO, small_tiles, 0, budget_s, PACE)
    needs_s = PACE.compiling_s(few.kernels) + PACE.measuring_s(few.tasks)
    assert needs_s <= 0.85 * budget_s
    assert needs_s >= 0.9 * 0.85 * budget_s or few.pairs == whole.pairs
    assert few.pairs <= few_plan(whole, AUTO, small_tiles, 0, 2 * budget_s, PACE).pairs


def test_auto_measures_at_least_one_problem(whole: Plan) -> None:
    """A budget below one kernel's compile time still gives a problem and a few kernels."""
    few = few_plan(whole, AUTO, small_tiles, 0, 0.5, PACE)
    assert len(few.tasks) == 1
    assert 1 < len(few.kernels) <= 10


def test_nothing_left_to_measure_is_planned_too(whole: Plan) -> None:
    """Of measured pairs of compiled kernels nothing is left: all fit in any budget."""
    done: Any = SimpleNamespace(has=lambda _problem, _kernel: True, by_problem=lambda: iter(()))
    pace = replace(PACE, done=done, to_compile=lambda _kernels: [])
    assert len(few_plan(whole, AUTO, small_tiles, 0, 60.0, pace).tasks) == 40


def test_no_shape_of_a_model_is_left_out_for_the_budget(whole: Plan) -> None:
    """With times of their executions, problems have fewer kernels instead, two or more of each."""
    times = {task.problem: 1.0 for task in whole.tasks}
    few = few_plan(whole, AUTO, small_tiles, 0, 4.0, PACE, times)
    assert len(few.tasks) == len(whole.tasks) == 40
    assert min(len(task.kernels) for task in few.tasks) >= 2
    assert few.pairs < 12 * 40
    assert len(few_plan(whole, AUTO, small_tiles, 0, 4.0, PACE).tasks) < 40


@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5", ""])
def test_no_number_of_problems_is_refused(whole: Plan, count: str) -> None:
    """A count that is neither a positive number nor auto is a usage error; auto needs a budget."""
    with expect_refusal(UsageError, "bad-number"):
        few_plan(whole, count, small_tiles, 0, None, PACE)
    with pytest.raises(UsageError, match="budget"):
        few_plan(whole, AUTO, small_tiles, 0, None, PACE)


@pytest.mark.usefixtures("known_host")
def test_the_estimate_scores_what_a_model_does_not_know() -> None:
    """The MI350's model scores its own kernels; with others of the pool, all are scored by the estimate."""
    (conv,) = load_problems("host-holdout", Direction.FORWARD, "bf16")[:1]
    arch = load_arch("gfx950")
    model = find_model(wanted_for(conv, "gfx950"))
    own = model.spec.op.kernels.candidates(conv, arch, model.candidates_of).kernels
    whole = make_plan([conv], ALL, arch, 0, SetCandidates()).kernels
    assert len(own) < len(whole)
    for kernels, source in ((own, model.path.name), (whole, ESTIMATE)):
        known = KnownBefore("gfx950", None, arch.hardware.num_cus)
        assert known(conv, kernels, np.arange(len(kernels))) is not None
        assert list(known.sources) == [source]


def test_problems_weigh_by_all_of_their_executions(whole: Plan) -> None:
    """A problem that runs five times has five times its shortest time; on the CPU times are operations."""
    few = replace(whole, tasks=whole.tasks[:2])
    first, second = (task.problem for task in few.tasks)
    once, often = (total_times(few, counts, load_arch("host")) for counts in ({}, {first: 5}))
    assert once == {first: float(first.flops), second: float(second.flops)}
    assert often == {first: 5.0 * first.flops, second: float(second.flops)}


@pytest.mark.usefixtures("known_host")
def test_prior_knowledge_on_gpus_and_hosts() -> None:
    """The estimate is used if the nearest model does not know all kernels, on the host only a model of it."""
    (conv,) = load_problems("host-holdout", Direction.FORWARD, "bf16")[:1]
    arch = load_arch("gfx942")
    kernels = make_plan([conv], ALL, arch, 0, SetCandidates()).kernels
    known = KnownBefore("gfx942", None)
    scores = known(conv, kernels, np.arange(len(kernels)))
    assert scores is not None
    assert len(scores) == len(kernels)
    assert list(known.sources) == ["analytic estimate"]
    (conv,) = load_problems("host-holdout", Direction.FORWARD, "fp32")[:1]
    known = KnownBefore("host", None)
    kernels = make_plan([conv], ALL, load_arch("host"), 0, SetCandidates()).kernels
    assert known(conv, kernels, np.arange(len(kernels))) is not None
    assert list(known.sources) == ["grouped_conv_forward_fp32_host"]
    (conv,) = load_problems("host-holdout", Direction.FORWARD, "fp16")[:1]
    assert KnownBefore("host", None)(conv, kernels, np.arange(len(kernels))) is None


def test_first_choices_are_those_that_can_be_built() -> None:
    """Where the headers can build none of them, all."""
    fine, missing = SimpleNamespace(not_in_headers=""), SimpleNamespace(not_in_headers="no such tile")
    rankings: list[Any] = [SimpleNamespace(best=lambda _: [missing, fine]), SimpleNamespace(best=lambda _: [missing])]
    assert [first_choices(ranking, 2) for ranking in rankings] == [[fine], [missing]]
