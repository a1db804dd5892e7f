"""Mixtures of experts: names of kernels, pairs whose tiles have the same number of rows, data, and the joint choice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.collected import FAILED, converted
from benchmarks.collected import problem_of_candidate as problem_of
from ckh.archs import load_arch
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.errors import DataError, ExitCode, UsageError
from ckh.ops.aiter_moe.kernel import candidates, joint, kind_of, known_name, moe_pool, parse_choice
from ckh.ops.aiter_moe.operation import OPERATION
from ckh.ops.aiter_moe.problem import AiterMoe, parse_aiter_moe
from tests.refusals import expect_error, expect_reasons, expect_refusal, expect_warning
from tests.shared import DATA

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "moe_ck2stages_gemm1_256x{}x128x128_1x4_MulABScale_v3_Nswizzle0_Quant2_MulRoutedWeight0_swiglu_F8_F8_B16"
SECOND = "moe_ck2stages_gemm2_256x{}x64x64_1x4_MulABScaleExpertWeight_v1_Nswizzle0_Quant2_MulRoutedWeight1_F8_F8_B16"
CKTILE = "moe_cktile2stages_gemm1_256x32x256x256_1x4_16x16x32_3perCU_1x32_HasBias_swiglu"
LAYER: dict[str, Any] = {"model_dim": 6144, "inter_dim": 384, "experts": 128, "topk": 4}


def test_a_name_has_tile_and_pipeline() -> None:
    """Parsed by hand; a pair has the parameters of both names, and one number of rows."""
    pair = parse_choice(joint(FIRST.format(64), SECOND.format(64)))
    assert (pair.stage, pair.block_m) == ("both", 64)
    assert (pair.block1, pair.tile_n1, pair.tile_k1, pair.wave_m1, pair.wave_n1, pair.version1) == (
        256,
        128,
        128,
        1,
        4,
        3,
    )
    assert (pair.tile_n2, pair.tile_k2, pair.version2, pair.per_cu2) == (64, 64, 1, 0)
    tile = parse_choice(CKTILE)
    assert (tile.stage, tile.block_m, tile.mfma_k1, tile.per_cu1, tile.block2) == ("stage1", 32, 32, 3, 0)


@pytest.mark.parametrize(
    "name",
    ["", "moe", joint(FIRST.format(64), FIRST.format(64)), joint(SECOND.format(64), FIRST.format(64)), FIRST + "+"],
)
def test_rows_without_a_choice_are_refused(name: str) -> None:
    """A valid name is a kernel, or a kernel for the first product followed by one for the second."""
    with pytest.raises(DataError):
        parse_choice(name)
    with expect_refusal(DataError, "bad-kernel", "tiles", "32", "64"):
        parse_choice(joint(FIRST.format(32), SECOND.format(64)))


def test_pairs_share_their_rows() -> None:
    """All pairs with the same number of rows and no others: block_m is chosen for both products together."""
    kind = ("fp8", "per_token", "swiglu")
    firsts, seconds, pairs = (moe_pool("gfx942", stage, *kind) for stage in ("stage1", "stage2", "both"))
    expected = {(a.name, b.name) for a in firsts for b in seconds if a.block_m == b.block_m}
    assert {tuple(pair.name.split("+")) for pair in pairs} == expected
    assert len({pair.block_m for pair in pairs}) == 4


def test_old_and_new_bf16_names_are_the_same_kernel() -> None:
    """gfx950 has the six and nine bf16 kernels that AMD timed; a kernel with two names is known by both."""
    kind = ("bf16", "none", "silu")
    firsts, seconds = (moe_pool("gfx950", stage, *kind) for stage in ("stage1", "stage2"))
    assert (len(firsts), len(seconds)) == (6, 9)
    older = "moe_ck2stages_gemm1_256x32x64x64_1x4_TypeCast_v1_Nswizzle0_no_MulRoutedWeight0_silu"
    newer = older.replace("_no_", "_Quant0_") + "_B16_B16_B16"
    first = next(first for first in firsts if first.name == older)
    assert OPERATION.kernels.other_names(first) == (newer,)
    second = next(second for second in seconds if second.block_m == 32)
    assert OPERATION.kernels.other_names(parse_choice(joint(older, second.name))) == (joint(newer, second.name),)
    assert OPERATION.kernels.other_names(second) == ()


BEST = DATA / "new" / "aiter_moe_best_per_type.parquet"


@pytest.mark.skipif(not BEST.is_file(), reason=f"{BEST} is absent")
@pytest.mark.parametrize("name", ["aiter_moe_all_candidates", "aiter_moe_best_per_type"])
def test_every_kernel_that_amd_timed_is_a_candidate(name: str) -> None:
    """All kernels of CK and CK Tile in AMD's tunings, of kinds that ckh supports, are in the pool of their problems."""
    frame = pd.read_parquet(DATA / "new" / f"{name}.parquet")
    frame = frame.rename(columns={"kernel_name": "kernel"}).assign(cus=256)
    is_ck = frame["kernel"].astype(str).str.startswith(("moe_ck2stages_", "moe_cktile2stages_"))
    frame = frame[is_ck & (frame["use_g1u1"] == 1) & (frame["doweight_stage1"] == 0)]
    rows = 0
    for row in frame.drop_duplicates(["gfx", "stage", "act_type", "q_dtype_a", "q_type", "kernel"]).to_dict("records"):
        try:
            problem = problem_of(row)
        except (KeyError, UsageError):
            continue  # gelu, int8, one scale per tensor
        names = {kernel.name for kernel in moe_pool(row["gfx"], *kind_of(problem))}
        assert known_name(row["kernel"], row["gfx"], problem) in names, row["kernel"]
        rows += 1
    assert rows == {"aiter_moe_all_candidates": 94, "aiter_moe_best_per_type": 57}[name]


def test_a_kernel_needs_whole_steps() -> None:
    """inter_dim 384 is not a multiple of 256: such kernels, which failed in AMD's measurements, are rejected."""
    result = candidates(AiterMoe(1, **LAYER, stage="stage2", activation="swiglu", num_cus=80), load_arch("gfx942"))
    assert all(choice.tile_k2 in (64, 128) for choice in result.kernels)
    expect_reasons(result.refused, ("inter_dim = 384", "tile_k 256"))
    assert list(result.refused.values()) == [4]
    none = candidates(AiterMoe(1, **LAYER, quant="none"), load_arch("gfx942"))
    expect_reasons(none.refused, ("both", "fp8 none silu", "gfx942"))
    assert list(none.refused.values()) == [1]


@pytest.mark.skipif(not BEST.is_file(), reason=f"{BEST} is absent")
def test_no_kernel_of_amds_tunings_breaks_a_rule() -> None:
    """All measured kernels of CK and CK Tile are candidates; of those that failed with a whole N none is."""
    frame = pd.read_parquet(DATA / "new" / "aiter_moe_all_candidates.parquet")
    frame = frame[frame["library"].isin(["ck", "cktile"])]
    known: dict[AiterMoe, set[str]] = {}
    found = {True: 0, False: 0}
    for row in frame.to_dict("records"):
        problem = problem_of(row)
        if problem not in known:
            known[problem] = {choice.name for choice in candidates(problem, load_arch(row["gfx"])).kernels}
        is_candidate = known_name(row["kernel"], row["gfx"], problem) in known[problem]
        assert is_candidate == (row["time_us"] > 0), (problem, row["kernel"])
        found[is_candidate] += 1
    assert found == {True: 5697, False: 174}


@pytest.mark.parametrize("activation", ["silu", "swiglu"])
@pytest.mark.parametrize(
    ("inter_dim", "is_whole"), [(128, False), (256, True), (384, False), (640, False), (768, True)]
)
def test_packed_pairs_count_twice(activation: str, inter_dim: int, is_whole: bool) -> None:
    """No kernel takes MXFP4 experts whose inter_dim is not a multiple of 256: CK refuses, CK Tile mistakes scales."""
    sizes: dict[str, Any] = {"tokens": 2048, "model_dim": 3072, "inter_dim": inter_dim, "experts": 256, "topk": 8}
    problem = AiterMoe(**sizes, dtype="pk_fp4", quant="per_1x32", activation=activation, num_cus=256)
    assert bool(candidates(problem, load_arch("gfx950")).kernels) == is_whole


def test_columns_are_whole_tiles() -> None:
    """CK refuses bf16 experts of 704 columns with tiles of 128 (ROCm/aiter pull request 3973), takes those with 64."""
    problem = AiterMoe(64, 7168, 704, 64, 8, "stage1", "bf16", "none", num_cus=256)
    result = candidates(problem, load_arch("gfx950"))
    assert {choice.tile_n1 for choice in result.kernels} == {64}
    expect_reasons(result.refused, ("inter_dim = 704", "tile_n 128"))


def test_mixtures_that_no_kernel_takes_are_not_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither `predict` nor `export` names a kernel for MXFP4 experts of 384 columns, and nothing is written."""
    table, out = tmp_path / "untuned_fmoe.csv", tmp_path / "out"
    table.write_text(
        "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1\n"
        "2048,3072,384,256,8,ActivationType.Silu,torch.bfloat16,torch.float4_e2m1fn_x2,torch.float4_e2m1fn_x2,"
        "QuantType.per_1x32,1,0\n"
    )
    asked = ["--problems", str(table), "--arch", "gfx950"]
    assert run(["predict", "--op", "aiter_moe", *asked]) == ExitCode.NO_KERNEL
    expect_error(capsys.readouterr().err, "no-kernel", 384, 256)
    assert run(["export", "--to", "aiter", *asked, "--out", str(out)]) == ExitCode.NO_KERNEL
    expect_error(capsys.readouterr().err, "no-kernel", 384, 256)
    assert not out.exists()


def test_work_of_both_is_that_of_the_two_products() -> None:
    """The first product has twice the columns, by hand; texts survive the round trip, impossible sizes fail."""
    problem = AiterMoe(3, 64, 32, 8, 2, num_cus=80)
    by_stage = {stage: AiterMoe(**{**problem.to_dict(), "stage": stage}) for stage in ("stage1", "stage2")}
    assert by_stage["stage1"].flops == 2 * (3 * 2) * 64 * (2 * 32)
    assert by_stage["stage2"].flops == 2 * (3 * 2) * 32 * 64
    assert problem.flops == sum(aiter_moe.flops for aiter_moe in by_stage.values())
    assert problem.bytes == sum(aiter_moe.bytes for aiter_moe in by_stage.values())
    assert parse_aiter_moe(problem.canonical()) == problem
    with expect_refusal(UsageError, "out-of-range", "9", "8"):
        AiterMoe(3, 64, 32, 8, 9)
    with expect_refusal(UsageError, "bad-problem"):
        parse_aiter_moe("aiter_moe_both")


def _table(path: Path) -> None:
    """Write two layers in one run: each kernel three times, one of them slow once; one that failed, one wrong."""
    rows = []
    for inter_dim in (384, 768):
        for token in (1, 16, 256, 4096):
            for block_m in (16, 32, 64, 128):
                slower = 1 if block_m == (16 if token < 100 else 64) else 1.5
                for stage, name in (("stage1", FIRST), ("stage2", SECOND)):
                    times = (1000.0 * slower, 1200.0 * slower, 9000.0)
                    rows += [(stage, token, inter_dim, name.format(block_m), time) for time in times]
            rows.append(("stage1", token, inter_dim, CKTILE, float("nan")))
            rows.append(("stage2", token, inter_dim, SECOND.format(16), 1.0))
    frame = pd.DataFrame(rows, columns=["stage", "token", "inter_dim", "kernel", "time_us"])
    frame["err_ratio"] = np.where(frame["time_us"] == 1, "99.5%", "19.6%")  # AITER's tuner takes up to half
    same = {"gfx": "gfx942", "cus": 80, "model_dim": 6144, "expert": 128, "topk": 4, "blob": "a", "library": "ck"}
    same |= {"date": "2026-05-01"}
    same |= {"act_type": "ActivationType.Swiglu", "q_dtype_a": "torch.float8_e4m3fnuz", "q_type": "QuantType.per_Token"}
    frame.assign(**same).to_parquet(path)


def test_the_whole_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data have medians and sums; a model of them chooses the rows of tiles for both products together."""
    source, data, model = tmp_path / "moe.parquet", tmp_path / "data.parquet", tmp_path / "model"
    _table(source)
    assert converted(source, data, ReadOptions()) == {FAILED: 16}
    dataset = read_dataset(data)
    problem = AiterMoe(1, 6144, 384, 128, 4, "stage1", activation="swiglu", num_cus=80)
    assert problem in dataset.problems()
    times = {
        (aiter_moe.stage, aiter_moe.tokens, aiter_moe.inter_dim, name): latency
        for aiter_moe, name, latency in zip(
            [dataset.problems()[number] for number in dataset.problem_ids],
            dataset.frame["kernel"],
            dataset.frame["latency_ms"],
            strict=True,
        )
    }
    assert times["stage1", 1, 384, FIRST.format(16)] == pytest.approx(1.2)
    assert times["both", 1, 384, joint(FIRST.format(32), SECOND.format(32))] == pytest.approx(2 * 1.8)
    assert len(times) == len(dataset) == 2 * 4 * 3 * 4
    assert dataset.frame["samples"].unique().tolist() == [3]
    assert np.allclose(dataset.frame["spread"].to_numpy()[:4], 2 / 12)
    assert run(["train", "--data", str(data), "--out", str(model), "--jobs", "1", "--trees", "40"]) == ExitCode.OK
    capsys.readouterr()
    asked = ["predict", "--op", "aiter_moe", "--model", str(model), "--model-dim", "6144", "--inter-dim", "384"]
    asked += ["--experts", "128", "--topk", "4", "--activation", "swiglu", "--num-cus", "80", "--json", "--tokens"]
    for tokens, block_m in (("8", 16), ("2048", 64)):
        assert run([*asked, tokens]) == ExitCode.OK
        first = json.loads(capsys.readouterr().out)["kernels"][0]["kernel"]
        assert parse_choice(first).block_m == block_m
        assert first.count("+") == 1


def test_missing_columns_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 2."""
    assert run(["predict", "--op", "aiter_moe", "--arch", "gfx950", "--tokens", "4"]) == ExitCode.USAGE
    assert "--model-dim is missing" in capsys.readouterr().err


def test_a_profile_has_no_compute_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """AITER's committed profiles state no GPU: --arch does; failed and wrong kernels are left out."""
    path, out = tmp_path / "profile_fmoe.csv", tmp_path / "data.parquet"
    header = "stage,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
    header += "doweight_stage1,block_m,ksplit,us,kernelName,err"
    same = "256,4096,192,128,8,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0"
    name = "moe_ck2stages_gemm1_256x{}x64x{}_1x4_TypeCast_v1_Nswizzle0_no_MulRoutedWeight0_silu"
    cells = ((32, 128, 76.9, "0.0%"), (32, 64, 76.1, "50.0%"), (64, 128, 1.5, "50.1%"), (64, 64, -1, "0.0%"))
    rows = [f"stage1,{same},{m},0,{us},{name.format(m, k)},{err}" for m, k, us, err in cells]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    assert run(["convert", str(path), "--out", str(out)]) == ExitCode.BAD_DATA
    assert run(["convert", str(path), "--arch", "gfx950", "--out", str(out)]) == ExitCode.OK
    expect_warning(capsys.readouterr().err, "left-out", 1, "line 4")
    dataset = read_dataset(out)
    assert dataset.frame["latency_ms"].tolist() == pytest.approx([0.0769, 0.0761])
    assert [problem.stage for problem in dataset.problems()] == ["stage1"]
