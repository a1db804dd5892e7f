"""AITER's tuned tables: shapes and winners, written as problem files."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import pytest

from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.data.readers import find_reader, read_input, readers
from ckh.data.readers.cells import WRONG_CELLS
from ckh.errors import DataError, OutputError, UsageError
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.gemm_universal.problem_sets.files import read_problems
from ckh.ops.gemm_universal.readers import aiter_csv
from ckh.ops.gemm_universal.readers.aiter_csv import Winners, read_winners, write_winners
from ckh.ops.gemm_universal.readers.gemm_rows import BAD_PROBLEM
from tests.refusals import expect_refusal, expect_values
from tests.shared import DATA

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = ("gfx", "cu_num", "M", "N", "K", "q_dtype_w", "libtype", "kernelId", "splitK", "us", "kernelName", "tflops")
KERNEL = "a8w8_rowwise_256x16x64x512_16x16_1x1_32x8x1_32x8x1_1x16x1x16_4x4x1_1x1_intrawave_v3"
_VALUES = ("gfx942", 80, 16, 1280, 8192, "torch.int8", "ck", 34, 2, 8.0, KERNEL, 41.94)
ROW: dict[str, Any] = dict(zip(COLUMNS, _VALUES, strict=True))
BLOCK = tuple(name for name in COLUMNS if name != "q_dtype_w")
OLD = tuple(name for name in COLUMNS if name != "gfx")
ANY = ReadOptions()
SKIP_BAD = ReadOptions(skip_bad=True)


def write(folder: Path, *rows: dict[str, Any], columns: tuple[str, ...] = COLUMNS, name: str = "tuned.csv") -> Path:
    """Write a table of rows, each given by its differences from a valid row."""
    lines = [",".join(columns), *(",".join(str((ROW | row)[column]) for column in columns) for row in rows)]
    path = folder / name
    path.write_bytes("".join(line + "\r\n" for line in lines).encode())
    return path


def test_exact_values(tmp_path: Path) -> None:
    """A winner has the shape, type and device of its row, and TFLOPS derived from its time."""
    path = write(tmp_path, {})
    assert find_reader(path) is readers()["aiter-csv"]
    winners = read_winners(path, ANY)
    (winner,) = winners.winners
    assert winner.problem == GemmProblem(16, 1280, 8192, "int8", "rcr", 1)
    assert (winner.arch, winner.num_cus, winner.library, winner.tuned_split) == ("gfx942", 80, "ck", 2)
    assert (winner.kernel_name, winner.latency_us, winner.source) == (KERNEL, 8.0, "tuned.csv")
    assert winner.tflops == pytest.approx(2 * 16 * 1280 * 8192 / 8.0 / 1e6, rel=1e-15)
    assert (winners.bad, winners.repeated, winners.warnings) == ({}, 0, ())
    assert winners.source["format"] == "aiter-csv"


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("torch.int8", "int8"),
        ("torch.float8_e4m3fn", "fp8"),
        ("torch.float8_e4m3fnuz", "fp8"),
        ("torch.bfloat16", "bf16"),
    ],
)
def test_element_types(tmp_path: Path, text: str, dtype: str) -> None:
    """Types named as in torch are converted to ckh's."""
    assert read_winners(write(tmp_path, {"q_dtype_w": text}), ANY).winners[0].problem.dtype == dtype


def test_block_scaled_tables_are_fp8(tmp_path: Path) -> None:
    """Block-scaled tables without a type column are fp8; other tables without it are refused."""
    block = write(tmp_path, {"kernelName": "a8w8_blockscale_1x128x128_256x16"}, columns=BLOCK)
    assert read_winners(block, ANY).winners[0].problem.dtype == "fp8"
    with expect_refusal(DataError, "bad-row", "q_dtype_w"):
        read_winners(write(tmp_path, {}, columns=BLOCK), ANY)


def test_the_architecture_of_older_tables_follows_from_compute_units(tmp_path: Path) -> None:
    """80 and 304 compute units are gfx942; 256 is ambiguous, so that --arch is required."""
    rows = [{"cu_num": 80}, {"cu_num": 304}]
    winners = read_winners(write(tmp_path, *rows, columns=OLD), ANY).winners
    assert [(winner.arch, winner.num_cus) for winner in winners] == [("gfx942", 80), ("gfx942", 304)]
    new = write(tmp_path, {"cu_num": 256}, columns=OLD)
    with expect_refusal(DataError, "bad-row", "256", "--arch"):
        read_winners(new, ANY)
    assert read_winners(new, ReadOptions(arch="gfx950")).winners[0].arch == "gfx950"


def test_an_architecture_can_be_selected(tmp_path: Path) -> None:
    """With --arch, rows of other architectures are bad, and skipped on request."""
    path = write(tmp_path, {}, {"gfx": "gfx950", "cu_num": 256}, {"gfx": "gfx1250", "cu_num": 256})
    winners = read_winners(path, ReadOptions(arch="gfx950", skip_bad=True))
    assert [winner.arch for winner in winners.winners] == ["gfx950"]
    assert winners.bad == {aiter_csv.OTHER_ARCH: 2}


def test_the_faster_of_duplicate_shapes_is_kept(tmp_path: Path) -> None:
    """The fastest of duplicate rows is kept, per device and type; slower ones are counted."""
    rows: list[dict[str, Any]] = [
        {},
        {"us": 4.0, "tflops": 83.89},
        {"us": 9, "tflops": 37.28},
        {"cu_num": 304},
        {"q_dtype_w": "torch.bfloat16"},
    ]
    winners = read_winners(write(tmp_path, *rows), ANY)
    assert [winner.latency_us for winner in winners.winners] == [4.0, 8.0, 8.0]
    assert winners.repeated == 2


def test_tflops_contradicting_the_time_are_reported(tmp_path: Path) -> None:
    """The warning names the location; rounding to two decimals is no contradiction."""
    tiny = {"M": 1, "N": 64, "K": 64, "us": 3.0, "tflops": 0.0}
    winners = read_winners(write(tmp_path, tiny, {"tflops": 50.0}), ANY)
    assert len(winners.warnings) == 1
    expect_values(winners.warnings[0], 1, "line 3")


@pytest.mark.parametrize(
    ("change", "reason", "detail"),
    [
        ({"us": "-1"}, aiter_csv.BAD_TIME, "us is '-1'"),
        ({"us": "1_0"}, aiter_csv.BAD_TIME, "us is '1_0'"),
        ({"M": "x"}, aiter_csv.BAD_NUMBER, "M is 'x'"),
        ({"N": 1.5}, aiter_csv.BAD_NUMBER, "N is '1.5'"),
        ({"cu_num": 0}, aiter_csv.BAD_NUMBER, "cu_num is 0"),
        ({"splitK": "nan"}, aiter_csv.BAD_NUMBER, "splitK is 'nan'"),
        ({"K": 0}, BAD_PROBLEM, "k must be 1 or more"),
        ({"K": 2**31}, BAD_PROBLEM, "k must be 1 or more"),
        ({"kernelName": " "}, aiter_csv.NO_KERNEL, "kernelName is empty"),
        ({"q_dtype_w": "torch.float4"}, aiter_csv.BAD_DTYPE, "q_dtype_w is 'torch.float4'"),
        ({"gfx": ""}, aiter_csv.BAD_ARCH, "gfx is ''"),
        ({"gfx": "MI300X"}, aiter_csv.BAD_ARCH, "gfx is 'MI300X'"),
        ({"gfx": "gfx999"}, aiter_csv.BAD_ARCH, "gfx is 'gfx999'"),
        ({"kernelName": "a,b"}, WRONG_CELLS, "13 cells instead of 12"),
    ],
)
def test_a_bad_row_is_named_or_skipped(tmp_path: Path, change: dict[str, Any], reason: str, detail: str) -> None:
    """A bad row is refused with its line number, or skipped and counted on request."""
    path = write(tmp_path, {}, change)
    with pytest.raises(DataError) as caught:
        read_winners(path, ANY)
    assert caught.value.message == f"{path}: 1 bad row (1 {reason}): line 3: {detail}" or detail in caught.value.message
    assert "line 3: " in caught.value.message
    winners = read_winners(path, SKIP_BAD)
    assert (len(winners.winners), winners.bad) == (1, {reason: 1})


@pytest.mark.parametrize("us", ["inf", "nan", 0, ""])
def test_rows_without_a_time_are_left_out(us: object, tmp_path: Path) -> None:
    """A failure of the tuner is counted, and its line named."""
    winners = read_winners(write(tmp_path, {}, {"us": us}), ANY)
    (reason,) = winners.bad
    assert (len(winners.winners), winners.bad) == (1, {reason: 1})
    expect_values(reason, 3)


def test_omitted_last_cells_are_empty(tmp_path: Path) -> None:
    """A row without its last cells is read as pandas reads it."""
    path = write(tmp_path, {})
    path.write_bytes(path.read_bytes().replace(b",tflops\r\n", b",tflops,_tag\r\n"))
    assert len(read_winners(path, ANY).winners) == 1


def test_empty_lines_are_no_rows(tmp_path: Path) -> None:
    """Empty lines are skipped, and line numbers of other rows remain correct."""
    path = write(tmp_path, {})
    path.write_text(path.read_text(encoding="utf-8") + "\n\n,,\n", encoding="utf-8")
    assert len(read_winners(path, ANY).winners) == 1


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (COLUMNS[:-2], [{}], "column kernelName is missing"),
        (COLUMNS, [], "has a header but no rows"),
        ((*COLUMNS, "B"), [{"B": 16}], "batched"),
        ((*COLUMNS, "M"), [{}], "column M occurs twice"),
    ],
)
def test_an_unusable_table_is_refused(
    tmp_path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]], message: str
) -> None:
    """An unusable table is refused in one line."""
    with pytest.raises(DataError, match=message):
        read_winners(write(tmp_path, *rows, columns=columns), ANY)


def test_no_good_row(tmp_path: Path) -> None:
    """A table without a valid row, and bytes that are not text, are refused."""
    with expect_refusal(DataError, "no-good-row"):
        read_winners(write(tmp_path, {"us": "inf"}), SKIP_BAD)
    path = write(tmp_path, {})
    path.write_bytes(path.read_bytes() + b"\xff\xfe")
    with expect_refusal(DataError, "not-text"):
        read_winners(path, ANY)


def test_written_winners_are_not_an_aiter_table(tmp_path: Path) -> None:
    """A written file of winners is not readable as a dataset."""
    written = tmp_path / "winners.csv"
    write_winners(read_winners(write(tmp_path, {}), ANY).winners, written)
    for options in (ANY, ReadOptions(arch="gfx942", skip_bad=True)):
        with pytest.raises(DataError):
            read_input(written, options)
    with pytest.raises(DataError):
        read_dataset(written)


def test_a_file_of_winners_is_a_problem_file(tmp_path: Path) -> None:
    """Its problems are read once each, beside winners with exact numbers."""
    rows: list[dict[str, Any]] = [
        {},
        {"cu_num": 304, "us": 2.5, "tflops": 134.22},
        {"M": 1, "q_dtype_w": "torch.float8_e4m3fn", "tflops": 2.62},
    ]
    out = tmp_path / "winners.csv"
    write_winners(read_winners(write(tmp_path, *rows), ANY).winners, out)
    assert read_problems(out) == (GemmProblem(16, 1280, 8192, "int8"), GemmProblem(1, 1280, 8192, "fp8"))
    with out.open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    assert [(row["num_cus"], float(row["latency_us"])) for row in written] == [("80", 8.0), ("304", 2.5), ("80", 8.0)]
    assert float(written[1]["tflops"]) == pytest.approx(2 * 16 * 1280 * 8192 / 2.5 / 1e6, rel=1e-15)
    assert written[0]["kernel_name"] == KERNEL
    assert "split_k" not in written[0]


def test_unwritable_rows_are_refused(tmp_path: Path) -> None:
    """Another suffix, no winners, and a missing folder are refused."""
    winners = read_winners(write(tmp_path, {}), ANY).winners
    with expect_refusal(UsageError, "unknown-format"):
        write_winners(winners, tmp_path / "winners.txt")
    with expect_refusal(DataError, "empty"):
        write_winners([], tmp_path / "winners.csv")
    with expect_refusal(OutputError, "unwritable"):
        write_winners(winners, tmp_path / "tuned.csv" / "winners.csv")


def real(name: str) -> Winners:
    """Return the winners of a real table; skip the test without it."""
    path = DATA / f"aiter_{name}_tuned_gemm.csv"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    assert find_reader(path) is readers()["aiter-csv"]
    return read_winners(path, ReadOptions(skip_bad=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "devices", "fastest"),
    [
        ("a8w8_blockscale", {("gfx950", 256, "fp8"): 6630}, 1589.38),
        (
            "a8w8_bpreshuffle",
            {
                ("gfx942", 80, "int8"): 36,
                ("gfx942", 80, "fp8"): 1,
                ("gfx942", 304, "int8"): 32,
                ("gfx950", 256, "fp8"): 481,
                ("gfx1250", 256, "fp8"): 48,
            },
            5662.83,
        ),
        (
            "a8w8",
            {("gfx942", 80, "int8"): 26, ("gfx950", 256, "int8"): 452, ("gfx950", 256, "fp8"): 101},
            2518.18,
        ),
    ],
)
def test_real_tables(name: str, devices: dict[tuple[str, int, str], int], fastest: float, tmp_path: Path) -> None:
    """Counts by device and type, and the highest TFLOPS, equal those of the files."""
    winners = real(name)
    counts: dict[tuple[str, int, str], int] = {}
    for winner in winners.winners:
        key = (winner.arch, winner.num_cus, winner.problem.dtype)
        counts[key] = counts.get(key, 0) + 1
    assert counts == devices
    assert (winners.bad, winners.repeated, winners.warnings) == ({}, 0, ())
    assert max(winner.tflops for winner in winners.winners) == pytest.approx(fastest, abs=0.005)
    out = tmp_path / "winners.csv"
    write_winners(winners.winners, out)
    assert set(read_problems(out)) == {winner.problem for winner in winners.winners}
