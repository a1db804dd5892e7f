"""Tables of tuners with all times: told from winners by problem and run, learned from and evaluated by times."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.assess.times import times_of
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode
from ckh.kernels.pools import TIMED_NAME
from ckh.learn.models.measured_set import measured_file
from ckh.learn.training.prepared import with_rivals
from tests.refusals import expect_error, expect_warning

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.data.dataset import Dataset

HEAD = "gfx,cu_num,M,N,K,q_dtype_w,libtype,splitK,us,kernelName"
SMALL = "a8w8_rowwise_256x16x64x512_16x16_1x1_32x8x1_32x8x1_1x16x1x16_4x4x1_1x1_intrawave_v3"
LARGE = "a8w8_rowwise_256x256x256x128_32x32_4x4_8x32x1_8x32x1_1x32x1x8_8x8x1_1x1_intrawave_v3"
WIDE = "a8w8_rowwise_256x128x128x128_32x32_2x2_8x32x1_8x32x1_1x32x1x8_8x8x1_1x1_intrawave_v3"
KERNELS = (SMALL, WIDE, LARGE)
SIZES = (1, 8, 16, 2048, 4096, 8192)
LAYERS = [(1024 * item, 512 * other) for item in range(1, 5) for other in (1, 3, 5)]


def row(m: int, us: float, kernel: str, n: int = 1024, k: int = 512) -> str:
    """A row of a table."""
    return f"gfx950,256,{m},{n},{k},torch.float8_e4m3fn,ck,0,{us},{kernel}"


def times(m: int, n: int, k: int) -> dict[str, float]:
    """Microseconds of each kernel: the small one is best for few rows, the large one for many."""
    work = n * k / 2**19
    by_few = {SMALL: 1.0, WIDE: 1.25, LARGE: 2.0}
    by_many = {SMALL: 4.0, WIDE: 1.6, LARGE: 1.0}
    return {name: (5 + m / 10) * work * factor for name, factor in (by_few if m <= 16 else by_many).items()}


def table(path: Path, *rows: str) -> Path:
    """Write a table of AITER."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")
    return path


def converted(out: Path, *tables: Path) -> Dataset:
    """Convert tables."""
    assert run(["convert", *map(str, tables), "--out", str(out)]) == ExitCode.OK
    return read_dataset(out)


def complete(path: Path, layers: list[tuple[int, int]]) -> Path:
    """Write a table with all times on some layers."""
    sizes = [(m, n, k) for n, k in layers for m in SIZES]
    return table(path, *(row(m, us, name, n, k) for m, n, k in sizes for name, us in times(m, n, k).items()))


def test_problems_with_several_times_in_a_run_are_no_winners(tmp_path: Path) -> None:
    """A mixed table keeps both; kernels of one problem in two tables are two winners, and only winners get rivals."""
    first = table(tmp_path / "a8w8_tuned_gemm.csv", row(1, 10, SMALL), row(1, 20, LARGE), row(8, 30, SMALL))
    second = table(tmp_path / "other" / "a8w8_tuned_gemm.csv", row(8, 45, LARGE), row(16, 9, WIDE))
    known = converted(tmp_path / "data.parquet", first, second)
    sizes = [problem.m for problem in known.problems()]
    assert dict(zip(range(4), zip(sizes, known.is_won.tolist(), strict=True), strict=True)) == {
        0: (1, False),
        1: (8, True),
        2: (8, True),
        3: (16, True),
    }
    assert times_of(known).efficiency().tolist() == [1.0, 0.5, 1.0, 1.0, 1.0]
    rows = with_rivals(known, 1)
    counts = np.bincount(rows.problem_ids)
    assert counts[0] == 2
    assert counts[1:].min() > 50
    others = rows.frame[len(known) :]
    assert not set(others.loc[others["m"] == 8, "kernel"]) & {SMALL, LARGE}, "both won, in different runs"


def test_times_of_two_runs_are_never_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The slower session's best kernel keeps efficiency 1; contradictions are kept and counted, the median answers."""
    tables = [
        table(tmp_path / name / "a8w8_tuned_gemm.csv", *(row(1, us, kernel) for kernel, us in measured.items()))
        for name, measured in (
            ("a", {SMALL: 10, LARGE: 20}),
            ("b", {SMALL: 70, LARGE: 60}),
            ("c", {SMALL: 14, LARGE: 28, WIDE: 56}),
        )
    ]
    known = converted(tmp_path / "data.parquet", *tables)
    expect_warning(capsys.readouterr().err, "conversion", 1, 2)
    assert len(known) == 7
    assert times_of(known).efficiency().tolist() == pytest.approx([1, 0.5, 6 / 7, 1, 1, 0.5, 0.25])
    document = json.loads(gzip.decompress(measured_file(known)))
    assert document["problems"] == [known.problem(0).canonical()]
    assert [(document["kernels"][kernel], ms) for kernel, ms in document["best"]] == [(SMALL, 0.014)]


def test_contradicting_rows_of_a_table_get_the_median(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three times of one kernel become the middle one, with a line that counts the contradiction."""
    path = table(tmp_path / "a8w8_tuned_gemm.csv", *(row(1, us, SMALL) for us in (12, 80, 10)), row(8, 5, SMALL))
    known = converted(tmp_path / "data.parquet", path)
    expect_warning(capsys.readouterr().err, "conversion", 1, 2)
    assert known.frame["latency_ms"].tolist() == pytest.approx([0.012, 0.005])


@pytest.mark.parametrize(
    "rows",
    [
        [row(m, 10, kernel) for m in SIZES for kernel in KERNELS],
        [row(m, 10 + m, SMALL) for m in SIZES],
        [row(1, us, kernel) for us, kernel in enumerate(KERNELS, 5)],
    ],
    ids=["equal times", "one kernel", "one problem"],
)
def test_data_that_teach_nothing_are_refused(
    rows: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and no model."""
    converted(tmp_path / "data.parquet", table(tmp_path / "a8w8_tuned_gemm.csv", *rows))
    capsys.readouterr()
    model = tmp_path / "model"
    assert run(["train", "--data", str(tmp_path / "data.parquet"), "--out", str(model)]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "few-problems")
    assert not model.exists()


@pytest.mark.slow
def test_complete_times_are_learned_and_evaluated_as_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Folds and evaluation state efficiencies; winners beside them get hit rates; the first choices were measured."""
    learned, out, model = tmp_path / "learned.parquet", tmp_path / "held.parquet", tmp_path / "model"
    converted(learned, complete(tmp_path / "learned" / "a8w8_tuned_gemm.csv", LAYERS[:-3]))
    won = [row(m, min(times(m, 6144, 512).values()), SMALL if m <= 16 else LARGE, 6144, 512) for m in SIZES]
    held = complete(tmp_path / "held" / "a8w8_tuned_gemm.csv", LAYERS[-3:])
    converted(out, held, table(tmp_path / "won" / "a8w8_tuned_gemm.csv", *won))
    capsys.readouterr()
    train = ["train", "--data", str(learned), "--out", str(model), "--trees", "60", "--jobs", "1", "--json"]
    assert run(train) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["rank"]["oof_mean_efficiency"] > 0.95
    assert document["coverage"] == 1.0
    assert set(json.loads(gzip.decompress((model / TIMED_NAME).read_bytes()))["kernels"]) == set(KERNELS)
    gates = ["--fail-under", "mean_efficiency=0.9", "--fail-under", "top1=0.9"]
    evaluate = ["evaluate", "--model", str(model), "--data", str(out), "--json"]
    assert run([*evaluate, *gates]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "ckh.evaluate"
    assert document["coverage"]["problems"] == 3 * len(SIZES)
    assert document["coverage"]["not_measured"] == 0
    assert document["efficiency"]["mean"]["value"] == document["figures"]["mean_efficiency"] == 1.0
    expected = []
    for n, k in LAYERS[-3:]:
        for m in SIZES:
            us = np.array(list(times(m, n, k).values()))
            expected.append(float((us.min() / us).mean()))
    assert document["baselines"]["random kernel (expected)"]["mean"]["value"] == pytest.approx(np.mean(expected))
    assert document["winners"]["model"]["problems"] == len(SIZES)
    assert document["winners"]["model"]["first"]["1"] == 1.0
