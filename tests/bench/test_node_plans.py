"""A simulated node of GPUs: the planner and the sweep of a run with a budget, on a simulated clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.node_plans import BUDGET_S, WAITING, PaceBefore, pace_of, planned, simulated
from ckh.bench.planning.plan import full_name
from ckh.bench.planning.results import PairResults
from ckh.bench.supervision.driver import COMPILING, uses_of
from ckh.data.journal import ResultRow
from ckh.schema import Status


@pytest.mark.slow
def test_a_node_of_gpus_is_busy() -> None:
    """Eight GPUs and 64 cores measure 1,500 pairs in 15 minutes and more, and hardly wait for inputs and references."""
    run = simulated(8, 64)
    assert planned(pace_of(8, 64, PaceBefore), BUDGET_S).pairs < 400
    assert run.planned >= 1500
    assert run.pairs >= 1500
    assert run.waiting <= 0.10
    assert max(uses[COMPILING] for uses in run.uses.values()) <= 0.30 * run.ended_s  # the others are compiled meanwhile
    assert run.ended_s <= BUDGET_S + 1
    for uses in run.uses.values():
        assert sum(uses.values()) == pytest.approx(run.ended_s)
        assert 0 < uses[WAITING] < run.ended_s


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "cores", "left_s"), [(1, 1, 300), (1, 1, 600), (8, 64, 600)])
def test_a_plan_grows_when_all_of_it_was_measured(gpus: int, cores: int, left_s: float) -> None:
    """Half of the time that is left and more is for new pairs (with one GPU and one core, it was none of it)."""
    pace = pace_of(gpus, cores)
    before = planned(pace, BUDGET_S)
    measured, built = PairResults(), set(before.kernels)
    for task in before.tasks:
        for kernel in task.kernels:
            measured.add(ResultRow("run", task.problem.canonical(), full_name(kernel), Status.OK, latency_ms=1.0))
    left = replace(pace, done=measured, to_compile=lambda kernels: [one for one in kernels if one not in built])
    new = planned(left, left_s).without(measured.has)
    assert 0.5 * left_s <= left.compiling_s(new.kernels) + left.measuring_s(new.tasks) <= left_s


def test_each_second_of_a_worker_has_a_use() -> None:
    """Phases are summed by use; what is left of the run is other, also if they overlap it by a rounding error."""
    phase_s = {"time": 2.0, "run": 1.0, "verify": 3.0, "inputs": 0.5, "reference": 1.5, "wait": 9.0}
    uses = uses_of(phase_s, compile_s=4.0, wall_s=15.0)
    assert uses == {
        "measuring": 3.0,
        "checking results": 3.0,
        WAITING: 2.0,
        "no problem left": 0,
        "waiting for compilers": 4.0,
        "other": 3.0,
    }
    assert uses_of(phase_s, compile_s=4.0, wall_s=11.9)["other"] == 0.0
