"""State of a resumed run from its journal: the final rows, in little memory, whatever the journal's size."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from ckh.archs import load_arch
from ckh.bench.planning.results import PairResults, read_history, stored_plan
from ckh.data.journal import JOURNAL_NAME, read_journal
from ckh.data.journal_records import EndRecord, PlanRecord, Record, ReferenceRecord, ResultRow, TaskRecord, record_line
from ckh.errors import DataError
from ckh.ops import operation
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction
from ckh.schema import Status
from tests.bench.faults import PROBLEM
from tests.refusals import expect_refusal
from tests.runs import host_run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_RUN = replace(host_run({}), pairs=4)
_TRIED_AGAIN = Status.COMPILE_INTERRUPTED


def write(folder: Path, records: Iterable[Record]) -> Path:
    """A journal of these records."""
    folder.mkdir(exist_ok=True)
    with (folder / JOURNAL_NAME).open("w", encoding="ascii") as file:
        file.writelines(map(record_line, records))
    return folder


def random_rows(random: Random, count: int) -> list[ResultRow]:
    """Rows of few problems, kernels and devices, so that most pairs have several."""
    rows = []
    for _ in range(count):
        status = random.choice([Status.OK, Status.OK, Status.UNSTABLE, Status.CRASH, Status.VERIFIED, _TRIED_AGAIN])
        ms = round(random.uniform(1.0, 1.2), 3) if status in (Status.OK, Status.UNSTABLE) else None
        problem, kernel = f"p{random.randrange(4)}", f"k{random.randrange(9)}"
        again, node = random.random() < 0.1, random.choice(["", "a", "b"])
        row = ResultRow(_RUN.run_id, problem, kernel, status, "", ms, ms, 0.01, (1.0,), random.randrange(1, 9), again)
        rows.append(structs.replace(row, node=node))
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_final_rows_are_the_journals(tmp_path: Path, seed: int) -> None:
    """Times, states, leaders and devices are those of the last row of each pair by the problem's last device."""
    rows = random_rows(Random(seed), 120)
    journal = read_journal(write(tmp_path / "run", [_RUN, *rows]))
    results, final = read_history(tmp_path / "run").results, journal.final_rows()
    assert len({row.node for row in final}) > 1
    for problem in ("p0", "p1", "p2", "p3", "unknown"):
        known = {row.kernel: row for row in final if row.problem == problem}
        for kernel in (f"k{number}" for number in range(10)):
            assert results.has(problem, kernel) == (kernel in known and known[kernel].status is not _TRIED_AGAIN)
        times = {kernel: row.latency_ms for kernel, row in known.items() if row.latency_ms}
        assert results.times(problem) == times
        assert results.device(problem) == next((row.node for row in known.values()), None)
        assert results.best_ns(problem) == pytest.approx(1e6 * min(times.values(), default=0.0))
        leaders = results.leaders(problem)
        again = {kernel for kernel, row in known.items() if row.remeasured}
        fastest = min(times, key=times.__getitem__, default="")
        close = sorted(ms for ms in times.values() if ms <= 1.08 * min(times.values()))
        assert [leader.ms for leader in leaders] == ([] if fastest in again or len(close) < 2 else close)
        assert all(leader.loops == known[leader.kernel].loops for leader in leaders)
    assert {(problem, name) for problem, _, names in results.by_problem() for name in names} == {
        (row.problem, row.kernel) for row in final if row.status is not _TRIED_AGAIN
    }
    assert results.is_any_right


def test_a_row_replaces_those_of_another_device() -> None:
    """Added rows replace their pair's, and all of their problem by another device."""
    first = ResultRow("r", "p", "k1", Status.OK, "", 2.0, loops=3)
    results = PairResults([first, structs.replace(first, kernel="k0"), structs.replace(first, latency_ms=1.0)])
    assert results.times("p") == {"k0": 2.0, "k1": 1.0}
    results.add(structs.replace(first, kernel="k2", node="other"))
    assert results.times("p") == {"k2": 2.0}
    results.set_aside("p")
    assert results.device("p") is None
    assert not results.is_any_right


def test_runs_plans_and_reference_times_are_kept(tmp_path: Path) -> None:
    """All other records are kept in the journal's order, and rows are counted by run and problem."""
    row = ResultRow(_RUN.run_id, "p", "k0", Status.CRASH)
    others: list[Record] = [
        PlanRecord(_RUN.run_id, ("k0", "k1")),
        TaskRecord(_RUN.run_id, "p", (0, 1)),
        TaskRecord(_RUN.run_id, "q", (1, 0)),
        ReferenceRecord(_RUN.run_id, "p", "k0", 1.0, 1.0, None, None, 0.0),
        EndRecord(_RUN.run_id, "complete", 2.0, {}),
    ]
    rows: list[Record] = [
        row,
        structs.replace(row, kernel="k1"),
        structs.replace(row, remeasured=True),
        structs.replace(row, problem="q"),
    ]
    folder = write(tmp_path / "run", [_RUN, *others[:3], *rows, *others[3:], replace(_RUN, run_id="second")])
    history, journal = read_history(folder), read_journal(folder)
    assert history.measured == {(_RUN.run_id, "p"): 2, (_RUN.run_id, "q"): 1}
    for name in ("path", "runs", "ends", "plans", "tasks", "references"):
        assert getattr(history, name) == getattr(journal, name), name


@pytest.mark.parametrize(("lines", "kernels"), [(3, None), (4, 1), (5, 1), (6, 1), (7, 2)])
def test_the_last_complete_plan_counts(tmp_path: Path, lines: int, kernels: int | None) -> None:
    """A new plan replaces the first one of its run, unless the process was killed while it was written."""
    op = operation("grouped_conv")
    names = tuple(map(op.kernels.name, conv_pool(Direction.FORWARD, load_arch("host"))[:2]))
    problems = [replace(PROBLEM, n=size).canonical() for size in (1, 2)]
    records: list[Record] = [
        replace(_RUN, op=op.name, pairs=2),
        PlanRecord(_RUN.run_id, names[:1]),
        *(TaskRecord(_RUN.run_id, problem, (0,)) for problem in problems),
        PlanRecord(_RUN.run_id, names, pairs=4),
        *(TaskRecord(_RUN.run_id, problem, (1, 0)) for problem in problems),
    ]
    plan = stored_plan(read_history(write(tmp_path / "run", records[:lines])), op)
    if kernels is None:
        assert plan is None
    else:
        assert plan is not None
        assert [tuple(map(op.kernels.name, task.kernels)) for task in plan.tasks] == [names[:kernels][::-1]] * 2
        assert [task.problem.canonical() for task in plan.tasks] == problems


def test_damaged_lines_are_refused(tmp_path: Path) -> None:
    """A damaged line is an error with its number, as for every reader of journals."""
    folder = write(tmp_path / "run", [_RUN])
    with (folder / JOURNAL_NAME).open("a", encoding="ascii") as file:
        file.write('{"kind": "result"}\n')
    with expect_refusal(DataError, "damaged", "journal.jsonl:2"):
        read_history(folder)


def test_short_memory_in_rows_of_earlier_versions_is_tried_again(tmp_path: Path) -> None:
    """Their status was that of a failed launch, which is conclusive; the message says out of memory."""
    messages = ["out of memory: hipMalloc: out of memory", "no 9 MB of workspace: hipMalloc: out of memory", "code 1"]
    rows = [
        ResultRow(_RUN.run_id, "p", f"k{number}", Status.LAUNCH_ERROR, said) for number, said in enumerate(messages)
    ]
    rows.append(ResultRow(_RUN.run_id, "p", "k3", Status.CRASH, messages[0]))
    results = read_history(write(tmp_path / "run", [_RUN, *rows])).results
    assert [results.has("p", row.kernel) for row in rows] == [False, False, True, True]


@pytest.mark.slow
def test_memory_per_row_is_bounded(tmp_path: Path) -> None:
    """Each additional row takes less than 40 bytes; a journal's line has 350."""
    peaks = []
    for problems in (5, 10):
        rows = [
            ResultRow(_RUN.run_id, f"p{problem}", f"kernel {kernel}", Status.OK, "", 1.0, 1.0, 0.0, (1e6,) * 3, 4)
            for problem in range(problems)
            for kernel in range(800)
        ]
        folder = write(tmp_path / str(problems), [_RUN, *rows])
        read_history(folder)
        tracemalloc.start()
        read_history(folder)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / (5 * 800) < 40
