"""Shapes in logs and profiles."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

import ckh.shapes
from ckh.errors import CkhError, DataError, UsageError
from ckh.shapes import logs as reading
from ckh.shapes.layers import Matmul, RunOptions
from ckh.shapes.log_lines import kernel_row
from ckh.shapes.problems import shapes_of, stated_operation
from tests.refusals import expect_refusal

FILES = Path(__file__).parent / "files"
DRIVER = "./bin/MIOpenDriver convfp16 -n {n} -c 64 -H 56 -W 56 -k {k} -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -F 1\n"


def counts(name: str) -> dict[str, int]:
    """Canonical text -> count of a file's problems."""
    return {item.problem.canonical(): item.count for item in ckh.shapes.read(str(FILES / name))}


def test_miopen() -> None:
    """Convolutions of MIOpenDriver lines count, except those of a solver search, in 2D and 3D."""
    assert counts("miopen.log") == {
        "conv_forward_fp32_nhwgc_2d_n128_c3_k64_g1_i32x32_f3x3_s1x1_p1x1_d1x1": 2,
        "conv_forward_bf16_ndhwgc_3d_n1_c16_k16_g1_i5x104x60_f1x1x1_s1x1x1_p0x0x0_d1x1x1": 1,
        "conv_bwd_data_bf16_nhwgc_2d_n8_c128_k128_g1_i32x32_f3x3_s1x1_p1x1_d1x1": 1,
    }


def test_all_directions_of_a_driver_line(tmp_path: Path) -> None:
    """-F 0 is all three directions, 6 both backward ones."""
    path = tmp_path / "driver.txt"
    for flag, directions in (("0", ["forward", "bwd_data", "bwd_weight"]), ("6", ["bwd_data", "bwd_weight"])):
        path.write_text(DRIVER.format(n=1, k=64).replace("-F 1", f"-F {flag}"), encoding="utf-8")
        assert [str(item.problem.variant) for item in ckh.shapes.read(str(path))] == directions


def test_blas_benches() -> None:
    """Column-major products become row-major: m and n are swapped, transA determines the layout of B."""
    assert counts("blas.log") == {
        "gemm_bf16_rcr_m1_n10240_k8192_splitk1": 2,
        "gemm_bf16_crr_m176_n48_k1024_splitk1": 1,
        "gemm_bf16_rcr_m512_n2048_k67_splitk1": 1,
        "gemm_batched_fp16_rrr_b512_m3_n64_k3_splitk1": 1,
    }


def test_tunable_op() -> None:
    """PyTorch's untuned files have the same convention; a scaled product is one of AITER's."""
    assert counts("tunableop_untuned0.csv") == {
        "gemm_bf16_rcr_m16_n1536_k7168_splitk1": 1,
        "gemm_bf16_crr_m4149_n5120_k17408_splitk1": 1,
        "aiter_gemm_a8w8_fp8_cu0_m12288_n64_k2048": 1,
        "gemm_batched_fp16_rrr_b12_m128_n64_k256_splitk1": 1,
    }


def test_server_log() -> None:
    """AITER's misses in tables with kernels of ckh, in bf16 and of experts, and vLLM's files."""
    shapes = shapes_of([str(FILES / "server.log")], RunOptions(tokens=(1, 64), times=(5, 1)))
    counts = {problem.problem.canonical(): problem.count for problem in shapes.problems}
    assert counts["aiter_gemm_a8w8_blockscale_fp8_cu0_m1_n6144_k2048"] == 5
    shapes = shapes_of([str(FILES / "server.log")], RunOptions(tokens=(1, 64)))
    assert [problem.problem.canonical() for problem in shapes.problems] == [
        "aiter_gemm_a8w8_int8_cu0_m64_n16384_k5120",
        "gemm_bf16_rcr_m64_n7168_k2048_splitk1",
        "gemm_bf16_rcr_m16_n4096_k4096_splitk1",
        "aiter_moe_both_fp8_per_1x128_silu_cu80_t4096_d4096_i384_e289_k9",
        "aiter_gemm_a8w8_blockscale_fp8_cu0_m1_n6144_k2048",
        "aiter_gemm_a8w8_blockscale_fp8_cu0_m64_n6144_k2048",
        "gemm_batched_bf16_rcr_b16_m1_n1280_k8192_splitk1",
    ]
    assert shapes.problems[-1].count == 1
    assert shapes.left_out == {"swiglustep": 1}


def test_profile() -> None:
    """Kernels of a profile whose name states M, N and K count by their calls; tiles are not sizes."""
    shapes = shapes_of([str(FILES / "results.stats.csv")])
    assert [(problem.problem.canonical(), problem.count) for problem in shapes.problems] == [
        ("gemm_bf16_rcr_m64_n7168_k2048_splitk1", 61)
    ]
    assert sum(shapes.left_out.values()) == 2


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mm_kernel_bf16_M64_N7168_K2048", (64, 7168, 2048, "bf16")),
        ("gemm_fp8_m16n1536k7168_v2", None),
        ("gemm_m16_n1536_k7168_fp8", (16, 1536, 7168, "fp8")),
        ("_gemm_a16_w16_kernel_BLOCK_SIZE_M_64_BLOCK_SIZE_N_64_BLOCK_SIZE_K_64", None),
        ("kernel_tile_m128_n128_k64", None),
        ("kernel_Block_M128_N128_K64_M4096_N4096_K4096_f16", (4096, 4096, 4096, "fp16")),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x96x64_MI16x16x1", None),
    ],
)
def test_names_of_kernels(name: str, sizes: tuple[object, ...] | None) -> None:
    """M, N and K of a product are parsed, those of a tile are not."""
    if sizes is None:
        with expect_refusal(UsageError, "unsupported"):
            list(kernel_row({"Kernel_Name": name}))
    else:
        (stated,) = kernel_row({"Kernel_Name": name, "Calls": "3"})
        assert (stated.shape, stated.name, stated.count) == (Matmul(*sizes), name, 3)  # type: ignore[arg-type]


def test_untuned_table_of_aiter() -> None:
    """AITER's own list of DeepSeek-V3 has four weights for 16 or 17 numbers of tokens."""
    result = ckh.shapes.read(str(FILES / "a8w8_blockscale_untuned_gemm_ds_v3.csv"))
    assert len(result) == 67
    assert {(item.op, item.problem.family) for item in result} == {("aiter_gemm", "a8w8_blockscale")}
    assert {(item.problem.n, item.problem.k) for item in result} == {
        (2112, 7168),
        (3072, 1536),
        (4096, 512),
        (7168, 2048),
    }


def test_canonical_texts(tmp_path: Path) -> None:
    """Lines that begin with a problem count, also of several operations in one file."""
    path = tmp_path / "some.txt"
    texts = ["gemm_bf16_rcr_m1_n2_k3_splitk1", "aiter_gemm_a8w8_fp8_cu0_m1_n2_k3", "gemm_bf16_rcr_m1_n2_k3_splitk1"]
    path.write_text("# problems\n" + "\n".join(texts) + "\ngemm_layers: 3\n", encoding="utf-8")
    assert [(item.op, item.count) for item in ckh.shapes.read(str(path))] == [("gemm_universal", 2), ("aiter_gemm", 1)]


def test_bad_rows_of_a_problem_file(tmp_path: Path) -> None:
    """Sizes of 0 and 2^40 are refused, by the operation of the columns: left out, or refused if strict."""
    path = tmp_path / "gemms.csv"
    path.write_text("M,N,K\n0,5,6\n16,32,64\n4,5,1099511627776\n8,32,64\n", encoding="utf-8")
    with expect_refusal(CkhError, "out-of-range", f"{path}:2"):
        shapes_of([str(path)], RunOptions(strict=True))
    shapes = shapes_of([str(path)])
    assert [(problem.problem.m, problem.problem.n, problem.problem.k) for problem in shapes.problems] == [
        (16, 32, 64),
        (8, 32, 64),
    ]
    assert sorted(shapes.account.bad.values()) == [1, 1]
    path.write_text("colour,size\nred,1\n", encoding="utf-8")
    with expect_refusal(CkhError, "bad-header"):
        shapes_of([str(path)], RunOptions())


def test_canonical_text_as_a_source() -> None:
    """Several are given as several sources; an impossible one is refused."""
    text = "gemm_bf16_rcr_m128_n1536_k7168_splitk1"
    (result,) = ckh.shapes.read(text)
    assert (result.problem.canonical(), result.op, result.count) == (text, "gemm_universal", 1)
    assert len(ckh.shapes.read(text, text.replace("m128", "m16"))) == 2
    with expect_refusal(DataError, "out-of-range", "m0_n1536"):
        ckh.shapes.read(text.replace("m128", "m0"))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (DRIVER.format(n=0, k=64), "out-of-range"),
        (DRIVER.format(n=1, k=2**40), "out-of-range"),
        (DRIVER.format(n=1, k="many"), "bad-number"),
        (DRIVER.format(n=1, k=64).replace("-y 3", "-y 99"), "impossible-problem"),
        ("GemmTunableOp_BFloat16_TN,tn_0_16_7168_ld_1_1_1\n", "out-of-range"),
        ("hipblaslt-bench -m 4 -n 4 --transA T --transB N --a_type bf16_r --b_type bf16_r\n", "missing-field"),
        ("[aiter] shape is M:1099511627776, N:4, K:4, not found tuned config in a8w8_tuned_gemm.csv\n", "out-of-range"),
        ("[aiter] [fused_moe] using 2stage default for (304, 1, 4096, 1536, 256, 6)\n", "bad-row"),
        ("gemm_bf16_rcr_m0_n2_k3_splitk1\n", "out-of-range"),
        (f"32-64-{'9' * 5000}-3x3-48-64-64-8-1x1-1x1-1x1-0-NCHW-FP16-F\n", "bad-row"),
        ("AUTOTUNE mm(16, 8192x1280)\n", "bad-row"),
    ],
)
def test_bad_lines(tmp_path: Path, line: str, code: str) -> None:
    """A line with an invalid shape is left out; if strict, it is refused with its number."""
    path = tmp_path / "some.log"
    path.write_text("hello\n" + line + DRIVER.format(n=1, k=64), encoding="utf-8")
    with expect_refusal(DataError, code, f"{path}:2"):
        ckh.shapes.read(str(path), strict=True)
    shapes = shapes_of([str(path)], RunOptions())
    assert [problem.problem.k for problem in shapes.problems] == [64]
    assert sum(shapes.account.bad.values()) == 1


@pytest.mark.parametrize(
    ("options", "variant", "more"),
    [
        ("-F 1", "bwd_data", (0, 0)),
        ("-F 2 -Y 1 -X 0", "forward", (1, 0)),
        ("-F 4 --trans_output_pad_w 2", "bwd_weight", (0, 2)),
    ],
)
def test_transposed_convolutions(tmp_path: Path, options: str, variant: str, more: tuple[int, int]) -> None:
    """-m trans is the convolution in the other direction, with MIOpen's output as the image, and C and K exchanged."""
    path = tmp_path / "some.log"
    driver = "MIOpenDriver conv -n 2 -c 6 -k 4 -g 2 -H 8 -W 7 -y 4 -x 2 -p 1 -q 1 -u 2 -v 3 -m trans"
    path.write_text(f"{driver} {options}\n", encoding="utf-8")
    (result,) = ckh.shapes.read(str(path))
    conv = result.problem
    assert (str(conv.variant), conv.n, conv.c, conv.k, conv.g, conv.ho, conv.wo) == (variant, 2, 4, 6, 2, 8, 7)
    assert (conv.hi, conv.wi) == (2 * 7 + 3 + 1 - 2 + more[0], 3 * 6 + 1 + 1 - 2 + more[1])  # as MIOpen computes them


@pytest.mark.parametrize(
    "line",
    [
        DRIVER.format(n=1, k=64).replace("-F 1", "-F 1 -m other"),
        DRIVER.format(n=1, k=64).replace("convfp16", "convint4"),
        "Config file not found at /c/E=256,N=256,device_name=AMD_Instinct_MI300X.json\n",
        "./rocblas-bench -f axpy_ex -n 100\n",
        "./rocblas-bench -f gemm -r f32_c -m 4 -n 4 -k 4\n",
        "hipblaslt-bench -m 4 -n 4 -k 4 --transA T --transB N --a_type f8_r --b_type bf8_r\n",
        "hipblaslt-bench -m 4 -n 4 -k 4 --a_type f8_r --b_type f8_r --scaleA 9\n",
        "GemmTunableOp_tf32_TN,tn_8_16_32,Default,0.0123\n",
        "GemmTunableOp_c10::complex<float>_TN,tn_1_16_7168_ld_1_1_1\n",
        "ckProfiler batched_gemm 1 1 0 0 0 1 64 64 64 64 64 64 2\n",
        "ckProfiler grouped_conv_fwd 9 1 0 0 1 0 1 2 4 32 64 48 3 3 28 28 1 1 1 1 1 1 1 1\n",
        "AUTOTUNE convolution(8x3x224x224, 64x3x7x7)\n",
    ],
)
def test_unsupported_operators(tmp_path: Path, line: str) -> None:
    """Convolutions of other modes and of int4, complex products and others are counted, and are not errors."""
    path = tmp_path / "some.log"
    path.write_text(2 * line + DRIVER.format(n=1, k=64), encoding="utf-8")
    shapes = shapes_of([str(path)])
    assert len(shapes.problems) == 1
    assert list(shapes.left_out.values()) == [2]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_every_line_of_a_log_is_accounted_for(tmp_path: Path, seed: int) -> None:
    """Any mixture of statements, of which one has three lines, of bad and unsupported ones, and of other lines."""
    block = "AUTOTUNE mm(16x8192, 8192x1280)\nstrides: [8192, 1], [1, 8192]\ndtypes: torch.bfloat16, torch.bfloat16\n"
    unsupported, bad = "AUTOTUNE convolution(8x3x224x224, 64x3x7x7)\n", "AUTOTUNE mm(16, 8192x1280)\n"
    lines = [DRIVER.format(n=1, k=64), DRIVER.format(n=2, k=64), block, unsupported, bad, "step 3: loss 0.25\n", "\n"]
    drawn = [DRIVER.format(n=1, k=64), *random.Random(seed).choices(lines, k=60)]
    path = tmp_path / "a.log"
    path.write_text("".join(drawn), encoding="utf-8")
    account = shapes_of([str(path)]).account
    assert account.used == sum("MIOpenDriver" in text or text == block for text in drawn)
    assert account.known.total() == drawn.count(unsupported)
    assert account.bad.total() == drawn.count(bad)
    assert account.total == "".join(drawn).count("\n")


def test_a_million_lines_take_constant_memory(tmp_path: Path) -> None:
    """Memory grows with distinct shapes: a hundred thousand lines take less than 4 MB."""
    path = tmp_path / "long.log"
    noise = "INFO 11-26 engine.py: 4321 tokens/s\n" * 9
    lines = (noise + DRIVER.format(n=1 + number % 8, k=64) for number in range(10_000))
    path.write_text("".join(lines), encoding="utf-8")
    ckh.shapes.read(str(FILES / "miopen.log"))  # imports
    tracemalloc.start()
    result = ckh.shapes.read(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [item.count for item in result] == [1250] * 8
    assert peak < 4e6


def test_an_endless_line_takes_constant_memory(tmp_path: Path) -> None:
    """Only the beginning of a line of 40 MB is read."""
    path = tmp_path / "wide.log"
    line = DRIVER.format(n=1, k=64).strip().encode()
    path.write_bytes(line + b" x" * 20_000_000 + line)
    tracemalloc.start()
    assert [item.count for item in ckh.shapes.read(str(path))] == [1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6


def test_too_many_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log with more distinct shapes than any model has is refused, also when skipping bad lines."""
    monkeypatch.setattr(reading, "MAX_SHAPES", 5)
    path = tmp_path / "some.log"
    path.write_text("".join(DRIVER.format(n=1, k=number) for number in range(1, 9)), encoding="utf-8")
    with expect_refusal(DataError, "too-large", f"{path}:6"):
        ckh.shapes.read(str(path))


@pytest.mark.parametrize(("content", "code"), [("", "empty"), ("nothing here\n", "no-problems")])
def test_files_without_shapes(tmp_path: Path, content: str, code: str) -> None:
    """An empty file and a log without shapes are refused."""
    path = tmp_path / "some.log"
    path.write_text(content, encoding="utf-8")
    with expect_refusal(CkhError, code, path):
        ckh.shapes.read(str(path))


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.iterdir()))
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    """Files with changed, missing or added bytes are read or refused in one line; nothing crashes."""
    draw, path, whole = random.Random(name), tmp_path / name, (FILES / name).read_bytes()
    strange = (b"999999999999999999999", b"-1", b"\n", b",", b'"', b"'", b"--", b"\x1c", b"\xa4", b"MIOpenDriver conv")
    messages: list[str] = []
    for _ in range(150):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 6)):
            place = draw.randrange(len(content))
            length = draw.choice((0, 0, 1, 20))
            content[place : place + length] = draw.choice(strange)
        path.write_bytes(bytes(content))
        try:
            shapes_of([str(path)], RunOptions(strict=draw.random() < 0.5))
        except CkhError as error:
            messages.append(error.message + error.hint)
    assert not any("\n" in message for message in messages)


@pytest.mark.parametrize(
    ("options", "pads", "outputs"),
    [
        ("-H 57 -W 57 -y 3 -x 4 -p 0 -q 3 -u 1 -v 2", (0, 3), (55, 30)),
        ("-H 57 -W 57 -y 3 -x 4 -p 0 -q 3 -u 1 -v 2 -z same", (1, 1), (57, 28)),
        ("-H 57 -W 57 -y 3 -x 4 -p 0 -q 3 -u 1 -v 2 --pad_mode valid", (0, 0), (55, 27)),
        ("-H 57 -W 57 -y 3 -x 3 -p 0 -q 3 -u 1 -v 2 -l 2 -j 2 -z same", (0, 3), (53, 30)),
    ],
)
def test_padding_modes_of_the_driver(
    tmp_path: Path, options: str, pads: tuple[int, int], outputs: tuple[int, int]
) -> None:
    """-z same and valid replace the stated padding as MIOpenDriver does, unless the filter is dilated."""
    path = tmp_path / "driver.txt"
    path.write_text(f"MIOpenDriver convfp16 -n 1 -c 64 -k 8 -F 1 {options}\n", encoding="utf-8")
    (result,) = (item.problem for item in ckh.shapes.read(str(path)))
    assert ((result.pad_h, result.pad_w), (result.ho, result.wo)) == (pads, outputs)


def test_other_types_of_products(tmp_path: Path) -> None:
    """Weights alone, other blocks of scales, and operands of two types are left out, not read as another type."""
    path = tmp_path / "server.log"
    vllm = "Config file not found at /c/N=6144,K=2048,device_name=AMD_Instinct_MI300X,dtype={}.json\n"
    tunable = "ScaledGemmTunableOp_Float8_e4m3fn_{}_BFloat16_TN,tn_16_32_64_ld_64_64_16,x\n"
    kinds = ("int8_w8a16", "fp8_w8a8,block_shape=[64,64]", "fp8_w8a8,block_shape=[128,128]", "fp8_w8a8")
    lines = [*map(vllm.format, kinds), tunable.format("Float8_e5m2"), tunable.format("Float8_e4m3fn")]
    path.write_text("".join(lines), encoding="utf-8")
    shapes = shapes_of([str(path)], RunOptions(tokens=(1,)))
    assert [(item.problem.family, item.problem.dtype, item.count) for item in shapes.problems] == [
        ("a8w8_blockscale", "fp8", 1),
        ("a8w8", "fp8", 1),
        ("a8w8", "fp8", 1),
    ]
    assert sum(shapes.left_out.values()) == 3


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("m,n,k\n128,256,512\n", "gemm_universal"),
        ("m,n,k\n128,-256,512\n", "gemm_universal"),  # so that the error is of its row
        ("N,C,K,Hi,Wi,Y,X\n1,64,64,28,28,3,3\n", "grouped_conv"),
        ("a,b\n1,2\n", None),
    ],
)
def test_columns_state_the_operation(text: str, op: str | None, tmp_path: Path) -> None:
    """For commands without --op, of a problem file."""
    path = tmp_path / "problems.csv"
    path.write_text(text, encoding="utf-8")
    assert stated_operation(str(path)) == op
