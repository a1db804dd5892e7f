"""Terms shared by operations: spellings of element types, and suggestions for unknown names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ckh.shapes
from ckh.api.inputs import options_of, problem
from ckh.errors import UsageError
from ckh.ops import canonical_options, operation, operation_names
from ckh.ops.aiter_gemm.problem import AiterGemm
from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import DTYPE_BYTES, dtype_name, unknown_dtype
from ckh.training import TrainOptions, TreeParams
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["float64", "double", "float32", "single", "float16", "half", "int32", "int8"])
def test_numpys_names_are_types_of_the_same_size(name: str) -> None:
    """Kind and size are NumPy's."""
    known, expected = dtype_name(name), np.dtype(name)
    assert DTYPE_BYTES[known] == expected.itemsize
    assert known.startswith({"f": "fp", "i": "int"}[expected.kind])


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("torch.bfloat16", "bf16"),
        ("BF16", "bf16"),
        ("torch.float8_e4m3fnuz", "fp8"),
        ("float8_e4m3fn", "fp8"),
        ("e5m2", "bf8"),
        ("ck_tile::half_t", "fp16"),
        ("float4_e2m1fn_x2", "pk_fp4"),
        ("bogus", "bogus"),
        ("Bogus", "Bogus"),
    ],
)
def test_names_of_other_libraries_are_known(spelling: str, name: str) -> None:
    """PyTorch's and CK's names; unknown ones are unchanged, for the message."""
    assert dtype_name(spelling) == name


def test_type_names_map_to_themselves() -> None:
    """No spelling is the name of another type."""
    assert all(dtype_name(name) == name for name in DTYPE_BYTES)


@pytest.mark.parametrize(("typed", "meant"), [("bflot16", "bfloat16"), ("fp61", "fp64"), ("fp-8", "fp8")])
def test_a_misspelt_type_is_suggested(typed: str, meant: str) -> None:
    """The most similar name comes first in the list."""
    hint = unknown_dtype(typed).hint
    assert hint is not None
    assert hint.partition("?")[0].split()[-1] == meant


@pytest.mark.parametrize(
    ("short", "name"),
    [("gemm", "gemm_universal"), ("conv", "grouped_conv"), ("moe", "aiter_moe")],
)
def test_short_names_of_operations(short: str, name: str) -> None:
    """They give the same record; none is the name of another operation."""
    assert operation(short) is operation(name)
    assert short not in operation_names()


def test_a_misspelt_operation_is_suggested() -> None:
    """Short names are suggested too."""
    with pytest.raises(UsageError) as caught:
        operation("gemmm")
    assert caught.value.hint.partition("?")[0].split()[-1] == "gemm"


@pytest.mark.parametrize("letters", ["NN", "NT", "TN", "TT"])
def test_blas_letters_are_layouts_of_row_major_operands(letters: str) -> None:
    """A letter T is an operand that is stored transposed; NumPy's strides determine which is contiguous."""
    stored = {"N": np.zeros((5, 3)), "T": np.zeros((3, 5)).T}
    axes = ["r" if stored[letter].strides[1] < stored[letter].strides[0] else "c" for letter in letters]
    canonical_option = canonical_options({"m": 1, "layout": letters})["layout"]
    assert canonical_option == "".join(axes) + "r"


@pytest.mark.parametrize(
    ("given", "arch", "num_cus"),
    [
        ({"op": "aiter_gemm", "arch": "mi308x"}, "gfx942", 80),
        ({"op": "aiter_gemm", "arch": "mi300x"}, "gfx942", None),
        ({"op": "aiter_gemm", "arch": "MI 308X", "num_cus": 40}, "gfx942", 40),
        ({"op": "gemm", "arch": "MI 308X"}, "mi308x", None),
        ({"op": None, "arch": "mi308x"}, "mi308x", None),
        ({"op": None, "arch": "mi300x"}, "gfx942", None),
        ({"op": None, "arch": "gfx942"}, "gfx942", None),
    ],
)
def test_a_smaller_gpu_states_its_compute_units(given: dict[str, object], arch: str, num_cus: int | None) -> None:
    """By --num-cus for operations whose problems have compute units, else by its name."""
    options = canonical_options({"op": None, "num_cus": None, **given})
    assert (options["arch"], options["num_cus"]) == (arch, num_cus)


def test_options_without_spellings_stay_as_they_are() -> None:
    """The same for values of commands without such an option, and for missing values."""
    given = {"op": None, "arch": "gfx942", "dtype": None, "layout": "RCR", "top": 5}
    assert canonical_options(given) == given
    assert canonical_options({"op": "bogus", "dtype": "Bogus", "arch": "bogus"})["op"] == "bogus"


@pytest.mark.parametrize(
    ("op", "columns", "row"),
    [("grouped_conv", "N,C,K,Hi,Wi,Y,X", "1,8,8,9,9,3,3"), ("gemm_universal", "m,n,k", "8,8,8")],
)
def test_types_in_problem_files_have_other_spellings_too(op: str, columns: str, row: str, tmp_path: Path) -> None:
    """A CSV file may say bfloat16 or torch.float16."""
    file = tmp_path / "layers.csv"
    file.write_text(f"{columns},dtype\n{row},bfloat16\n{row},torch.float16\n")
    assert [problem.dtype for problem in operation(op).problems.load(str(file), None, None)] == ["bf16", "fp16"]


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        (GemmProblem, {"m": 128, "n": 64, "k": 256, "split_k": 2}),
        (GemmBatchedProblem, {"m": 128, "n": 64, "k": 256, "batch": 3, "lda": 512}),
        (ConvProblem, {"variant": "forward", "n": 2, "c": 8, "k": 8, "g": 1, "hi": 9, "wi": 9, "y": 3, "x": 3}),
        (AiterGemm, {"m": 16, "n": 512, "k": 512, "family": "a8w8", "dtype": "int8", "library": "ck", "num_cus": 304}),
    ],
)
@pytest.mark.parametrize("integer", [np.int64, np.int32, np.uint16])
def test_numpys_integers_are_sizes(kind: Any, sizes: dict[str, Any], integer: Any) -> None:
    """They are stored as Python's."""
    given = {name: integer(value) if isinstance(value, int) else value for name, value in sizes.items()}
    made = kind(**given)
    assert made == kind(**sizes)
    assert all(type(getattr(made, name)) is int for name, value in sizes.items() if isinstance(value, int))


@pytest.mark.parametrize("value", [np.float64(8), np.bool_(True), True, 8.0, "8", np.array([8, 8])])  # noqa: FBT003
def test_other_values_are_no_sizes(value: object) -> None:
    """Floats and truth values are refused, NumPy's too."""
    with expect_refusal(UsageError, "bad-number", "m"):
        GemmProblem(value, 8, 8)  # type: ignore[arg-type]


def test_options_of_the_python_api_are_numpys_integers() -> None:
    """Sizes by name, and fields of dataclasses, are stored as Python's integers."""
    made = problem(m=np.int64(128), n=np.int32(1536), k=np.int64(7168), op="gemm_universal", arch="gfx942")
    assert made.to_dict()["m"] == 128
    assert json.dumps(made.to_dict())
    with expect_refusal(UsageError, "bad-number", "m"):
        problem(m=128.0, n=1536, k=7168)
    given, params = options_of({"seed": np.int64(7), "n_estimators": np.int32(5)}, TrainOptions, TreeParams)
    assert [(type(value), value) for value in (*given.values(), *params.values())] == [(int, 7), (int, 5)]
    read = ckh.shapes.read("llama3-8b", tp=np.int64(2), tokens=[np.int64(16)], op="gemm_universal")
    plain = ckh.shapes.read("llama3-8b", tp=2, tokens=(16,), op="gemm_universal")
    assert read.to_frame().equals(plain.to_frame())
