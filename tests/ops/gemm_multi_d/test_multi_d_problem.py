"""Problems with further tensors: identity, refusals, sets, kernels and answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckh.archs import load_arch
from ckh.errors import DataError
from ckh.ops import operation_of
from ckh.ops.base import Encoding
from ckh.ops.gemm_multi_d.operation import MULTI_D_RULES, OPERATION, POOLS, parse_multi_d_kernel
from ckh.ops.gemm_multi_d.problem import FUNCTIONS, GemmMultiDProblem
from ckh.ops.gemm_universal.kernel import kernel_name

ARCH = load_arch("gfx942")


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("ds", ["v", "r", "vr", "rv", "rr"])
def test_texts_hold_the_identity(function: str, ds: str) -> None:
    """A problem is parsed from its text, by the operation with the longest matching prefix."""
    problem = GemmMultiDProblem(16, 4096, 512, "bf16", "rrr", function=function, ds=ds)
    assert problem.canonical() == f"gemm_multi_d_bf16_rrr_m16_n4096_k512_{function}_{ds}"
    assert GemmMultiDProblem.parsed(problem.canonical()) == problem
    assert operation_of(problem.canonical()).name == "gemm_multi_d"


def test_bytes_count_the_tensors() -> None:
    """A 4 x 8, B 8 x 16 and E 4 x 16 in fp16, one vector of 16 and one matrix of 4 x 16; fp8 has tensors of fp16."""
    problem = GemmMultiDProblem(4, 16, 8, "fp16", ds="vr")
    assert problem.bytes == 2 * (32 + 128 + 64 + 16 + 64)
    assert replace(problem, dtype="fp8").bytes == 32 + 128 + 2 * (64 + 16 + 64)


@pytest.mark.slow
def test_names_state_function_and_tensors() -> None:
    """They are parsed again, and short names too; a name without a function is refused."""
    kernel = POOLS.of(ARCH, "fp16", "rcr", "add_gelu", 2)[0]
    assert kernel_name(kernel).startswith("gemm_multi_d_add_gelu_2_fp16_rcr_")
    assert parse_multi_d_kernel(kernel_name(kernel)) == kernel
    assert parse_multi_d_kernel("gemm_multi_d_mul_1_fp16_rcr_64x64x64_compv3_intrawave").function == "mul"
    for wrong in ("gemm_multi_d_fp16_rcr_64x64x64_compv3_intrawave", kernel_name(kernel).replace("gelu_2", "gelu_3")):
        with pytest.raises(DataError):
            parse_multi_d_kernel(wrong)


@pytest.mark.slow
def test_kernels_of_other_epilogues_do_not_apply() -> None:
    """Neither another function nor another number of tensors."""
    kernel = POOLS.of(ARCH, "fp16", "rcr", "add", 1)[0]
    problem = GemmMultiDProblem(256, 256, 256, "fp16")
    assert MULTI_D_RULES.check(kernel, ARCH, problem) == []
    assert len(MULTI_D_RULES.check(kernel, ARCH, replace(problem, function="mul", ds="vr"))) == 2
    assert OPERATION.kernels.mismatch(kernel, problem) == ""
    assert "add with 1" in OPERATION.kernels.mismatch(kernel, replace(problem, ds="vr"))


def test_features_of_epilogues() -> None:
    """Tensors by kind, their elements per operation, and the number of the function, of each row."""
    problems = [
        GemmMultiDProblem(8, 16, 64, "fp16", ds="vr"),
        GemmMultiDProblem(4, 4, 4, "fp16", function="add_gelu", ds="r"),
    ]
    kernels = [POOLS.of(ARCH, "fp16", "rcr", "add", 2)[0], POOLS.of(ARCH, "fp16", "rcr", "add_gelu", 1)[0]]
    columns = OPERATION.problems.features(problems) | OPERATION.kernels.features(kernels, Encoding(is_gpu=True))
    names = ("d_matrices", "d_vectors", "d_elements_per_flop", "function")
    result = OPERATION.training.engine.matrix(columns, ARCH.hardware.to_dict(), names)
    assert result.tolist() == [[1, 1, (8 * 16 + 16) / (2 * 8 * 16 * 64), 0], [1, 0, 4 * 4 / (2 * 4 * 4 * 4), 3]]
