"""Operations with kernels for the host go through the whole loop, from measuring to a prediction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode
from ckh.ops import operation

if TYPE_CHECKING:
    from pathlib import Path

# Operation -> problems of odd sizes, options of a prediction, and the problem that they mean.
LOOPS = {
    "gemm_universal": (
        ["gemm_fp32_rcr_m17_n40_k33_splitk1", "gemm_fp32_rrr_m64_n64_k64_splitk1", "gemm_fp32_ccr_m1_n96_k50_splitk1"],
        "--m 100 --n 50 --k 70 --layout ccr",
        "gemm_fp32_ccr_m100_n50_k70_splitk1",
    ),
    "gemm_batched": (
        [
            "gemm_batched_fp32_rcr_b3_m37_n53_k41_splitk1",
            "gemm_batched_fp32_rrr_b2_m64_n64_k32_splitk1_sa2055_sc4099",
            "gemm_batched_fp32_crr_b9_m1_n5_k2_splitk1",
            "gemm_batched_fp32_ccr_b1_m19_n23_k17_splitk1",
        ],
        "--batch 3 --m 30 --n 50 --k 40",
        "gemm_batched_fp32_rcr_b3_m30_n50_k40_splitk1",
    ),
    "gemm_grouped": (
        [
            "gemm_grouped_fp32_rcr_m37x3+5+0_n53_k41_splitk1",
            "gemm_grouped_fp32_rrr_m64x2_n64_k32_splitk1",
            "gemm_grouped_fp32_rcr_m1x9+0x4_n5_k2_splitk1",
            "gemm_grouped_fp32_rrr_m19_n23_k17_splitk1",
        ],
        "--ms 30x3+7 --n 50 --k 40",
        "gemm_grouped_fp32_rcr_m30x3+7_n50_k40_splitk1",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_the_whole_loop(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two padded kernels of each problem's layout are compiled, verified, timed, learned and ranked."""
    op, (texts, options, asked) = operation(name), LOOPS[name]
    problems = [op.problems.parse(text) for text in texts]
    pools = {id(pool): pool for p in problems for pool in [op.kernels.candidates(p, load_arch("host"), tmp_path).pool]}
    names = [
        op.kernels.name(next(item for item in pool if item.pipeline == pipeline and item.pad_m))  # type: ignore[attr-defined]
        for pool in pools.values()
        for pipeline in ("mem", "compv3")
    ]
    for file, lines in (("problems", texts), ("kernels", names)):
        (tmp_path / f"{file}.txt").write_text("\n".join(lines), encoding="utf-8")
    data, model = str(tmp_path / "own.parquet"), str(tmp_path / "model")
    given = ["--problems", str(tmp_path / "problems.txt"), "--kernels", str(tmp_path / "kernels.txt"), "--samples", "2"]
    bench = ["bench", "--op", name, "--device", "host", *given, "--out", str(tmp_path / "run")]
    assert run(bench) == ExitCode.OK
    assert run(["convert", str(tmp_path / "run"), "--out", data]) == ExitCode.OK
    dataset = read_dataset(data)
    assert (dataset.op, set(dataset.problems())) == (op, set(problems))
    assert dataset.frame["is_valid"].all()
    assert len(dataset) == 2 * len(problems)
    train = ["train", "--data", data, "--out", model, "--trees", "5", "--leaves", "4", "--folds", "0"]
    assert run(train) == ExitCode.OK
    # The machine may be busy.
    evaluate = ["evaluate", "--model", model, "--data", data, "--with-trained", "--max-unstable", "1"]
    assert run(evaluate) == ExitCode.OK
    capsys.readouterr()
    predict = ["predict", "--op", name, *options.split(), "--model", model, "--json", "--top", "99"]
    assert run(predict) == ExitCode.OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["problem"] == asked
    assert {item["kernel"] for item in answer["kernels"]} & set(names)
