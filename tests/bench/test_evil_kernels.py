"""The suite "Evil kernels": any behaviour of a kernel becomes its own row, and does not affect others.

All kinds are kernels of one run, in random order, with right ones between them. The long version (`--reliability=long`)
repeats it in ten orders, on three problems each.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckh.bench.supervision import campaign as campaign_module
from ckh.bench.supervision.campaign import Campaign
from ckh.bench.supervision.limits import BenchLimits
from ckh.bench.supervision.protocol import WorkerConfig
from ckh.data.journal import ResultRow, read_journal
from ckh.data.settings import Given
from ckh.schema import Status
from tests.bench.evil import KINDS, processes_with
from tests.bench.faults import CLAIMED_MS, GOOD, OTHER_PROBLEM, PROBLEM, THIRD_PROBLEM, FaultyDevice

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

RIGHT = 10  # kernels
LIMITS = BenchLimits(timeout_s=2.0, jobs=2)
MARK = "CKH_TEST_EVIL"
ORDERS = {"short": 1, "long": 10}
PROBLEMS = {"short": (PROBLEM,), "long": (PROBLEM, OTHER_PROBLEM, THIRD_PROBLEM)}


class EvilDevice(FaultyDevice):
    """A kernel of each kind, and right ones; its worker may use half a gigabyte."""

    def __init__(self) -> None:
        super().__init__(*(kind.fault for kind in KINDS.values()), *[GOOD] * RIGHT)

    def worker_configs(self) -> tuple[WorkerConfig, ...]:
        return (WorkerConfig(1 << 29, None),)


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of a run by kind of kernel and by index of the right ones, and the remaining processes."""

    evil: dict[str, list[ResultRow]]
    right: list[ResultRow]
    left: list[str]


@pytest.fixture(scope="module")
def runs(reliability: str, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The suite."""
    return list(all_runs(tmp_path_factory.mktemp("evil"), reliability))


def all_runs(folder: Path, reliability: str) -> Iterator[Run]:
    device = EvilDevice()
    problems, kernels = folder / "problems.txt", folder / "kernels"
    problems.write_text("\n".join(problem.canonical() for problem in PROBLEMS[reliability]), encoding="utf-8")
    kernels.write_text("\n".join(device.names), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CKH_CACHE_DIR", str(folder / "cache"))
        patch.setattr(campaign_module, "open_device", lambda _kind, _options: device)
        for seed in range(ORDERS[reliability]):
            mark = f"{MARK}={os.getpid()}.{seed}"
            patch.setenv(*mark.split("="))
            given = Given(problems=str(problems), kernels=str(kernels), seed=seed)
            Campaign("host", given, folder / str(seed), resume=False).run(LIMITS)
            rows = read_journal(folder / str(seed)).rows
            of_kernel = {name: [row for row in rows if row.kernel == name] for name in device.names}
            evil = dict(zip(KINDS, of_kernel.values(), strict=False))
            right = [row for name in device.names[len(KINDS) :] for row in of_kernel[name]]
            yield Run(evil, right, processes_with(mark))


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_a_separate_row(name: str, runs: list[Run], reliability: str) -> None:
    """There is one row per problem with the reason; a kernel that crashed on two problems is not run on the third."""
    kind = KINDS[name]
    for run in runs:
        rows = [row for row in run.evil[name] if not row.remeasured]
        assert len({row.problem for row in rows}) == len(rows) == len(PROBLEMS[reliability])
        judged = [row for row in rows if not row.message.startswith("quarantined")]
        assert {row.status for row in judged} == {kind.status}
        assert all(kind.message in row.message for row in judged), judged[0].message
        is_quarantined = kind.status in (Status.CRASH, Status.TIMEOUT) and len(rows) > 2
        assert len(rows) - len(judged) == is_quarantined


def test_correct_kernels_are_unaffected(runs: list[Run], reliability: str) -> None:
    """All are ok with their stated times, in the first pass, and again as leaders."""
    for run in runs:
        assert {row.status for row in run.right} == {Status.OK}
        assert {sample for row in run.right for sample in row.samples_ns} == {CLAIMED_MS * 1e6}
        assert sum(not row.remeasured for row in run.right) == RIGHT * len(PROBLEMS[reliability])
        assert any(row.remeasured for row in run.right)


def test_no_process_is_left(runs: list[Run]) -> None:
    """No process started by a kernel survives, whatever its session and signals."""
    assert [run.left for run in runs] == [[]] * len(runs)


def test_their_number_is_documented() -> None:
    """docs/reliability.md states it."""
    page = (Path(__file__).parents[2] / "docs/reliability.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if Path(__file__).name in line)
    assert re.findall("[0-9]+", row)[:2] == [str(len(KINDS)), str(RIGHT)]
