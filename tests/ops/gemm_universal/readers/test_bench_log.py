"""Raw logs of GEMM benchmarks: results among other output, dropped objects and reasons, and bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.data.merge import merge
from ckh.data.readers import find_reader, read_input, readers
from ckh.data.readers.cells import WITHOUT_TIME
from ckh.errors import DataError, ExitCode, UsageError
from ckh.ops.gemm_universal.readers import bench_log, gemm_rows
from ckh.ops.gemm_universal.readers import bench_log as reader
from ckh.ops.table_rows import BAD_KERNEL
from tests.refusals import expect_error, expect_refusal, expect_values

if TYPE_CHECKING:
    from pathlib import Path

GFX950 = ReadOptions(arch="gfx950", strict=True)
LENIENT = ReadOptions(arch="gfx950")
NAME = "gemm_universal_fp8_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x64x32_2x2x1_32x32x16"
OTHER = NAME.replace("compv3", "compv4")
SHAPE = "Shape 3: M=16 N=4096 K=2048 dtype=fp8 layout=rcr"
FLOPS = 2 * 16 * 4096 * 2048
LAYOUTS = {"layout_a": "RowMajor", "layout_b": "ColumnMajor", "layout_c": "RowMajor"}


def result(latency: float | str = 0.125, tflops: float | str | None = None, name: str = NAME, **problem: Any) -> str:
    """Return an object of several lines, as the tile engine prints it."""
    sizes = {"split_k": 1, "m": 16, "n": 4096, "k": 2048, "dtype_a": "fp8", **LAYOUTS} | problem
    rate = FLOPS / float(latency) / 1e9 if tflops is None else tflops
    perf = f'{{\n   "latency(ms)": {latency},\n   "tflops(TFlops)": {rate},\n   "bandwidth(GB/s)": 3.00\n}}'
    return f'{{\n "name": "{name}",\n "problem": {json.dumps(sizes, indent=3)},\n "perf_result": {perf}\n}}\n'


def bare(name: str = NAME, **perf: Any) -> str:
    """Return an object on one line whose problem is that of the last `Shape` line."""
    numbers = {"latency(ms)": perf.get("ms", 0.5), "tflops(TFlops)": perf.get("rate", FLOPS / 0.5 / 1e9)}
    return json.dumps({"name": name, "perf_result": numbers}) + "\n"


def write(folder: Path, *parts: str) -> Path:
    """Write a log of these parts."""
    path = folder / "gemm.log"
    path.write_bytes("".join(parts).encode())
    return path


def rows_of(path: Path, options: ReadOptions = GFX950) -> list[dict[str, Any]]:
    """Return the rows read from a log."""
    rows: list[dict[str, Any]] = read_input(path, options, "bench-log").rows.table().to_pylist()
    return rows


def skipping(path: Path) -> tuple[list[float], dict[str, int]]:
    """Return times, and counts of skipped objects."""
    reading = read_input(path, LENIENT, "bench-log")
    return reading.rows.table()["latency_ms"].to_pylist(), reading.account.left_out


def test_exact_values(tmp_path: Path) -> None:
    """Every column of a row has the value that the log, the name, the problem or the arch gives it."""
    path = write(tmp_path, "starting\n", result(0.125, split_k=2), "done {not json\n".replace("{", "("))
    assert find_reader(path) is readers()["bench-log"]
    (row,) = rows_of(path)
    assert row["latency_ms"] == 0.125
    assert row["tflops"] == pytest.approx(FLOPS / 0.125 / 1e9, rel=1e-12)
    moved = 16 * 2048 + 2048 * 4096 + 2 * 16 * 4096
    assert row["bandwidth_gb_s"] == pytest.approx(moved / 0.125 / 1e6, rel=1e-12)
    expected = {"op_type": "gemm_universal", "dtype": "fp8", "layout": "rcr", "m": 16, "n": 4096, "k": 2048}
    expected |= {"split_k": 2, "kernel": NAME, "status": "ok", "is_valid": True, "arch": "gfx950", "pad_m": 0}
    expected |= {"tile_m": 128, "wave_n": 2, "warp_tile_k": 16, "pipeline": "compv3", "hw_num_cus": 256}
    assert {name: row[name] for name in expected} == expected


def test_missing_fields_come_from_the_last_shape_line(tmp_path: Path) -> None:
    """A `Shape` line may begin anywhere in a line and applies until the next; an object's own problem wins."""
    next_shape = "[rank 0] " + SHAPE.replace("M=16", "M=64") + " tuning...\n"
    path = write(tmp_path, SHAPE + "\n", bare(), next_shape, bare(), result(m=8, tflops=FLOPS / 2 / 0.125 / 1e9))
    assert [(row["m"], row["n"], row["k"], row["split_k"]) for row in rows_of(path, LENIENT)] == [
        (16, 4096, 2048, 1),
        (64, 4096, 2048, 1),
        (8, 4096, 2048, 1),
    ]


def test_braces_and_quotes_in_strings_do_not_count(tmp_path: Path) -> None:
    """Braces, brackets, escaped quotes and `Shape` lines in strings are ignored."""
    note = '"note": "} \\" { [ \\\\", "x": "Shape 1: M=1 N=1 K=1 dtype=fp8 layout=rcr"'
    odd = f'{{"name": "%s", {note},\n "perf_result": %s}}\n'
    perf = '{"latency(ms)": 0.5, "tflops(TFlops)": 0.536870912}'
    assert [row["latency_ms"] for row in rows_of(write(tmp_path, SHAPE, "\n", odd % (NAME, perf), bare(OTHER)))] == [
        0.5,
        0.5,
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_objects_are_parsed_amid_noise(tmp_path: Path, end: str) -> None:
    """Objects are found among progress bars, control characters, binary data, and both kinds of line ends."""
    noise = "\x1b[32m[ 3%]\x1b[0m }}} \"quote ' { :\n\n   \t\nWARN: don't\n"
    text = (noise + result() + noise + "   " + result(name=OTHER).replace("\n", "\n   ") + "\n" + noise).encode()
    path = tmp_path / "gemm.log"
    path.write_bytes(b"\xef\xbb\xbf\xff\xfe\x00\n" + text.replace(b"\n", end.encode()))
    assert [row["kernel"] for row in rows_of(path)] == [NAME, OTHER]


def test_interleaved_output_costs_only_torn_objects(tmp_path: Path) -> None:
    """An object interrupted by another is dropped; the other, and objects on one line, are kept."""
    first = result(0.125).splitlines(keepends=True)
    torn = "".join(first[:3]) + result(0.25, name=OTHER) + "".join(first[3:])
    glued = bare().rstrip("\n") + bare(OTHER) + "progress 12%" + bare(NAME.replace("128x64", "256x64"))
    times, bad = skipping(write(tmp_path, torn, SHAPE, "\n", glued))
    assert times == [0.25, 0.5, 0.5, 0.5]
    assert bad == {bench_log.CUT_OFF: 1}


def test_an_object_after_noise_is_parsed(tmp_path: Path) -> None:
    """An object whose first brace follows other output on the same line is found."""
    assert len(rows_of(write(tmp_path, "progress 50%", result()))) == 1


def test_the_best_instance_is_not_counted_twice(tmp_path: Path) -> None:
    """The best result, which the tile engine prints again at its end, is not counted twice."""
    path = write(tmp_path, result(), "***\nThe best kernel instance is: ", result(), "***\n")
    assert len(rows_of(path)) == 1


def test_noise_inside_an_object_makes_it_malformed(tmp_path: Path) -> None:
    """Only the object that contains the line is dropped, once."""
    broken = result().replace(' "problem"', 'HIP warning\n "problem"')
    times, bad = skipping(write(tmp_path, broken, result(0.25, name=OTHER)))
    assert (times, bad) == ([0.25], {bench_log.MALFORMED: 1})


@pytest.mark.parametrize("lost", [1, 2, 5, 20, 21, 60, 150, 300])
def test_a_killed_run_costs_one_object(tmp_path: Path, lost: int) -> None:
    """Wherever an object is cut off, the next run in the same file is read completely."""
    text = result(0.125)
    path = write(tmp_path, text[: len(text) - 1 - lost], "\n", result(0.25, name=OTHER), result(0.5))
    times, bad = skipping(path)
    assert times == [0.25, 0.5]
    assert sum(bad.values()) == 1


def test_a_shape_line_ends_an_object(tmp_path: Path) -> None:
    """A `Shape` line drops the open object and applies to the following objects."""
    times, bad = skipping(write(tmp_path, '{\n "name": "x",\n', SHAPE, "\n", bare()))
    assert (times, bad) == ([0.5], {bench_log.CUT_OFF: 1})


@pytest.mark.slow
def test_an_unterminated_object_loses_only_itself(tmp_path: Path) -> None:
    """It is dropped after 1 MiB or at the end of the file; objects within it are found."""
    filler = '"x": 1,\n' * 200_000
    path = write(tmp_path, "{\n", filler, '"list": [\n', bare(), SHAPE, "\n", bare(), '{"results": [\n', bare(OTHER))
    times, bad = skipping(path)
    assert times == [0.5, 0.5]
    assert bad == {bench_log.ENDLESS: 1, gemm_rows.BAD_PROBLEM: 1, bench_log.CUT_OFF: 1}


def test_an_endless_line_is_given_up(tmp_path: Path) -> None:
    """A line without end is dropped, inside and outside of a string."""
    path = write(
        tmp_path, '{"a": "' + "x" * (1 << 21), "\n", "y" * (3 << 20), "\n", result(), '{"b": [' + "1, " * 500_000
    )
    times, bad = skipping(path)
    assert (len(times), sum(bad.values())) == (1, 2)


@pytest.mark.slow
def test_a_single_line_file_is_read(tmp_path: Path) -> None:
    """Objects that follow each other without line ends are found, also across buffer boundaries."""
    names = [NAME.replace("128x64", f"{tile}x64") for tile in range(16, 16016, 2)]
    path = write(tmp_path, SHAPE, "\n", *(bare(name).rstrip("\n") for name in names))
    assert path.stat().st_size > 1 << 20
    assert [row["kernel"] for row in rows_of(path)] == names


@pytest.mark.slow
def test_nesting_is_limited(tmp_path: Path) -> None:
    """Unclosed brackets are dropped in time linear in the file size."""
    start = time.process_time()
    times, bad = skipping(write(tmp_path, '{"a":\n' * 100_000, "\n", '{"a":1,\n' * 50_000, result()))
    assert (len(times), set(bad)) == (1, {bench_log.TOO_DEEP, bench_log.CUT_OFF})
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        (bare("fast_kernel"), BAD_KERNEL, "line 2: not a kernel name of gemm_universal: 'fast_kernel'"),
        (bare("gemm_universal_fp8_rcr_128x64x32_compv3_intrawave"), gemm_rows.INCOMPLETE, "has no wave_m"),
        (bare().replace(f'"{NAME}"', "7"), BAD_KERNEL, "the kernel's name is 7"),
        ('{"a": 1}\n', reader.NO_RESULT, "no name or no perf_result"),
        (bare().replace('{"latency', '[{"latency').replace("}}", "}]}"), reader.NO_RESULT, "no name or no perf_result"),
        ('{"name": "x",}\n', bench_log.MALFORMED, "line 2: "),
        ("{fmt} is not expanded}\n", bench_log.MALFORMED, "line 2: "),
        ('{"a": "b\n"}\n', bench_log.MALFORMED, "line 2: the object that begins here"),
        ('{"a": [}\n', bench_log.MALFORMED, "line 2: the object that begins here"),
        ('{"a": ' * 40 + "}" * 40 + "\n", bench_log.TOO_DEEP, "line 2: the object that begins here"),
        ('{"a": 1', bench_log.CUT_OFF, "line 2: the object that begins here"),
        (bare(NAME.replace("fp8", "bf8")), gemm_rows.MISMATCH, "the log says dtype fp8, the kernel's name bf8"),
        (result(layout_b="RowMajor"), gemm_rows.MISMATCH, "the log says layout rrr, the kernel's name rcr"),
        (result(m=0), gemm_rows.BAD_PROBLEM, "m must be 1 or more"),
        (result(k="2048"), gemm_rows.BAD_PROBLEM, "k must be an integer"),
        (result(split_k=4096), gemm_rows.BAD_PROBLEM, "cannot be split"),
        (result(structured_sparsity=True), reader.SPARSE, "structured_sparsity"),
        (bare(ms="0.5"), gemm_rows.BAD_TIME, "latency(ms) is 0.5"),
        (result("nan", 3), bench_log.MALFORMED, "line 2: "),
        (result("inf", 3), bench_log.MALFORMED, "line 2: "),
        (bare(ms=1e-10, rate=1e18), gemm_rows.BAD_TIME, "the time is 1e-10 ms"),
        (bare(rate=True), gemm_rows.BAD_TIME, "tflops(TFlops) is True"),
    ],
)
def test_a_dropped_object_is_named_or_counted(tmp_path: Path, bad: str, reason: str, detail: str) -> None:
    """If strict, it is refused with the line of its beginning, else left out and counted once."""
    path = write(tmp_path, SHAPE, "\n", bad)
    (tmp_path / "good").mkdir()
    with pytest.raises(DataError) as caught:
        rows_of(path)
    assert caught.value.message.startswith(f"{path}: 1 bad of 1: 1 {reason} (line 2: ")
    assert detail in caught.value.message
    assert "\n" not in caught.value.message
    with_good = write(tmp_path / "good", result(0.25, name=OTHER), SHAPE, "\n", bad)
    assert skipping(with_good) == ([0.25], {reason: 1})


def test_a_missing_problem_is_refused(tmp_path: Path) -> None:
    """An object without a problem before any `Shape` line is refused."""
    with expect_refusal(DataError, "bad-row", "1"):
        rows_of(write(tmp_path, bare()))


def test_a_negative_time_is_a_failure(tmp_path: Path) -> None:
    """It is kept as a row without numbers, with the printed values in its message."""
    row = rows_of(write(tmp_path, result("-1.00", "-1.00")))[0]
    assert (row["status"], row["is_valid"], row["latency_ms"], row["tflops"]) == ("launch_error", False, None, None)
    expect_values(row["message"], "-1.00")


@pytest.mark.parametrize(
    "untimed", [result("0.00", "0.00"), result("0.5", "0"), result("0", "0.01"), bare(ms=None), bare(ms=float("nan"))]
)
def test_an_object_without_a_time_is_left_out_and_counted(tmp_path: Path, untimed: str) -> None:
    """It is neither an error nor a failure of its kernel, whose later line on verification does not count either."""
    path = write(
        tmp_path, result(0.25, name=OTHER), SHAPE, "\n", untimed, f"Verification failed, skip kernel: {NAME}\n"
    )
    reading = read_input(path, GFX950)
    assert (reading.account.left_out, reading.rows.table()["status"].to_pylist()) == ({WITHOUT_TIME: 1}, ["ok"])


def test_times_of_two_decimals_follow_from_tflops(tmp_path: Path) -> None:
    """Kernels that all printed 0.01 ms get distinct times, and more precise times are kept."""
    rates = ("26.84", "24.40", "18.00")
    logs = [
        result("0.01", rate, NAME.replace("128x64", f"{tile}x64"))
        for tile, rate in zip((16, 32, 64), rates, strict=True)
    ]
    fine = result("0.012345", "21.75", OTHER)
    rows = rows_of(write(tmp_path, *logs, fine))
    assert [row["latency_ms"] for row in rows] == pytest.approx(
        [FLOPS / float(rate) / 1e9 for rate in rates] + [0.012345], rel=1e-12
    )
    assert [round(row["latency_ms"], 2) for row in rows] == [0.01] * 4


def test_failed_verification_is_a_wrong_result(tmp_path: Path) -> None:
    """The line follows the object; the kernel never counts as measured, even if another run succeeds."""
    failed = f"Verification failed, skip kernel: {NAME}\n"
    path = write(
        tmp_path, result(), failed, result(0.25, name=OTHER), result(0.5), "Verification failed, skip kernel: x\n"
    )
    statuses = {
        row["kernel"]: row["status"] for row in merge([read_input(path, GFX950)]).dataset.frame.to_dict("records")
    }
    assert statuses == {NAME: "wrong_result", OTHER: "ok"}


def test_runs_in_one_file_are_merged_like_separate_runs(tmp_path: Path) -> None:
    """Of three measurements of a pair the last time applies, and a failure does not replace it."""
    path = write(tmp_path, result(0.125), result(0.5, name=OTHER), result(0.25), result("-1", "-1"))
    merged = merge([read_input(path, GFX950)])
    assert merged.dataset.frame["latency_ms"].tolist() == [0.5, 0.25]
    assert (merged.superseded, merged.repeated) == (0, 2)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    """An empty file is refused, with and without a named format."""
    path = write(tmp_path, content)
    with expect_refusal(DataError, "empty"):
        read_input(path, GFX950)
    with expect_refusal(DataError, "empty"):
        read_input(path, GFX950, "bench-log")


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    """A missing file is bad data, a missing architecture a usage error."""
    with expect_refusal(DataError, "unreadable"):
        read_input(tmp_path / "none.log", GFX950, "bench-log")
    with expect_refusal(UsageError, "unknown-hardware"):
        read_input(write(tmp_path, result()), ReadOptions())


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    """The hint lists all formats."""
    with expect_refusal(DataError, "unknown-format") as caught:
        read_input(write(tmp_path, "hello\n"), GFX950)
    assert all(name in caught.value.hint for name in readers())


def test_a_log_is_converted_to_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log is converted to Parquet and back, every dropped object is counted, and nothing is written on error."""
    log = write(tmp_path, result("0.02", "13.42"), "{oops}\n", result("-1.00", "-1.00", OTHER))
    line = result().count("\n") + 1
    out = tmp_path / "gemm.parquet"
    args = ["convert", str(log), "--arch", "gfx950", "--out", str(out)]
    assert run([*args, "--strict"]) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert (stdout, out.exists()) == ("", False)
    expect_error(stderr, "bad-row", log, 1, bench_log.MALFORMED, f"line {line}: ")
    assert run([*args, "--json"]) == ExitCode.OK
    summary = json.loads(capsys.readouterr().out)
    expected = {"rows": 2, "valid": 1, "problems": 1, "kernels": 2, "dropped": {bench_log.MALFORMED: 1}}
    assert {name: summary[name] for name in expected} == expected
    frame = read_dataset(out).frame
    assert frame["tflops"].tolist()[0] == pytest.approx(13.42, rel=1e-12)
    assert frame["latency_ms"].tolist()[0] == pytest.approx(FLOPS / 13.42 / 1e9, rel=1e-12)
    assert frame["status"].tolist() == ["ok", "launch_error"]


_GROWTH = """
import resource, sys, time
from pathlib import Path
from ckh.data.readers import read_input
from ckh.data.formats import ReadOptions
def read(path):
    reading = read_input(Path(path), ReadOptions(arch="gfx950"), "bench-log")
    left = sum(reading.account.left_out.values())
    return reading.rows.table().num_rows, left, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = read(sys.argv[1])[2]
start = time.process_time()
rows, bad, after = read(sys.argv[2])
print(rows, bad, after - before, time.process_time() - start)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """50 MB with 2,000 results, much other output and an unclosed object need less than 24 MB and 10 s more."""
    noise = '[INFO] verifying, tuning, waiting: {} of [100] "done"\n' * 420
    path = tmp_path / "big.log"
    with path.open("w", encoding="utf-8") as file:
        for index in range(2000):
            file.write(noise)
            file.write(result(0.125, m=index + 1, tflops=FLOPS / 16 * (index + 1) / 0.125 / 1e9))
        file.write('{"never": [\n' + "[1, 2, 3],\n" * 500_000)
    assert path.stat().st_size > 50_000_000
    args = [sys.executable, "-c", _GROWTH, str(write(tmp_path, result())), str(path)]
    output = subprocess.run(args, check=True, capture_output=True, text=True).stdout
    rows, bad, grown_kb, seconds = output.split()
    assert (int(rows), int(bad)) == (2000, 1)
    assert int(grown_kb) < 24 * 1024
    assert float(seconds) < 10
