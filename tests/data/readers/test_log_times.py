"""Times in logs of AMD's tools: those of CK Tile's kernels are measurements, the others are named and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ckh.shapes
from ckh.data.formats import ReadOptions
from ckh.data.readers import find_reader, read_input
from ckh.errors import DataError, UsageError
from tests.refusals import expect_refusal
from tests.reliability import samples

if TYPE_CHECKING:
    from pathlib import Path

GFX942 = ReadOptions(arch="gfx942")
PROFILED = "ckProfiler grouped_conv_bwd_weight_tile 2 1 0 1 1 0 1 2 2 8 16 32 3 3 14 14 1 1 1 1 1 1 1 1"
WEIGHT = (
    "GroupedConvolutionBackwardWeightKernel<2,Default,NHWGC,GKYXC,EmptyTuple,NHWGK,8,8,2,1,0,0,64,64,64,2,2,1,16,16,16,"
    "bf16,bf16,MEMORY,Intrawave,0,1,fp32,bf16,EmptyTuple,PassThrough,0,0,0>"
)


def log(tmp_path: Path, *lines: str) -> Path:
    """A log of these lines."""
    path = tmp_path / "profiler.log"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_exact_times(tmp_path: Path) -> None:
    """Of CK Tile's kernels with each split, their channels per group; repeated ones are rows of their own."""
    times = (f"Perf: 0.25 ms, 1.5 TFlops, 2 GB/s, {WEIGHT}, SplitK {{}}".format(split) for split in (1, 4, 4))
    reading = read_input(log(tmp_path, PROFILED, *times), GFX942)
    columns = ("kernel", "variant", "dtype", "G", "N", "K", "C", "Hi", "pad_h", "latency_ms", "arch", "status")
    name = "grouped_conv_bwd_weight_bf16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_2x2x1_16x16x16_vec8_8_2_bpc2"
    same = ("bwd_weight", "bf16", 2, 8, 32, 64, 14, 1, 0.25, "gfx942", "ok")
    assert [tuple(row[column] for column in columns) for row in reading.rows.table().to_pylist()] == [
        (name, *same),
        (f"{name}_splitk4", *same),
        (f"{name}_splitk4", *same),
    ]
    assert reading.repeats
    assert reading.sources[0]["format"] == "library-log"


def test_other_kernels_are_named_and_counted(tmp_path: Path) -> None:
    """Of a log of several tools: two of CK Tile's kernels, and nine of others, none of which is a row."""
    path = log(tmp_path, *samples.library_log()[0].decode().splitlines())
    reading = read_input(path, GFX942)
    assert sorted(row["latency_ms"] for row in reading.rows.table().to_pylist()) == [0.0444, 0.0512]
    named = (
        *("direct_tile_conv_16c", "DeviceGemmXdlUniversal", "ConvHipImplicitGemmGroupFwdXdlops", "ConvAsm1x1U"),
        *("ConvHipImplicitGemmGroupBwdXdlops", "hipblaslt", "mm", "triton_mm_4", "Gemm_Hipblaslt_1234"),
    )
    assert {reason.split(",")[0]: count for reason, count in reading.account.known.items()} == {
        f"of {name}": 1 for name in named
    }
    assert reading.account.total == path.read_text(encoding="utf-8").count("\n")


def test_shapes_have_the_least_time(tmp_path: Path) -> None:
    """With the name of the kernel, solver or library, also of a list that was written; a perf-db has no times."""
    path = log(tmp_path, *samples.library_log()[0].decode().splitlines())
    shapes = ckh.shapes.read(str(path))
    times = sorted((item.time.ms, item.time.name) for item in shapes if item.time is not None)
    ms, name = times.pop()
    assert (ms, name.startswith("GroupedConvolutionForwardKernel<2,Default,")) == (0.0444, True)
    assert times == [
        (0.0079, "hipblaslt"),
        (0.0123, "Gemm_Hipblaslt_1234"),
        (0.02, "ConvAsm1x1U"),
        (0.021, "mm"),
        (0.027538, "ConvHipImplicitGemmGroupFwdXdlops"),
        (0.0312, "DeviceGemmXdlUniversal<MNKPadding, RCR> BlkSize: 256, BlkTile: 16x128x256, WaveTile: 16x16_splitk4"),
        (0.037538, "ConvHipImplicitGemmGroupBwdXdlops"),
    ]
    assert [item.problem.n for item in shapes if item.time is None and item.op == "grouped_conv"] == [8, 32]
    (tmp_path / "shapes.csv").write_text(ckh.shapes.tables.table_text(shapes), encoding="utf-8")
    again = ckh.shapes.read(str(tmp_path / "shapes.csv"))
    assert [(item.problem, item.count, item.time) for item in again] == [
        (item.problem, item.count, item.time) for item in shapes
    ]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((PROFILED, "name: DeviceGroupedConvBwdWeight_Xdl<64, 32>", "avg_time: 0.5"), "DeviceGroupedConvBwdWeight_Xdl"),
        ((PROFILED,), "no time"),
        ((PROFILED.replace("weight", "data"), f"Perf: 0.25 ms, {WEIGHT}"), "bwd_weight"),
        (
            (PROFILED, f"Perf: 0.25 ms, {WEIGHT.replace('PassThrough', 'Relu')}"),
            "GroupedConvolutionBackwardWeightKernel",
        ),
    ],
)
def test_a_log_without_a_measurement_is_refused(lines: tuple[str, ...], words: str, tmp_path: Path) -> None:
    """In one sentence with what it has: kernels of others, no time, a kernel of another direction, a fused kernel."""
    path = log(tmp_path, *lines)
    assert find_reader(path).name == "library-log"
    with expect_refusal(DataError, "not-measured", words):
        read_input(path, GFX942)
    with expect_refusal(UsageError, "unknown-hardware"):
        read_input(log(tmp_path, PROFILED, f"Perf: 0.25 ms, {WEIGHT}"), ReadOptions())


def test_results_of_ckprofiler_without_problems_are_counted(tmp_path: Path) -> None:
    """Names of its CSV state no padding, strides and element type: one sentence with their number."""
    path = tmp_path / "results.csv"
    rows = ['M01_g1_n42_c128_H120_W160_k128_y3,0.41,580.0,1007.7,"DeviceGroupedConvBwdWeight_Wmma<512; 128>"\n'] * 2
    path.write_text("name,avg_time_ms,tflops,gbs,instance\n" + "".join(rows), encoding="utf-8")
    with expect_refusal(DataError, "no-problems", "2 results"):
        ckh.shapes.read(str(path))
    with expect_refusal(DataError, "not-measured", "2 results"):
        read_input(path, GFX942)
