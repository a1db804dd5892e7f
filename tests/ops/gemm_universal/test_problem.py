"""GEMM problems: identity, derived sizes, and rejection of impossible problems."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from ckh.errors import UsageError
from ckh.ops.gemm_universal.operation import SLICES
from ckh.ops.gemm_universal.problem import (
    GEMM_COLUMNS,
    GemmProblem,
    contiguous_axes,
    output_dtype,
)
from tests.refusals import expect_refusal


def test_canonical_text_is_stable() -> None:
    """Journals and hashes of sets depend on the text."""
    p = GemmProblem(16, 4096, 14336, "fp16", "crr", 2)
    assert p.canonical() == "gemm_fp16_crr_m16_n4096_k14336_splitk2"


def test_every_field_is_part_of_the_identity() -> None:
    """Problems that differ in one field are unequal, and the dataset's identity columns are all fields."""
    p = GemmProblem(8, 16, 32)
    changes: dict[str, Any] = {"m": 9, "n": 17, "k": 33, "dtype": "fp16", "layout": "rrr", "split_k": 2}
    assert set(changes) == {field.name for field in fields(GemmProblem)} == set(GemmProblem.identity())
    others = {GemmProblem(**{**p.to_dict(), name: value}) for name, value in changes.items()}
    assert len(others | {p}) == 7
    assert len({other.canonical() for other in others}) == 6


def test_work_bytes_and_intensity_by_hand() -> None:
    """Sizes 3 x 5 x 7 by counting; fp8 has fp16 results and int8 has int32."""
    p = GemmProblem(3, 5, 7, "fp16")
    assert p.flops == 2 * 105
    assert p.bytes == (21 + 35 + 15) * 2
    assert p.arithmetic_intensity == 210 / 142
    assert (p.a_shape, p.b_shape, p.c_shape) == ((3, 7), (7, 5), (3, 5))
    assert [p.size(axis) for axis in "mnk"] == [3, 5, 7]
    assert GemmProblem(3, 5, 7, "fp8").bytes == 21 + 35 + 15 * 2
    assert GemmProblem(3, 5, 7, "int8").bytes == 21 + 35 + 15 * 4
    assert GemmProblem(1, 1, 1, "int4").bytes == 2
    assert [output_dtype(name) for name in ("bf16", "bf8", "int8")] == ["bf16", "fp16", "int32"]


def test_columns_match_amd() -> None:
    """The dataset's size columns have the names of AMD's parquet files."""
    assert GemmProblem(3, 5, 7, split_k=2).columns() == {"m": 3, "n": 5, "k": 7, "split_k": 2}
    assert tuple(GEMM_COLUMNS) == ("m", "n", "k", "split_k")


@pytest.mark.parametrize(
    ("layout", "axes"),
    [
        ("rcr", ("k", "k", "n")),
        ("rrr", ("k", "n", "n")),
        ("crr", ("m", "n", "n")),
        ("ccr", ("m", "k", "n")),
    ],
)
def test_contiguous_axes(layout: str, axes: tuple[str, str, str]) -> None:
    """Row-major A, B and C are contiguous along K, N and N, column-major A and B along M and K."""
    assert contiguous_axes(layout) == axes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"m": 0}, "m must be 1 or more"),
        ({"n": -4}, "n must be 1 or more"),
        ({"k": 2**31}, "below 2\\^31"),
        ({"m": 1.5}, "m must be an integer, not 1.5"),
        ({"n": True}, "n must be an integer, not True"),
        ({"split_k": 0}, "split_k must be 1 or more"),
        ({"split_k": 33}, "K=32 cannot be split into 33 parts"),
        ({"dtype": "fp9"}, "unknown dtype 'fp9'"),
        ({"layout": "rrc"}, "unknown layout 'rrc'"),
    ],
)
def test_uncomputable_problems_are_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    """The error names the invalid size, dtype or layout."""
    with pytest.raises(UsageError, match=words) as caught:
        GemmProblem(**{"m": 8, "n": 16, "k": 32, **changes})
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "text", ["", "gemm_fp16_rcr_m1_n2_k3", "gemm_fp16_rcr_m1_n2_k3_splitk1_", "gemm_fp16_m1_n2_k3"]
)
def test_invalid_problem_text_is_refused(text: str) -> None:
    """Text with missing or extra parts is refused."""
    with expect_refusal(UsageError, "bad-problem"):
        GemmProblem.parsed(text)


@pytest.mark.parametrize(
    ("m", "k", "shape", "depth"),
    [
        (31, 511, "tiny M", "shallow K"),
        (32, 512, "small M", "medium K"),
        (255, 4095, "small M", "medium K"),
        (256, 4096, "medium M", "deep K"),
        (4095, 1, "medium M", "shallow K"),
        (4096, 9000, "large M", "deep K"),
    ],
)
def test_limits_match_amd(m: int, k: int, shape: str, depth: str) -> None:
    """M is split at 32, 256 and 4096, K at 512 and 4096, as in AMD's evaluation."""
    problem = GemmProblem(m, 8, k, layout="crr")
    assert [name for name, test in SLICES["shape"].items() if test(problem)] == [shape]
    assert [name for name, test in SLICES["depth"].items() if test(problem)] == [depth]
    assert [name for name, test in SLICES["layout"].items() if test(problem)] == ["crr"]
