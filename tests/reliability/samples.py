"""Small valid files of every format that ckh reads, as input of the fuzzer."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ckh.archs import load_arch
from ckh.bench.planning.registry import write_registry
from ckh.data.journal import JournalWriter, KernelRecord, ResultRow
from ckh.data.rows import Origin, Pairs, Results, build_table, status_of
from ckh.data.tables import to_pandas
from ckh.files.paths import data_dir
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
FILES = Path(__file__).parent / "files"
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


def _files(name: str) -> list[bytes]:
    """The sample files of a format."""
    return [path.read_bytes() for path in sorted(FILES.glob(f"{name}-*"))]


@cache
def _table(name: str) -> Any:
    """An Arrow table of rows in `tables.json`."""
    import pyarrow as pa

    return pa.Table.from_pylist(json.loads((FILES / "tables.json").read_bytes())[name])


amd_csv = partial(_files, "amd_csv")
tile_engine_json = partial(_files, "tile_engine_json")
bench_log = partial(_files, "bench_log")
library_log = partial(_files, "library_log")
aiter_csv = partial(_files, "aiter_csv")
aiter_gemm_problem_files = partial(_files, "aiter_gemm_problem_files")
aiter_moe_problem_files = partial(_files, "aiter_moe_problem_files")
aiter_moe_csv = partial(_files, "aiter_moe_csv")
conv_problem_files = partial(_files, "conv_problem_files")
gemm_problem_files = partial(_files, "gemm_problem_files")
filters = partial(_files, "filters")
manifests = partial(_files, "manifests")
measured = partial(_files, "measured")
timed = partial(_files, "timed")
aiter_table = partial(_table, "aiter_table")
moe_table = partial(_table, "moe_table")


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


@cache
def registry() -> list[bytes]:
    """Four kernels of an architecture."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.json"
        write_registry(path, conv_pool(Direction.FORWARD, load_arch("gfx942"), 2, "fp16")[::60], arch="gfx942")
        return [path.read_bytes()]


@cache
def specs() -> list[bytes]:
    """The specs of the shipped models, with fewer features of the large ones, and AMD's of GEMMs."""
    ours = sorted(data_dir("models").glob("*/feature_spec.json"))
    return [path.read_bytes() for path in (*ours, *sorted(AMD_FILES.glob("gemm_*/feature_spec.json")))]


def learned() -> list[bytes]:
    """Tiles and variants in a model's training data."""
    return [path.read_bytes() for path in sorted(data_dir("models").glob("*/kernels.json"))]


def calibrations() -> list[bytes]:
    """Calibrations of two shipped models."""
    return [path.read_bytes() for path in sorted(data_dir("models").glob("*/calibration.json"))[:2]]


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
