"""Batched matrix products computed: operands, loop ends and execution."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from ckh.archs import load_arch
from ckh.bench.compilation.kernel_cache import loadable
from ckh.bench.computation import Role
from ckh.bench.isolated.kernel_library import KernelLibrary
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode
from ckh.ops.gemm_batched.measured import MEASURED, c_batched_problem, loop_end_problems, multiply_batch, operands
from ckh.ops.gemm_batched.operation import POOLS, parse_batched_kernel
from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from tests.real import Real, compiles

if TYPE_CHECKING:
    from pathlib import Path


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
    assert run([*convert, *mapping, *out]) == ExitCode.OK
    dataset = read_dataset(tmp_path / "own.parquet")
    expected = {
        GemmBatchedProblem(64, 64, 64, "fp16", "rcr", batch=3, lda=lda): us for lda, us in ((0, 12.5), (96, 13.5))
    }
    result = zip(dataset.problems(), dataset.frame["latency_ms"] * 1000, strict=True)
    assert {problem: round(us, 3) for problem, us in result} == expected
    assert run([*convert, *mapping[:2], *mapping[4:], "--force", *out]) == ExitCode.BAD_DATA
