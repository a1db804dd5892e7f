"""Journals of ckh bench as dataset rows."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from ckh.archs import load_arch
from ckh.cli import run
from ckh.data.dataset import Dataset, read_dataset
from ckh.data.formats import Reading, ReadOptions
from ckh.data.journal import JournalWriter, KernelRecord, ResultRow, RunRecord, read_journal
from ckh.data.readers import find_reader, read_input, readers
from ckh.data.readers import journal_reader as journal
from ckh.data.readers import journal_reader as reader
from ckh.errors import DataError, ExitCode
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import parse_conv_problem
from ckh.problems import Direction
from ckh.schema import RESOURCE_NAMES, Resources, Status
from tests.refusals import expect_refusal
from tests.runs import host_run

if TYPE_CHECKING:
    from pathlib import Path

PROBLEM = "conv_forward_fp32_nhwgc_2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1"
POOL = [kernel_name(kernel) for kernel in conv_pool(Direction.FORWARD, load_arch("host"), dtype="fp32")]
RUN = host_run({**load_arch("gfx942").hardware.to_dict(), "num_cus": 4})
OK = ResultRow("run1", PROBLEM, POOL[0], Status.OK, "", 0.5, 0.4, 0.01, (4e5, 5e5, 6e5), 2, remeasured=True)
FAILED = ResultRow("run1", PROBLEM, POOL[1], Status.CRASH, "signal 11")


TAKES = Resources(
    vgprs=96, agprs=16, sgprs=40, lds_bytes=16384, scratch_bytes=8, vgpr_spills=2, sgpr_spills=1, occupancy=4
)
KNOWN = KernelRecord("run1", "hash1", "code1", TAKES)
UNKNOWN = KernelRecord("run1", "hash2", "code2", None)


def write(folder: Path, *rows: ResultRow, run: RunRecord = RUN, kernels: tuple[KernelRecord, ...] = ()) -> Path:
    """Write a journal of one run."""
    writer = JournalWriter(folder)
    writer.start_run(run)
    if kernels:
        writer.add_kernels(kernels)
    writer.add(*rows)
    writer.close()
    return folder


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a journal."""
    rows: list[dict[str, Any]] = read_input(path, ReadOptions(strict=True)).rows.table().to_pylist()
    return rows


@pytest.mark.parametrize("status", [Status.CRASH, Status.WRONG_RESULT, Status.NONDETERMINISTIC])
def test_rows_and_failures(tmp_path: Path, status: Status) -> None:
    """A result keeps its numbers and the facts of its run; a failure is a row without times."""
    ok, failed = rows_of(write(tmp_path, OK, changed(FAILED, status=status)))
    flops = parse_conv_problem(PROBLEM).flops
    expected: dict[str, Any] = {
        "latency_ms": 0.5,
        "latency_min_ms": 0.4,
        "spread": 0.01,
        "samples": 3,
        "remeasured": True,
    }
    expected |= {"is_valid": True, "status": "ok", "arch": "host", "device": "A CPU", "hw_num_cus": 4, "run_id": "run1"}
    expected |= {"kernel": POOL[0], "tflops": flops / 0.5 / 1e9, "C": 64, "dtype": "fp32", "message": None}
    assert {name: ok[name] for name in expected} == expected
    assert (failed["status"], failed["message"], failed["is_valid"]) == (status, "signal 11", False)
    assert [failed[name] for name in ("latency_ms", "tflops", "bandwidth_gb_s", "spread")] == [None] * 4


def test_rows_have_node_and_time(tmp_path: Path) -> None:
    """Node and time are in the dataset; without them, as in old journals, the checksum is unchanged."""
    far = changed(OK, node="head/hip3", time=1700000000.25)
    write(tmp_path / "far", far, changed(FAILED, node="head/hip3"))
    assert [(row["node"], row["measured_at"]) for row in rows_of(tmp_path / "far")] == [
        ("head/hip3", 1700000000.25),
        ("head/hip3", None),
    ]
    write(tmp_path / "near", OK, FAILED)
    datasets = {}
    for name in ("far", "near"):
        assert run(["convert", str(tmp_path / name), "--out", str(tmp_path / f"{name}.parquet")]) == ExitCode.OK
        datasets[name] = read_dataset(tmp_path / f"{name}.parquet")
    assert datasets["far"].frame["node"].tolist() == ["head/hip3"] * 2
    assert datasets["far"].frame["measured_at"].tolist()[0] == 1700000000.25
    without = datasets["far"].frame.assign(node=None, measured_at=np.nan)
    assert Dataset(without).content_hash == datasets["near"].content_hash != datasets["far"].content_hash


def test_rows_have_launch_times_and_sensor_readings(tmp_path: Path) -> None:
    """Launch time and sensor readings are stored if known; a launch-bound row is valid."""
    short = changed(OK, status=Status.LAUNCH_BOUND, launch_ms=0.25, by_graph=True, card={"clock_mhz": 2100.0})
    row, failed = rows_of(write(tmp_path, short, FAILED))
    assert (row["card_clock_mhz"], row["card_power_w"], failed["card_clock_mhz"]) == (2100.0, None, None)
    assert (row["status"], row["is_valid"], row["launch_ms"], row["by_graph"]) == ("launch_bound", True, 0.25, True)
    assert (failed["launch_ms"], failed["by_graph"]) == (None, None)


def test_rows_of_the_last_device_of_a_problem_win(tmp_path: Path) -> None:
    """If another device remeasures a problem, rows of the first device remain in the journal only."""
    begun = [changed(item, node="a/hip0") for item in (OK, FAILED)]
    path = write(tmp_path / "run", *begun, changed(OK, node="b/hip0", latency_ms=0.25))
    assert [(row["node"], row["latency_ms"]) for row in rows_of(tmp_path / "run")] == [("b/hip0", 0.25)]
    assert [row.latency_ms for row in read_journal(path).final_rows()] == [0.25]
    assert len(read_journal(path).rows) == 3


def test_a_later_row_of_a_pair_replaces_the_earlier(tmp_path: Path) -> None:
    """Only the last row of a (problem, kernel) pair is kept, and the others are counted."""
    reading = read_input(write(tmp_path, OK, FAILED, changed(OK, latency_ms=0.25)), ReadOptions())
    assert reading.rows.table()["latency_ms"].to_pylist() == [0.25, None]
    assert reading.superseded == 1


def test_the_last_row_of_a_pair_takes_the_position_of_its_first(tmp_path: Path, monkeypatch: Any) -> None:
    """The position is that of the pair's first row in its run, for any order of rows and any batch size."""
    monkeypatch.setattr(journal, "_STRETCH_BYTES", 2000)
    monkeypatch.setattr(journal, "_BATCH_ROWS", 7)
    random = Random(5)
    problems = [PROBLEM.replace("_n1_", f"_n{n}_") for n in range(1, 6)]
    pairs = [(problem, kernel) for problem in problems for kernel in POOL[:30]]
    last: dict[tuple[str, str], tuple[str, float]] = {}
    for run_id in ("run1", "run2", "run3"):
        rows = [changed(OK, run_id=run_id, problem=p, kernel=k, latency_ms=random.random() + 1) for p, k in pairs]
        rows = random.choices(rows, k=120)
        write(tmp_path, *rows, run=replace(RUN, run_id=run_id))
        last.update({(row.problem, row.kernel): (run_id, row.latency_ms or 0.0) for row in rows})
    expected = sorted(((run, *pair, ms) for pair, (run, ms) in last.items()), key=lambda row: row[0])
    reading = read_input(tmp_path, ReadOptions())
    pylist = reading.rows.table().to_pylist()
    assert len({row[0] for row in expected}) == 3
    assert [(row["run_id"], row["N"], row["kernel"], row["latency_ms"]) for row in pylist] == [
        (run, parse_conv_problem(problem).n, kernel, ms) for run, problem, kernel, ms in expected
    ]
    assert reading.superseded == 360 - len(expected)


def test_a_resumed_journal_keeps_each_runs_hardware(tmp_path: Path) -> None:
    """Rows of a second run in the same journal have that run's id and hardware."""
    write(tmp_path, OK)
    second = replace(RUN, run_id="run2", hardware={**RUN.hardware, "num_cus": 8})
    write(tmp_path, changed(FAILED, run_id="run2"), run=second)
    reading = read_input(tmp_path, ReadOptions())
    assert reading.rows.table()["hw_num_cus"].to_pylist() == [4, 8]
    assert [run["run_id"] for run in reading.runs] == ["run1", "run2"]


def test_a_journal_is_recognized_by_content(tmp_path: Path) -> None:
    """A journal is recognized by its first line, not by its name."""
    path = write(tmp_path, OK) / "journal.jsonl"
    other = path.rename(tmp_path / "data.csv")
    assert find_reader(other) is readers()["journal"]


def test_a_truncated_last_line_is_ignored(tmp_path: Path) -> None:
    """A journal of a killed run is read up to the last complete line."""
    path = write(tmp_path, OK, FAILED) / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert len(rows_of(path)) == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (changed(OK, problem="conv_1"), reader.BAD_PROBLEM),
        (changed(OK, problem=PROBLEM.replace("_g1_", "_g3_")), reader.BAD_PROBLEM),
        (changed(OK, problem=PROBLEM.replace("_n1_", "_n0_")), reader.BAD_PROBLEM),
        (changed(OK, kernel="fast_kernel"), reader.BAD_KERNEL),
        (changed(OK, problem=PROBLEM.replace("fp32", "bf16")), reader.MISMATCH),
        (changed(OK, latency_ms=None), reader.BAD_TIME),
        (changed(OK, latency_ms=0.0), reader.BAD_TIME),
        (changed(OK, latency_ms=-1.0), reader.BAD_TIME),
        (changed(OK, run_id="run9"), reader.UNKNOWN_RUN),
    ],
)
def test_a_bad_row_is_left_out_or_named(tmp_path: Path, row: ResultRow, reason: str) -> None:
    """An invalid row is left out and counted; if strict, it is refused with its line."""
    path = write(tmp_path, FAILED, row)
    with expect_refusal(DataError, "bad-row", "1", "1", reason, "3"):
        rows_of(path)
    reading: Reading = read_input(path, ReadOptions())
    assert (reading.rows.table().num_rows, reading.account.left_out) == (1, {reason: 1})


def test_nan_in_a_journal_is_a_bad_time(tmp_path: Path) -> None:
    """JSON's NaN extension is not accepted as a time."""
    path = write(tmp_path, OK) / "journal.jsonl"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"latency_ms": 0.5', '"latency_ms": NaN'), encoding="utf-8"
    )
    with expect_refusal(DataError, "bad-row", "latency_ms"):
        rows_of(path)


def test_a_journal_without_results_is_refused(tmp_path: Path) -> None:
    """A run without results is not a dataset."""
    with expect_refusal(DataError, "empty"):
        rows_of(write(tmp_path))


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    """If strict, a damaged line in the middle is refused with its number."""
    path = write(tmp_path, OK, FAILED) / "journal.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-9], lines[2], ""]), encoding="utf-8")
    with expect_refusal(DataError, "damaged", "2"):
        rows_of(path)


def test_damaged_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    """Damaged lines are left out anywhere; bad rows keep their line numbers."""
    path = write(tmp_path, OK, FAILED) / "journal.jsonl"
    run, ok, failed = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([run, ok[:-9], "\0\0", failed, ok, ""]), encoding="utf-8")
    reading = read_input(path, ReadOptions())
    assert (reading.rows.table().num_rows, reading.account.left_out) == (2, {reader.DAMAGED: 2})
    path.write_text("\n".join([run, failed, failed, ok.replace(POOL[0], "nonsense"), ""]), encoding="utf-8")
    with pytest.raises(DataError, match="line 4: "):
        rows_of(path)
    path.write_text("\n".join([run[:-9], ok, ""]), encoding="utf-8")
    with expect_refusal(DataError, "empty"):
        read_input(path, ReadOptions())


def test_incomplete_hardware_is_refused(tmp_path: Path) -> None:
    """A run must state the whole hardware profile."""
    hardware = {name: value for name, value in RUN.hardware.items() if name != "num_xcd"}
    with pytest.raises(DataError, match="num_xcd"):
        rows_of(write(tmp_path, OK, run=replace(RUN, hardware=hardware)))


def test_a_folder_must_hold_one_journal(tmp_path: Path) -> None:
    """A folder without a journal is bad data."""
    with pytest.raises(DataError, match="holds 0"):
        read_input(tmp_path, ReadOptions())


def test_kernel_records_are_read_back(tmp_path: Path) -> None:
    """Records with and without resources are read in order; older journals have none."""
    journal = read_journal(write(tmp_path, OK, kernels=(KNOWN, UNKNOWN)))
    assert journal.kernels == (KNOWN, UNKNOWN)
    assert journal.rows == (OK,)
    assert read_journal(write(tmp_path / "before", OK)).kernels == ()


def test_resources_become_columns(tmp_path: Path) -> None:
    """Every row has the resources of its kernel's source, whatever its status; unknown resources are null."""
    rows = (
        changed(OK, source_hash="hash1"),
        changed(FAILED, source_hash="hash1"),
        changed(OK, kernel=POOL[2]),
    )
    path = write(tmp_path, *rows, changed(OK, kernel=POOL[3], source_hash="hash2"), kernels=(KNOWN, UNKNOWN))
    taken = [[row[name] for name in RESOURCE_NAMES] for row in rows_of(path)]
    nothing = [None] * 8
    assert taken == [[96, 16, 40, 16384, 8, 2, 1, 4], [96, 16, 40, 16384, 8, 2, 1, 4], nothing, nothing]
    assert [row["status"] for row in rows_of(path)] == ["ok", "crash", "ok", "ok"]


def test_functions_that_call_others_are_a_column(tmp_path: Path) -> None:
    """The count of the kernel's source; null where it is unknown, as in older journals."""
    rows = (changed(OK, source_hash="hash1"), changed(OK, kernel=POOL[2], source_hash="hash2"))
    path = write(tmp_path, *rows, kernels=(replace(KNOWN, calling=2), UNKNOWN))
    assert [row["calling_functions"] for row in rows_of(path)] == [2, None]


def test_a_later_record_of_a_kernel_replaces_the_earlier(tmp_path: Path) -> None:
    """A resumed run may repeat a kernel's record."""
    newer = replace(KNOWN, run_id="run2", resources=replace(TAKES, vgprs=128))
    path = write(tmp_path, changed(OK, source_hash="hash1"), kernels=(KNOWN, newer))
    assert [row["vgprs"] for row in rows_of(path)] == [128]


@pytest.mark.parametrize(
    "values",
    [
        {"resources": {**asdict(TAKES), "more": 1}},
        {"resources": {"vgprs": 1}},
        {"resources": 5},
        {"code": "x"},
    ],
)
def test_a_damaged_kernel_record_is_named(tmp_path: Path, values: dict[str, Any]) -> None:
    """If strict, a damaged record is refused with its line."""
    path = write(tmp_path, OK, kernels=(KNOWN,)) / "journal.jsonl"
    first, _, last = path.read_text(encoding="utf-8").splitlines()
    record = json.dumps({"kind": "kernel", **asdict(KNOWN), **values})
    path.write_text(f"{first}\n{record}\n{last}\n", encoding="utf-8")
    with expect_refusal(DataError, "damaged", "2"):
        rows_of(path)


def test_line_numbers_of_bad_rows_count_kernel_records(tmp_path: Path) -> None:
    """The reported line is the line in the file."""
    path = write(tmp_path, FAILED, changed(OK, latency_ms=-1.0), kernels=(KNOWN, UNKNOWN))
    with expect_refusal(DataError, "bad-row", "1", "5"):
        rows_of(path)


def test_journals_without_split_k_are_read(tmp_path: Path) -> None:
    """Older journals have split_k 1 and the default rule set, no registry, filter, padding or limits."""
    path = write(tmp_path, OK) / "journal.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    values = json.loads(lines[0])
    for name in ("rule_set", "registry", "filter", "split_k", "pad_channels", "max_scratch", "cold"):
        del values[name]
    path.write_text("\n".join([json.dumps(values), *lines[1:], ""]), encoding="utf-8")
    assert read_journal(path).runs == (RUN,)
    assert RUN.split_k == (1,)
    assert len(rows_of(path)) == 1


def test_settings_of_a_run_are_read_back(tmp_path: Path) -> None:
    """Split-K factors are a tuple again."""
    run = replace(
        RUN, split_k=(1, 4), rule_set="tiny", registry="r.json", filter="tile_m > 16", max_scratch=0, cold=True
    )
    assert read_journal(write(tmp_path, OK, run=run)).runs == (run,)
