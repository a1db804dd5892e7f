"""AMD's CSV files: exact values, both column sets, and every kind of bad row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from ckh.data.conversion import convert
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.data.readers import find_reader, read_input, readers
from ckh.data.readers.cells import BAD_NUMBER, WITHOUT_TIME
from ckh.errors import DataError, UsageError
from ckh.ops.grouped_conv import amd_csv as bad
from ckh.ops.grouped_conv.amd_csv import AMD_COLUMNS
from ckh.ops.table_rows import BAD_KERNEL
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[..., Path]

GFX942 = ReadOptions(arch="gfx942", strict=True)
LENIENT = ReadOptions(arch="gfx942")
NAME = "grouped_conv_forward_bf16_2d_64x32x16_"
SEVENTEEN = tuple(
    name for name in AMD_COLUMNS if name not in {"Di", "Z"} and not name.endswith("_d") and not name.startswith("dil")
)


def rows_of(path: Path, options: ReadOptions = GFX942) -> list[dict[str, Any]]:
    """Read the rows of a file."""
    rows: list[dict[str, Any]] = read_input(path, options).rows.table().to_pylist()
    return rows


def test_exact_values(write_csv: Write) -> None:
    """Every column of a row has the value given by the file, the name, the problem or the arch."""
    path = write_csv({"latency_ms": "0.1"})
    row = rows_of(path)[0]
    assert row["latency_ms"] == 0.1
    assert row["tflops"] == pytest.approx(115_605_504 / 0.1 / 1e9, rel=1e-15)
    moved = 2 * (2 * 28 * 28 * 64 + 128 * 32 * 9 + 2 * 28 * 28 * 128)
    assert row["bandwidth_gb_s"] == pytest.approx(moved / 0.1 / 1e6, rel=1e-15)
    expected = {"variant": "forward", "dtype": "bf16", "layout": "nhwgc", "ndim_spatial": 2, "op_type": "grouped_conv"}
    expected |= {"N": 2, "C": 64, "K": 128, "G": 2, "Hi": 28, "Y": 3, "pad_h": 1, "pad_d": 0, "dilation_d": 1}
    expected |= {"status": "ok", "is_valid": True, "non_zero": 7, "message": None, "samples": None, "device": None}
    expected |= {"arch": "gfx942", "hw_num_cus": 304, "hw_lds_capacity": 65536}
    assert {name: row[name] for name in expected} == expected


def test_a_tile_is_m_n_k_in_the_order_of_the_name(write_csv: Write) -> None:
    """`block_size` is tile_k and the others are tile_m and tile_n, unlike in AMD's converter."""
    row = rows_of(write_csv({}))[0]
    assert (row["tile_m"], row["tile_n"], row["tile_k"]) == (64, 32, 16)
    assert (row["gemm_m_per_block"], row["gemm_n_per_block"], row["block_size"]) == (64, 32, 16)


def test_kernels_are_not_aliased(write_csv: Write) -> None:
    """Names that differ only in wave mode, dsb, si, merged groups or stages remain different kernels."""
    suffixes = [
        f"{wave}{gm}{dsb}{si}{stage}"
        for wave in ("_intrawave", "_interwave")
        for gm in ("", "_gm2")
        for dsb in ("", "_dsb")
        for si in ("", "_si")
        for stage in ("", "_2stage")
    ]
    rows = rows_of(write_csv(*({"kernel": NAME + "mem" + suffix} for suffix in suffixes)))
    columns = ("wave_mode", "num_groups_to_merge", "has_dsb", "has_si", "two_stage")
    assert len({tuple(row[column] for column in columns) for row in rows}) == len(suffixes) == 32
    assert len({row["kernel"] for row in rows}) == 32
    assert {row["pipeline"] for row in rows} == {"mem"}


@pytest.mark.parametrize(("item", "other"), [("compv3", "compv3_intrawave"), ("compv4", "compv4_intrawave_dsb")])
def test_implied_fields_of_names_are_filled_in(write_csv: Write, item: str, other: str) -> None:
    """Two spellings of a kernel are one kernel: the default scheduler is intrawave, and compv4 always has dsb."""
    first, second = rows_of(write_csv({"kernel": NAME + item}, {"kernel": NAME + other}))
    assert {**first, "run_id": ""} == {**second, "run_id": ""}
    assert first["kernel"] == NAME + other if other.endswith("dsb") else NAME + "compv3_intrawave"


def test_compv5_is_read_as_compv3_on_gfx950_only(write_csv: Write) -> None:
    """On gfx950 rows named compv5 ran compv3, with a warning; not on other architectures."""
    path = write_csv({"kernel": NAME + "compv3"}, {"kernel": NAME + "compv5", "latency_ms": 0.4, "tflops": 0.289})
    reading = read_input(path, ReadOptions(arch="gfx950"))
    rows = reading.rows.table().to_pylist()
    assert [row["kernel"] for row in rows] == [NAME + "compv3_intrawave"] * 2
    assert [row["pipeline"] for row in rows] == ["compv3", "compv3"]
    expect_values(reading.warnings[0], 1, "compv5", "compv3")
    assert [row["pipeline"] for row in rows_of(path)] == ["compv3", "compv5"]
    assert read_input(path, GFX942).warnings == ()


def test_repeated_pairs_are_averaged(write_csv: Write, tmp_path: Path) -> None:
    """Its time is the geometric mean, its spread that of the times; one wrong result invalidates the pair."""
    again = [{"N": 4, "latency_ms": ms, "tflops": 0} for ms in (0.2, 0.8, 0.4)]
    wrong = [{"N": 8, "tflops": 0}, {"N": 8, "non_zero": 0, "tflops": 0}, {"N": 8, "tflops": 0}]
    out = tmp_path / "out.parquet"
    summary = convert([write_csv({}, *again, *wrong)], out, GFX942)
    frame = read_dataset(out).frame.set_index("N")
    assert frame["latency_ms"].to_dict() == pytest.approx({2: 0.5, 4: 0.4, 8: 0.5})
    assert frame["spread"].to_dict() == pytest.approx({2: math.nan, 4: 0.5, 8: math.nan}, nan_ok=True)
    assert frame.loc[4, ["samples", "latency_min_ms"]].tolist() == [3, 0.2]
    assert frame.loc[4, "tflops"] == pytest.approx(2 * 115_605_504 / 0.4 / 1e9)
    assert frame["status"].to_dict() == {2: "ok", 4: "ok", 8: "wrong_result"}
    assert (summary.rows, summary.superseded, summary.repeated) == (3, 0, 0)
    expect_values(summary.warnings[-1], 1)


def test_17_and_24_columns_agree(write_csv: Write) -> None:
    """The older 2D files give the same rows as the newer files."""
    assert len(SEVENTEEN) == 17
    assert len(AMD_COLUMNS) == 24
    new, old = rows_of(write_csv({}, name="new.csv"))[0], rows_of(write_csv({}, columns=SEVENTEEN, name="old.csv"))[0]
    assert {**old, "run_id": ""} == {**new, "run_id": ""}


def test_column_order_does_not_matter(write_csv: Write) -> None:
    """Columns are found by name."""
    path = write_csv({}, columns=AMD_COLUMNS[::-1])
    assert find_reader(path) is readers()["amd-csv"]
    assert rows_of(path)[0]["latency_ms"] == 0.5


def test_3d_rows(write_csv: Write) -> None:
    """3D problems keep depth, stride_d, pad_d and dilation_d."""
    sizes = {"Di": 9, "Z": 3, "stride_d": 2, "pad_d": 1, "dilation_d": 2}
    row = rows_of(write_csv({"kernel": NAME.replace("_2d_", "_3d_") + "mem", "tflops": 0, **sizes}))[0]
    assert {name: row[name] for name in sizes} == sizes
    assert (row["ndim_spatial"], row["layout"]) == (3, "ndhwgc")


@pytest.mark.parametrize(
    ("change", "reason", "detail"),
    [
        ({"kernel": "conv_kernel_7"}, BAD_KERNEL, "conv_kernel_7"),
        ({"kernel": ""}, BAD_KERNEL, "not a kernel name"),
        ({"kernel": NAME + "compv77_intrawave"}, BAD_KERNEL, "unknown pipeline 'compv77'"),
        ({"kernel": NAME + "compv3_dsb_intrawave"}, BAD_KERNEL, "'_intrawave' is unknown"),
        ({"kernel": "grouped_conv_forward_bf16_2d_64x0x16_mem"}, BAD_KERNEL, "tile"),
        ({"N": "two"}, BAD_NUMBER, "N is 'two'"),
        ({"N": "1_0"}, BAD_NUMBER, "N is '1_0'"),
        ({"Hi": "nan"}, BAD_NUMBER, "Hi is 'nan'"),
        ({"Hi": 2.5}, BAD_NUMBER, "Hi is '2.5'"),
        ({"latency_ms": "fast"}, BAD_NUMBER, "latency_ms is 'fast'"),
        ({"tflops": "x"}, BAD_NUMBER, "tflops is 'x'"),
        ({"non_zero": "x"}, BAD_NUMBER, "non_zero is 'x'"),
        ({"C": 0}, bad.BAD_PROBLEM, "C must be 1 or more"),
        ({"G": 0}, bad.BAD_PROBLEM, "G must be 1 or more"),
        ({"pad_h": -1}, bad.BAD_PROBLEM, "pad_h must be 0 or more"),
        ({"stride_w": -2}, bad.BAD_PROBLEM, "stride_w must be 1 or more"),
        ({"G": 3}, bad.BAD_PROBLEM, "C=64 is not divisible by G=3"),
        ({"K": 127}, bad.BAD_PROBLEM, "K=127 is not divisible by G=2"),
        ({"Y": 99}, bad.BAD_PROBLEM, "does not fit"),
        ({"Di": 4}, bad.BAD_PROBLEM, "no depth"),
        ({"N": 2**40}, bad.BAD_PROBLEM, "below 2"),
        ({"latency_ms": -0.5}, bad.BAD_TIME, "latency_ms is -0.5"),
        ({"latency_ms": 1e-10}, bad.BAD_TIME, "latency_ms is 1e-10"),
    ],
)
def test_a_bad_row_is_left_out_or_named(write_csv: Write, change: dict[str, Any], reason: str, detail: str) -> None:
    """A bad row is left out and counted; if strict, it is refused with its reason and line."""
    path = write_csv({}, {"Wi": 30, "tflops": 0}, change)
    with pytest.raises(DataError) as refused:
        rows_of(path)
    assert refused.value.message.startswith(f"{path}: 1 bad of 3: 1 {reason} (line 4: ")
    assert detail in refused.value.message
    assert "--strict" in refused.value.hint
    reading = read_input(path, LENIENT)
    assert reading.account.left_out == {reason: 1}
    assert reading.rows.table().num_rows == 2


@pytest.mark.parametrize("time", ["", "nan", "inf", 0])
def test_a_row_without_a_time_is_left_out_and_counted(write_csv: Write, time: object) -> None:
    """It is neither an error nor a failure of its kernel."""
    reading = read_input(write_csv({}, {"Wi": 30, "tflops": 0}, {"N": 4, "latency_ms": time}), GFX942)
    assert (reading.account.left_out, reading.rows.table().num_rows) == ({WITHOUT_TIME: 1}, 2)


def test_bad_rows_are_counted_by_reason_and_the_first_are_named(write_csv: Write) -> None:
    """Bad rows give a count for each reason, and the line of its first."""
    path = write_csv({}, {"N": "x"}, {"C": -4}, {"C": -8}, {"N": "y"}, {"latency_ms": -1})
    with pytest.raises(DataError) as refused:
        rows_of(path)
    message = refused.value.message
    assert "5 bad of 6" in message
    assert f"2 {BAD_NUMBER}" in message
    assert f"2 {bad.BAD_PROBLEM}" in message
    assert [f"line {i}:" in message for i in range(2, 8)] == [False, True, True, False, False, True]


def test_a_truncated_file_is_refused(write_csv: Write) -> None:
    """A last line with too few cells is a bad row; a complete line without a line end gives a warning."""
    path = write_csv({}, {"N": 4, "tflops": 0})
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b",1,1,1,")])
    with expect_refusal(DataError, "bad-row", "line 3: ", "24"):
        rows_of(path)
    assert read_input(path, LENIENT).rows.table().num_rows == 1
    path.write_bytes(whole.rstrip())
    assert any("cut off" in warning for warning in read_input(path, GFX942).warnings)


def test_lines_are_counted_right_after_empty_and_wrong_lines(write_csv: Write) -> None:
    """Empty lines are not rows, and line numbers are those of the file."""
    path = write_csv({}, {"N": 4, "tflops": 0}, {"N": "x"})
    lines = path.read_bytes().split(b"\r\n")
    path.write_bytes(b"\n".join([lines[0], b"", lines[1], b"a,b", b"", *lines[2:]]))
    with expect_refusal(DataError, "bad-row", "4", "2", "7", "N", "x"):
        rows_of(path)
    assert read_input(path, LENIENT).rows.table().num_rows == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\x00\xff\xfe\x01" * 20, "unknown format"),
        (b"a,b\n1,2\n", "unknown format"),
        (b"kernel,N,C,K,latency_ms\n", "columns G, Hi, Wi, Y, X, stride_h, stride_w, pad_h, pad_w are missing"),
        (",".join(AMD_COLUMNS).encode() + b"\n", "no entries"),
        (",".join([*AMD_COLUMNS, "N"]).encode() + b"\n", "column N occurs twice"),
        (",".join(name for name in AMD_COLUMNS if name != "Z").encode() + b"\n", "column Z is missing"),
        (",".join(AMD_COLUMNS).encode() + b"\n\xff\xfe" + b"," * 23 + b"\n", "UTF8"),
    ],
)
def test_an_unusable_file_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    """Empty, foreign and incomplete files are refused with their name."""
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as refused:
        read_input(path, GFX942)
    assert str(path) in refused.value.message
    assert "\n" not in refused.value.message


def test_the_arch_must_be_given_and_known(write_csv: Write) -> None:
    """A CSV file does not state its arch; an unknown arch is a usage error."""
    path = write_csv({})
    with expect_refusal(UsageError, "unknown-hardware"):
        read_input(path, ReadOptions())
    with expect_refusal(UsageError, "unknown-arch"):
        read_input(path, ReadOptions(arch="gfx000"))


def test_all_zero_outputs_are_a_wrong_result(write_csv: Write) -> None:
    """A kernel that wrote only zeros has a time but is not valid."""
    row = rows_of(write_csv({"non_zero": 0}))[0]
    assert (row["status"], row["is_valid"]) == ("wrong_result", False)
    assert row["message"]
    assert row["latency_ms"] == 0.5


def test_tflops_are_computed_and_compared(write_csv: Write) -> None:
    """AMD's tflops are replaced by flops / time, with a warning if they differ by more than 1 %."""
    reading = read_input(write_csv({}, {"N": 4, "tflops": 3.0}), GFX942)
    assert reading.rows.table()["tflops"].to_pylist()[1] == pytest.approx(2 * 115_605_504 / 0.5 / 1e9)
    assert len(reading.warnings) == 1
    expect_values(reading.warnings[0], 1, "line 3", 3, 0.462422)


def test_a_3d_kernel_needs_the_columns_of_depth(write_csv: Write) -> None:
    """With the 17 columns of 2D, a 3D kernel is a bad row: its depth is unknown."""
    path = write_csv({"kernel": NAME.replace("_2d_", "_3d_") + "mem"}, columns=SEVENTEEN)
    with expect_refusal(DataError, "bad-row"):
        rows_of(path)


def test_unknown_columns_give_a_warning(write_csv: Write, tmp_path: Path) -> None:
    """An unknown column is ignored with a warning."""
    text = write_csv({}).read_text(encoding="utf-8").splitlines()
    path = tmp_path / "more.csv"
    path.write_text(f"{text[0]},mood\n{text[1]},fine\n", encoding="utf-8")
    assert "mood" in read_input(path, GFX942).warnings[0]
