"""AMD's GEMM benchmark JSON: exact values, padding of mem kernels, failures, and all kinds of faults."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.data.formats import Reading, ReadOptions
from ckh.data.merge import merge
from ckh.data.readers import find_reader, read_input, readers
from ckh.data.readers.cells import WITHOUT_TIME
from ckh.errors import DataError, ExitCode, UsageError
from ckh.ops.gemm_universal.readers import gemm_rows
from ckh.ops.gemm_universal.readers import tile_engine_json as reader
from ckh.ops.table_rows import BAD_KERNEL
from tests.refusals import expect_error, expect_refusal, expect_values

if TYPE_CHECKING:
    from pathlib import Path

GFX950 = ReadOptions(arch="gfx950", strict=True)
LENIENT = ReadOptions(arch="gfx950")
NAME = "gemm_universal_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x64x32_2x2x1_32x32x16"
MEM = NAME.replace("compv3", "mem")
SHORT = "gemm_universal_fp16_rcr_128x64x32_compv3_intrawave"
CONFIG: dict[str, Any] = {
    **dict.fromkeys(("pad_m", "pad_n", "pad_k", "persistent"), False),
    **dict(zip(("dtype", "layout", "pipeline", "epilogue", "scheduler"), NAME.split("_")[2:7], strict=True)),
    **dict(zip(("tile_m", "tile_n", "tile_k"), (128, 64, 32), strict=True)),
    **dict(zip(("warp_m", "warp_n", "warp_k"), (2, 2, 1), strict=True)),
    **dict(zip(("warp_tile_m", "warp_tile_n", "warp_tile_k"), (32, 32, 16), strict=True)),
}
FLOPS = 2 * 256 * 512 * 1024
OK = {"m": 256, "n": 512, "k": 1024, "avg_time_ms": 0.125, "tflops": 2.147483648, "is_valid": True, "error": None}
FAILED = OK | {"avg_time_ms": 0, "tflops": 0, "is_valid": False, "error": "Benchmark timeout"}
METADATA = {"dtype": "fp16", "layout": "rcr", "num_kernels": 1, "num_problems": 1, "warmup": 10, "repeat": 50}


def entry(*benchmarks: Any, name: str | None = NAME, **config: Any) -> dict[str, Any]:
    """Return a kernel with its benchmarks; `config` changes its configuration."""
    named = {} if name is None else {"name": name}
    rows = [row if not isinstance(row, dict) or name is None else {"kernel_name": name, **row} for row in benchmarks]
    return {"kernel_config": {**named, **CONFIG, **config}, "benchmarks": rows}


def write(folder: Path, *entries: Any, metadata: Any = METADATA, name: str = "b.json") -> Path:
    """Write a benchmark file."""
    path = folder / name
    sizes = [{"m": 256, "n": 512, "k": 1024}]
    document = {"metadata": metadata, "problem_sizes": sizes, "results": list(entries)}
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return path


def rows_of(path: Path, options: ReadOptions = GFX950) -> list[dict[str, Any]]:
    """Return the rows read from a file."""
    rows: list[dict[str, Any]] = read_input(path, options).rows.table().to_pylist()
    return rows


def test_exact_values(tmp_path: Path) -> None:
    """Every column of a row has the value that the file, the name, the problem or the arch gives it."""
    (row,) = rows_of(write(tmp_path, entry(OK)))
    assert row["latency_ms"] == 0.125
    assert row["tflops"] == pytest.approx(FLOPS / 0.125 / 1e9, rel=1e-15)
    moved = 2 * (256 * 1024 + 1024 * 512 + 256 * 512)
    assert row["bandwidth_gb_s"] == pytest.approx(moved / 0.125 / 1e6, rel=1e-15)
    expected = {"op_type": "gemm_universal", "dtype": "fp16", "layout": "rcr", "m": 256, "n": 512, "k": 1024}
    expected |= {"split_k": 1, "kernel": NAME, "status": "ok", "is_valid": True, "message": None, "device": None}
    expected |= {"tile_m": 128, "tile_n": 64, "tile_k": 32, "wave_m": 2, "wave_n": 2, "wave_k": 1, "warp_tile_k": 16}
    expected |= {"pipeline": "compv3", "scheduler": "intrawave", "epilogue": "cshuffle", "pad_m": 0, "persistent": 0}
    expected |= {"arch": "gfx950", "hw_num_cus": 256, "hw_lds_capacity": 163840, "samples": None}
    assert {name: row[name] for name in expected} == expected
    assert row["run_id"].startswith("b.json:")


def test_mem_kernels_are_padded_in_columns_but_not_in_name(tmp_path: Path) -> None:
    """The three padding columns of mem are 1 whatever name and configuration state; other pipelines keep theirs."""
    other = OK | {"m": 128}
    told = dict.fromkeys(("pad_m", "pad_n", "pad_k"), True)
    path = write(
        tmp_path,
        entry(OK, name=MEM, pipeline="mem"),
        entry(other, name=MEM, pipeline="mem", **told),
        entry(OK),
    )
    mem, told_mem, plain = rows_of(path)
    assert [mem[name] for name in ("pad_m", "pad_n", "pad_k", "persistent")] == [1, 1, 1, 0]
    assert [told_mem[name] for name in told] == [1, 1, 1]
    assert mem["kernel"] == told_mem["kernel"] == MEM
    assert [plain[name] for name in told] == [0, 0, 0]


def test_a_time_of_two_decimals_follows_from_tflops(tmp_path: Path) -> None:
    """0.01 ms and 0.00 ms with TFLOPS that round to them become flops / TFLOPS, and a warning counts them."""
    coarse = OK | {"avg_time_ms": 0.01, "tflops": 21.47}
    zero = OK | {"m": 64, "avg_time_ms": 0.0, "tflops": 20.0}
    reading = read_input(write(tmp_path, entry(coarse, zero)), GFX950)
    assert reading.rows.table()["latency_ms"].to_pylist() == pytest.approx(
        [FLOPS / 21.47 / 1e9, FLOPS / 4 / 20 / 1e9], rel=1e-12
    )
    assert reading.rows.table()["tflops"].to_pylist() == pytest.approx([21.47, 20.0], rel=1e-12)
    assert len(reading.warnings) == 1
    expect_values(reading.warnings[0], 2)


def test_tflops_contradicting_the_time_are_ignored(tmp_path: Path) -> None:
    """The time is kept, and a warning names the location."""
    reading = read_input(write(tmp_path, entry(OK | {"tflops": 99.0})), GFX950)
    assert reading.rows.table()["latency_ms"].to_pylist() == [0.125]
    assert reading.rows.table()["tflops"].to_pylist() == [pytest.approx(2.147483648, rel=1e-15)]
    expect_values(reading.warnings[0], 1, "results[0].benchmarks[0]")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("Benchmark timeout", "timeout"),
        ("Executable not found", "compile_error"),
        ("Wrong! Arguments not supported!\nSkipping gemm!", "unsupported"),
        ("HIP error", "launch_error"),
        (None, "launch_error"),
    ],
)
def test_failures_are_rows(tmp_path: Path, error: str | None, status: str) -> None:
    """A failed benchmark keeps AMD's error as its one-line message, and a warning counts it."""
    reading = read_input(write(tmp_path, entry(OK, FAILED | {"m": 1, "error": error})), GFX950)
    row = reading.rows.table().to_pylist()[1]
    message = " ".join(error.split()) if error else "no reason is given"
    assert (row["status"], row["message"], row["is_valid"], row["latency_ms"]) == (status, message, False, None)
    assert reading.warnings == (f"{tmp_path / 'b.json'}: 1 benchmarks failed: 1 {message}",)
    assert reading.account.left_out == {}


def test_a_short_name_is_completed_by_its_configuration(tmp_path: Path) -> None:
    """Missing fields of the name are taken from AMD's configuration, where warp_m means waves; widths are native."""
    (row,) = rows_of(write(tmp_path, entry(OK, name=SHORT)))
    assert row["kernel"] == NAME
    assert (row["wave_m"], row["warp_tile_m"]) == (2, 32)


def test_alternative_spellings_are_the_same_kernel(tmp_path: Path) -> None:
    """A name that begins with gemm_ and has numeric flags is converted; widths and suffixes stay distinct."""
    odd = NAME.replace("gemm_universal", "gemm").replace("False_False_False_False", "1_0_0_0")
    wide = NAME + "_vec8_8_4"
    rows = rows_of(write(tmp_path, entry(OK, name=odd, pad_m=True), entry(OK, name=wide)))
    assert [row["kernel"] for row in rows] == [
        NAME.replace("False_False_False_False", "True_False_False_False"),
        wide,
    ]


def test_dtype_and_layout_precedence(tmp_path: Path) -> None:
    """fp16 and rcr are assumed only if nothing states them, with a warning."""
    name = NAME.replace("fp16_rcr", "bf16_crr")
    assert rows_of(write(tmp_path, entry(OK, name=name, dtype="bf16", layout="crr"), metadata={}))[0]["dtype"] == "bf16"
    silent = entry(OK)
    del silent["kernel_config"]["dtype"], silent["kernel_config"]["layout"]
    reading = read_input(write(tmp_path, silent, metadata={}), GFX950)
    row = reading.rows.table().to_pylist()[0]
    assert (row["dtype"], row["layout"], len(reading.warnings)) == ("fp16", "rcr", 2)
    expect_values(reading.warnings[0], "dtype", "fp16")


def test_a_partial_file_is_a_bare_list(tmp_path: Path) -> None:
    """A bare list is detected by its content, also with a byte-order mark, and read like a complete file."""
    path = tmp_path / "x_partial.json"
    path.write_text("\ufeff" + json.dumps([entry(OK)]), encoding="utf-8")
    assert find_reader(path) is readers()["tile-engine-json"]
    assert rows_of(path)[0]["latency_ms"] == 0.125


@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        (entry(OK, name="fast_kernel"), BAD_KERNEL, "not a kernel name of gemm_universal: 'fast_kernel'"),
        (entry(OK, name=None), BAD_KERNEL, "the kernel's name is missing"),
        (entry(OK, name=NAME.replace("compv3", "compv77")), BAD_KERNEL, "unknown pipeline 'compv77'"),
        (entry(OK, name=NAME.replace("128x64x32", "128x0x32")), BAD_KERNEL, "its tile is missing or unknown"),
        (entry(OK, tile_m=256), gemm_rows.CONTRADICTION, "has tile_m 128, its kernel_config 256"),
        (entry(OK, warp_m="2"), gemm_rows.CONTRADICTION, "kernel_config has wave_m '2'"),
        (entry(OK, scheduler="sometimes"), gemm_rows.CONTRADICTION, "scheduler 'sometimes'"),
        (entry(OK | {"kernel_name": MEM}), gemm_rows.CONTRADICTION, "has a benchmark of"),
        (entry(OK, name=SHORT, warp_m=None, epilogue=None), gemm_rows.INCOMPLETE, "has no wave_m, epilogue"),
        (entry(OK, name=NAME.replace("fp16", "bf16"), dtype="bf16"), gemm_rows.MISMATCH, "a kernel of bf16 rcr on"),
        (entry(OK | {"m": 0}), gemm_rows.BAD_PROBLEM, "m must be 1 or more"),
        (entry(OK | {"m": 2**31}), gemm_rows.BAD_PROBLEM, "m must be 1 or more"),
        (entry(OK | {"n": 64.0}), gemm_rows.BAD_PROBLEM, "n must be an integer"),
        (entry(OK | {"k": True}), gemm_rows.BAD_PROBLEM, "k must be an integer"),
        (entry({"is_valid": True}), gemm_rows.BAD_PROBLEM, "m is missing"),
        (entry(OK | {"avg_time_ms": "fast"}), gemm_rows.BAD_TIME, "avg_time_ms is fast"),
        (entry(OK | {"avg_time_ms": 10**400}), gemm_rows.BAD_TIME, "avg_time_ms is 1000"),
        (entry(OK | {"avg_time_ms": -0.5}), gemm_rows.BAD_TIME, "avg_time_ms is -0.5, though is_valid"),
        (entry(OK | {"avg_time_ms": 1e-10, "tflops": 0}), gemm_rows.BAD_TIME, "the time is 1e-10 ms"),
        (entry(OK | {"is_valid": "yes"}), reader.BAD_ENTRY, "is_valid is yes"),
        (entry("no object"), reader.BAD_ENTRY, "there is no kernel_config"),
        ({"kernel_config": CONFIG}, reader.BAD_ENTRY, "results[1]: there is no kernel_config"),
        ("no entry", reader.BAD_ENTRY, "results[1]: there is no kernel_config"),
    ],
)
def test_a_bad_benchmark_is_named_or_skipped(tmp_path: Path, bad: Any, reason: str, detail: str) -> None:
    """It is refused with its location in the document, or skipped and counted on request."""
    path = write(tmp_path, entry(OK), bad)
    with pytest.raises(DataError) as caught:
        rows_of(path)
    message = caught.value.message
    assert message.startswith(f"{path}: 1 bad of 2: 1 {reason} (results[1]")
    assert detail in message
    assert "\n" not in message
    reading: Reading = read_input(path, LENIENT)
    assert (reading.rows.table().num_rows, reading.account.left_out) == (1, {reason: 1})


@pytest.mark.parametrize(
    "changes", [{"avg_time_ms": None}, {"avg_time_ms": float("nan")}, {"avg_time_ms": 0, "tflops": 0}]
)
def test_a_benchmark_without_a_time_is_left_out_and_counted(tmp_path: Path, changes: dict[str, Any]) -> None:
    """It is neither an error nor a failure of its kernel."""
    reading = read_input(write(tmp_path, entry(OK), entry(OK | changes)), GFX950)
    assert (reading.account.left_out, reading.rows.table()["status"].to_pylist()) == ({WITHOUT_TIME: 1}, ["ok"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"results": [', "cannot read"),
        ('{"results": {}}', "has no list of results"),
        ("7", "has no list of results"),
        ('{"metadata": 3, "results": []}', "metadata is not an object"),
        ('{"results": []}', "no entries"),
        ("[" * 100_000, "cannot read"),
        ("", "is empty"),
    ],
)
def test_an_unusable_document_is_refused(tmp_path: Path, content: str, message: str) -> None:
    """An unusable file is refused in one line."""
    path = tmp_path / "b.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        read_input(path, GFX950, "tile-engine-json")
    assert "\n" not in caught.value.message


def test_no_good_row(tmp_path: Path) -> None:
    """A file without a valid row is refused."""
    with expect_refusal(DataError, "bad-row", "1 bad of 1"):
        read_input(write(tmp_path, entry(OK, name="x")), LENIENT)


def test_the_architecture_must_be_given(tmp_path: Path) -> None:
    """The file does not state the architecture; compute units may be given as well."""
    path = write(tmp_path, entry(OK))
    with expect_refusal(UsageError, "unknown-hardware"):
        read_input(path, ReadOptions())
    with pytest.raises(UsageError, match="gfx000"):
        read_input(path, ReadOptions(arch="gfx000"))
    assert rows_of(path, ReadOptions(arch="gfx942", num_cus=304))[0]["hw_num_cus"] == 304


def test_duplicate_pairs_count_once(tmp_path: Path) -> None:
    """As between runs: times take precedence over failures, and later times over earlier ones."""
    faster = OK | {"avg_time_ms": 0.0625, "tflops": 4.294967296}
    merged = merge([read_input(write(tmp_path, entry(OK, faster, FAILED)), GFX950)])
    assert merged.dataset.frame["latency_ms"].tolist() == [0.0625]
    assert (merged.superseded, merged.repeated) == (0, 2)


def test_several_files_become_one_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files are detected by content, merged, written as Parquet and read back with the same numbers."""
    item = write(tmp_path, entry(OK, FAILED | {"m": 32}), name="one.json")
    two = write(tmp_path, entry(OK, OK | {"m": 64, "tflops": 0.536870912}, name=MEM, pipeline="mem"), name="two.json")
    out = tmp_path / "gemm.parquet"
    assert run(["convert", str(item), str(two), "--arch", "gfx950", "--out", str(out), "--json"]) == ExitCode.OK
    summary = json.loads(capsys.readouterr().out)
    expected = {"rows": 4, "valid": 3, "problems": 3, "kernels": 2, "by_status": {"ok": 3, "timeout": 1}, "dropped": {}}
    assert {name: summary[name] for name in expected} == expected
    dataset = read_dataset(out)
    assert dataset.op_type == "gemm_universal"
    assert dataset.content_hash == summary["sha256"]
    assert dataset.frame["latency_ms"].dropna().tolist() == [0.125, 0.125, 0.125]
    assert dataset.frame["tflops"].dropna().tolist() == pytest.approx([2.147483648, 2.147483648, 0.536870912])
    assert [problem.m for problem in dataset.problems()] == [256, 32, 64]
    assert {source["format"] for source in dataset.metadata["sources"]} == {"tile-engine-json"}


def test_a_bad_file_leaves_no_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One bad benchmark in one of two files ends in one line and exit code 4."""
    item, two = write(tmp_path, entry(OK), name="1.json"), write(tmp_path, entry(OK, OK | {"m": -1}), name="2.json")
    out = tmp_path / "gemm.parquet"
    args = ["convert", str(item), str(two), "--arch", "gfx950", "--out", str(out)]
    assert run([*args, "--strict"]) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert (stdout, out.exists()) == ("", False)
    expect_error(stderr, "bad-row", two, 1, "results[0].benchmarks[1]", "m ")
    assert run([*args, "--json"]) == ExitCode.OK
    assert list(json.loads(capsys.readouterr().out)["dropped"].values()) == [1]
