"""Problem files: formats, defaults, and the one-line errors."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

from ckh.errors import DataError, UsageError
from ckh.files.account import Account
from ckh.ops.grouped_conv.problem import CONV_COLUMNS
from ckh.ops.grouped_conv.problem_sets import load_problems, problem_set
from ckh.problems import Direction
from tests.refusals import expect_refusal, expect_values, left_out_of

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "N,C,K,G,Hi,Wi,Y,X,pad_h,pad_w"
GOOD = "1,8,16,1,28,28,3,3,1,1"
LINE = "conv_forward_fp32_nhwgc_2d_n1_c8_k16_g1_i28x28_f3x3_s1x1_p1x1_d1x1"
CALL = "GroupedConvProblem(N=1, C=8, K=16, Hi=28, Wi=28, Y=3, X=3, pad_h=1, pad_w=1"
MIXED = (*problem_set("host-holdout", Direction.BWD_DATA, "bf16"), *problem_set("train-3d", Direction.BWD_DATA, "bf16"))


def _write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_text_round_trip(tmp_path: Path) -> None:
    """Canonical lines, with comments and blank lines between, restore the same problems."""
    text = "# problems\n\n" + "\n".join(f"{p.canonical()}  # {i}" for i, p in enumerate(MIXED))
    assert load_problems(_write(tmp_path / "p.txt", text)) == MIXED


def test_csv_round_trip(tmp_path: Path) -> None:
    """AMD's columns restore the same problems in the requested direction and dtype."""
    path = tmp_path / "p.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(CONV_COLUMNS))
        writer.writeheader()
        writer.writerows(p.columns() for p in MIXED)
    assert load_problems(str(path), Direction.BWD_DATA, "bf16") == MIXED


def test_json_round_trip(tmp_path: Path) -> None:
    """JSON may mix objects with either naming and canonical strings."""
    columns = {**MIXED[2].columns(), "variant": "bwd_data", "dtype": "bf16"}
    entries = [MIXED[0].to_dict(), MIXED[1].canonical(), columns, *(p.to_dict() for p in MIXED[3:])]
    path = _write(tmp_path / "p.json", json.dumps(entries, indent=1))
    assert load_problems(path) == MIXED
    assert load_problems(path, Direction.BWD_DATA, "bf16") == MIXED


def test_the_default_is_one_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A CSV or JSON without G has dense convolutions, without a warning."""
    csv_file = _write(tmp_path / "p.csv", "N,C,K,Hi,Wi,Y,X,pad_h,pad_w\n1,8,16,28,28,3,3,1,1\n")
    row = {"N": 1, "C": 8, "K": 16, "Hi": 28, "Wi": 28, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
    for path in (csv_file, _write(tmp_path / "p.json", json.dumps([row]))):
        assert [problem.canonical() for problem in load_problems(path)] == [LINE]
    assert capsys.readouterr().err == ""


def test_unrelated_columns_are_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A layer's name or count does no harm; a note names the ignored columns."""
    path = _write(tmp_path / "p.csv", f"layer,{HEADER},uses\nconv1,{GOOD},3\n")
    assert [problem.canonical() for problem in load_problems(path)] == [LINE]
    expect_values(capsys.readouterr().err, path, "'layer', 'uses'")


def test_amds_direction_names_are_accepted(tmp_path: Path) -> None:
    """A CSV in the format of AMD's shape generators is read, and JSON with the same names."""
    header = "N,G,C,K,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,direction"
    path = _write(tmp_path / "p.csv", f"{header}\n1,1,8,16,28,28,3,3,1,1,1,1,bwd_data\n")
    (problem,) = load_problems(path)
    assert problem.canonical() == LINE.replace("forward", "bwd_data")
    row = {**problem.columns(), "direction": "bwd_data"}
    assert load_problems(_write(tmp_path / "p.json", json.dumps([row]))) == (problem,)
    with expect_refusal(DataError, "bad-header", "variant"):
        load_problems(_write(tmp_path / "q.csv", f"{header},variant\n1,1,8,16,28,28,3,3,1,1,1,1,bwd_data,forward\n"))


@pytest.mark.parametrize("column", ["strides", "STRIDE_H", "padding", "dilation", "groups", "g", "M", "data_type"])
def test_unknown_size_columns_are_refused(tmp_path: Path, column: str) -> None:
    """A size that would silently be ignored is an error: in a CSV's header and in JSON."""
    path = _write(tmp_path / "p.csv", f"{HEADER},{column}\n{GOOD},2\n")
    with expect_refusal(DataError, "bad-header", column):
        load_problems(path)


def test_the_default_dtype_of_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the requested one, else the default; an entry that states another than requested is left out."""
    path = _write(tmp_path / "p.csv", f"{HEADER},dtype\n{GOOD},\n{GOOD},fp16\n")
    assert [problem.dtype for problem in load_problems(path, None, None, "bf16")] == ["bf16", "fp16"]
    assert {problem.dtype for problem in load_problems(path, None, "fp16", "bf16")} == {"fp16"}
    (problem,) = left_out_of(
        capsys,
        lambda account: load_problems(path, None, "bf16", account=account),
        f"{path}:3",
        "dtype is fp16, but bf16 was requested",
        "mismatch",
    )
    assert problem.canonical() == LINE.replace("fp32", "bf16")


def test_defaults_and_repetitions(tmp_path: Path) -> None:
    """Missing columns and empty cells get their defaults, and a duplicate problem is read once."""
    path = _write(tmp_path / "p.csv", f"{HEADER},stride_h,kernel\n{GOOD},,a\n\n{GOOD},1,b\n")
    (problem,) = load_problems(path)
    assert problem.canonical() == LINE


def test_a_depth_makes_a_row_3d(tmp_path: Path) -> None:
    """A row with Di or Z above 1 is a 3D problem."""
    (problem,) = load_problems(_write(tmp_path / "p.csv", "N,C,K,G,Di,Hi,Wi,Z,Y,X\n1,8,8,1,4,7,7,3,3,3\n"))
    assert (problem.ndim, problem.layout, problem.do) == (3, "ndhwgc", 2)


def test_a_named_set_is_a_source() -> None:
    """The name of a set is a source of problems, forward and fp32 by default."""
    assert load_problems("vgg16") == problem_set("vgg16")
    assert load_problems("vgg16", Direction.BWD_DATA, "fp16") == problem_set("vgg16", Direction.BWD_DATA, "fp16")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", f"{HEADER}\n1,0,16,1,28,28,3,3,1,1\n", ":2: C must be 1 or more"),
        ("a.csv", f"{HEADER}\n-1,8,16,1,28,28,3,3,1,1\n", ":2: N must be 1 or more"),
        ("a.csv", f"{HEADER}\nnan,8,16,1,28,28,3,3,1,1\n", ":2: N must be an integer, not 'nan'"),
        ("a.csv", f"{HEADER}\n1.5,8,16,1,28,28,3,3,1,1\n", ":2: N must be an integer, not '1.5'"),
        ("a.csv", f"{HEADER}\n1,8,16,1,2,2,7,7,1,1\n", ":2: the filter 1x7x7 does not fit"),
        ("a.csv", f"{HEADER}\n,8,16,1,28,28,3,3,1,1\n", ":2: N missing"),
        ("a.csv", f'{HEADER}\n"1,8,16', ":2: not CSV: unexpected end of data"),
        ("a.csv", f"N,C,K,G,Hi,Wi,Y\n{GOOD}\n", ":1: missing columns: 'X'"),
        ("a.csv", f"{HEADER},stride\n{GOOD},2\n", ":1: unknown columns: 'stride'"),
        ("a.csv", f"{HEADER},N\n{GOOD},1\n", ":1: repeated columns: 'N'"),
        ("a.csv", f"{HEADER}\n", "no problems in this file"),
        ("a.csv", "", "no problems in this file"),
        ("a.txt", "# nothing\n", "no problems in this file"),
        ("a.txt", LINE.replace("g1", "g3"), ":1: C=8 is not divisible by G=3"),
        ("a.txt", LINE.replace("fp32", "fp33"), ":1: unknown dtype 'fp33'"),
        ("a.json", "", "no problems in this file"),
        ("a.json", "[]", "no problems in this file"),
        ("a.json", f'[\n"{LINE}",\n', ":3: not JSON"),
        ("a.json", '{"N": 1}', "expected a list of problems, found dict"),
        ("a.json", '[{"N": 1, "N": 2}]', "duplicate field: 'N'"),
        ("a.json", "[" * 100_000, "nested more than 64 levels deep"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    """A bad file, strict or not, is one data error in one line that states file, line and reason."""
    path = _write(tmp_path / name, text)
    for account in (None, Account(), Account(is_strict=True)):
        with pytest.raises(DataError) as caught:
            load_problems(path, account=account)
        assert caught.value.message.startswith(path)
        assert message in caught.value.message
        assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("name", "text", "line", "message", "code"),
    [
        ("a.csv", f"{HEADER}\n{GOOD}\n1,9,16,2,28,28,3,3,1,1\n", 3, "C=9 is not divisible by G=2", "indivisible"),
        (
            "a.csv",
            f"{HEADER}\n{GOOD}\n1,8,16,1,28\n",
            3,
            "Wi, Y, X missing",
            "missing-field",
        ),  # omitted cells are empty
        ("a.csv", f"{HEADER}\n{GOOD}\n1,8,16,1,28", 3, "5 cells under 10 columns", "bad-row"),  # the file is cut
        ("a.csv", f"{HEADER}\n{GOOD}\n{GOOD},7", 3, "11 cells under 10 columns", "bad-row"),
        ("a.txt", f"{LINE}\n{LINE[:-9]}\n", 2, "not a problem", "bad-problem"),
        ("a.json", f'["{LINE}",\n\n 7]', 3, "not a problem: 7", "bad-problem"),
        ("a.py", f"{CALL}, G=1)\n{CALL}, N=2)", 2, "duplicate value", "duplicate-name"),
        ("a.py", f"{CALL}, G=0x{'f' * 9000})\n\n{CALL})", 1, "G has more than 63 bits", "out-of-range"),
        ("a.json", f'["{LINE}",\n{{"N": 1}}]', 2, "C, K, Hi, Wi, Y, X missing", "missing-field"),
    ],
)
def test_a_bad_entry_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, line: int, message: str, code: str
) -> None:
    """A bad entry beside a good one is counted with file, line and reason, and is an error only if strict."""
    path = _write(tmp_path / name, text)
    (problem,) = left_out_of(
        capsys, lambda account: load_problems(path, account=account), f"{path}:{line}", message, code
    )
    assert problem.canonical() == LINE


@pytest.mark.parametrize(
    ("change", "message", "code"),
    [
        ({"N": float("nan")}, "N must be an integer, not nan", "bad-number"),
        ({"C": 8.0}, "C must be an integer, not 8.0", "bad-number"),
        ({"C": True}, "C must be an integer, not True", "bad-number"),
        ({"K": "16"}, "K must be an integer, not '16'", "bad-number"),
        ({"K": None}, "K must be an integer, not None", "bad-number"),
        ({"Hi": [28]}, "Hi must be an integer", "bad-number"),
        ({"dtype": ["fp32"]}, "dtype must be text", "bad-field"),
        ({"variant": "sideways"}, "unknown direction 'sideways'", "unknown-name"),
        ({"variant": ""}, "unknown direction ''", "unknown-name"),
        ({"ndim": "2"}, "ndim must be 2 or 3", "out-of-range"),
        ({"ndim": 2, "Di": 4}, "a 2D convolution has no depth", "bad-problem"),
        ({"stride": 2}, "unknown keys: 'stride'", "unknown-field"),
        ({"n": 1}, "duplicate value", "duplicate-name"),
    ],
)
def test_bad_json_objects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], message: str, code: str
) -> None:
    """A JSON object with a wrong type or key is left out with its line, and is an error only if strict."""
    good = dict(zip(HEADER.split(","), map(int, GOOD.split(",")), strict=True))
    path = _write(tmp_path / "p.json", f"[{json.dumps(good)},\n{json.dumps(good | change)}]")
    (problem,) = left_out_of(capsys, lambda account: load_problems(path, account=account), f"{path}:2", message, code)
    assert problem.canonical() == LINE


def test_another_direction_or_dtype_is_refused(tmp_path: Path) -> None:
    """A file that states another direction or dtype than asked for is refused."""
    path = _write(tmp_path / "p.txt", LINE)
    with expect_refusal(DataError, "mismatch", "1", "variant", "forward", "bwd_data"):
        load_problems(path, Direction.BWD_DATA)
    with expect_refusal(DataError, "mismatch", "1", "fp32", "bf16"):
        load_problems(path, dtype="bf16")


def test_missing_binary_and_unknown_files(tmp_path: Path) -> None:
    """A missing or binary file is bad data; an unknown suffix is a usage error."""
    with expect_refusal(DataError, "unreadable", "No such file"):
        load_problems(str(tmp_path / "none.csv"))
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(DataError, match="UTF-8"):
        load_problems(str(tmp_path / "b.txt"))
    with expect_refusal(UsageError, "unknown-set"):
        load_problems(str(tmp_path / "p.parquet"))
