"""Shapes in logs and files of AMD's libraries: each form with the problem and the count that it states."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import ckh.shapes
from ckh.cli import run
from ckh.errors import DataError, ExitCode
from ckh.shapes.layers import RunOptions
from ckh.shapes.problems import shapes_of
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

SIZES = "-n 8 -c 32 -H 64 -W 64 -k 48 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1"
RUN = f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 {SIZES} -m conv -g 1 -F 1 -t 1"
FOUND = RUN.replace("LogCmdConvolution", "LogCmdFindConvolution")
ECHO = f"MIOpenDriver convfp16 {SIZES} -m conv -g 1 -F 1 -t 1"
SUMMARY = f'MIOpen(HIP): Info [LogConvolutionExecution] Problem="convfp16 {SIZES} -F 1" Time=0.02'
KEY = "Info2 [FindRecordUnsafe] Looking for key 32-64-64-3x3-48-64-64-8-1x1-1x1-1x1-0-NCHW-FP16-F in file /x"
CONVOLUTION = "conv_forward_fp16_nhwgc_2d_n8_c32_k48_g1_i64x64_f3x3_s1x1_p1x1_d1x1"


def counts(tmp_path: Path, *lines: str, name: str = "some.log") -> dict[str, int]:
    """Canonical text -> count of the problems in lines."""
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {item.problem.canonical(): item.count for item in ckh.shapes.read(str(path))}


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ((FOUND,), 1),
        ((FOUND, FOUND), 1),
        ((FOUND, RUN, RUN), 2),
        ((RUN, FOUND, KEY, SUMMARY), 1),
        ((KEY, KEY), 1),
        ((SUMMARY, SUMMARY), 2),
        ((ECHO, ECHO), 2),
        ((f"+ ./bin/{ECHO}", ECHO), 1),
        ((f"     12 ./bin/{ECHO}", FOUND), 12),
    ],
)
def test_a_convolution_counts_once_per_execution(lines: tuple[str, ...], count: int, tmp_path: Path) -> None:
    """MIOpen's searches and keys count once if no line states a run; echoes if no other line does; uniq -c counts."""
    assert counts(tmp_path, *lines) == {CONVOLUTION: count}


def test_fused_convolutions_are_listed(tmp_path: Path) -> None:
    """CBAInfer is forward; its -F is the kind of fusion, not a direction."""
    line = f"MIOpen(HIP): Command [LogCmdFusion] ./bin/MIOpenDriver CBAInferfp16 -F 3 {SIZES}"
    assert counts(tmp_path, line) == {CONVOLUTION: 1}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (
            "64-30-40-3x3-32-15-20-8-1x1-2x2-1x1-0-NHWC-FP16-F",
            "forward_fp16_nhwgc_2d_n8_c64_k32_g1_i30x40_f3x3_s2x2_p1x1_d1x1",
        ),
        # Backward keys begin with the output.
        (
            "32-15-20-3x3-64-30-40-8-1x1-2x2-1x1-0-NHWC-BF16-B",
            "bwd_data_bf16_nhwgc_2d_n8_c64_k32_g1_i30x40_f3x3_s2x2_p1x1_d1x1",
        ),
        (
            "32-4-8-8-1x3x3-16-4-8-8-2-0x1x1-1x1x1-1x1x1-0-NDHWC-FP32-W_g16",
            "bwd_weight_fp32_ndhwgc_3d_n2_c16_k32_g16_i4x8x8_f1x3x3_s1x1x1_p0x1x1_d1x1x1",
        ),
    ],
)
def test_keys_of_databases(key: str, text: str, tmp_path: Path) -> None:
    """Of a find-db and of a perf-db, whose values are not read; an output that the sizes contradict is refused."""
    of_find_db, of_perf_db = f"{key}=miopenConvolutionFwdAlgoGEMM:gemm,0.05,0,x", f"{key}=ConvAsm1x1U:1,8,2"
    assert counts(tmp_path, of_find_db, of_perf_db, name="a.udb.txt") == {f"conv_{text}": 1}
    with expect_refusal(DataError, "impossible-problem", "some.log:1"):
        counts(tmp_path, key.replace("-8-1x1-", "-8-0x0-").replace("0x1x1-1x1x1-1x1x1", "0x0x0-1x1x1-1x1x1"))


def trace(call: str, *tensors: str, mode: str = "miopenConvolution") -> str:
    """A block of MIOpen's API trace."""
    lines = [f"miopenStatus_t {call}(miopenHandle_t, const void *){{", "\thandle = stream: 0, device_id: 0"]
    lines += [f"\t{tensor}, {{216, 9, 3, 1}}, packed, " for tensor in tensors]
    lines += [f"\tconvDesc = conv2d, {mode}, miopenPaddingDefault, {{1, 2}}, {{2, 1}}, {{1, 1}}, ", "}"]
    return "\n".join(f"MIOpen(HIP): {line}" for line in lines)


def test_blocks_of_the_api_trace(tmp_path: Path) -> None:
    """A run counts, its search alone once; groups are the input's channels by the filter's."""
    forward = ("wDesc = {24, 8, 3, 5}", "xDesc = {1, 24, 340, 34}", "yDesc = {1, 24, 170, 34}")
    backward = ("dyDesc = {2, 16, 8, 8}", "wDesc = {16, 4, 1, 1}", "dxDesc = {2, 4, 13, 4}")
    assert counts(
        tmp_path,
        trace("miopenConvolutionForwardGetWorkSpaceSize", *forward),
        trace("miopenConvolutionForward", *forward),
        trace("miopenConvolutionForwardImmediate", *forward),
        trace("miopenConvolutionBackwardDataGetWorkSpaceSize", *backward),
        trace("miopenConvolutionBackwardDataGetWorkSpaceSize", *backward),
    ) == {
        "conv_forward_fp16_nhwgc_2d_n1_c24_k24_g3_i340x34_f3x5_s2x1_p1x2_d1x1": 2,
        "conv_bwd_data_fp16_nhwgc_2d_n2_c4_k16_g1_i13x4_f1x1_s2x1_p1x2_d1x1": 1,
    }
    for wrong in ("yDesc = {1, 24, 170, 33}", "yDesc = {1, 8, 170, 34}"):
        with expect_refusal(DataError, "impossible-problem", "some.log:1", "24x170x34"):
            counts(tmp_path, trace("miopenConvolutionForward", *forward[:2], wrong))


def test_transposed_blocks_of_the_api_trace(tmp_path: Path) -> None:
    """The mode miopenTranspose computes from 16 channels of 8x8 to 12 of 15x10: backward data, with C and K swapped."""
    x, w, y = "Desc = {2, 16, 8, 8}", "wDesc = {16, 6, 3, 3}", "Desc = {2, 12, 15, 6}"
    calls = {
        "Forward": (f"x{x}", w, f"y{y}"),
        "BackwardData": (f"dy{y}", w, f"dx{x}"),
        "BackwardWeights": (f"dy{y}", f"x{x}", f"d{w}"),
    }
    blocks = [trace(f"miopenConvolution{name}", *own, mode="miopenTranspose") for name, own in calls.items()]
    text = "conv_{}_fp16_nhwgc_2d_n2_c12_k16_g2_i15x6_f3x3_s2x1_p1x2_d1x1"
    assert counts(tmp_path, *blocks) == dict.fromkeys(map(text.format, ("bwd_data", "forward", "bwd_weight")), 1)
    with expect_refusal(DataError, "impossible-problem", "some.log:1"):
        counts(tmp_path, blocks[0].replace("15, 6}", "15, 9}"))


@pytest.mark.parametrize(
    ("command", "text"),
    [
        # Channels are per group, in the order G, N, K, C; newer versions have a type of indices.
        (
            "grouped_conv_fwd 1 1 0 0 1 0 1 2 4 32 64 48 3 3 28 28 1 1 1 1 1 1 1 1",
            "conv_forward_fp16_nhwgc_2d_n32_c192_k256_g4_i28x28_f3x3_s1x1_p1x1_d1x1",
        ),
        (
            "grouped_conv_fwd 0 1 0 1 0 1 2 4 32 64 48 3 3 28 28 1 1 1 1 1 1 1 1",
            "conv_forward_fp32_nhwgc_2d_n32_c192_k256_g4_i28x28_f3x3_s1x1_p1x1_d1x1",
        ),
        (
            "grouped_conv_bwd_weight 2 2 0 1 0 1 1 1 8 16 32 3 50 2 1 0 1 4",
            "conv_bwd_weight_bf16_nhwgc_2d_n8_c32_k16_g1_i1x51_f1x3_s1x2_p0x0_d1x1",
        ),
        (
            "grouped_conv_bwd_data 1 1 0 0 1 0 1 3 2 4 8 16 1 3 3 4 9 9 1 2 2 1 1 1 0 1 1 0 1 1",
            "conv_bwd_data_fp16_ndhwgc_3d_n4_c32_k16_g2_i4x9x9_f1x3x3_s1x2x2_p0x1x1_d1x1x1",
        ),
        ("gemm_universal 2 1 0 1 0 1 16 7168 2048 2048 2048 7168 -1", "gemm_bf16_rcr_m16_n7168_k2048_splitk1"),
    ],
)
def test_commands_of_ckprofiler(command: str, text: str, tmp_path: Path) -> None:
    """With and without further arguments, in one to three dimensions."""
    assert counts(tmp_path, f"$ ./bin/ckProfiler {command}", "avg_time: 0.5") == {text: 1}


def test_composable_kernels_test_sets(tmp_path: Path) -> None:
    """Channels are per group; a pad on one side alone is an input padded by the difference."""
    columns = (
        "NDim,Groups,BatchSize,OutChannels,InChannels,KernelD,KernelH,KernelW,InputD,InputH,InputW,OutputD,OutputH,"
        "OutputW,StrideD,StrideH,StrideW,DilationD,DilationH,DilationW,LeftPadD,LeftPadH,LeftPadW,RightPadD,RightPadH,"
        "RightPadW,TestName"
    )
    rows = [
        "2,4,8,32,16,1,3,3,1,28,28,1,28,28,1,1,1,1,1,1,0,1,1,0,1,1,grouped",
        "2,1,8,32,16,1,2,2,1,14,14,1,14,14,1,1,1,1,1,1,0,0,0,0,1,1,asymmetric",
    ]
    assert counts(tmp_path, "# channels per group", columns, *rows, name="smoke_2d.csv") == {
        "conv_forward_fp16_nhwgc_2d_n8_c64_k128_g4_i28x28_f3x3_s1x1_p1x1_d1x1": 1,
        "conv_forward_fp16_nhwgc_2d_n8_c16_k32_g1_i15x15_f2x2_s1x1_p0x0_d1x1": 1,
    }
    with expect_refusal(DataError, "impossible-problem", "smoke_2d.csv:2"):
        counts(tmp_path, columns, rows[0].replace("28,28,1,28,28", "28,28,1,27,28"), name="smoke_2d.csv")


PROFILE = (
    "- {{ function: matmul, M: {m}, N: 16, K: 8192, lda: 8192, transA: T, transB: N, batch_count: {batch}, scaleA: 0, "
    "a_type: bf16_r, b_type: bf16_r, c_type: bf16_r, compute_type: c_f32_r, call_count: {calls} }}"
)


def test_profile_logs_state_calls(tmp_path: Path) -> None:
    """Of hipBLASLt (HIPBLASLT_LOG_MASK=64) and rocBLAS, whose functions imply a type."""
    assert counts(
        tmp_path,
        PROFILE.format(m=7168, batch=1, calls=160),
        PROFILE.format(m=7168, batch=1, calls=2),
        PROFILE.format(m=64, batch=4, calls=3),
        '{ rocblas_function: "rocblas_hgemm", transA: "N", transB: "T", M: 8, N: 4, K: 32, lda: 8, call_count: 7 }',
        name="profile.yaml",
    ) == {
        "gemm_bf16_rcr_m16_n7168_k8192_splitk1": 162,
        "gemm_batched_bf16_rcr_b4_m16_n64_k8192_splitk1": 3,
        "gemm_fp16_crr_m4_n8_k32_splitk1": 7,
    }


BENCH = "hipblaslt-bench -m 8192 -n 16 -k 1024 --transA T --transB N --scaleA {scale} --a_type {type}_r"
RESULT = (
    "[0]:transA,transB,grouped_gemm,batch_count,m,n,k,alpha,a_type,b_type,d_type,hipblaslt-Gflops,us",
    "    T,N,0,1,8192,16,1024,1,f8_fnuz_r,f8_fnuz_r,bf16_r, 5309.25, 7.9",
)


def test_scaled_products_of_hipblaslt(tmp_path: Path) -> None:
    """gfx942's FP8 is FP8; modes 1 and 2 are scales by row, 3 those of MX blocks; results repeat their command."""
    command = BENCH.format(scale=1, type="f8_fnuz") + " --b_type f8_fnuz_r"
    scaled, plain = "aiter_gemm_a8w8_fp8_cu0_m16_n8192_k1024", "gemm_fp8_rcr_m16_n8192_k1024_splitk1"
    assert counts(tmp_path, f"  3 {command}", command.replace("scaleA 1", "scaleA 2")) == {scaled: 4}
    assert counts(tmp_path, command.replace("scaleA 1", "scaleA 0"), *RESULT, RESULT[1]) == {plain: 1}
    assert counts(tmp_path, *RESULT, RESULT[1]) == {plain: 2}
    blocks = BENCH.format(scale=3, type="f4") + " --b_type f4_r"
    assert counts(tmp_path, blocks) == {"aiter_gemm_a4w4_blockscale_pk_fp4_cu0_m16_n8192_k1024": 1}


COLUMNS = (
    "transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,a_type,"
    "b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,amaxD,activation_type,bias_vector,bias_type,"
    "rotating_buffer,hipblaslt-Gflops,hipblaslt-GB/s,us,solution_index,kernel_name"
)
TUNED = (
    "{sizes},1,7168,0,0,7168,0,8192,0,8192,0,bf16_r,bf16_r,bf16_r,bf16_r,f32_r,0,0,0,0,0,none,0,f32_r,512,66.8,363.5,10.5,"
    "565,{end}"
)
OF_ROCBLAS = "transA,transB,M,N,batch_count,K,alpha,beta,lda,ldb,ldc,input_type,output_type,compute_type,solution_index"


@pytest.mark.parametrize(
    ("lines", "has_times"),
    [
        (("Git Version: 5e1a4b0", COLUMNS, TUNED, TUNED), True),
        (("Git Version: 5e1a4b0", TUNED, TUNED), True),
        ((OF_ROCBLAS, *["T,N,{m},{n},{b},{k},1,0,7168,7168,8192,bf16_r,bf16_r,f32_r,378"] * 2), False),
    ],
    ids=["hipBLASLt", "hipBLASLt without a header", "rocBLAS"],
)
@pytest.mark.parametrize("name", ["tuning.txt", "tuning.csv"])
def test_tuning_files(lines: tuple[str, ...], has_times: bool, name: str, tmp_path: Path) -> None:
    """hipBLASLt's, which state times, and rocblas-gemm-tune's; a row that the end of the file cuts is bad."""
    of = {"m": 8192, "n": 16, "k": 7168, "b": 1}, {"m": 64, "n": 16, "k": 512, "b": 4}
    end = "Cijk_Alik" if COLUMNS in lines else "gfx942,304"
    rows = [
        line.format(sizes="T,N,0,{b},{m},{n},{k}".format(**sizes), end=end, **sizes)
        for line, sizes in zip(lines[-2:], of, strict=True)
    ]
    path = tmp_path / name
    for cut, expected in ((0, 2), (20, 1)):
        path.write_text("\n".join([*lines[:-2], *rows])[: -cut or None], encoding="utf-8")
        found = shapes_of([str(path)])
        texts = ["gemm_bf16_rcr_m16_n8192_k7168_splitk1", "gemm_batched_bf16_rcr_b4_m16_n64_k512_splitk1"]
        assert [item.problem.canonical() for item in found.problems] == texts[:expected]
        assert [item.time is not None for item in found.problems] == [has_times] * expected
        assert found.account.bad.total() == 2 - expected


ONCE = {
    "MIOpen": RUN,
    "MIOpenDriver": ECHO,
    "MIOpen's API": trace("miopenConvolutionForward", "xDesc = {2, 4, 13, 4}", "wDesc = {16, 4, 1, 1}"),
    "ckProfiler": "ckProfiler grouped_conv_fwd 1 1 0 0 1 0 1 2 4 32 64 48 3 3 28 28 1 1 1 1 1 1 1 1",
    "hipblaslt-bench": "hipblaslt-bench -m 1280 -n 16 -k 8192 --transA T --a_type bf16_r --b_type bf16_r",
    "rocblas-bench": "./rocblas-bench -f gemm_ex -m 1280 -n 16 -k 8192 --transposeA T -r bf16_r",
    "profile": PROFILE.format(m=7168, batch=1, calls=1),
    "TunableOp": "GemmTunableOp_BFloat16_TN,tn_1280_16_8192_ld_8192_8192_1280",
    "AUTOTUNE": "AUTOTUNE mm(16x8192, 8192x1280)",
    "AITER": "shape is M:64, N:1536, K:4096, not found tuned config in /x/a8w8_blockscale_tuned_gemm.csv, will use",
    "AITER's batches": "shape is B:16, M:64, N:128, K:512 dtype is bf16, not found tuned config in CKGEMM, will use",
    "vLLM": "Config file not found at /x/N=1536,K=7168,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8.json",
    "ckh": "gemm_bf16_rcr_m16_n1280_k8192_splitk1",
}


@pytest.mark.parametrize("source", ONCE)
def test_every_log_keeps_its_counts(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three statements among other lines count three times, as a text, in JSON and in the list that is written."""
    path = tmp_path / "some.log"
    path.write_text(f"INFO start\n{ONCE[source]}\n" + f"INFO step\n{ONCE[source]}\n" * 2, encoding="utf-8")
    command = ["shapes", str(path), "--tokens", "16", "--out", str(tmp_path / "list.csv"), "--json"]
    assert run(command) == ExitCode.OK
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["count"] == 3
    assert [item.count for item in ckh.shapes.read(str(tmp_path / "list.csv"))] == [3]


TABLES = {
    "hipblaslt-bench": (*RESULT, RESULT[1], RESULT[1]),
    "rocprof": ('"Name","Calls"', '"gemm_bf16_m16_n1536_k7168",2', '"gemm_bf16_m16_n1536_k7168",1'),
    "rocprofv3": ("Kernel_Name,Dispatch_Id", *(f"gemm_bf16_m16_n1536_k7168,{number}" for number in range(3))),
    "AITER's bf16 list": (
        "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle",
        *["16,512,256,False,torch.bfloat16,torch.bfloat16,False,False"] * 3,
    ),
    "AITER's bf16 batches": ("B,M,N,K", *["4,16,512,256"] * 3),
    "ckh": ("op,count,layers,dtype,layout,m,n,k,split_k", "gemm_universal,3,qkv,bf16,rcr,16,512,256,1"),
    "products": ("m,n,k,dtype,Count", "16,512,256,bf16,2", "16,512,256,bf16,1"),
    "convolutions": ("N,C,K,Hi,Wi,Y,X,count", "1,64,64,28,28,3,3,3"),
    "JSON of products": ('[{"m": 16, "n": 512, "k": 256, "count": 3}]',),
    "JSON of convolutions": ('[{"N": 1, "C": 64, "K": 64, "Hi": 28, "Wi": 28, "Y": 3, "X": 3, "count": 3}]',),
}


@pytest.mark.parametrize("source", TABLES)
def test_every_table_keeps_its_counts(source: str, tmp_path: Path) -> None:
    """Rows, or the calls that they state."""
    name = "bf16_untuned_batched_gemm.csv" if "batches" in source else "a.json" if "JSON" in source else "some.csv"
    assert list(counts(tmp_path, *TABLES[source], name=name).values()) == [3]


@pytest.mark.parametrize("count", ["0", "-1", "x", "2147483648"])
def test_a_row_of_an_impossible_count_is_left_out(count: str, tmp_path: Path) -> None:
    """The others keep theirs; without a count a problem runs once."""
    path = tmp_path / "some.csv"
    path.write_text(f"m,n,k,count\n16,16,16,{count}\n32,16,16,5\n64,16,16,\n", encoding="utf-8")
    found = shapes_of([str(path)])
    assert {item.problem.m: item.count for item in found.problems} == {32: 5, 64: 1}
    assert found.account.bad.total() == 1


def test_unsupported_rows_of_tunable_op_are_counted(tmp_path: Path) -> None:
    """The others are read."""
    path = tmp_path / "tunableop_results0.csv"
    kinds = ("tf32", "c10::complex<float>", "tf32", "BFloat16")
    rows = [f"GemmTunableOp_{kind}_TN,tn_1280_16_8192,Default,0.01\n" for kind in kinds]
    path.write_text("Validator,PT_VERSION,2.8.0\n" + "".join(rows), encoding="utf-8")
    shapes = shapes_of([str(path)])
    assert [item.problem.canonical() for item in shapes.problems] == ["gemm_bf16_rcr_m16_n1280_k8192_splitk1"]
    assert sorted(shapes.left_out.values()) == [1, 2]


def test_autotune_lines_of_inductor(tmp_path: Path) -> None:
    """Strides state the layout; without them it is rcr and the type is unknown; log prefixes are skipped."""
    path = tmp_path / "compile.log"
    path.write_text(
        "[rank0]: AUTOTUNE mm(16x8192, 8192x1280)\n[rank0]: strides: [8192, 1], [1, 8192]\n"
        "[rank0]: dtypes: torch.bfloat16, torch.bfloat16\n  mm 0.0210 ms 100.0%\n"
        "AUTOTUNE addmm(64x96, 64x32, 32x96)\nstrides: [0, 1], [1, 64], [96, 1]\n"
        "dtypes: torch.float16, torch.float16, torch.float16\n"
        "AUTOTUNE bmm(4x8x16, 4x16x32)\nstrides: [128, 16, 1], [512, 32, 1]\ndtypes: torch.float32, torch.float32\n"
        "AUTOTUNE scaled_mm(16x64, 64x128, 16x1, 1x128)\nstrides: [64, 1], [1, 64], [1, 1], [1, 1]\n"
        "dtypes: torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float32, torch.float32\n"
        "AUTOTUNE convolution(8x3x224x224, 64x3x7x7)\nAUTOTUNE mm(3x4, 4x5)\n",
        encoding="utf-8",
    )
    shapes = shapes_of([str(path)], RunOptions(default_dtype="fp16"))
    assert [item.problem.canonical() for item in shapes.problems] == [
        "gemm_bf16_rcr_m16_n1280_k8192_splitk1",
        "gemm_multi_d_fp16_crr_m64_n96_k32_add_v",
        "gemm_batched_fp32_rrr_b4_m8_n32_k16_splitk1",
        "aiter_gemm_a8w8_fp8_cu0_m16_n128_k64",
        "gemm_fp16_rcr_m3_n5_k4_splitk1",
    ]
    assert list(shapes.left_out.values()) == [1]


@pytest.mark.parametrize(
    ("line", "op"),
    [
        ("GemmAndBiasTunableOp_BFloat16_TN,tn_1280_16_8192_ld_8192_8192_1280,Gemm_Rocblas_1,0.02", "gemm_multi_d"),
        ("GemmTunableOp_BFloat16_TN,tn_1280_16_8192_ld_8192_8192_1280,Gemm_Rocblas_1,0.02", "gemm_universal"),
        (
            "hipblaslt-bench -m 1280 -n 16 -k 8192 --transA T --a_type bf16_r --bias_vector --b_type bf16_r",
            "gemm_multi_d",
        ),
        ("hipblaslt-bench -m 1280 -n 16 -k 8192 --transA T --a_type bf16_r --b_type bf16_r", "gemm_universal"),
        (
            "- { function: matmul, m: 1280, n: 16, k: 8192, r: bf16_r, bias_vector: true}",
            "gemm_multi_d",
        ),
        (
            "- { function: matmul, m: 1280, n: 16, k: 8192, r: bf16_r, bias_vector: false}",
            "gemm_universal",
        ),
        ("AUTOTUNE addmm(16x1280, 16x8192, 8192x1280) strides: [1280, 1], [8192, 1], [1, 8192]", "gemm_universal"),
    ],
)
def test_biases_of_logs(tmp_path: Path, line: str, op: str) -> None:
    """A vector that a library adds is a bias; a matrix is not."""
    path = tmp_path / "run.log"
    path.write_text(f"{line}\n", encoding="utf-8")
    ((own, m, n, k),) = {
        (item.op, item.problem.m, item.problem.n, item.problem.k) for item in shapes_of([str(path)]).problems
    }
    assert (own, m, n, k) == (op, 16, 1280, 8192)


def test_a_carriage_return_in_a_row_is_a_space(tmp_path: Path) -> None:
    """As of a log whose progress bar overwrites a line."""
    assert counts(tmp_path, RESULT[0], RESULT[1].replace(",8192", ",\r8192")) == {
        "gemm_fp8_rcr_m16_n8192_k1024_splitk1": 1
    }
