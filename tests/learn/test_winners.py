"""Training on winners only, and evaluation with them."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.assess import winners
from ckh.cli import run
from ckh.data.dataset import Dataset, read_dataset
from ckh.errors import ExitCode
from ckh.files.paths import data_dir
from ckh.kernels.pools import TIMED_NAME, read_timed
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model
from ckh.learn.models.frequent import frequent, frequent_table, held_out
from ckh.learn.models.measured_set import MEASURED_NAME, measured_file, read_measured
from ckh.learn.training.prepared import with_rivals
from ckh.ops import operation
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.refusals import expect_error, expect_values

if TYPE_CHECKING:
    from ckh.learn.models.measured_set import MeasuredSet

SMALL = "a8w8_rowwise_256x16x64x512_16x16_1x1_32x8x1_32x8x1_1x16x1x16_4x4x1_1x1_intrawave_v3"
LARGE = "a8w8_rowwise_256x256x256x128_32x32_4x4_8x32x1_8x32x1_1x32x1x8_8x8x1_1x1_intrawave_v3"
LAYERS = [(1024 * item, 512 * other) for item in range(1, 7) for other in (1, 3, 5, 8)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Winners with one kernel for few rows and another for many, on each of 24 layers."""
    lines = ["gfx,cu_num,M,N,K,q_dtype_w,libtype,splitK,us,kernelName"]
    for n, k in LAYERS:
        for m in (1, 8, 16, 2048, 4096, 8192):
            name = SMALL if m <= 16 else LARGE
            lines.append(f"gfx950,256,{m},{n},{k},torch.float8_e4m3fn,ck,0,{5 + m / 10},{name}")
    path, out = tmp_path / "a8w8_tuned_gemm.csv", tmp_path / "data.parquet"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert run(["convert", str(path), "--out", str(out)]) == ExitCode.OK
    return out


def test_rivals_are_the_other_candidates(data: Path) -> None:
    """Each problem's rivals are other kernels of its pool, without a time; the draw is reproducible."""
    known = read_dataset(data)
    rows = with_rivals(known, 7)
    assert (rows.frame["kernel"][: len(known)] == known.frame["kernel"]).all()
    others = rows.frame[len(known) :]
    assert others["latency_ms"].isna().all()
    assert not others["is_valid"].any()
    won = set(zip(known.problem_ids, known.frame["kernel"], strict=True))
    pairs = list(zip(rows.problem_ids[len(known) :], others["kernel"], strict=True))
    assert len(set(pairs)) == len(pairs)
    assert not won & set(pairs)
    assert {SMALL, LARGE} <= set(others["kernel"])
    assert np.bincount(rows.problem_ids).tolist() == [83] * len(known)  # none with a split, which no winner has
    assert rows.frame["kernel"].tolist() == with_rivals(known, 7).frame["kernel"].tolist()


@pytest.mark.slow
def test_a_model_of_winners_is_trained_evaluated_and_used(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rule behind the winners is learned for unseen layers; the gate passes, and a higher one fails."""
    model = tmp_path / "model"
    known = read_dataset(data)
    is_held = (known.frame["n"] == 6144).to_numpy()
    parts = {}
    for name, rows in (("learned", ~is_held), ("held", is_held)):
        parts[name] = tmp_path / f"{name}.parquet"
        _write(known.select(rows), parts[name])
    train = ["train", "--labels", "winners", "--data", str(parts["learned"]), "--out", str(model), "--trees", "60"]
    assert run([*train, "--jobs", "1", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["problems"] == 120
    evaluate = ["evaluate", "--model", str(model), "--data", str(parts["held"]), "--train-data", str(parts["learned"])]
    assert run([*evaluate, "--json", "--fail-under", "top1=1"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["model"]["first"] == {"1": 1.0, "3": 1.0, "5": 1.0, "10": 1.0}
    assert document["baseline"]["first"]["1"] == 1.0
    assert run([*evaluate, "--fail-under", "p10_efficiency=0.5"]) == ExitCode.USAGE
    assert "top1" in capsys.readouterr().err
    asked = ["predict", "--op", "aiter_gemm", "--model", str(model), "--n", "3072", "--k", "4096", "--json", "--m"]
    result = []
    for m in ("2", "4096"):
        assert run([*asked, m]) == ExitCode.OK
        result.append(json.loads(capsys.readouterr().out))
    assert [item["kernels"][0]["kernel"] for item in result] == [SMALL, LARGE]
    beside = [item["most_frequent"] for item in result]
    at_one = {"size": "m", "value": 1, "kernel": SMALL, "wins": 20, "problems": 20}
    assert beside == [at_one, at_one | {"value": 4096, "kernel": LARGE}]
    assert run([*(word for word in asked if word != "--json"), "2", "--why"]) == ExitCode.OK
    expect_values(capsys.readouterr().out, "m = 1")
    assert result[0]["problem"] == "aiter_gemm_a8w8_fp8_cu256_m2_n3072_k4096"


def test_winners_allow_only_a_ranking(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Regressions of times also need times of the losers."""
    train = ["train", "--labels", "winners", "--data", str(data), "--out", str(tmp_path / "model")]
    assert run([*train, "--rank", "relative"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "conflicting-options")
    assert not (tmp_path / "model").exists()


def test_the_baseline_counts_wins_at_the_nearest_size(data: Path) -> None:
    """The most frequent winner at 16 rows is first for 12, and second for 4096, where the other wins."""
    known = read_dataset(data)
    few = known.select((known.frame["m"] <= 16).to_numpy())
    many = known.select((known.frame["m"] > 16).to_numpy())
    assert set(winners.most_frequent(few, known)) == {0}
    assert set(winners.most_frequent(many, known)) == {0}
    assert set(winners.most_frequent(many, few)) == {winners.MISSING}


def test_frequent_winners_in_answers_equal_the_baseline(data: Path) -> None:
    """Separately by kind and device, at the nearest size, ties by name; nothing for unmeasured kinds."""
    known = read_dataset(data)
    names = known.frame["kernel"].to_numpy(dtype=object)
    names[(known.frame["m"] == 8).to_numpy() & (np.arange(len(names)) % 4 == 0)] = LARGE
    some = Dataset(known.frame.assign(kernel=names), known.metadata, known.op_type)
    measured = _measured(measured_file(some))
    op, (problem, *_) = some.op, some.problems()
    table = frequent_table(measured, problem, op, Path())
    for m in (1, 7, 12, 30, 1 << 20):
        result = frequent(replace(problem, m=m), "m", held_out(op), table)
        assert result is not None
        same = some.select((some.frame["m"] == result.value).to_numpy())
        counts = Counter(same.frame["kernel"])
        assert (result.wins, result.problems) == (counts[result.kernel], len(same))
        assert (-result.wins, result.kernel) == min((-count, name) for name, count in counts.items())
        assert abs(np.log(m / result.value)) == min(abs(np.log(m / item)) for item in some.frame["m"].unique())
    for other in (replace(problem, num_cus=80), replace(problem, dtype="int8")):
        assert frequent(other, "m", held_out(op), frequent_table(measured, other, op, Path())) is None


def _measured(content: bytes) -> MeasuredSet:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / MEASURED_NAME).write_bytes(content)
        measured_set = read_measured(Path(folder))
    assert measured_set is not None
    return measured_set


def _write(dataset: Dataset, path: Path) -> None:
    from ckh.data.dataset import write_dataset

    write_dataset(dataset, path)


@pytest.mark.slow
def test_kernels_that_never_won_stand_behind_those_that_did(tmp_path: Path) -> None:
    """Of the first five kernels of twelve GEMMs by AMD's winners, 56 of 60 won somewhere; without the lead, 35."""
    folder, op = data_dir("models") / "gemm_universal_fp8_gfx950", operation("gemm_universal")
    timed = read_timed(folder / TIMED_NAME, op.kernels.parse)
    without = Path(shutil.copytree(folder, tmp_path / folder.name))
    with gzip.open(folder / TIMED_NAME) as file:
        content = json.load(file)
    with gzip.open(without / TIMED_NAME, "wt") as file:
        json.dump({**content, "lead": 0.0}, file)
    layers = [(3072, 2048), (4096, 4096), (8192, 1024), (1536, 7168)]
    problems = [GemmProblem(m, n, k, dtype="fp8") for m in (256, 1024, 4096) for n, k in layers]
    won = []
    for model in (load_model(folder), load_model(without)):
        firsts = [ranked.kernel for problem in problems for ranked in ranking_of(problem, model).best(5)]
        won.append(sum(kernel in timed.kernels for kernel in firsts))
    assert won == [56, 35]
