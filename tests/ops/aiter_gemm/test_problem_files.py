"""Problems of AITER from its untuned CSV files and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ckh.errors import DataError, UsageError
from ckh.ops.aiter_gemm import DTYPE, REQUESTED
from ckh.ops.aiter_gemm.operation import load_problems
from ckh.ops.aiter_gemm.problem import AiterGemm
from tests.refusals import expect_refusal, expect_warning

if TYPE_CHECKING:
    from pathlib import Path


def test_untuned_tables(tmp_path: Path) -> None:
    """AITER's columns; the family comes from the file's name, and duplicate shapes are read once."""
    path = tmp_path / "a8w8_blockscale_bpreshuffle_untuned_gemm.csv"
    path.write_text("M,N,K\n16,7168,2048\n1,512,7168\n16,7168,2048\n", encoding="utf-8")
    assert load_problems(str(path), None, None) == tuple(
        AiterGemm(m, n, k, "a8w8_blockscale_bpreshuffle") for m, n, k in ((16, 7168, 2048), (1, 512, 7168))
    )
    path = tmp_path / "shapes.csv"
    path.write_text("M,N,K,q_dtype_w,cu_num\n16,7168,2048,torch.int8,80\n", encoding="utf-8")
    assert load_problems(str(path), None, None) == (AiterGemm(16, 7168, 2048, "a8w8", "int8", num_cus=80),)


def test_misses_of_a_log(tmp_path: Path) -> None:
    """Lines that AITER prints if a table has no row are read among others."""
    path = tmp_path / "server.log"
    path.write_text(
        "INFO starting\n[aiter] shape is M:16, N:7168, K:2048, not found tuned config in "
        "/opt/aiter/configs/a8w8_bpreshuffle_tuned_gemm.csv, will use default config!\n"
        "[aiter] shape is M:4, N:64, K:128 q_dtype_w:torch.int8, not found tuned config in /x/a8w8_tuned_gemm.csv, "
        "will use default config!\n",
        encoding="utf-8",
    )
    assert load_problems(str(path), None, None) == (
        AiterGemm(16, 7168, 2048, "a8w8_bpreshuffle"),
        AiterGemm(4, 64, 128, "a8w8", "int8"),
    )


def test_rows_of_other_libraries_are_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Misses in tables of other families, and unsupported element types, are counted and skipped."""
    miss = "shape is M:{m}, N:512, K:7168{more}, not found tuned config in {table}, will use default config!\n"
    tables = "/x/bf16_tuned_gemm.csv", "/x/a8w8_bpreshuffle_tuned_gemm.csv", "CKGEMM or asmGEMM"
    log = tmp_path / "server.log"
    log.write_text(
        miss.format(m=1, more="", table=tables[0])
        + miss.format(m=2, more=", q_dtype_w:torch.int8", table=tables[1])
        + miss.format(m=3, more="", table=tables[2])
    )
    assert load_problems(str(log), None, None) == (AiterGemm(3, 512, 7168, "a4w4_blockscale", "pk_fp4"),)
    warnings = capsys.readouterr().err
    expect_warning(warnings, "left-out", "left out 1", "bf16_tuned_gemm.csv")
    expect_warning(warnings, "left-out", "left out 1", "a8w8_bpreshuffle", "int8")
    table = tmp_path / "a8w8_bpreshuffle_untuned_gemm.csv"
    table.write_text("M,N,K,q_dtype_w\n1,64,128,torch.int8\n2,64,128,torch.float8_e4m3fnuz\n")
    assert load_problems(str(table), None, None) == (AiterGemm(2, 64, 128, "a8w8_bpreshuffle"),)
    log.write_text(miss.format(m=1, more="", table=tables[0]))
    with expect_refusal(DataError, "no-problems", "aiter_gemm", "1", "bf16_tuned_gemm"):
        load_problems(str(log), None, None)


def test_an_element_type_that_the_family_lacks_is_refused(tmp_path: Path) -> None:
    """Rows keep the type that they state, and those without one are never of another than the named one."""
    table = tmp_path / "a8w8_bpreshuffle_untuned_gemm.csv"
    table.write_text("M,N,K\n1,64,128\n", encoding="utf-8")
    for dtype in ("bf16", "int8"):
        with expect_refusal(DataError, "mismatch", f"{table}:2", "fp8", dtype):
            load_problems(str(table), None, dtype)
    assert load_problems(str(table), None, "fp8") == (AiterGemm(1, 64, 128, "a8w8_bpreshuffle"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("M,N\n1,2\n", "missing column K"),
        ("M,N,K\n1,2\n", ":2: K is missing"),
        ("M,N,K\n1,2,3,4\n", ":2: 4 cells under 3 columns"),
        ("M,N,K\n1,2,x\n", ":2: k is 'x'"),
        ("M,N,K\n1,2,0\n", ":2: k must be 1 or more"),
        ("M,N,K\n", "has no problem"),
    ],
)
def test_unusable_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    """The message names the file and the line."""
    path = tmp_path / "shapes.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_problems(str(path), None, None)


@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        ({"family": "a4w4_blockscale"}, DTYPE, "pk_fp4"),
        ({"family": "a4w4_blockscale"}, "fp8", None),
        ({"family": "a16w16_grouped", "library": "fbgemm", "groups": 2}, DTYPE, "bf16"),
        ({}, DTYPE, "fp8"),
        ({}, "int8", "int8"),
        ({}, "pk_fp4", "pk_fp4"),
        ({}, "bf16", None),
        ({}, "fp16", None),
    ],
)
def test_a_stated_element_type_is_the_answers(given: dict[str, Any], dtype: str, expected: str | None) -> None:
    """An element type that was typed is that of the problem, or refused; without one, it is the family's."""
    sizes = {"m": 16, "n": 512, "k": 7168}
    if expected is None:
        with expect_refusal(UsageError, "unsupported" if not given else "unknown-name", dtype):
            REQUESTED.problem(sizes | given, "", dtype)
        return
    assert REQUESTED.problem(sizes | given, "", dtype).dtype == expected
