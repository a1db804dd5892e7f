"""Choices of `ckh bench --active` for problems whose times follow a formula."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.bench.planning.active import ActiveRun
from ckh.bench.planning.plan import Plan, Task, full_name
from ckh.bench.planning.results import PairResults
from ckh.data.journal import JournalWriter, ResultRow, read_journal
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.schema import Status
from tests.learn.conftest import HARDWARE, kernels, time_ms
from tests.runs import host_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.ops.base import Kernel, Problem

RUN = host_run(HARDWARE)
SIZES = [(c, k, hi) for c in (8, 32, 128, 256) for k, hi in ((16, 28), (64, 14), (96, 7), (192, 56), (256, 28))]
PLAN = Plan(
    tuple(
        Task(ConvProblem(Direction.FORWARD, 1, c, k, 1, hi, hi, 3, 3, pad_h=1, pad_w=1), kernels())
        for c, k, hi in SIZES
    ),
    {},
)
MEASURED = [number for number in range(len(SIZES)) if number % 4]


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "chosen_by"), [(1, "a model of 360 pairs"), (-1, "what was known before")])
def test_a_misleading_guide_is_abandoned(tmp_path: Path, sign: int, chosen_by: str) -> None:
    """After fifteen problems a prior that puts the slowest first is replaced by a model; a right prior is kept."""

    def guide(problem: Problem, pool: Sequence[Kernel], numbers: NDArray[np.int64], /) -> NDArray[np.float64]:
        return np.array([sign * time_ms(problem, pool[number]) for number in numbers])  # type: ignore[arg-type]

    rows = [
        ResultRow("run1", problem.canonical(), full_name(kernel), Status.OK, latency_ms=time_ms(problem, kernel))  # type: ignore[arg-type]
        for problem in (PLAN.tasks[number].problem for number in MEASURED)
        for kernel in PLAN.kernels
    ]
    writer = JournalWriter(tmp_path)
    writer.start_run(RUN)
    active = ActiveRun(PLAN, PairResults(rows), guide, RUN, writer, tmp_path, 0.0, 1)
    task = active.next("")
    assert task is not None
    (chosen,) = read_journal(tmp_path).chosen
    assert chosen.chosen_by == chosen_by
    fastest = sorted(PLAN.kernels, key=lambda kernel: time_ms(task.problem, kernel))[:4]  # type: ignore[arg-type]
    assert set(fastest) == set(task.kernels) if sign > 0 else set(fastest) <= set(task.kernels)
