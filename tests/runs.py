"""Runs as recorded in journals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ckh.data.journal import JournalWriter, ResultRow, RunRecord
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.schema import Status
from tests.learn.conftest import HARDWARE, kernels, problems, time_ms

if TYPE_CHECKING:
    from collections.abc import Mapping


def host_run(hardware: Mapping[str, int], **changes: Any) -> RunRecord:
    """A run of forward convolutions on a CPU with these quantities, except the given fields."""
    run = RunRecord(
        run_id="run1",
        ckh_version="0",
        started="2026-01-01",
        device_kind="host",
        arch="host",
        device="A CPU",
        clock_mhz=3000,
        hardware=dict(hardware),
        compiler="c++",
        flags=("-O3",),
        seed=0,
        samples=3,
        variant="forward",
        problems="p",
        kernels="k",
        dtype="fp32",
    )
    return replace(run, **changes)


ANOTHER = host_run({"num_cus": 1}, run_id="another")


def writer_behind_another(folder: Path, **how: bool) -> JournalWriter:
    """The writer of a journal in which another run has already stored all of its results."""
    other = JournalWriter(folder)
    other.start_run(ANOTHER)
    other.close()
    return JournalWriter(folder, **how)


def start(folder: str, kernels_of_run: str = "all") -> JournalWriter:
    """A journal of a run that has started."""
    writer = JournalWriter(Path(folder))
    writer.start_run(host_run(HARDWARE, run_id="r", kernels=kernels_of_run, samples=5, pairs=72))
    return writer


def rows(count: int) -> list[ResultRow]:
    """Results of three problems, a minute apart, every seventh a failure; the first twelve were remeasured."""
    made = []
    for i in range(count):
        problem, kernel = problems()[2 + i % 3], kernels()[i // 3]
        ms = time_ms(problem, kernel)
        values: dict[str, Any] = {"latency_ms": ms, "latency_min_ms": ms, "spread": 0.01} if i % 7 else {}
        status = Status.OK if i % 7 else Status.WRONG_RESULT
        made.append(ResultRow("r", problem.canonical(), kernel_name(kernel), status, time=60.0 * i, **values))
    again = [
        msgspec.structs.replace(row, remeasured=True, time=60.0 * count) for row in made if row.latency_ms is not None
    ]
    return [*made, *again[:12]]
