"""Complete runs: a row for every pair, resuming, leaders, budget, samples of kernels."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ckh import GemmProblem
from ckh.bench.devices.device import HIP_KIND, HOST_KIND
from ckh.bench.planning.plan import Task, full_name
from ckh.bench.planning.results import MAX_LEADERS, PairResults, by_worth
from ckh.bench.supervision import sweep as sweep_module
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.limits import BenchLimits, Stop, StopReason
from ckh.data.journal import ResultRow, read_journal
from ckh.errors import DeviceError, UsageError
from ckh.ops.gemm_universal.operation import OPERATION
from ckh.schema import Status
from tests.bench.campaigns import LIMITS, Runs
from tests.bench.faults import CLAIMED_MS, FAULTS, GOOD, OTHER_PROBLEM, PROBLEM, SLOW, claims
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def test_the_journal_records_the_settings(make_runs: Callable[..., Runs]) -> None:
    """The journal begins with the device, and ends with the reason and the seconds by phase."""
    runs = make_runs(GOOD, problems=(PROBLEM, OTHER_PROBLEM))
    runs.run()
    journal = read_journal(runs.out)
    identity = runs.device.identity()
    assert [(run.device, run.compiler, run.flags) for run in journal.runs] == [
        (identity.name, identity.compiler, identity.flags)
    ]
    assert [(end.run_id, end.reason) for end in journal.ends] == [(journal.runs[0].run_id, "complete")]
    assert {"compile", "inputs", "reference", "run", "time"} <= set(journal.ends[0].phase_s)
    assert all(row.samples_ns == (CLAIMED_MS * 1e6,) * 5 and row.spread == 0 for row in journal.rows)
    assert runs.first_pass == runs.all_pairs


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 3, 4, 7, 10])
def test_a_run_cut_anywhere_is_resumed(make_runs: Callable[..., Runs], lines: int) -> None:
    """For a journal truncated after any line, or in the next, exactly the missing pairs are measured.

    The first line is the run, then come three of its plan, then the results. A truncated plan is made again.
    """
    runs = make_runs(GOOD, FAULTS["zeros"][0], claims(300.0), problems=(PROBLEM, OTHER_PROBLEM))
    runs.run()
    runs.keep_lines(lines, b'{"kind": "result", "run_id": "half')
    outlook = runs.campaign(resume=True).outlook(LIMITS)
    outcome = runs.run(resume=True)
    done = max(0, lines - 4)
    assert (outlook.pairs, outlook.pairs_done) == (6 - done, done)
    assert outcome.totals.statuses.total() == 6 - done
    assert runs.first_pass == runs.all_pairs


@pytest.mark.slow
def test_leaders_are_measured_again(make_runs: Callable[..., Runs]) -> None:
    """Kernels within 8 % of the best get a second row, whose time replaces the first; the others do not."""
    runs = make_runs(claims(100.0, 180.0), claims(107.0, 170.0), claims(109.0, 160.0), FAULTS["segfault"][0])
    outcome = runs.run()
    best, close, far, crashed = runs.device.names
    assert outcome.totals.remeasured == 2
    assert {row.kernel for row in runs.rows if row.remeasured} == {best, close}
    final = {row.kernel: row.latency_ms for row in read_journal(runs.out).final_rows()}
    assert final == {best: 180.0, close: 170.0, far: 109.0, crashed: None}
    assert all(len(row.samples_ns) == 5 for row in runs.rows if row.remeasured)


@pytest.mark.slow
def test_the_kernel_in_use_is_measured_in_the_same_rounds(make_runs: Callable[..., Runs]) -> None:
    """However slow it is, and in two visits with the other problem's between them; a resumed run does not repeat it."""
    kernels = claims(100.0), claims(150.0, 140.0), claims(250.0, 240.0)
    runs = make_runs(*kernels, problems=(PROBLEM, OTHER_PROBLEM))
    best, _, today = runs.device.names
    (runs.out.parent / "today").write_text(today, encoding="utf-8")
    assert runs.campaign(today=str(runs.out.parent / "today")).run(LIMITS).totals.remeasured == 8
    again = [row for row in runs.rows if row.remeasured]
    assert {row.kernel: row.latency_ms for row in again} == {best: 100.0, today: 240.0}
    visits = [(row.problem, row.time) for row in again[::2]]
    assert visits == [(row.problem, row.time) for row in again[1::2]]
    assert [problem for problem, _ in visits] == [PROBLEM.canonical(), OTHER_PROBLEM.canonical()] * 2
    assert {len(row.samples_ns) for row in again} == {5}
    assert runs.rows[0].kernel == today
    assert runs.run(resume=True).totals.remeasured == 0


def test_rounds_are_repeated_for_a_new_leader() -> None:
    """After rounds, a faster kernel, one that is new among the leaders, or another baseline needs further ones."""
    rows = [
        ResultRow("run", "p", f"k{i}", Status.OK, latency_ms=ms, remeasured=i in {1, 3})
        for i, ms in enumerate((1.07, 1.0, 1.5, 2.0))
    ]
    results = PairResults(rows)
    assert results.leaders("p", baseline="k3") == []
    assert results.leaders("p", baseline="k3", new=["k2"]) == []
    assert [leader.kernel for leader in results.leaders("p", baseline="k3", new=["k0"])] == ["k1", "k0", "k3"]
    assert [leader.kernel for leader in results.leaders("p", baseline="k2")] == ["k1", "k0", "k2"]
    assert [leader.kernel for leader in results.leaders("p", baseline="k3", visits=2)] == ["k1", "k0", "k3"]
    results.add(rows[1])
    assert results.leaders("p", baseline="k1", visits=2) == []  # the fastest needs no second visit
    assert results.leaders("p", baseline="k3", visits=2)
    results.add(rows[3])
    assert results.leaders("p", baseline="k3", visits=2) == []
    results.add(ResultRow("run", "p", "k4", Status.OK, latency_ms=0.9))
    assert [leader.kernel for leader in results.leaders("p", baseline="k3")] == ["k4", "k3"]


def test_a_single_leader_is_not_measured_again(make_runs: Callable[..., Runs]) -> None:
    """If no kernel is close to the best there is nothing to compare."""
    runs = make_runs(claims(100.0), claims(150.0))
    assert runs.run().totals.remeasured == 0
    assert not any(row.remeasured for row in runs.rows)


@pytest.mark.slow
def test_missing_leader_rounds_are_measured_on_resume(make_runs: Callable[..., Runs]) -> None:
    """If a run was killed between a problem's first pass and its leaders, the next run measures the leaders."""
    runs = make_runs(claims(100.0, 180.0), claims(107.0, 170.0), claims(250.0))
    runs.run()
    runs.keep_lines(6)
    outcome = runs.run(resume=True)
    assert (outcome.totals.statuses.total(), outcome.totals.remeasured) == (0, 2)
    assert runs.first_pass == runs.all_pairs
    final = {row.kernel: row.latency_ms for row in read_journal(runs.out).final_rows()}
    assert final == dict(zip(runs.device.names, (180.0, 170.0, 250.0), strict=True))
    assert runs.run(resume=True).totals.remeasured == 0


def test_at_most_twelve_kernels_lead() -> None:
    """The leaders are the fastest twelve of those within 8 %; unstable times count, failures do not."""
    rows = [ResultRow("run", "p", f"k{i}", Status.OK, latency_ms=1 + i / 1000) for i in range(20)]
    rows[0] = ResultRow("run", "p", "k0", Status.UNSTABLE, latency_ms=1.0)
    rows += [ResultRow("run", "p", "crashed", Status.CRASH), ResultRow("run", "other", "k0", Status.OK, latency_ms=0.5)]
    assert [row.kernel for row in PairResults(rows).leaders("p")] == [f"k{i}" for i in range(12)]
    assert MAX_LEADERS == 12
    edge = [ResultRow("run", "p", f"k{i}", Status.OK, latency_ms=ms) for i, ms in enumerate((1.0, 1.0799, 1.0801))]
    assert [row.kernel for row in PairResults(edge).leaders("p")] == ["k0", "k1"]
    assert PairResults(rows).leaders("unknown") == []
    assert PairResults(rows).best_ns("p") == 1e6


def test_a_budget_stops_the_run_early(make_runs: Callable[..., Runs]) -> None:
    """Pairs measured within the time and remaining pairs add up to all; resuming measures the rest."""
    runs = make_runs(*[SLOW] * 12, problems=(PROBLEM, OTHER_PROBLEM))
    outcome = runs.run(limits=BenchLimits(budget_s=0.6, timeout_s=5.0, jobs=2))
    assert outcome.reason is StopReason.BUDGET
    assert 0 < outcome.pairs_left == 24 - outcome.totals.statuses.total()
    assert read_journal(runs.out).ends[-1].reason == "budget"
    assert sum(runs.first_pass.values()) == 24 - outcome.pairs_left


@pytest.mark.slow
@pytest.mark.parametrize("has_budget", [True, False])
def test_first_kernels_are_measured_before_others_are_compiled(
    make_runs: Callable[..., Runs], monkeypatch: pytest.MonkeyPatch, *, has_budget: bool
) -> None:
    """With a budget two of every problem, then two at a time, which compile in half of the time left; each pair once.

    Without one, the kernels that the compilers begin with on all problems, then all others.
    """
    monkeypatch.setattr(*(Stop, "left_s", 1e-9) if has_budget else (sweep_module, "_MANY", 0))
    if not has_budget:
        monkeypatch.setattr(Driver, "missing", lambda _driver, kernels: kernels)
    runs = make_runs(*[GOOD] * 7, problems=(PROBLEM, OTHER_PROBLEM))
    campaign = runs.campaign()
    built: list[int] = []
    build = Driver.build

    def counted(driver: Driver, kernels: Sequence[Any], title: str = "") -> dict[Any, Any]:
        built.append(len(kernels))
        return build(driver, kernels, title)

    monkeypatch.setattr(Driver, "build", counted)
    outcome = campaign.run(LIMITS)
    first = {full_name(kernel) for task in campaign.plan.tasks for kernel in task.kernels[:2]}
    rows = [(row.problem, row.kernel) for row in runs.rows if not row.remeasured]
    assert Counter(rows) == runs.all_pairs
    assert (sum(built), built[0]) == (7, 2)
    if has_budget:
        assert set(list(dict.fromkeys(kernel for _, kernel in rows))[: len(first)]) == first
        assert len(built) > 1
    else:
        early = [pair for pair in runs.all_pairs if pair[1] in dict.fromkeys(kernel for _, kernel in rows[:2])]
        assert {kernel for _, kernel in early} <= first
        assert (set(rows[: len(early)]), built) == (set(early), [2, 5])
    assert (outcome.reason, outcome.pairs_left) == (StopReason.COMPLETE, 0)


def test_the_next_kernels_are_of_the_problem_with_the_most_time_and_uncertainty() -> None:
    """Executions x best time x standard deviation of the logarithms, divided by the kernels so far.

    Of the first problem 1 x 1 ms x 0.490 / 2 = 0.245, of the second 4 x 3 ms x 0.0707 / 2 = 0.424, then 0.283, 0.212.
    """
    problems = [GemmProblem(m, 64, 64, "fp32") for m in (16, 32, 48)]
    texts = [problem.canonical() for problem in problems]
    name = "gemm_universal_fp32_rcr_mem_cshuffle_intrawave_True_True_True_True_{}x32x64_2x2x1_16x16x16"
    kernels: list[Any] = [OPERATION.kernels.parse(name.format(tile)) for tile in (32, 64, 96, 128, 160, 192)]
    times = {0: (1.0, 2.0), 1: (3.0, 3.0 * math.exp(0.1))}
    results = PairResults(
        ResultRow("run", texts[number], f"k{i}", Status.OK, latency_ms=ms)
        for number, own in times.items()
        for i, ms in enumerate(own)
    )
    counts, tasks = {texts[1]: 4}, [(texts[0], kernels[:3]), (texts[1], kernels[3:])]
    assert [kernels.index(kernel) for kernel in by_worth(tasks, results, counts)] == [3, 4, 0, 5, 1, 2]
    # Without a time, a problem is as worthy as the first of the others: 0.848 / 1.
    assert next(by_worth([*tasks, (texts[2], kernels[2:])], results, counts)) == kernels[2]
    plan = [Task(problems[0], kernels), Task(problems[2], kernels)]
    results.add(ResultRow("run", texts[0], full_name(kernels[0]), Status.OK, latency_ms=5.0))
    assert results.best_so_far(plan, {texts[0]: 10}) == (1, 10.0, 50.0)


def test_kernels_for_gpus_are_built_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a core less for each worker; its error comes where it is awaited. For the CPU nothing is built before."""
    go, seen = threading.Event(), list[Any]()

    def build(_driver: Driver, kernels: Sequence[Any], _title: str = "", jobs: int | None = None) -> dict[Any, Any]:
        seen.append(jobs)
        if jobs is not None:
            assert go.wait(10)
        if not kernels:
            raise DeviceError("no disk", code="full")
        return dict.fromkeys(kernels)

    monkeypatch.setattr(Driver, "build", build)
    configs: list[Any] = [SimpleNamespace(kind=HIP_KIND)] * 2
    device: Any = SimpleNamespace(job_bytes=1)
    driver: Any = Driver(device, BenchLimits(jobs=8), lambda: False, configs)
    first, failed = driver.begin_build(["a"]), driver.begin_build([])
    go.set()
    assert first() == {"a": None}
    with expect_refusal(DeviceError, "full"):
        failed()
    assert seen == [6, 6]
    driver.configs = (SimpleNamespace(kind=HOST_KIND),)
    later = driver.begin_build(["b"])
    assert len(seen) == 2
    assert (later(), seen[2:]) == ({"b": None}, [None])


@pytest.mark.parametrize(
    ("what", "value"), [("device", "other CPU"), ("compiler", "cc 1"), ("arch", "gfx942"), ("flags", "-O0")]
)
def test_times_of_two_devices_are_not_mixed(make_runs: Callable[..., Runs], what: str, value: str) -> None:
    """A journal of another device, or with another compiler, is not continued."""
    runs = make_runs(GOOD)
    runs.run()
    path = runs.out / "journal.jsonl"
    last = getattr(read_journal(path).runs[0], what)
    old = json.dumps(last)
    new = json.dumps([value] if what == "flags" else value)
    text = path.read_text(encoding="utf-8").replace(f'"{what}": {old}', f'"{what}": {new}')
    path.write_text(text, encoding="utf-8")
    with expect_refusal(UsageError, "run-mismatch", value):
        runs.run(resume=True)
    assert path.read_text(encoding="utf-8") == text
