"""AITER's lists of products and mixtures, and the lines that AITER and vLLM log where a table has no row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ckh.errors import DataError
from ckh.files.account import Account
from ckh.ops import operation
from ckh.shapes.problems import problems_of, shapes_of
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.shapes.problems import ShapesFound

PRODUCTS = """\
M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle
16,5120,2880,True,torch.bfloat16,torch.bfloat16,False,False
16,128,2880,False,torch.bfloat16,torch.float32,False,False
16,5120,2880,True,torch.bfloat16,torch.bfloat16,False,False
64,256,2880,False,torch.float16,torch.float16,False,False
"""
MIXTURES = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1"
)
FP8 = "torch.float8_e4m3fn"
KEY = "7168, 256, 257, 9, {act}, 'torch.bfloat16', '{fp8}', '{fp8}', 'QuantType.per_1x128', True, False)"
MISSED = (
    "[aiter] shape is {sizes} dtype='torch.bfloat16' otype='torch.{result}' bias={bias}, scaleAB=False, "
    "bpreshuffle=False, not found tuned config in /tmp/aiter/bf16_tuned_gemm.csv, will use default config!\n"
)


def read(folder: Path, name: str, text: str, op: str | None = None) -> ShapesFound:
    """Return the problems of a file of this text."""
    (folder / name).write_text(text, encoding="utf-8")
    return shapes_of([str(folder / name)], op=op)


def counts(found: ShapesFound) -> dict[str, int]:
    """Return the count of each problem by its text."""
    return {shape.problem.canonical(): shape.count for shape in found.problems}


def test_products_without_scales_keep_bias_and_result(tmp_path: Path) -> None:
    """A row with a bias is of gemm_multi_d; a result of another type is a change that is counted."""
    found = read(tmp_path, "bf16_untuned_gemm.csv", PRODUCTS)
    assert counts(found) == {
        "gemm_multi_d_bf16_rcr_m16_n5120_k2880_add_v": 2,
        "gemm_bf16_rcr_m16_n128_k2880_splitk1": 1,
        "gemm_fp16_rcr_m64_n256_k2880_splitk1": 1,
    }
    assert [change for change in found.changes if "fp32" in change and "(1 calls" in change] == list(found.changes)


def test_an_operation_takes_its_part_of_the_products(tmp_path: Path) -> None:
    """gemm_multi_d leaves products without a bias out; gemm_universal takes all, and says what is lost."""
    of_bias = read(tmp_path, "bf16_tuned_gemm_x.csv", PRODUCTS.replace("M,N", "M ,N"), "gemm_multi_d")
    assert (len(of_bias.problems), sum(of_bias.left_out.values())) == (1, 2)
    plain = read(tmp_path, "bf16_tuned_gemm_x.csv", PRODUCTS, "gemm_universal")
    assert (len(plain.problems), len(plain.left_out)) == (3, 0)
    assert sorted("gemm_multi_d" in change for change in plain.changes) == [False, True]
    problems = problems_of(operation("gemm_multi_d"), str(tmp_path / "bf16_tuned_gemm_x.csv"), None, None)
    assert [problem.canonical() for problem in problems] == ["gemm_multi_d_bf16_rcr_m16_n5120_k2880_add_v"]


def test_only_a_bias_is_a_shape_of_other_operations(tmp_path: Path) -> None:
    """A sum with a vector becomes a plain product, with what is lost; another epilogue is left out."""
    texts = "gemm_multi_d_bf16_rcr_m16_n512_k256_add_v\ngemm_multi_d_bf16_rcr_m16_n512_k256_add_relu_vr\n"
    found = read(tmp_path, "problems.txt", texts, "gemm_universal")
    assert counts(found) == {"gemm_bf16_rcr_m16_n512_k256_splitk1": 1}
    assert (len(found.changes), sum(found.left_out.values())) == (1, 1)


@pytest.mark.parametrize(
    ("change", "bad", "known"), [(("16,128", "x,128"), 1, 0), (("True,torch.bfloat16", "True,torch.int3"), 0, 2)]
)
def test_rows_with_wrong_cells_are_left_out(change: tuple[str, str], bad: int, known: int, tmp_path: Path) -> None:
    """A size that is no number is not understood; of another element type no kernel is known."""
    found = read(tmp_path, "bf16_untuned_gemm.csv", PRODUCTS.replace(*change))
    assert (found.account.bad.total(), sum(found.left_out.values())) == (bad, known)
    if bad:
        assert "bf16_untuned_gemm.csv:3" in next(iter(found.account.first.values()))


def test_missed_products_keep_bias_and_result(tmp_path: Path) -> None:
    """The lines of AITER's products without scales state both."""
    log = MISSED.format(sizes="M:64, N:1536, K:4096", result="bfloat16", bias=True)
    log += MISSED.format(sizes="M:64, N:128, K:4096", result="float32", bias=False)
    found = read(tmp_path, "server.log", log)
    assert counts(found) == {
        "gemm_multi_d_bf16_rcr_m64_n1536_k4096_add_v": 1,
        "gemm_bf16_rcr_m64_n128_k4096_splitk1": 1,
    }
    assert len(found.changes) == 1


def test_missed_batches_are_listed_or_counted(tmp_path: Path) -> None:
    """A batch in bf16 is listed; of quantised ones the line lacks the element type, in all of AITER's forms."""
    sizes = "M:64, N:128, K:512"
    forms = (
        f"shape is B:16, {sizes}, not found tuned config in CKGEMM, will use default config!",
        f"[aiter] shape is B:4, {sizes}, not found tuned/padded config in x.csv, the caller will fall back!",
        f"[aiter] shape is G:4, {sizes}, not found tuned/padded config in x.csv, will use heuristic fallback!",
        f"shape is B:2, {sizes}, not found tuned config in blockscale bpreshuffle BMM, will use default config!",
        f"shape is B:16, {sizes} dtype is bf16, not found tuned config in CKGEMM, will use default config!",
        f"shape is B:8, {sizes} dtype is bf16, not found tuned CK config, will use the CK default config!",
    )
    found = read(tmp_path, "server.log", "\n".join(forms) + "\n")
    assert counts(found) == {
        "gemm_batched_bf16_rcr_b16_m64_n128_k512_splitk1": 1,
        "gemm_batched_bf16_rcr_b8_m64_n128_k512_splitk1": 1,
    }
    assert list(found.left_out.values()) == [4]


def test_mixtures_that_tuning_on_demand_lacks(tmp_path: Path) -> None:
    """A tuning on demand that failed logs the key, with the architecture and as an enumeration in newer versions."""
    log = "Fmoe tuning not support for (256, 16, " + KEY.format(act="'ActivationType.Silu'", fp8=FP8)
    log += "\n[aiter] Fmoe tuning not support for ('gfx950', 256, 32, " + KEY.format(
        act="<ActivationType.Silu: 0>", fp8=FP8
    )
    assert counts(read(tmp_path, "server.log", log + "\n")) == {
        f"aiter_moe_both_fp8_per_1x128_silu_cu256_t{tokens}_d7168_i256_e257_k9": 1 for tokens in (16, 32)
    }


def test_mixtures_without_flydsl_configurations(tmp_path: Path) -> None:
    """That line states the key, too; one of another number of values is bad, and the others are read."""
    log = "[fused_moe] no tuned FlyDSL config for (256, 16, " + KEY.format(act="'ActivationType.Silu'", fp8=FP8)
    log += ", using heuristic FlyDSL fallback (kn1='flydsl_moe1')\n"
    text = "aiter_moe_both_fp8_per_1x128_silu_cu256_t16_d7168_i256_e257_k9"
    found = read(tmp_path, "server.log", log * 2 + log.replace(" 9,", ""))
    assert (counts(found), found.account.bad.total()) == ({text: 2}, 1)
    account = Account()
    problems = operation("aiter_moe").problems.load(str(tmp_path / "server.log"), None, None, account=account)
    assert ([problem.canonical() for problem in problems], account.bad.total()) == ([text], 1)


def test_a_list_of_mixtures_without_compute_units(tmp_path: Path) -> None:
    """The empty first cells of AITER's untuned_grouped_fmoe.csv are those of the GPU that is asked about."""
    fp4 = "torch.float4_e2m1fn_x2"
    kind = f"ActivationType.Swiglu,torch.bfloat16,{fp4},{fp4},QuantType.per_1x32,1,0,GateMode.SEPARATED"
    row = f",256,3072,1536,128,4,{kind}"
    found = read(tmp_path, "untuned_grouped_fmoe.csv", f"{MIXTURES},gate_mode\n{row}\n")
    assert counts(found) == {"aiter_moe_both_pk_fp4_per_1x32_swiglu_cu0_t256_d3072_i1536_e128_k4": 1}


def test_lists_of_batches_keep_the_batch(tmp_path: Path) -> None:
    """Batches in bf16 are batched products; those of quantised ones are left out, not taken as single products."""
    found = read(tmp_path, "bf16_untuned_batched_gemm.csv", "B,M,N,K\n4,16,512,256\n")
    assert counts(found) == {"gemm_batched_bf16_rcr_b4_m16_n512_k256_splitk1": 1}
    for name in ("a8w8_untuned_batched_gemm.csv", "a8w8_blockscale_bpreshuffle_untuned_bmm.csv"):
        with expect_refusal(DataError, "no-problems", "batches"):
            read(tmp_path, name, "B,M,N,K\n4,16,512,256\n")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a6w6_blockscale_untuned_gemm_flux.csv", "M,N,K\n16,512,256\n", "a6w6"),
        ("a6w4_flydsl_untuned_gemm.csv", "M,N,K,a_dtype\n16,512,256,fp6\n", "a6w4"),
        ("a8w8_bpreshuffle_mxfp8_untuned_gemm.csv", "M,N,K,q_dtype_w\n16,512,256,mxfp8\n", "mxfp8"),
    ],
)
def test_products_of_other_types_are_named(name: str, text: str, reason: str, tmp_path: Path) -> None:
    """Lists of operands that ckh has no kernels for are never products of another type."""
    with expect_refusal(DataError, "no-problems", reason):
        read(tmp_path, name, text)


def test_mixtures_of_vllm_state_what_is_missing(tmp_path: Path) -> None:
    """Experts and columns of the line are in the reason, which sends to the model's configuration."""
    log = "Config file not found at /x/configs/E=64,N=1408,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8.json\n"
    with expect_refusal(DataError, "no-problems", "E=64", "N=1408", "config.json"):
        read(tmp_path, "server.log", log)
