"""Tuned tables of mixtures of experts for AITER: their content, their shapes, and reading them back."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import DataError, ExitCode
from ckh.ops.aiter.installed import ADDED_US, SLOWEST, roofline_us
from ckh.ops.aiter_moe.kernel import kind_of, moe_pool, newer_name, parts
from ckh.ops.aiter_moe.operation import load_problems, looked_up
from ckh.ops.aiter_moe.problem import BOTH, AiterMoe
from tests.ops.aiter_gemm.newer_aiter import AITER, export, needs_aiter, rows_of, write_aiter_of_mixtures
from tests.refusals import expect_error, expect_refusal, expect_warning

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[3]
FP4 = "torch.float4_e2m1fn_x2"
FP8 = "torch.float8_e4m3fn"
ASM = "_ZN5aiter_of_experts"
HEAD = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1\n"
# From AITER's own table, gfx950, 256 compute units; the second has kernels of another library.
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
    """Write an untuned table of AITER's."""
    path = folder / "untuned_fmoe.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return path


def row(tokens: int, kind: str = f"{FP4},{FP4},QuantType.per_1x32", rest: str = "1,0", act: str = "Silu") -> str:
    """Return a row of an untuned table."""
    return f"{tokens},7168,256,256,8,ActivationType.{act},torch.bfloat16,{kind},{rest}"


def test_strange_rows_of_an_untuned_table_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One row is no reason to refuse the others; flags that a row omits are AITER's usual ones."""
    path = untuned(tmp_path, row(64), "x," + row(1), row(128, rest="1"), row(1).replace("1,", "inf,", 1))
    call = ["predict", "--op", "aiter_moe", "--problems", str(path), "--arch", "gfx950", "--json"]
    assert run(call) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert [result["sizes"]["tokens"] for result in document["results"]] == [64, 128]
    assert sorted(document["left_out"].values()) == [1, 1]
    assert [reason for reason in document["left_out"] if "13 cells" in reason and f"{path}:3" in reason]
    assert [reason for reason in document["left_out"] if "'inf'" in reason and f"{path}:5" in reason]


def test_predicted_rows_have_aiters_key_and_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns and key as get_2stage_cfgs reads them, kernels of the pool with one block_m, an upper bound as time."""
    problems = untuned(tmp_path, row(64), row(100, f"{FP8},{FP8},QuantType.per_1x128"))
    assert export(problems, tmp_path / "out", "--json") == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert [item["predicted"] for item in document["choices"]] == [True, True]
    assert not (tmp_path / "out" / "measured").exists()
    padded, exact = rows_of(tmp_path / "out" / "predicted" / "tuned_fmoe.csv")
    if exact["token"] != str(64):
        padded, exact = exact, padded
    assert (exact["gfx"], exact["cu_num"], exact["predicted"]) == ("gfx950", "256", "1")
    assert exact["act_type"] == "ActivationType.Silu"
    assert (exact["dtype"], exact["q_dtype_a"], exact["q_dtype_w"]) == ("torch.bfloat16", FP4, FP4)
    assert (exact["q_type"], exact["use_g1u1"], exact["doweight_stage1"]) == ("QuantType.per_1x32", "1", "0")
    problem = AiterMoe(64, 7168, 256, 256, 8, dtype="pk_fp4", quant="per_1x32", num_cus=256)
    names = {
        tuple(newer_name(part.name) for part in parts(kernel.name)): kernel
        for kernel in moe_pool("gfx950", *kind_of(problem))
    }
    chosen = names[exact["kernelName1"], exact["kernelName2"]]
    assert exact["block_m"] == str(chosen.block_m)
    assert float(exact["us"]) == pytest.approx(SLOWEST * (roofline_us(problem, "gfx950") + ADDED_US))
    # The tokens that AITER looks up.
    assert padded["token"].strip() == f"{128}"
    assert document["choices"][1]["basis"].endswith("for 128 tokens")


def test_no_winner_exceeds_the_bound() -> None:
    """The bound of a prediction is above every winner of the shipped data."""
    for arch in ("gfx950", "gfx942"):
        dataset = read_dataset(ROOT / "data" / f"aiter-moe-{arch}.parquet").valid()
        best = dataset.frame["latency_ms"].groupby(dataset.problem_ids).min()
        for number, problem in enumerate(dataset.problems()):
            if problem.stage == BOTH:
                assert best[number] * 1e3 < SLOWEST * (roofline_us(problem, arch) + ADDED_US) / 5


def test_measured_rows_take_precedence_and_are_read_back(tmp_path: Path) -> None:
    """A tuned table of AITER's gives its winner, and a written table is read and written again byte for byte."""
    tuned = tmp_path / "tuned_fmoe.csv"
    tuned.write_text(TUNED)
    problems = untuned(tmp_path, row(64), row(128))
    assert export(problems, tmp_path / "out", "--data", str(tuned)) == ExitCode.OK
    (measured,) = rows_of(tmp_path / "out" / "measured" / "tuned_fmoe.csv")
    assert (measured["us"], measured["us1"], measured["us2"]) == ("100.75", "60.5", "40.25")
    assert measured["kernelName1"].startswith("moe_ck2stages_gemm1_64x32x32x128_1x1")
    assert "predicted" not in measured
    (predicted,) = rows_of(tmp_path / "out" / "predicted" / "tuned_fmoe.csv")
    assert predicted["token"].strip() == f"{128}"
    for folder in ("measured", "predicted"):
        path, data = tmp_path / "out" / folder / "tuned_fmoe.csv", tmp_path / f"{folder}.parquet"
        assert run(["convert", str(path), "--out", str(data)]) == ExitCode.OK
        again = tmp_path / f"{folder}.csv"
        assert run(["convert", str(path), "--to", "aiter-moe", "--out", str(again)]) == ExitCode.OK
        assert again.read_bytes() == path.read_bytes()
    with expect_refusal(DataError, "predicted-rows"):
        read_dataset(tmp_path / "predicted.parquet")


def test_block_scaled_experts_have_two_names(tmp_path: Path) -> None:
    """AITER replaces per_128x128 by per_1x128 before it looks up a kernel."""
    (problem,) = load_problems(str(untuned(tmp_path, row(64, f"{FP8},{FP8},QuantType.per_128x128"))), None, None)
    assert problem.quant == "per_1x128"


def test_short_rows_and_infinite_times_are_read_like_by_aiter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Omitted last cells are empty; a tuning that failed, with an infinite time, is left out, and its line named."""
    header, first = TUNED.splitlines()[:2]
    assert first.endswith(",")
    shorter, failed = first.rstrip(","), first.replace("100.75", "inf")
    tuned = tmp_path / "tuned_fmoe.csv"
    tuned.write_text(f"{header}\n{shorter}\n{failed}\n")
    assert run(["convert", str(tuned), "--out", str(tmp_path / "data.parquet")]) == ExitCode.OK
    expect_warning(capsys.readouterr().err, "left-out", 1, 3)
    assert len(read_dataset(tmp_path / "data.parquet").frame) == 3


def test_bf16_names_follow_newer_lists(tmp_path: Path) -> None:
    """Where older names stated no types, newer names are written, and read back as the names known to models."""
    problems = untuned(tmp_path, row(64, "torch.bfloat16,torch.bfloat16,QuantType.No"))
    assert export(problems, tmp_path / "out") == ExitCode.OK
    path = tmp_path / "out" / "predicted" / "tuned_fmoe.csv"
    (made,) = rows_of(path)
    assert made["kernelName1"].endswith("_Quant0_MulRoutedWeight0_silu_B16_B16_B16")
    assert run(["convert", str(path), "--out", str(tmp_path / "back.parquet")]) == ExitCode.OK


def test_a_servers_log_names_the_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines "[fused_moe] using … default for" are problems; table hits and experts without a gate are not."""
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
    (result,) = load_problems(str(log), None, None)
    assert result == AiterMoe(64, 7168, 256, 256, 8, quant="per_1x128", num_cus=256)
    expect_warning(capsys.readouterr().err, "left-out", 1)
    assert export(log, tmp_path / "out") == ExitCode.OK
    assert len(rows_of(tmp_path / "out" / "predicted" / "tuned_fmoe.csv")) == 1


@pytest.mark.parametrize(
    ("tokens", "result"),
    [(1, 1), (3, 4), (4, 4), (1000, 1024), (20000, 32768), (40000, 32768), (131071, 32768), (200000, 131072)],
)
def test_tokens_are_padded_like_in_aiter(tokens: int, result: int) -> None:
    """Up to powers of two, and from 32768 on down to 32768 or 131072."""
    assert looked_up(AiterMoe(tokens, 7168, 256, 256, 8)).tokens == result


@pytest.mark.parametrize(
    ("rows", "args", "why"),
    [
        ((row(64, act="Gelu"),), (), "gelu"),
        (("64,7168,x,256,8,ActivationType.Silu,b,a,a,q,1,0",), (), "inter_dim is 'x'"),
        ((row(64),), ("--installed", "/nowhere"), "no such folder: /nowhere"),
        ((row(64, rest="1,0,9"),), (), "13 cells under 12 columns"),
    ],
)
def test_unwritable_rows_are_refused(
    tmp_path: Path, rows: Sequence[str], args: Sequence[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The input is refused in one line, and nothing is written."""
    assert export(untuned(tmp_path, *rows), tmp_path / "out", *args) in (ExitCode.BAD_DATA, ExitCode.USAGE)
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert load_arch("gfx950").peaks is not None


def test_gemms_are_exported_without_an_operation_option(tmp_path: Path) -> None:
    """A table of GEMMs is read as GEMMs, although two operations export to AITER."""
    path = tmp_path / "a8w8_bpreshuffle_untuned_gemm.csv"
    path.write_text("M,N,K\n16,7168,2048\n")
    assert export(path, tmp_path / "out") == ExitCode.OK
    assert (tmp_path / "out" / "predicted" / "a8w8_bpreshuffle_tuned_gemm.csv").is_file()


SMALL = "moe_ck2stages_gemm{}_256x32x{}_1x4_TypeCast_v1_Nswizzle0_Quant2_MulRoutedWeight{}_F8_F8_B16"
ONE = SMALL.format(1, "64x256", "0_silu"), SMALL.format(2, "128x256", 1)
GENERATOR = """
import argparse, os
from {chip} import get_gfx
parser = argparse.ArgumentParser()
for name in ("-a", "-b", "-c", "-q", "-m", "-w"):
    parser.add_argument(name, nargs="*" if name in ("-a", "-b") else None)
parser.add_argument("-act", choices=["silu"])
parser.add_argument("-p", action="store_true")
args = parser.parse_args()
names = {names!r} if (get_gfx(), args.q, args.b) == ("gfx950", "per_token", ["f8"]) else ()
with open(os.path.join(args.w, "gemm_moe_ck2stages_lookup.h"), "w") as file:
    file.writelines(f'{{{{"{{name}}", kernel<>}}}},\\n' for name in names)
"""


def fake_aiter(folder: Path, *names: str, chip: str = "aiter.jit.utils.chip_info") -> Path:
    """Write an AITER that builds only these kernels, of one kind."""
    path = folder / "csrc" / "ck_gemm_moe_2stages_codegen" / "gen_instances.py"
    path.parent.mkdir(parents=True)
    path.write_text(GENERATOR.format(names=names, chip=chip))
    return folder


@pytest.mark.parametrize("chip", ["chip_info", "aiter.jit.utils.chip_info"])
def test_only_kernels_that_the_installed_aiter_builds(
    chip: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --installed the best kernel that its generator emits is chosen, and none if it emits none."""
    source = fake_aiter(tmp_path / "aiter", *ONE, chip=chip)
    problems = untuned(tmp_path, row(64, f"{FP8},{FP8},QuantType.per_Token"))
    assert export(problems, tmp_path / "out", "--installed", str(source)) == ExitCode.OK
    (chosen,) = rows_of(tmp_path / "out" / "predicted" / "tuned_fmoe.csv")
    assert (chosen["kernelName1"], chosen["kernelName2"]) == ONE
    for kind in (f"{FP4},{FP4},QuantType.per_1x32", f"{FP8},{FP8},QuantType.per_1x128"):
        problems = untuned(tmp_path, row(64, kind))
        assert export(problems, tmp_path / "none", "--installed", str(source)) == ExitCode.NO_KERNEL
        expect_error(capsys.readouterr().err, "no-kernel", "aiter_moe_both_")
    assert not (tmp_path / "none").exists()


def test_a_measured_kernel_that_the_installed_aiter_lacks_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table's winner that this AITER does not build never becomes a row for it."""
    tuned, source = tmp_path / "tuned_fmoe.csv", fake_aiter(tmp_path / "aiter", *ONE)
    kind = f"{FP8},{FP8},QuantType.per_Token"
    first = SMALL.format(1, "64x128", "0_silu")
    tuned.write_text(
        TUNED.splitlines()[0]
        + f"\n256,64,7168,256,256,8,ActivationType.Silu,torch.bfloat16,{kind},1,0,32,0,605,{first},0.0%,402.5,"
        + f"{ONE[1]},0.1%,1007.5,0,1,2,\n"
    )
    args = ["--data", str(tuned), "--installed", str(source)]
    assert export(untuned(tmp_path, row(64, kind)), tmp_path / "out", *args) == ExitCode.BAD_DATA
    assert "has no kernels" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "act", "basis"),
    [
        (64, "Silu", "AITER's own table"),
        (40000, "Silu", "AITER's own table for 32768 tokens"),
        (200000, "Silu", "AITER's own table for 32768 tokens"),  # of a smaller tier, as there is none for these tokens
        (128, "Silu", "AITER's own table"),  # of another activation, by kernels other than CK's
        (256, "Silu", "bounded by the slowest of all winners"),  # CK's kernels are specific to their activation
        (500, "Silu", "bounded by the slowest of all winners for 512 tokens"),
    ],
)
def test_mixtures_with_a_row_in_aiter(
    tokens: int, act: str, basis: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mixtures that newer versions find by tokens, activation or tier get no choice; all written rows are found."""
    kind = f"{FP8},{FP8},QuantType.per_Token"
    rows = [TUNED.splitlines()[0]]
    for own, of, first in ((64, "Silu", ASM), (32768, "Silu", ASM), (128, "Swiglu", ASM), (256, "Swiglu", ONE[0])):
        key = row(own, kind, act=of).rsplit(",", 2)[0]
        rows.append(f"256,{key},1,0,32,0,60,{first},0.0%,40,{ONE[1]},0.1%,100,0,1,2,")
    table_text = "gfx," + "\ngfx950,".join(rows) + "\n"
    source = write_aiter_of_mixtures(tmp_path / "aiter", GENERATOR.format(names=ONE, chip="chip_info"), table_text)
    args = ["--installed", str(source), "--check", str(source), "--json"]
    problems = untuned(tmp_path, row(tokens, kind, act=act), row(2, kind))
    assert export(problems, tmp_path / "out", *args) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    (checked,) = document["checked"]
    assert (checked["rows_before"], checked["lost"], checked["problems"]) == (4, 0, [])
    assert document["choices"][0]["basis"] == basis
    assert document["choices"][0]["written"] == basis.startswith("bounded")


@needs_aiter
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_aiter_builds_and_looks_up_the_choices(arch: str, tmp_path: Path) -> None:
    """AITER's own generator has the chosen kernels, and its own code finds the row of each key in the table."""
    assert AITER is not None
    kinds = [f"{FP8},{FP8},QuantType.per_Token", f"{FP8},{FP8},QuantType.per_1x128", "torch.bfloat16,torch.bfloat16"]
    kinds[2] += ",QuantType.No"
    kinds = [kind.replace("e4m3fn", "e4m3fnuz") if arch == "gfx942" else kind for kind in kinds]
    problems = untuned(tmp_path, *(row(tokens, kind) for kind in kinds for tokens in (64, 100, 20000)))
    assert export(problems, tmp_path / "out", "--installed", str(AITER), "--replace", arch=arch) == ExitCode.OK
    path = tmp_path / "out" / "predicted" / "tuned_fmoe.csv"
    as_aiter = _read_as_aiter(AITER.parent / "aiter" / "fused_moe.py", path)
    cus = 304 if arch == "gfx942" else 256
    for kind in kinds:
        for tokens in (64, 128, 32768):
            a, w, quant = kind.split(",")
            key = (cus, tokens, 7168, 256, 256, 8, "ActivationType.Silu", "torch.bfloat16", a, w, quant, True, False)
            chosen = as_aiter[key]
            assert chosen["ksplit"] == 0
            assert not chosen["run_1stage"]
            names = chosen["kernelName1"], chosen["kernelName2"]
            assert {int(name.split("_")[3].split("x")[1]) for name in names} == {chosen["block_m"]}
    assert len(as_aiter) == 3 * len(kinds)


def _read_as_aiter(source: Path, table: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the table by key, as the function in AITER's source reads it; the module itself needs a GPU."""
    functions = [item for item in ast.walk(ast.parse(source.read_text())) if isinstance(item, ast.FunctionDef)]
    (reading,) = (function for function in functions if function.name == "get_cfg_2stages")
    names: dict[str, Any] = {}
    exec(compile(ast.Module([reading], type_ignores=[]), str(source), "exec"), names)  # noqa: S102
    result: dict[tuple[Any, ...], dict[str, Any]] = names["get_cfg_2stages"](table)
    return result
