"""Identity, strides and sizes of batched matrix products."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from ckh.cli import run
from ckh.errors import ExitCode, UsageError
from ckh.ops import operation, operation_of
from ckh.ops.gemm_batched.problem import BATCH_STRIDES, LEADING, GemmBatchedProblem
from ckh.ops.gemm_batched.problem_sets import SETS
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, GemmProblem
from tests.refusals import expect_error, expect_refusal

OP = operation("gemm_batched")
PLAIN = GemmBatchedProblem(24, 32, 16, "fp16", "rcr", batch=3)


def strided(layout: str = "rcr", **strides: int) -> GemmBatchedProblem:
    """A problem of three products with these distances."""
    return GemmBatchedProblem(24, 32, 16, "fp16", layout, batch=3, **strides)


def offsets(shape: tuple[int, int], letter: str, leading: int, stride: int) -> np.ndarray[Any, Any]:
    """Offset of every element of three matrices, by index."""
    batch, row, column = np.indices((3, *shape))
    return np.asarray(batch * stride + (row * leading + column if letter == "r" else column * leading + row))


@pytest.mark.parametrize("layout", GEMM_LAYOUTS)
def test_distances_are_those_of_memory(layout: str) -> None:
    """Spans and batch strides equal those of the elements' offsets; dense matrices have none in between."""
    given = {"lda": 40, "ldb": 48, "ldc": 36, "batch_stride_a": 2000, "batch_stride_b": 1900, "batch_stride_c": 1800}
    for problem in (PLAIN, strided(layout, **given), strided(layout, ldb=33, batch_stride_c=999)):
        shapes = (problem.a_shape, problem.b_shape, problem.c_shape)
        parts = zip(shapes, problem.layout, problem.leading, problem.batch_strides, problem.spans, strict=True)
        for shape, letter, leading, stride, span in parts:
            places = offsets(shape, letter, leading, stride)
            assert len(np.unique(places)) == places.size
            assert int(places[0].max()) + 1 == span
            assert int(places[1].min()) == stride
    dense = [offsets(shape, "r", shape[1], shape[0] * shape[1]) for shape in ((24, 16), (24, 32))]
    assert [int(places.max()) + 1 for places in dense] == [places.size for places in dense]


def test_equal_memory_is_an_equal_problem() -> None:
    """Dense distances, however they are stated, and those without a second line or matrix are 0."""
    assert strided(lda=16, ldb=16, ldc=32, batch_stride_a=24 * 16, batch_stride_b=512, batch_stride_c=768) == PLAIN
    assert strided(lda=40, batch_stride_a=24 * 40) == strided(lda=40)
    problem = GemmBatchedProblem(1, 32, 16, lda=40, batch=1, batch_stride_b=9999)
    assert problem == GemmBatchedProblem(1, 32, 16)
    assert problem != GemmProblem(1, 32, 16)
    assert OP.layer(strided(batch_stride_a=1000)) == replace(PLAIN, batch=1)


@pytest.mark.parametrize(
    ("layout", "given", "least"),
    [
        ("rcr", {"lda": 15}, 16),
        ("crr", {"lda": 23}, 24),
        ("rcr", {"ldb": 15}, 16),
        ("rrr", {"ldb": 31}, 32),
        ("rcr", {"ldc": 31}, 32),
        ("rcr", {"batch_stride_a": 24 * 16 - 1}, 24 * 16),
        ("rcr", {"lda": 40, "batch_stride_a": 23 * 40 + 15}, 23 * 40 + 16),
        ("rcr", {"batch_stride_b": 16}, 32 * 16),
        ("rcr", {"batch_stride_c": 1}, 24 * 32),
    ],
)
def test_what_overlaps_is_refused(layout: str, given: dict[str, int], least: int) -> None:
    """Lines and matrices must not share elements: the least distance is stated, and is accepted."""
    name, value = list(given.items())[-1]
    with expect_refusal(UsageError, "impossible-problem", name, str(value), str(least)):
        strided(layout, **given)
    accepted = strided(layout, **{**given, name: least})
    assert getattr(accepted, name) in {least, 0}


def test_texts_hold_the_identity() -> None:
    """Every combination of distances comes back from its text, which belongs to this operation alone."""
    values = {"lda": 32, "ldb": 40, "ldc": 48, "batch_stride_a": 4096, "batch_stride_b": 4097, "batch_stride_c": 5000}
    assert tuple(values) == (*LEADING, *BATCH_STRIDES)
    texts = set()
    for chosen in product((False, True), repeat=6):
        given = {name: values[name] for name, is_given in zip(values, chosen, strict=True) if is_given}
        problem = strided("crr", **given)
        assert GemmBatchedProblem.parsed(problem.canonical()) == problem
        assert operation_of(problem.canonical()) is OP
        texts.add(problem.canonical())
    assert len(texts) == 64
    assert operation_of(GemmProblem(1, 1, 1).canonical()) is operation("gemm_universal")


def test_work_is_that_of_all_products() -> None:
    """Operations and bytes are a product's times the batch; gaps are not moved."""
    item = GemmProblem(24, 32, 16, "fp16")
    for problem in (PLAIN, strided(lda=40, batch_stride_c=5000)):
        assert (problem.flops, problem.bytes) == (3 * item.flops, 3 * item.bytes)
    tiled = OP.problems.tiled
    assert tiled is not None
    ck_op = tiled(GemmBatchedProblem(24, 32, 48, split_k=2, batch=5))
    assert (ck_op.m, ck_op.n, ck_op.k, ck_op.batches) == (24, 32, 24, 10)


def test_attention_of_a_known_model() -> None:
    """Llama 3 8B: 32 heads of 128 in prefill, and 4 queries for each of 8 shared heads in decode."""
    result = set(SETS.load("attention-llama3-8b", None, "bf16"))
    assert {
        GemmBatchedProblem(2048, 2048, 128, "bf16", "rcr", batch=4 * 32),
        GemmBatchedProblem(2048, 128, 2048, "bf16", "rrr", batch=4 * 32),
        GemmBatchedProblem(4, 1024, 128, "bf16", "rcr", batch=16 * 8),
        GemmBatchedProblem(4, 128, 1024, "bf16", "rrr", batch=16 * 8),
    } <= result
    assert GemmBatchedProblem(16, 512, 128, "fp16", "rrr", batch=128) in SETS.load(
        "attention-deepseek-v3", None, "fp16"
    )


def test_files(tmp_path: Any) -> None:
    """Files have a column for each size; those left out are 1, or dense."""
    path = tmp_path / "own.csv"
    path.write_text("batch,m,n,k,lda,layout\n3,24,32,16,40,rcr\n2,1,32,16,,rrr\n", encoding="utf-8")
    first, second = SETS.load(str(path), None, None)
    assert first == strided(lda=40)
    assert second == GemmBatchedProblem(1, 32, 16, "fp16", "rrr", batch=2)


def test_requests(capsys: pytest.CaptureFixture[str]) -> None:
    """Options say all of a problem; without a batch, with strides that overlap or options of others it is refused."""
    sizes = {"batch": 64, "m": 1024, "n": 1000, "k": 128}
    arguments = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    predict = ["predict", "--op", "gemm_batched", "--arch", "gfx942", "--dtype", "fp16", *arguments]
    more = ["--lda", "136", "--batch-stride-c", "1032000", "--layout", "NN", "--json", "--top", "1"]
    assert run([*predict, *more]) == ExitCode.OK
    answer = json.loads(capsys.readouterr().out)
    expected = GemmBatchedProblem(1024, 1000, 128, "fp16", "rrr", batch=64, lda=136, batch_stride_c=1_032_000)
    assert GemmBatchedProblem.parsed(answer["problem"]) == expected
    assert run([item for item in predict if item not in {"--batch", "64"}]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "missing-option", "--batch")
    assert run([*predict, "--ldb", "127"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "impossible-problem", "ldb", "127", "128")
    assert run([*predict, "--ldb", "129"]) == ExitCode.NO_KERNEL
    expect_error(capsys.readouterr().err, "no-kernel", "129")
    assert run([*predict[:-8], "--m", "8", "--n", "8", "--k", "8", "--batch", "2", "--hi", "3"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "inapplicable-option", "--hi")
