"""Plans of few problems: pairs measured by `ckh bench --plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.bench.compilation.compile import CompileCosts
from ckh.bench.planning.plan import ALL, Plan, make_plan
from ckh.bench.planning.planner import AUTO, KERNELS, KnownBefore, Pace, few_plan
from ckh.errors import UsageError
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


@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5", ""])
def test_no_number_of_problems_is_refused(whole: Plan, count: str) -> None:
    """A count that is neither a positive number nor auto is a usage error; auto needs a budget."""
    with expect_refusal(UsageError, "bad-number"):
        few_plan(whole, count, small_tiles, 0, None, PACE)
    with pytest.raises(UsageError, match="budget"):
        few_plan(whole, AUTO, small_tiles, 0, None, PACE)


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
