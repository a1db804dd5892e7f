"""Drift monitoring: reference measurements are journalled, pairs measured during drift repeated, and remedies given."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ckh.bench.compilation.compile import Built
from ckh.bench.devices.device import HIP_KIND, HOST_KIND
from ckh.bench.isolated.sensors import Sensors, read_sensors
from ckh.bench.planning.plan import Task
from ckh.bench.supervision import reference_watch as reference
from ckh.bench.supervision import sweep
from ckh.bench.supervision.protocol import Reply
from ckh.bench.supervision.reference_watch import Alike, Reference, ReferenceWatch, by_computing
from ckh.bench.supervision.runner import Totals, on_problem
from ckh.commands.bench.output import machine_lines, reference_lines
from ckh.data.journal import read_journal
from ckh.data.journal_records import ReferenceRecord
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.schema import Status
from tests.bench.faults import GOOD, OTHER_PROBLEM, PROBLEM
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.bench.campaigns import Runs


@pytest.fixture
def drifting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is monitored before each problem; the third reference time is 20 % longer, the first is cold."""
    times = iter((2.0, 1.0, 1.2))
    monkeypatch.setattr(sweep, "LEAST_PAIRS", 1)
    monkeypatch.setattr(reference, "EVERY_S", 0.0)
    monkeypatch.setattr(
        reference,
        "measure",
        lambda _worker, _setup, _built, samples: iter(
            [(0, Reply(0, Status.OK, samples_ns=(next(times, 1.0) * 1e6,) * samples))]
        ),
    )


@pytest.mark.slow
@pytest.mark.usefixtures("drifting")
def test_pairs_measured_during_drift_are_remeasured(
    make_runs: Callable[..., Runs],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The problem between both reference measurements has two rows per pair, the other one; counts are of pairs."""
    monkeypatch.setattr(sweep, "AGAIN_SHARE", 1e9)
    runs = make_runs(GOOD, GOOD, problems=(PROBLEM, OTHER_PROBLEM))
    outcome = runs.run()
    journal = read_journal(runs.out)
    assert [item.ratio for item in journal.references][:2] == pytest.approx([1.0, 1.2])
    assert {item.kernel for item in journal.references} <= set(runs.device.names)
    first = journal.rows[0].problem
    rows = Counter(row.problem for row in journal.rows if not row.remeasured)
    assert rows == {first: 4, ({PROBLEM.canonical(), OTHER_PROBLEM.canonical()} - {first}).pop(): 2}
    assert (outcome.totals.drifted, outcome.totals.suspects_left) == (2, 0)
    assert outcome.totals.statuses == Counter({"ok": 4})
    (drift, what) = machine_lines(outcome.totals)
    expect_values(drift, "1.00 to 1.20", 2)
    assert "--samples 9" in what


@pytest.mark.usefixtures("drifting")
def test_remeasuring_has_a_budget(
    make_runs: Callable[..., Runs],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is remeasured beyond its share of the time, and the remaining pairs are counted."""
    monkeypatch.setattr(sweep, "AGAIN_SHARE", 0.0)
    runs = make_runs(GOOD, GOOD, problems=(PROBLEM, OTHER_PROBLEM))
    outcome = runs.run()
    assert runs.first_pass == runs.all_pairs
    assert (outcome.totals.drifted, outcome.totals.suspects_left) == (0, 2)
    assert "2 more were not" in machine_lines(outcome.totals)[0]


def test_the_last_reference_time_follows_the_last_problem(
    make_runs: Callable[..., Runs], monkeypatch: pytest.MonkeyPatch, drifting: None
) -> None:
    """Within a minute there are two reference measurements, before the first problem and after the last."""
    monkeypatch.setattr(reference, "EVERY_S", 60.0)
    monkeypatch.setattr(sweep, "AGAIN_SHARE", 1e9)
    runs = make_runs(GOOD, GOOD, problems=(PROBLEM, OTHER_PROBLEM))
    totals = runs.run().totals
    journal = read_journal(runs.out)
    assert [item.ratio for item in journal.references] == pytest.approx([1.0, 1.2])
    first_pass = [row for row in journal.rows if not row.remeasured][:4]
    assert journal.references[0].time <= first_pass[0].time
    assert journal.references[1].time >= first_pass[-1].time
    assert totals.references == list(journal.references)
    assert totals.drifted == 4


@pytest.mark.parametrize(("ratio", "drifts"), [(0.8, True), (0.94, True), (0.96, False), (1.04, False), (1.06, True)])
def test_a_faster_reference_is_drift_like_a_slower_one(
    ratio: float, drifts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks between two times of the reference that differ by more than 5 % are suspect, whichever is longer."""
    times = iter((2.0, 1.0, ratio))  # the first is cold
    monkeypatch.setattr(
        reference,
        "measure",
        lambda *_: iter([(0, Reply(0, Status.OK, samples_ns=(next(times) * 1e6,)))]),
    )
    built = Built(Status.OK, "k.so", "hash")
    journal = SimpleNamespace(add_reference=lambda _record: None)
    watch = ReferenceWatch("run", journal, 1, "problem", built, "kernel")  # type: ignore[arg-type]
    worker, task = SimpleNamespace(node="gpu"), Task(GemmProblem(64, 64, 64, dtype="fp16"), ())
    watch.before(worker, task)
    watch.last(worker)
    assert [look.ratio for look in watch.looks] == pytest.approx([1.0, ratio])
    assert watch.suspects == [task] * drifts


@pytest.mark.parametrize(("ms", "is_admitted"), [(0.94, False), (0.96, True), (1.04, True), (1.06, False)])
def test_a_device_that_joins_is_as_fast_as_the_others(
    ms: float, is_admitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs may differ by 5 % in both directions."""
    replies = [(0, Reply(0, Status.OK, samples_ns=(ms * 1e6,)))]
    monkeypatch.setattr(reference, "measure", lambda *_: iter(replies))
    seen: dict[str, float] = {}
    built = Built(Status.OK, "k.so", "hash")
    alike = Alike(HIP_KIND, Reference(on_problem("problem"), built, {"first": 1.0}, seen.__setitem__))
    assert alike.admits(SimpleNamespace(node="new")) is is_admitted
    assert seen == ({"new": ms} if is_admitted else {})


def test_the_problem_of_the_reference_computes() -> None:
    """Of those that are short enough, the one with the highest arithmetic intensity; else the smallest."""
    square, flat, large = (
        Task(GemmProblem(n, n, k, dtype="fp16"), ()) for n, k in ((1024, 4096), (8192, 32), (8192, 8192))
    )
    tiny = Task(GemmProblem(64, 64, 64, dtype="fp16"), ())
    assert by_computing([tiny, flat, large, square], HIP_KIND) == [square, flat, tiny, large]
    assert by_computing([large, square], HOST_KIND) == [square, large]
    assert by_computing([], HIP_KIND) == []


def test_the_machine_is_a_line_of_bars() -> None:
    """The bars of a stable machine are level, those of a drifting one are not; sensors follow if available."""

    def look(ratio: float, *sensors: float | None) -> ReferenceRecord:
        clock, heat = sensors or (None, None)
        return ReferenceRecord("r", "p", "k", ratio, ratio, clock, heat, 0.0)

    assert reference_lines([look(1.0)]) == []
    quiet = reference_lines([look(1.0), look(1.004), look(0.999)])
    (line,) = quiet
    expect_values(line, "reference ▅▅▄ 1.00 to 1.00", 3)
    loud = reference_lines([look(1.0, 3000.0, 50.0), look(1.25, 2400.0, 81.0)])
    first, second = loud
    expect_values(first, "reference ▂█ 1.00 to 1.25", 2)
    expect_values(second, "clock", "2400 to 3000 MHz", "50 to 81 °C")
    many = reference_lines([look(1.0)] * 500 + [look(1.5)])
    assert len(many[0]) <= 80
    assert "█" in many[0]


def test_a_short_run_has_no_reference_times(make_runs: Callable[..., Runs]) -> None:
    """A run of few pairs ends before a machine changes."""
    runs = make_runs(GOOD, problems=(PROBLEM,))
    assert runs.run().totals.references == []
    assert read_journal(runs.out).references == ()


def test_unstable_times_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Above a tenth of the times their share and a remedy are printed; nothing for a stable machine."""

    def look(ratio: float) -> ReferenceRecord:
        return ReferenceRecord("r", "p", "k", ratio, ratio, None, None, 0.0)

    loud = Totals(statuses=Counter({"ok": 73, "unstable": 27, "crash": 5}))
    share, what = machine_lines(loud)
    expect_values(share, "27%")
    assert "clock" in what
    assert machine_lines(Totals(statuses=Counter({"ok": 95, "unstable": 5}), references=[look(1.0), look(1.01)])) == []
    shared, what = machine_lines(Totals(statuses=Counter({"ok": 95}), shared=12))
    expect_values(shared, "other processes", 12)
    assert "stop other programs" in what
    assert capsys.readouterr().out == ""


def test_clock_and_temperature_are_read_from_files(tmp_path: Path) -> None:
    """Of the processor, the highest readings; nothing if there are no files."""
    assert read_sensors(tmp_path) == Sensors(None, None)
    for number, khz in enumerate((2_100_000, 2_450_000)):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{number}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{khz}\n", encoding="utf-8")
    for number, name in enumerate(("nvme", "k10temp")):
        chip = tmp_path / f"sys/class/hwmon/hwmon{number}"
        chip.mkdir(parents=True)
        (chip / "name").write_text(f"{name}\n", encoding="utf-8")
        (chip / "temp1_input").write_text("70000\n" if name == "nvme" else "44000\n", encoding="utf-8")
    assert read_sensors(tmp_path) == Sensors(2450.0, 44.0)
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "temp").write_text("61500\n", encoding="utf-8")
    assert read_sensors(tmp_path) == Sensors(2450.0, 61.5)
