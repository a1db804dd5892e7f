"""What a tuner tried: inferred from its winners, and all that these say something about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.collected import converted
from ckh.cli import run
from ckh.data.dataset import Dataset, read_dataset
from ckh.data.formats import ReadOptions
from ckh.errors import ExitCode
from ckh.learn.judging.judged_answers import ranked_winners
from ckh.learn.models.artifact import load_model
from ckh.learn.training.prepared import with_rivals
from ckh.ops.aiter_gemm.kernel import kernel_numbers, parse_kernel

ROOT = Path(__file__).parents[3]
SMALL = "a8w8_blockscale_1x128x128_256x16x64x256_16x16_16x16_1x1_16x16x1_16x16x1_1x16x1x16_4_1x1_intrawave_v1"
SHUFFLED = (
    "a8w8_blockscale_bpreshuffle_1x128x128_256x16x64x256_16x16_16x16_16x16x1_16x16x1_1x16x1x16_4_1x1_intrawave_v1"
)

PRESHUFFLED = "a8w8_bpreshuffle_256x16x64x512_16x16_16x16_32x8x1_32x8x1_1x16x1x16_4x4x1_1x1_intrawave_v1"
SHUFFLED_TILE = "a8w8_bpreshuffle_cktile_0x0x8x4x1x0x0x0x0x1_16x64x512_1x4x1_16x16x128_default"


def table(folder: Path, name: str, splits: list[int], kernel: str = SMALL) -> Path:
    """Write a tuned table with a winner of each split, on another M each."""
    lines = ["gfx,cu_num,M,N,K,libtype,splitK,us,kernelName"]
    lines += [f"gfx942,304,{1 << at},5376,8192,ck,{split},9,{kernel}" for at, split in enumerate(splits)]
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def dated(folder: Path, date: str, kernel: str, arch: str = "gfx942") -> Path:
    """Write a tuned table of one winner and the date of its commit."""
    path = folder / f"{date}.csv"
    lines = [
        "gfx,cu_num,M,N,K,q_dtype_w,us,kernelName,date",
        f"{arch},256,64,7168,2048,torch.float8_e4m3fn,9,{kernel},{date}",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def made(folder: Path, *tables: Path, arch: str = "gfx942") -> Dataset:
    """Convert tables to one dataset."""
    folder.mkdir(exist_ok=True)
    out = folder / "data.parquet"
    assert run(["convert", *map(str, tables), "--out", str(out), "--arch", arch]) == ExitCode.OK
    return read_dataset(out)


def test_a_source_states_what_its_winners_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Splits up to the largest that won, marked as inferred, in the dataset and in the summary of its conversion."""
    tables = [table(tmp_path, f"a8w8_blockscale_tuned_gemm_{name}", of) for name, of in (("a", [0, 2]), ("b", [0, 0]))]
    sources = made(tmp_path, *tables).metadata["sources"]
    assert [source["tried"] for source in sources] == [
        {"library": ["ck"], "split_k": [0, 1, 2]},
        {"library": ["ck"], "split_k": [0]},
    ]
    assert all(source["inferred"] for source in sources)
    capsys.readouterr()
    again = ["convert", *map(str, tables), "--out", str(tmp_path / "again.parquet"), "--json"]
    assert run(again) == ExitCode.OK
    assert list(json.loads(capsys.readouterr().out)["tried"].values()) == [1, 1]


def test_winners_say_nothing_of_what_was_not_tried(tmp_path: Path) -> None:
    """Rivals have the splits that the winner's own table tried, and no others."""
    known = made(tmp_path, table(tmp_path, "tried", [0, 2]), table(tmp_path, "untried", [0, 0]))
    rows = with_rivals(known, 1).frame
    rivals = rows[~rows["is_valid"]].groupby(rows["run_id"].str.split(".").str[0])["split_k"]
    assert rivals.agg(set).to_dict() == {"tried": {0, 1, 2}, "untried": {0}}


@pytest.mark.parametrize(
    ("date", "listed"),
    [("2024-01-01", "2025"), ("2025-07-09", "2025"), ("2025-07-24", "2025-07-24"), ("2026-03-18", "2025-07-24"),
     ("2026-03-19", "2026-03-19"), ("2026-08-18", "2026-03-26")],
)  # fmt: skip
def test_a_date_tells_the_version_of_the_lists(date: str, listed: str, tmp_path: Path) -> None:
    """The last one that is not newer than the table; without a date nothing is said of lists."""
    dataset = made(tmp_path, dated(tmp_path, date, PRESHUFFLED), table(tmp_path, "undated", [0]))
    stated = {source["name"]: source["tried"].get("listed") for source in dataset.metadata["sources"]}
    assert stated == {f"{date}.csv": listed, "undated.csv": None}


def test_kernels_of_later_lists_are_no_rivals(tmp_path: Path) -> None:
    """The first 75 of 159 (a8w8_bpreshuffle) in July 2025; CK Tile's launch bounds 3 and 4 since March 2026."""
    dates = ("2025-07-09", "2025-11-19")
    rows = with_rivals(made(tmp_path, *(dated(tmp_path, date, PRESHUFFLED) for date in dates)), 1).frame
    of = rows["run_id"].str[:10]
    before, after = ({kernel_numbers()[name] for name in rows["kernel"][of == date]} for date in dates)
    assert max(before) < 75 <= max(after)
    assert 50 < len(before) < len(after)
    for date, most in (("2026-02-11", 2), ("2026-08-18", 4)):
        tile = made(tmp_path / date, dated(tmp_path, date, SHUFFLED_TILE, "gfx950"), arch="gfx950")
        assert with_rivals(tile, 1).frame["per_cu"].max() == most


def test_no_winner_is_older_than_its_list() -> None:
    """The names of the tables state the date of their commits; a kernel that won in one was listed by then."""
    for arch in ("gfx942", "gfx950"):
        data = read_dataset(ROOT / "data" / f"aiter-gemm-{arch}.parquet").frame
        dates = data["run_id"].str.extract(r"_(20[0-9-]{8})_", expand=False)
        listed = data["kernel"].map(lambda name: parse_kernel(name).listed)
        assert (listed <= dates).all()
        assert set(listed) >= {"2025", "2025-07-24"}


def test_a_split_that_no_kernel_gets_is_none(tmp_path: Path) -> None:
    """AITER's kernels for block-scaled, preshuffled operands ignore it, so that its tuner's choice is chance."""
    known = made(tmp_path, table(tmp_path, "a8w8_blockscale_bpreshuffle_tuned_gemm", [3, 0], SHUFFLED))
    assert known.frame["kernel"].tolist() == [SHUFFLED] * 2
    assert known.metadata["sources"][0]["tried"]["split_k"] == [0]


def test_places_are_among_what_was_tried(tmp_path: Path) -> None:
    """A winner of a table without splits is first if only splits of the same or better ones stand before it."""
    model = load_model(ROOT / "models" / "aiter_gemm_gfx942")
    named = {name: made(tmp_path / name, table(tmp_path / name, name, of)) for name, of in _both(tmp_path)}
    places = {name: ranked_winners(dataset, model) for name, dataset in named.items()}
    assert all(parse_kernel(name).split_k == 0 for name in places["untried"].first)
    assert places["untried"].place[0] <= places["tried"].place[0]
    assert parse_kernel(places["tried"].first[0]).split_k > 0


def _both(folder: Path) -> list[tuple[str, list[int]]]:
    for name in ("tried", "untried"):
        (folder / name).mkdir()
    return [("tried", [0, 3]), ("untried", [0, 0])]


def collected(first: str, splits: list[int], m: int) -> pd.DataFrame:
    """Return rows of a collected table, of problems with many or few output tiles."""
    row: dict[str, Any] = {"family": "a8w8_blockscale", "gfx": "gfx942", "cus": 304, "N": 8192, "K": 4096}
    row |= {"q_dtype_w": "", "library": "ck", "kernel": SMALL, "time_us": 20.0, "last": first, "first": first}
    row |= {"at_head": True, "gfx_stated": True, "path": "aiter/configs/a8w8_blockscale_tuned_gemm.csv"}
    frame: pd.DataFrame = pd.DataFrame([row | {"M": m + at, "split_k": split} for at, split in enumerate(splits)])
    return frame


def test_idle_splits_of_collected_tables_are_left_out(tmp_path: Path) -> None:
    """Where kernels that fill the device have splits as often as not, they had no effect; each commit is a table."""
    rows = [collected("2026-04-21", [1, 3, 0, 2], 128), collected("2026-07-22", [2, 3], 1)]
    rows.append(collected("2026-07-22", [0, 0], 128 + 8))
    pd.concat(rows).to_parquet(tmp_path / "collected.parquet")
    converted(tmp_path / "collected.parquet", tmp_path / "data.parquet", ReadOptions(arch="gfx942"))
    data = read_dataset(tmp_path / "data.parquet")
    assert dict(zip(data.frame["m"], data.frame["split_k"], strict=True)) == {
        1: 2, 2: 3, **dict.fromkeys((128, 129, 130, 131, 136, 137), 0)
    }  # fmt: skip
    assert sorted(max(source["tried"]["split_k"]) for source in data.metadata["sources"]) == [0, 3]


@pytest.mark.parametrize(("m", "k"), [(1, 8192), (8, 8192)])
def test_decode_with_few_tiles_gets_a_split(m: int, k: int, capsys: pytest.CaptureFixture[str]) -> None:
    """84 output tiles of 64 columns leave two thirds of an MI300X idle."""
    asked = ["predict", "--op", "aiter_gemm", "--family", "a8w8_blockscale", "--arch", "gfx942", "--json"]
    assert run([*asked, "--m", str(m), "--n", "5376", "--k", str(k)]) == ExitCode.OK
    assert parse_kernel(json.loads(capsys.readouterr().out)["kernels"][0]["kernel"]).split_k > 0
