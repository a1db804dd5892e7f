"""Tuned tables of mixtures of experts for AITER: what is in them, which shapes they are for, and reading them back."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import DataError, ExitCode
from ckh.ops.aiter_gemm.consumed import ADDED_US, SLOWEST, roofline_us
from ckh.ops.aiter_moe.kernel import parts
from ckh.ops.aiter_moe.pool import kind_of, moe_pool
from ckh.ops.aiter_moe.problem import BOTH, AiterMoe
from ckh.ops.aiter_moe.problem_files import load_problems
from ckh.ops.aiter_moe.tuned_csv import looked_up, newer_name

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[3]
FP4 = "torch.float4_e2m1fn_x2"
FP8 = "torch.float8_e4m3fn"
HEAD = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1\n"
# Of AITER's own table, gfx950, 256 compute units; the second has kernels of another library.
TUNED = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1,"
    "block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw,_tag\n"
    f"256,64,7168,256,256,8,ActivationType.Silu,torch.bfloat16,{FP4},{FP4},QuantType.per_1x32,1,0,32,0,60.5,"
    "moe_ck2stages_gemm1_64x32x32x128_1x1_MulABScaleShuffled_v3_Nswizzle0_Quant3_MulRoutedWeight0_silu_FP4X2_FP4X2_B16,"
    "0.0%,40.25,moe_ck2stages_gemm2_64x32x32x128_1x1_MulABScaleExpertWeightShuffled_v1_Nswizzle0_Quant3_"
    "MulRoutedWeight1_FP4X2_FP4X2_B16,0.1%,100.75,0,1,2,\n"
    f"256,128,7168,256,256,8,ActivationType.Silu,torch.bfloat16,{FP8},{FP8},QuantType.per_1x128,1,0,32,0,60,"
    "flydsl_moe1_x,0.0%,40,flydsl_moe2_x,0.1%,100,0,1,2,\n"
)


def untuned(folder: Path, *rows: str) -> Path:
    """An untuned table of AITER's."""
    path = folder / "untuned_fmoe.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return path


def row(tokens: int, kind: str = f"{FP4},{FP4},QuantType.per_1x32", rest: str = "1,0", act: str = "Silu") -> str:
    """A row of it."""
    return f"{tokens},7168,256,256,8,ActivationType.{act},torch.bfloat16,{kind},{rest}"


def export(problems: Path, out: Path, *args: str, arch: str = "gfx950") -> int:
    """Call the command."""
    return run(["export", "--to", "aiter", "--arch", arch, "--problems", str(problems), "--out", str(out), *args])


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_predicted_rows_have_aiters_key_and_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns and key as get_2stage_cfgs reads them, kernels of the pool with one block_m, a bound for a time."""
    problems = untuned(tmp_path, row(64), row(100, f"{FP8},{FP8},QuantType.per_1x128"))
    assert export(problems, tmp_path / "out", "--json") == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert [one["predicted"] for one in document["choices"]] == [True, True]
    assert not (tmp_path / "out" / "measured").exists()
    padded, exact = table(tmp_path / "out" / "predicted" / "tuned_fmoe.csv")
    if exact["token"] != str(64):
        padded, exact = exact, padded
    assert (exact["gfx"], exact["cu_num"], exact["predicted"]) == ("gfx950", "256", "1")
    assert exact["act_type"] == "ActivationType.Silu"
    assert (exact["dtype"], exact["q_dtype_a"], exact["q_dtype_w"]) == ("torch.bfloat16", FP4, FP4)
    assert (exact["q_type"], exact["use_g1u1"], exact["doweight_stage1"]) == ("QuantType.per_1x32", "1", "0")
    problem = AiterMoe(64, 7168, 256, 256, 8, dtype="pk_fp4", quant="per_1x32", num_cus=256)
    names = {
        tuple(newer_name(part.name) for part in parts(one.name)): one for one in moe_pool("gfx950", *kind_of(problem))
    }
    chosen = names[exact["kernelName1"], exact["kernelName2"]]
    assert exact["block_m"] == str(chosen.block_m)
    assert float(exact["us"]) == pytest.approx(SLOWEST * (roofline_us(problem, "gfx950") + ADDED_US))
    # Tokens are those that AITER looks up.
    assert padded["token"].strip() == f"{128}"
    assert document["choices"][1]["basis"].endswith("for 128 tokens")


def test_no_winner_exceeds_the_bound() -> None:
    """The bound of a prediction is above every winner of the data that ship."""
    for arch in ("gfx950", "gfx942"):
        dataset = read_dataset(ROOT / "data" / f"aiter-moe-{arch}.parquet").valid()
        best = dataset.frame["latency_ms"].groupby(dataset.problem_ids).min()
        for number, problem in enumerate(dataset.problems()):
            if problem.stage == BOTH:
                assert best[number] * 1e3 < SLOWEST * (roofline_us(problem, arch) + ADDED_US) / 5


def test_measured_rows_go_before_and_the_table_is_read_back(tmp_path: Path) -> None:
    """A tuned table of AITER's gives its winner, and what is written is read and written again byte for byte."""
    tuned = tmp_path / "tuned_fmoe.csv"
    tuned.write_text(TUNED)
    problems = untuned(tmp_path, row(64), row(128))
    assert export(problems, tmp_path / "out", "--data", str(tuned)) == ExitCode.OK
    (measured,) = table(tmp_path / "out" / "measured" / "tuned_fmoe.csv")
    assert (measured["us"], measured["us1"], measured["us2"]) == ("100.75", "60.5", "40.25")
    assert measured["kernelName1"].startswith("moe_ck2stages_gemm1_64x32x32x128_1x1")
    assert "predicted" not in measured
    (predicted,) = table(tmp_path / "out" / "predicted" / "tuned_fmoe.csv")
    assert predicted["token"].strip() == f"{128}"
    for folder in ("measured", "predicted"):
        path, data = tmp_path / "out" / folder / "tuned_fmoe.csv", tmp_path / f"{folder}.parquet"
        assert run(["convert", str(path), "--out", str(data)]) == ExitCode.OK
        again = tmp_path / f"{folder}.csv"
        assert run(["convert", str(path), "--to", "aiter-moe", "--out", str(again)]) == ExitCode.OK
        assert again.read_bytes() == path.read_bytes()
    with pytest.raises(DataError, match="which are no measurements"):
        read_dataset(tmp_path / "predicted.parquet")


def test_names_of_bf16_are_those_of_newer_lists(tmp_path: Path) -> None:
    """Where older names stated no types, newer ones are written, and read back as those that models know."""
    problems = untuned(tmp_path, row(64, "torch.bfloat16,torch.bfloat16,QuantType.No"))
    assert export(problems, tmp_path / "out") == ExitCode.OK
    path = tmp_path / "out" / "predicted" / "tuned_fmoe.csv"
    (made,) = table(path)
    assert made["kernelName1"].endswith("_Quant0_MulRoutedWeight0_silu_B16_B16_B16")
    assert run(["convert", str(path), "--out", str(tmp_path / "back.parquet")]) == ExitCode.OK


def test_a_servers_log_names_the_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines "[fused_moe] using … default for" are problems; hits of tables and experts without a gate are none."""
    key = f"torch.bfloat16, {FP8}, {FP8}, QuantType.per_1x128, {{gate}}, False"
    line = "[aiter] [fused_moe] using 2stage default for ('gfx950', 256, {tokens}, 7168, 256, 256, 8, {act}, {key}) \n"
    log = tmp_path / "vllm.log"
    log.write_text(
        line.format(tokens=64, act="<ActivationType.Silu: 1>", key=key.format(gate="True"))
        + line.format(tokens=64, act="<ActivationType.Silu: 1>", key=key.format(gate="True"))
        + line.format(tokens=32, act="<ActivationType.Silu: 1>", key=key.format(gate="False"))
        + "INFO something else (with words)\n"
        + line.replace("default", "(kernelName1='x', kernelName2='y')").format(tokens=8, act="1", key=key)
    )
    (found,) = load_problems(str(log), None, None)
    assert found == AiterMoe(64, 7168, 256, 256, 8, quant="per_1x128", num_cus=256)
    assert "1 of experts without a gate" in capsys.readouterr().err
    assert export(log, tmp_path / "out") == ExitCode.OK
    assert len(table(tmp_path / "out" / "predicted" / "tuned_fmoe.csv")) == 1


@pytest.mark.parametrize(
    ("tokens", "found"), [(1, 1), (3, 4), (4, 4), (1000, 1024), (20000, 32768), (40000, 131072), (200000, 131072)]
)
def test_tokens_are_padded_as_aiter_pads_them(tokens: int, found: int) -> None:
    """To powers of two, and to 32768 and 131072."""
    assert looked_up(AiterMoe(tokens, 7168, 256, 256, 8)).tokens == found


@pytest.mark.parametrize(
    ("rows", "args", "why"),
    [
        ((row(64, act="Gelu"),), (), "only 1 of gelu"),
        (("64,7168,x,256,8,ActivationType.Silu,b,a,a,q,1,0",), (), "inter_dim is 'x'"),
        ((row(64),), ("--installed", "/nowhere"), "--installed is for tables of GEMMs"),
        ((row(64, rest="1"),), (), "11 cells under 12 columns"),
    ],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, rows: Sequence[str], args: Sequence[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, and nothing is written."""
    assert export(untuned(tmp_path, *rows), tmp_path / "out", *args) in (ExitCode.BAD_DATA, ExitCode.USAGE)
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert load_arch("gfx950").peaks is not None


def test_gemms_are_still_exported_without_naming_the_operation(tmp_path: Path) -> None:
    """A table of GEMMs is one of GEMMs, though two operations write for AITER."""
    path = tmp_path / "a8w8_bpreshuffle_untuned_gemm.csv"
    path.write_text("M,N,K\n16,7168,2048\n")
    assert export(path, tmp_path / "out") == ExitCode.OK
    assert (tmp_path / "out" / "predicted" / "a8w8_bpreshuffle_tuned_gemm.csv").is_file()
