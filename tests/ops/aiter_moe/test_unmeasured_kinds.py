"""Kinds of AITER's without public measurements: those with a public list of kernels are answered, others refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.errors import ExitCode, UsageError
from ckh.ops.aiter_gemm.problem import AiterGemm
from ckh.ops.aiter_moe.kernel import candidates
from ckh.ops.aiter_moe.problem import UNANSWERED, AiterMoe
from tests.refusals import expect_error, expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

SIZES = ("--tokens", "64", "--model-dim", "7168", "--inter-dim", "256", "--experts", "256", "--topk", "8")
HEAD = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1\n"
BF16, FP8, FP4 = "torch.bfloat16", "torch.float8_e4m3fn", "torch.float4_e2m1fn_x2"


def rows_of(path: Path, *kinds: str) -> Path:
    """An untuned table with a mixture of each kind: activation, and element types with scales."""
    lines = (f"64,7168,256,256,8,ActivationType.{kind},1,0\n" for kind in kinds)
    path.write_text(HEAD + "".join(lines))
    return path


@pytest.mark.parametrize(
    ("dtype", "activation", "tiles_m", "instruction"),
    [
        ("pk_fp4", "swiglu", {16, 32, 64}, "16x16x128"),
        ("fp8", "silu", {32, 64}, "16x16x128"),
        ("bf16", "silu", {16, 32, 64}, "16x16x32"),
    ],
)
def test_kinds_with_a_public_list_are_answered_and_marked(
    dtype: str, activation: str, tiles_m: set[int], instruction: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each tile of AITER's list with one to four blocks per CU; the answer says that nobody measured such kernels."""
    problem = AiterMoe(64, 7168, 256, 256, 8, "both", dtype, "per_1x32", activation, num_cus=256)
    result = candidates(problem, load_arch("gfx950"))
    pool = [result.pool[index] for index in result.chosen]
    assert {kernel.block_m for kernel in pool} == tiles_m
    assert {(kernel.per_cu1, kernel.per_cu2) for kernel in pool} == {(a, b) for a in range(1, 5) for b in range(1, 5)}
    assert all(kernel.name.count(f"_{instruction}_") == 2 for kernel in pool)
    assert len(pool) == 16 * len(tiles_m)
    kind = ("--dtype", dtype, "--quant", "per_1x32", "--activation", activation)
    assert run(["predict", "--op", "aiter_moe", "--arch", "gfx950", *SIZES, *kind, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["not_measured"] is not None
    assert document["candidates"] == len(pool)
    assert all(kernel["tflops"] is None for kernel in document["kernels"])


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (f"Swiglu,{BF16},{FP8},{FP8},QuantType.per_1x32", ("fp8", "fp8", "per_1x32")),
        (f"Silu,{BF16},{FP8},torch.int4,QuantType.per_Token", ("fp8", "int4", "per_token")),
        (f"Silu,{BF16},torch.int8,torch.int8,QuantType.per_Token", ("int8", "int8", "per_token")),
    ],
)
def test_kinds_without_an_answer_are_refused_with_the_reason(
    row: str, kind: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of one such kind is refused; among others it is skipped, with the reason."""
    path = rows_of(tmp_path / "untuned_fmoe.csv", row)
    call = ["predict", "--op", "aiter_moe", "--arch", "gfx950", "--problems", str(path), "--json"]
    assert run(call) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "no-problems", UNANSWERED[kind])
    rows_of(path, row, f"Silu,{BF16},{FP8},{FP8},QuantType.per_Token")
    assert run(call) == ExitCode.OK
    assert UNANSWERED[kind] in " ".join(capsys.readouterr().err.split())


def test_int8_experts_are_refused_by_their_type(capsys: pytest.CaptureFixture[str]) -> None:
    """On the command line the reason is that of the kind."""
    kind = ["--dtype", "int8", "--quant", "per_token"]
    assert run(["predict", "--op", "aiter_moe", "--arch", "gfx950", *SIZES, *kind]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "unsupported", UNANSWERED["int8", "int8", "per_token"])


def test_preshuffled_int8_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """AITER's a8w8_bpreshuffle in int8: a problem, and a table of AITER's; other families have int8."""
    with expect_refusal(UsageError, "unsupported", "a8w8_bpreshuffle", "int8"):
        AiterGemm(16, 1280, 8192, "a8w8_bpreshuffle", "int8")
    assert AiterGemm(16, 1280, 8192, "a8w8", "int8").dtype == "int8"
    path = tmp_path / "a8w8_bpreshuffle_untuned_gemm.csv"
    path.write_text("M,N,K,q_dtype_w\n16,1280,8192,torch.int8\n")
    assert run(["predict", "--op", "aiter_gemm", "--arch", "gfx950", "--problems", str(path)]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "no-problems", "a8w8_bpreshuffle in int8", "assembly")
