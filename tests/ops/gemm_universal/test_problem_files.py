"""Files of GEMM problems: three equivalent formats, and all kinds of faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ckh.errors import DataError
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.gemm_universal.problem_sets.files import read_problems
from ckh.ops.problem_files import is_problem_file
from tests.refusals import expect_refusal, left_out_of

if TYPE_CHECKING:
    from pathlib import Path

PROBLEMS = (GemmProblem(1, 2, 3), GemmProblem(16, 4096, 64, "fp16", "crr", 2))
FORMS = {
    ".txt": "gemm_fp32_rcr_m1_n2_k3_splitk1  # first\n\n" + PROBLEMS[1].canonical() + "\n" + PROBLEMS[0].canonical(),
    ".csv": "M,N,K,dtype,layout,split_k\n1,2,3,,,\n16,4096,64,fp16,crr,2\n1,2,3,fp32,rcr,1\n",
    ".json": '[{"m": 1, "n": 2, "k": 3}, {"M": "16", "N": 4096, "K": 64, "dtype": "fp16", "layout": "crr", '
    '"split_k": 2}, "gemm_fp32_rcr_m1_n2_k3_splitk1"]',
    ".py": "import nowhere\nml_sizes = [(1, 2, 3)]\ntile_sizes = [(256, 256, 32)]\n"
    "PROBLEMS = [GemmProblem(M=16, N=4096, K=64, dtype='fp16', layout='crr', split_k=2), ProblemSize(1, 2, 3)]",
}


def write(folder: Path, suffix: str, text: str) -> Path:
    """Write a file of that format."""
    path = folder / f"problems{suffix}"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", FORMS)
def test_all_formats_agree(tmp_path: Path, suffix: str) -> None:
    """Distinct problems are read in order, with defaults for missing values."""
    path = write(tmp_path, suffix, FORMS[suffix])
    assert is_problem_file(str(path))
    assert read_problems(path) == PROBLEMS


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        (".txt", "gemm_fp32_rcr_m1_n2", "problems.txt:1: not a GEMM problem"),
        (".csv", "m,n\n1,2\n", "missing column k"),
        (".csv", "m,n,k\n1,2,x\n", "problems.csv:2: k must be an integer, not 'x'"),
        (".csv", "m,n,k\n1,2,\n", "problems.csv:2: k is missing"),
        (".csv", "m,n,k\n1,-2,3\n", "problems.csv:2: n must be 1 or more"),
        (".py", "tile_sizes = [(1, 2, 3)]", "no GemmProblem(M=..., N=..., K=...)"),
        (".py", "shapes = [(1, 2)]", "no GemmProblem(M=..., N=..., K=...)"),
        (".py", "x = 1\nGemmProblem(1, 2, 3, M=1)", "problems.py:2: duplicate value"),
        (".py", "GemmProblem(M=1, N=2.5, K=3)", "n must be an integer, not 2.5"),
        (".json", "[3]", "problems.json:1: 3 is not a problem"),
        (".json", '[{"m": 1.5, "n": 1, "k": 1}]', "m must be an integer, not 1.5"),
        (".json", '[{"m": 1, "n": 1, "k": 1, "layout": "abc"}]', "unknown layout 'abc'"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, suffix: str, text: str, message: str) -> None:
    """The message states file, entry and reason."""
    with pytest.raises(DataError) as caught:
        read_problems(write(tmp_path, suffix, text))
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_a_file_of_another_dtype_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The requested dtype and the dtype in the file must agree; single problems of another dtype are left out."""
    path = write(tmp_path, ".txt", PROBLEMS[1].canonical())
    with expect_refusal(DataError, "mismatch", "problems.txt:1", "fp16", "fp32"):
        read_problems(path, "fp32")
    path = write(tmp_path, ".txt", "  # first\n\n".join(problem.canonical() for problem in PROBLEMS))
    assert PROBLEMS[:1] == left_out_of(
        capsys,
        lambda account: read_problems(path, "fp32", account=account),
        f"{path}:3",
        "dtype fp16, not fp32",
        "mismatch",
    )


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_the_default_dtype_of_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    """It is the requested one, else the default: a file without dtypes is valid for every device."""
    text = {
        ".csv": "m,n,k,dtype\n1,2,3,\n4,5,6,fp16\n",
        ".json": '[{"m":1,"n":2,"k":3},\n\n{"m":4,"n":5,"k":6,"dtype":"fp16"}]',
    }
    path = write(tmp_path, suffix, text[suffix])
    assert [problem.dtype for problem in read_problems(path, None, "bf16")] == ["bf16", "fp16"]
    assert [problem.dtype for problem in read_problems(path, "fp16", "bf16")] == ["fp16", "fp16"]
    others = left_out_of(
        capsys,
        lambda account: read_problems(path, "bf16", account=account),
        f"{path}:3",
        "dtype fp16, not bf16",
        "mismatch",
    )
    assert others == (GemmProblem(1, 2, 3, "bf16"),)
