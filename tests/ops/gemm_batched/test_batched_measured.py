"""Batched matrix products computed: operands, host kernels, sources for AMD GPUs, and execution on the emulated GPU."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from ckh.archs import load_arch
from ckh.bench.codegen.ck_tile import template_dir
from ckh.bench.codegen.unit import UnsupportedKernelError, unit_source
from ckh.bench.compilation.kernel_cache import loadable
from ckh.bench.computation import Role
from ckh.bench.isolated.kernel_library import KernelLibrary
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode
from ckh.kernels.judging import judge_table
from ckh.kernels.table import KernelTable
from ckh.ops.gemm_batched.measured import HIP, MEASURED, c_batched_problem, loop_end_problems, multiply_batch, operands
from ckh.ops.gemm_batched.operation import POOLS, GemmBatchedKernel, parse_batched_kernel
from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from tests.bench.codegen.gemm_headers import CURRENT, LATE_2025, MID_2025
from tests.real import Real, compiles

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders

ARCH = load_arch("gfx942")
GAPS = {"lda": 40, "ldb": 48, "ldc": 36, "batch_stride_a": 2000, "batch_stride_b": 1900, "batch_stride_c": 1800}
EMITTED = "gemm_batched_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_32x32x16"
NAME = "gemm_batched_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_32x32x32_2x2x1_16x16x32"


@pytest.mark.parametrize("layout", GEMM_LAYOUTS)
@pytest.mark.parametrize("gaps", [{}, GAPS])
def test_operands_are_the_matrices_of_a_batch(layout: str, gaps: dict[str, int]) -> None:
    """Elements lie where layout, leading dimension and batch stride say, and C is the sum of products."""
    problem = GemmBatchedProblem(24, 32, 16, "fp32", layout, batch=3, **gaps)
    random = np.random.default_rng(1)
    memory, tensors = [], []
    for operand, stride, leading in zip(operands(problem), problem.batch_strides, problem.leading, strict=True):
        assert operand.role is (Role.OUTPUT if operand.name == "c" else Role.INPUT)
        assert (operand.strides is None) == (not gaps)
        strides = operand.strides or (stride, leading, 1)
        assert strides == (stride, leading, 1)
        memory.append(random.standard_normal(10_000).astype(np.float32))
        tensors.append(as_strided(memory[-1], operand.shape, [4 * stride for stride in strides]))
    result = multiply_batch(problem, *tensors[:2])
    shapes = (problem.a_shape, problem.b_shape)
    places = zip(memory, layout, problem.leading, problem.batch_strides, shapes, strict=False)
    a, b = (
        np.array(
            [
                [[values[at + (r * ld + c if letter == "r" else c * ld + r)] for c in range(n)] for r in range(m)]
                for at in (0, stride, 2 * stride)
            ]
        )
        for values, letter, ld, stride, (m, n) in places
    )
    np.testing.assert_allclose(result, a @ b, rtol=1e-4, atol=1e-4)


def test_the_structure_of_kernels() -> None:
    """Eleven 64-bit integers, those of one product first; distances are never 0."""
    problem = GemmBatchedProblem(24, 32, 16, "fp16", "crr", split_k=2, batch=3, ldb=48)
    words = np.frombuffer(bytes(c_batched_problem(problem)), np.int64)
    assert words.tolist() == [24, 32, 16, 2, 3, 24, 48, 32, 24 * 16, 16 * 48, 24 * 32]
    assert ctypes.sizeof(c_batched_problem(problem)) == 88


def test_loop_ends_have_every_batch_dense_and_with_gaps() -> None:
    """One to three products, each dense and with gaps, over all numbers of steps; gaps are whole vectors."""
    kernel = parse_batched_kernel(NAME)
    result = loop_end_problems(kernel)
    assert {(problem.batch, problem.ldc > 0) for problem in result} == {
        (n, gaps) for n in (1, 2, 3) for gaps in (False, True)
    }
    assert {problem.k // 32 for problem in result if problem.k % 32 == 0 and problem.split_k == 1} >= set(range(1, 7))
    assert {problem.split_k for problem in result} == {1, 2, 3}
    padded = replace(kernel, pad_m=True, pad_n=True, pad_k=True)
    assert [reason for problem in loop_end_problems(padded) for reason in MEASURED.reasons(padded, ARCH, problem)] == []


def headers_in(
    folder: Path, like: GemmHeaders, text: str = "struct BatchedGemmHostArgs : UniversalGemmHostArgs<>"
) -> GemmHeaders:
    """Headers like these whose batched kernel has this text."""
    path = folder / "ck_tile/ops/gemm/kernel/batched_gemm_kernel.hpp"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return replace(like, common=replace(like.common, include=folder))


@pytest.mark.parametrize("like", [MID_2025, LATE_2025])
def test_sources(like: GemmHeaders, tmp_path: Path) -> None:
    """A source has the kernel's name and parameters, and includes the batched launch after an interface's classes."""
    kernel, emission = parse_batched_kernel(EMITTED), MEASURED.hip
    assert emission is not None
    source = HIP.emit(kernel, headers_in(tmp_path, like), ARCH)
    assert f'"ckh-kernel:{EMITTED}"' in source
    included = [line.split('"')[1] for line in source.splitlines() if line.startswith("#include")]
    own = ["gemm_plain.hpp", f"gemm_{like.common.interface}_classes.hpp", "batched_launch.hpp", "batched_exports.hpp"]
    assert included == ["gemm_vocabulary.hpp", *own]
    assert [name for name in included if not any((folder / name).is_file() for folder in emission.templates)] == []
    unit = unit_source([source, source.replace("tile_m = 64", "tile_m = 128")], (template_dir(), *emission.templates))
    assert unit.count("using Kernel = KernelOf<") == 2
    assert unit.count('#include "batched_kernel.hpp"') == 1


@pytest.mark.parametrize(
    ("like", "changes", "text", "word"),
    [
        (LATE_2025, {"pipeline": "compv4"}, None, "compv4"),
        (MID_2025, {"pipeline": "compv5", "wave_m": 1, "wave_n": 1, "wave_k": 2}, None, "compv5"),
        (CURRENT, {}, None, "batched"),
        (LATE_2025, {}, "struct BatchedGemmHostArgs : GemmHostArgs", "batched"),
        (LATE_2025, {"pipeline": "wavelet"}, None, "wavelet"),
    ],
)
def test_what_headers_lack(
    like: GemmHeaders, changes: dict[str, Any], text: str | None, word: str, tmp_path: Path
) -> None:
    """Pipelines that need a second buffer or group of waves, other interfaces and older kernels are refused."""
    kernel = replace(parse_batched_kernel(EMITTED), **changes)
    headers = headers_in(tmp_path, like, *filter(None, [text]))
    with pytest.raises(UnsupportedKernelError, match=word):
        HIP.emit(kernel, headers, ARCH)
    assert not judge_table(HIP.rules(headers), KernelTable.of(GemmBatchedKernel, [kernel]), ARCH).passed.size


def test_what_headers_have(tmp_path: Path) -> None:
    """Of gemm_universal's pipelines, those with one buffer and one group of waves; none are persistent."""
    plain = {"pipelines": ("compv3", "compv4", "compv5", "mem"), "epilogues": ("default",), "interwave": ("mem",)}
    result = HIP.found(headers_in(tmp_path, LATE_2025), plain | {"persistent": ("mem",)})
    assert result == plain | {"pipelines": ("compv3", "mem")}
    assert HIP.found(headers_in(tmp_path, CURRENT), plain)["pipelines"] == ()


REAL = "gemm_batched_fp16_rcr_compv3_cshuffle_intrawave_True_True_True_False_32x32x32_2x2x1_16x16x32"


@pytest.mark.slow
@compiles(("gfx942", "gemm_batched", REAL))
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, None),
        ({"lda": 72, "stride_a": 72 * 48}, None),
        ({"batch": 0}, "positive"),
        ({"batch": 65_536}, "2^16"),
        ({"lda": 56}, "leading dimension"),
        ({"ldc": 31}, "leading dimension"),
        ({"stride_c": 48 * 32 - 8}, "overlap"),
        ({"lda": 66}, "vector"),
        ({"stride_b": 32 * 64 + 2}, "vector"),
        ({"stride_a": 2**31, "batch": 2}, "32-bit"),
        ({"lda": 2**26}, "32-bit"),
        ({"k": 62}, "IsSupportedArgument"),
    ],
)
def test_real_kernels_refuse_problems_with_wrong_results(
    changes: dict[str, int], word: str | None, real_kernels: Real
) -> None:
    """A compiled kernel refuses strides that are too short, too long or not aligned, before any launch."""
    report = real_kernels["gfx942", parse_batched_kernel(REAL)]
    problem = c_batched_problem(GemmBatchedProblem(48, 32, 64, "fp16", batch=3))
    for name, value in changes.items():
        setattr(problem, name, value)
    result = KernelLibrary(loadable(report.library)).unsupported(ctypes.byref(problem))
    assert (result is None) if word is None else (result is not None and word in result.decode())


def test_the_host_refuses_gaps_between_lines() -> None:
    """For one reason."""
    host, gaps = load_arch("host"), GemmBatchedProblem(37, 53, 41, "fp32", "rcr", batch=3, lda=48)
    kernel = next(kernel for kernel in POOLS.of(host, "fp32", "rcr") if kernel.pipeline == "mem" and kernel.pad_m)
    assert len(MEASURED.reasons(kernel, host, gaps)) == 1


def test_own_times_are_converted(tmp_path: Path) -> None:
    """A table of anyone's times whose columns are mapped becomes a dataset; one without a batch is refused."""
    rows = [(NAME, 3, 64, 64, 64, 0, 12.5), (NAME, 3, 64, 64, 64, 96, 13.5), ("compv3", 3, 64, 64, 64, 0, 9.0)]
    lines = [",".join(map(str, row)) for row in rows]
    (tmp_path / "own.csv").write_text("\n".join(["name,b,m,n,k,lda,us", *lines]), encoding="utf-8")
    mapping = ["--map", "kernel=name", "--map", "batch=b", "--map", "latency_us=us"]
    convert = ["convert", str(tmp_path / "own.csv"), "--op", "gemm_batched", "--arch", "gfx942"]
    out = ["--out", str(tmp_path / "own.parquet")]
    assert run([*convert, *mapping, "--skip-bad", *out]) == ExitCode.OK
    dataset = read_dataset(tmp_path / "own.parquet")
    expected = {
        GemmBatchedProblem(64, 64, 64, "fp16", "rcr", batch=3, lda=lda): us for lda, us in ((0, 12.5), (96, 13.5))
    }
    result = zip(dataset.problems(), dataset.frame["latency_ms"] * 1000, strict=True)
    assert {problem: round(us, 3) for problem, us in result} == expected
    assert run([*convert, *mapping[:2], *mapping[4:], "--force", *out]) == ExitCode.BAD_DATA
