"""Small valid files of every format that ckh reads, as input of the fuzzer."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ckh.archs import load_arch
from ckh.bench.planning.registry import write_registry
from ckh.data.journal import JournalWriter, KernelRecord, ResultRow
from ckh.data.rows import Origin, Pairs, Results, build_table, status_of
from ckh.data.tables import to_pandas
from ckh.files.paths import data_dir
from ckh.ops import operation
from ckh.ops.grouped_conv.amd_csv import AMD_COLUMNS
from ckh.ops.grouped_conv.kernel import amd_full_name, amd_short_name, kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import parse_conv_problem
from ckh.problems import Direction
from ckh.ranking.forest_file import encode
from ckh.ranking.lightgbm_text import parse_forest
from ckh.ranking.packed import pack
from ckh.schema import Resources, Status
from tests.runs import host_run

AMD_FILES = Path(__file__).parents[1] / "amd_files"
GEMM_NAME = "gemm_universal_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x64x32_2x2x1_32x32x16"
GEMM_SHORT = "gemm_universal_fp16_rcr_128x64x32_compv3_intrawave"
CONV_NAMES = tuple(map(kernel_name, conv_pool(Direction.FORWARD, load_arch("gfx942"), 2, "fp16")[::60]))
SHORT_NAMES = tuple(map(amd_short_name, conv_pool(Direction.FORWARD, load_arch("gfx942"), 2, "bf16")[::60]))
FULL_NAMES = tuple(map(amd_full_name, conv_pool(Direction.BWD_WEIGHT, load_arch("gfx942"), 3, "bf16")[::60]))
PROBLEMS = (
    "conv_forward_fp32_nhwgc_2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1",
    "conv_bwd_data_fp16_nhwgc_2d_n2_c32_k64_g2_i14x14_f1x1_s2x2_p0x0_d1x1",
    "conv_bwd_weight_bf16_ndhwgc_3d_n1_c8_k8_g1_i4x8x8_f3x3x3_s1x1x1_p1x1x1_d1x1x1",
)
AITER_GEMMS = ("aiter_gemm_a8w8_ck_int8_cu80_m16_n1280_k8192",)
AITER_MOES = (
    "aiter_moe_stage1_fp8_per_token_swiglu_cu80_t1_d6144_i384_e128_k4",
    "aiter_moe_both_fp8_per_token_swiglu_cu80_t2_d6144_i384_e128_k4",
)
GEMMS = ("gemm_fp16_rcr_m16_n4096_k4096_splitk1", "gemm_bf16_crr_m128_n256_k64_splitk4")
_HOST_POOL = conv_pool(Direction.FORWARD, load_arch("host"), dtype="fp32")
_HARDWARE = load_arch("gfx942").hardware.to_dict() | {"num_cus": 4}


@cache
def journal() -> list[bytes]:
    """Two runs of convolutions, with a failure, and compiler output."""
    run = host_run(_HARDWARE)
    known = Resources(**{field.name: 8 for field in dataclasses.fields(Resources)})
    names = [kernel_name(kernel) for kernel in _HOST_POOL[:3]]
    times = (0.5, 0.4, 0.01, (4e5, 5e5, 6e5), 2)
    with tempfile.TemporaryDirectory() as folder:
        writer = JournalWriter(Path(folder))
        writer.start_run(run)
        writer.add_kernels(
            [KernelRecord("run1", "hash1", "code1", known), KernelRecord("run1", "hash2", "code2", None)]
        )
        writer.add(ResultRow("run1", PROBLEMS[0], names[0], Status.OK, "", *times, source_hash="hash1"))
        writer.add(ResultRow("run1", PROBLEMS[0], names[1], Status.CRASH, "signal 11"))
        writer.start_run(dataclasses.replace(run, run_id="run2"))
        writer.add(ResultRow("run2", PROBLEMS[0], names[2], Status.OK, "", *times))
        writer.close()
        return [writer.path.read_bytes()]


@cache
def amd_csv() -> list[bytes]:
    """AMD's 24 columns, and the older 17, with both kinds of line ends."""
    row = (SHORT_NAMES[0], 0, 2, 64, 128, 2, 1, 28, 28, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0.5, 231.211008, 7)
    values = dict(zip(AMD_COLUMNS, row, strict=True))
    old = [name for name in AMD_COLUMNS if not name.startswith("dilation") and name not in _DEPTH]
    files = []
    for columns, end in ((AMD_COLUMNS, "\r\n"), (old, "\n")):
        rows = [values | {"kernel": name} for name in SHORT_NAMES[:3]] + [values | {"N": 4, "latency_ms": 0.7}]
        lines = [",".join(columns), *(",".join(str(row[name]) for name in columns) for row in rows)]
        files.append("".join(line + end for line in lines).encode())
    return files


_DEPTH = ("Di", "Z", "stride_d", "pad_d")


@cache
def tile_engine_json() -> list[bytes]:
    """A document with a good and a failed benchmark, and a bare list."""
    flags = dict.fromkeys(("pad_m", "pad_n", "pad_k", "persistent"), False)
    sizes = dict(zip(("tile_m", "tile_n", "tile_k", "warp_m", "warp_n", "warp_k"), (128, 64, 32, 2, 2, 1), strict=True))
    tile = {"warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16}
    words = {"dtype": "fp16", "layout": "rcr", "pipeline": "compv3", "epilogue": "cshuffle", "scheduler": "intrawave"}
    config: dict[str, Any] = {"name": GEMM_NAME, **words, **flags, **sizes, **tile}
    good = {"m": 256, "n": 512, "k": 1024, "avg_time_ms": 0.125, "tflops": 2.147483648, "is_valid": True, "error": None}
    failed = good | {"avg_time_ms": 0, "tflops": 0, "is_valid": False, "error": "Benchmark timeout", "n": 128}
    results = [{"kernel_config": config, "benchmarks": [{"kernel_name": GEMM_NAME, **item} for item in (good, failed)]}]
    short = [{"kernel_config": {**config, "name": GEMM_SHORT}, "benchmarks": [good]}]
    metadata = {"dtype": "fp16", "layout": "rcr", "num_kernels": 1, "warmup": 10}
    whole = {"metadata": metadata, "problem_sizes": [{"m": 256, "n": 512, "k": 1024}], "results": results}
    return [json.dumps(whole, indent=1).encode(), json.dumps(short).encode()]


def tile_engine_csv() -> list[bytes]:
    """AMD's sweep of GEMMs, as published."""
    return [(AMD_FILES / "sweep_results.csv").read_bytes()]


def master_csv() -> list[bytes]:
    """The fastest kernels of a coverage sweep, with and without the comment before the header."""
    content = (AMD_FILES / "master_results.csv").read_bytes()
    return [content, content.split(b"\n", 1)[1]]


def gemm_table() -> Any:
    """GEMMs as written to Parquet by AMD's scripts, without columns that are not read."""
    import pandas as pd
    import pyarrow as pa

    frame = pd.read_csv(AMD_FILES / "sweep_results.csv")
    names = {"kernel": "kernel_name", "M": "m", "N": "n", "K": "k", "tflops": "measured_tflops"}
    frame = frame.rename(columns=names)[[*names.values(), "latency_ms"]]
    return pa.Table.from_pandas(frame.assign(is_valid=True, split_k=1, dtype="fp16", arch="gfx942"))


def conv_table() -> Any:
    """Convolutions as written to Parquet by AMD's scripts, without columns that are not read."""
    import pandas as pd
    import pyarrow as pa

    frame = pd.read_csv(AMD_FILES / "training_data_forward_bf16_20.csv").rename(columns={"kernel": "kernel_name"})
    return pa.Table.from_pandas(frame.assign(block_size=16, is_valid=True, arch="gfx950"))


def bench_log() -> list[bytes]:
    """JSON objects between noise, with and without their own problem."""
    layouts = {"layout_a": "RowMajor", "layout_b": "ColumnMajor", "layout_c": "RowMajor"}
    problem = {"split_k": 1, "m": 16, "n": 4096, "k": 2048, "dtype_a": "fp16", **layouts}
    perf = {"latency(ms)": 0.12, "tflops(TFlops)": 2.24, "bandwidth(GB/s)": 3.0}
    whole = json.dumps({"name": GEMM_NAME, "problem": problem, "perf_result": perf}, indent=3)
    bare = json.dumps({"name": GEMM_NAME, "perf_result": perf})
    text = (
        f"noise {{ here\nShape 3: M=16 N=4096 K=2048 dtype=fp16 layout=rcr\n{whole}\n{bare}\n"
        f"Verification failed, skip kernel: {GEMM_NAME}\nbest kernel instance {{ x }}\n{bare}\n"
    )
    return [text.encode()]


@cache
def aiter_csv() -> list[bytes]:
    """A tuned table with the architecture, and one from before that column."""
    kernel = "a8w8_rowwise_256x16x64x512_16x16_1x1_32x8x1_32x8x1_1x16x1x16_4x4x1_1x1_intrawave_v3"
    columns = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops"
    rows = [f"gfx942,80,{m},1280,8192,torch.int8,ck,34,2,8.0,{kernel},41.94" for m in (16, 32)]
    new = "\r\n".join([columns, *rows]) + "\r\n"
    return [new.encode(), "\n".join(line.partition(",")[2] for line in new.splitlines()).encode()]


@cache
def aiter_table() -> Any:
    """The Arrow table of collected tables of AITER."""
    import pyarrow as pa

    kernel = "a8w8_rowwise_256x16x64x512_16x16_1x1_32x8x1_32x8x1_1x16x1x16_4x4x1_1x1_intrawave_v3"
    same = {"family": "a8w8", "gfx": "gfx942", "cus": 80, "N": 1280, "K": 8192, "q_dtype_w": "", "kernel": kernel}
    return pa.Table.from_pylist([same | {"M": m, "split_k": 0, "time_us": 5.0, "last": "2026"} for m in (16, 32)])


@cache
def fbgemm_table() -> Any:
    """The Arrow table of FBGEMM's dispatch."""
    import pyarrow as pa

    kernel = "fp8_rowwise_128x16x32x128_16x16_1x1_8x16x1_8x16x1_1x16x1x8_4x4x1_1x1_interwave_v2"
    same = {"op": "fp8_rowwise", "table": "shape", "n": 1280, "k": 8192, "kernel": kernel, "repo": "pytorch/FBGEMM"}
    return pa.Table.from_pylist([same | {"m": m, "last": "2025-08-26"} for m in (16, 32)])


@cache
def moe_table() -> Any:
    """The Arrow table of AITER's tuning of a mixture of experts."""
    import pyarrow as pa

    first = "moe_ck2stages_gemm1_256x{}x128x128_1x4_MulABScale_v3_Nswizzle0_Quant2_MulRoutedWeight0_swiglu_F8_F8_B16"
    second = (
        "moe_ck2stages_gemm2_256x{}x64x64_1x4_MulABScaleExpertWeight_v1_Nswizzle0_Quant2_MulRoutedWeight1_F8_F8_B16"
    )
    same = {"gfx": "gfx942", "cus": 80, "model_dim": 6144, "inter_dim": 384, "expert": 128, "topk": 4, "blob": "a"}
    same |= {"act_type": "ActivationType.Swiglu", "q_dtype_a": "torch.float8_e4m3fnuz", "q_type": "QuantType.per_Token"}
    rows = [
        same | {"library": "ck", "token": 16, "stage": stage, "kernel": name.format(block_m), "time_us": 10.0}
        for block_m in (16, 64)
        for stage, name in (("stage1", first), ("stage2", second))
    ]
    return pa.Table.from_pylist(rows)


def aiter_gemm_problem_files() -> list[bytes]:
    """A canonical text, and a miss in a log."""
    miss = (
        b"[aiter] shape is M:16, N:1280, K:8192 q_dtype_w:torch.int8, not found tuned config in "
        b"/tmp/aiter_configs/a8w8_tuned_gemm.csv, will use default config!\n"
    )
    return [AITER_GEMMS[0].encode() + b"\n" + miss]


def aiter_moe_problem_files() -> list[bytes]:
    """Canonical texts with a comment, and a line of a log."""
    key = "('gfx950', 256, 64, 7168, 256, 256, 8, <ActivationType.Silu: 1>, 'torch.bfloat16', 'torch.float8_e4m3fn', "
    key += "'torch.float8_e4m3fn', 'QuantType.per_1x128', True, False)"
    log = f"[aiter] [fused_moe] using 2stage default for {key} \n".encode()
    return [b"# mine\n" + "\n".join(AITER_MOES).encode() + b"\n", log]


def aiter_moe_csv() -> list[bytes]:
    """A tuned table of mixtures of experts, one that ckh predicted, and an untuned one."""
    fp4, names = "torch.float4_e2m1fn_x2", "64x32x32x128_1x1_{}_Nswizzle0_Quant3_MulRoutedWeight{}_FP4X2_FP4X2_B16"
    first = "moe_ck2stages_gemm1_" + names.format("MulABScaleShuffled_v3", "0_silu")
    second = "moe_ck2stages_gemm2_" + names.format("MulABScaleExpertWeightShuffled_v1", "1")
    key = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1"
    row = f"64,7168,256,256,8,ActivationType.Silu,torch.bfloat16,{fp4},{fp4},QuantType.per_1x32,1,0"
    choice = "block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw,_tag"
    chosen = f"32,0,60.5,{first},0.0%,40.25,{second},0.1%,100.75,0,1,2,"
    tuned = f"gfx,cu_num,{key},{choice}\ngfx950,256,{row},{chosen}\n"
    predicted = f"cu_num,{key},{choice},predicted\n256,{row},{chosen},1\n"
    return [tuned.encode(), predicted.encode(), f"{key}\n{row}\n".encode()]


@cache
def table() -> Any:
    """The Arrow table of a small dataset of ckh."""
    conv = parse_conv_problem(PROBLEMS[0])
    problems = [conv, dataclasses.replace(conv, n=2)]
    kernels = list(_HOST_POOL[:3])
    rows = np.arange(6)
    pairs = Pairs(problems, rows // 3, kernels, [kernel_name(kernel) for kernel in kernels], rows % 3, "grouped_conv")
    ok = rows != 4
    results = Results(status_of(ok, Status.CRASH), np.where(ok, 0.5 + rows, np.nan), {"spread": np.full(6, 0.01)})
    return build_table(pairs, results, Origin("host", "a CPU", load_arch("host").hardware.to_dict(), "run1"))


@cache
def parquet() -> list[bytes]:
    """A dataset with the digest of its rows."""
    from ckh.data.dataset import Dataset, write_dataset

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.parquet"
        write_dataset(Dataset(to_pandas(table())), path)
        return [path.read_bytes()]


def conv_problem_files() -> list[bytes]:
    """Text, CSV and JSON of convolutions."""
    sizes = {"N": 1, "C": 64, "K": 64, "G": 1, "Hi": 28, "Wi": 28, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
    deep = sizes | {"Di": 4, "Z": 3, "ndim": 3, "dtype": "fp16", "variant": "forward"}
    rows = "\n".join(",".join(map(str, {**sizes, "N": n}.values())) for n in (1, 2))
    return [
        ("# mine\n" + "\n".join(PROBLEMS[:1]) + "\n").encode(),
        (",".join(sizes) + "\n" + rows + "\n").encode(),
        json.dumps([sizes, deep, PROBLEMS[0]], indent=1).encode(),
    ]


def gemm_problem_files() -> list[bytes]:
    """Text, CSV and JSON of GEMMs."""
    item = {"m": 16, "n": 32, "k": 64, "split_k": 2, "dtype": "fp16", "layout": "rcr"}
    return [
        ("# mine\n" + "\n".join(GEMMS) + "\n").encode(),
        b'm,n,k,split_k,dtype,layout\n16,32,64,1,fp16,rcr\n"8",8,8,,,\n',
        json.dumps([item, {"M": 1, "N": 2, "K": 3}, GEMMS[0]]).encode(),
    ]


@cache
def registry() -> list[bytes]:
    """Four kernels of an architecture."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.json"
        write_registry(path, conv_pool(Direction.FORWARD, load_arch("gfx942"), 2, "fp16")[::60], arch="gfx942")
        return [path.read_bytes()]


def filters() -> list[bytes]:
    """Conditions of every kind."""
    return [
        b'pipeline == "compv4" and tile_m >= 64',
        b'not (dtype in ("fp16", "bf16") or 16 <= tile_n < 128) and double_smem_buffer',
        b"streamk != None or split_k == -1",
    ]


@cache
def specs() -> list[bytes]:
    """The specs of the shipped models, with fewer features of the large ones, and AMD's of GEMMs."""
    ours = sorted(data_dir("models").glob("*/feature_spec.json"))
    return [path.read_bytes() for path in (*ours, *sorted(AMD_FILES.glob("gemm_*/feature_spec.json")))]


def manifests() -> list[bytes]:
    """A manifest written by training."""
    ours = {"rank_objective": "lambdarank", "problems": ["a1", "b2"], "ensemble": 2, "seed": 42, "rows": 10}
    return [json.dumps({"ckh": ours, "params": {"num_leaves": 31, "learning_rate": 0.1}}, indent=1).encode()]


def measured() -> list[bytes]:
    """Training data of a model, as JSON: two problems of one kernel."""
    op = operation("grouped_conv")
    sizes = [name.lower() for name in op.problems.sizes]
    document = {
        "version": 1,
        "sizes": sizes,
        "limits": [[1, 8] for _ in sizes],
        "families": ["compv3"],
        "problems": ["a", "b"],
        "values": [[1 for _ in sizes], [8 for _ in sizes]],
        "best": [[0, 0.5], [0, 1.5]],
        "kernels": ["k"],
    }
    return [json.dumps(document).encode()]


def learned() -> list[bytes]:
    """Tiles and variants in a model's training data."""
    return [path.read_bytes() for path in sorted(data_dir("models").glob("*/kernels.json"))]


def calibrations() -> list[bytes]:
    """Calibrations of two shipped models."""
    return [path.read_bytes() for path in sorted(data_dir("models").glob("*/calibration.json"))[:2]]


def timed() -> list[bytes]:
    """Two kernels with known times, as JSON."""
    return [json.dumps({"version": 1, "arch": "gfx942", "kernels": list(FULL_NAMES[:2])}).encode()]


@cache
def lightgbm_text() -> list[bytes]:
    """Small forests, one with categories, and one gzipped."""
    import lightgbm

    random = np.random.default_rng(1)
    columns = np.column_stack([random.normal(size=400), random.integers(0, 6, 400), random.integers(0, 40, 400)])
    target = columns[:, 0] + (columns[:, 1] % 2) * 3 + (columns[:, 2] % 5)
    texts = []
    for categories in ([], [1, 2]):
        data = lightgbm.Dataset(columns, target, feature_name=["a", "b", "c"], categorical_feature=categories)
        params = {"num_leaves": 5, "verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, "max_cat_to_onehot": 1}
        texts.append(lightgbm.train(params, data, 3).model_to_string().encode())
    return [*texts, gzip.compress(texts[0], mtime=0)]


@cache
def packed_forest() -> list[bytes]:
    """Those forests packed."""
    return [encode(pack(parse_forest(text.decode()))) for text in lightgbm_text()[:2]]


@cache
def prepared_answers() -> list[bytes]:
    """The model file of a prepared answer, of a small model and one kind of problems."""
    from ckh.export.groups import exported, group_of
    from ckh.export.programs import model_content
    from ckh.learn.models.artifact import load_model
    from tests.learn.conftest import saved

    with tempfile.TemporaryDirectory() as folder:
        model = load_model(saved(Path(folder) / "small"))
        group = group_of(model, parse_conv_problem(PROBLEMS[0]))
        return [model_content(model, "small", exported(model.spec.op_type).kind, [group]).content]


def archs() -> list[bytes]:
    """The files of the architectures."""
    folder = data_dir("archspecs")
    return [path.read_bytes() for path in sorted(folder.glob("*.json")) if path.stem != "common"]


def archs_common() -> list[bytes]:
    """Rules common to all architectures."""
    return [(data_dir("archspecs") / "common.json").read_bytes()]


def lines(*texts: str) -> list[bytes]:
    """Texts as samples."""
    return [text.encode() for text in texts]


def as_parquet(changed: Any) -> bytes:
    """An Arrow table as a Parquet file."""
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(changed, file)
    return file.getvalue()


def gemm_names() -> list[bytes]:
    """A complete name, with vector widths too, and a short one."""
    return lines(GEMM_NAME, f"{GEMM_NAME}_vec4_4_8", GEMM_SHORT)
