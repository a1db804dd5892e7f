"""Products with further tensors computed: operands, bounds of results, sources, and execution on the emulated GPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.computation import Role
from ckh.bench.isolated.operands import drawn
from ckh.bench.isolated.typed import element_type
from ckh.bench.isolated.verify import Limits
from ckh.ops.gemm_multi_d.measured import HIP, MEASURED, c_problem, operands
from ckh.ops.gemm_multi_d.operation import parse_multi_d_kernel
from ckh.ops.gemm_multi_d.problem import FUNCTIONS, GemmMultiDProblem
from tests.bench.codegen.gemm_headers import LATE_2025, MID_2025
from tests.refusals import expect_values

if TYPE_CHECKING:
    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders

ARCH = load_arch("gfx942")
EMITTED = "fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_32x32x16"


def gelu(x: float) -> float:
    """The form with tanh."""
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: float) -> float:
    """X times its logistic function."""
    return x / (1 + math.exp(-x))


ACTIVATIONS: dict[str, Any] = {
    "add": float,
    "mul": float,
    "add_relu": lambda x: max(x, 0.0),
    "add_gelu": gelu,
    "add_silu": silu,
}


def right(problem: GemmMultiDProblem, tensors: list[np.ndarray]) -> np.ndarray:
    """The result in double precision, element by element."""
    a, b, *ds = tensors
    total = a @ (b if problem.layout[1] == "r" else b.T)
    for d in ds:
        total = total * d if problem.function == "mul" else total + d
    made: np.ndarray = np.vectorize(ACTIVATIONS[problem.function], otypes=[np.float64])(total)
    return made


def prepared(function: str, ds: str, dtype: str = "fp16") -> tuple[Limits, np.ndarray]:
    """Limits and the right result of a problem with random tensors."""
    problem = GemmMultiDProblem(24, 32, 40, dtype, function=function, ds=ds)
    inputs, _ = MEASURED.computation.operands_of(problem)
    random = np.random.default_rng(3)
    stored = [drawn(operand, random, fnuz_floats=False) for operand in inputs]
    widened = [
        element_type(operand.dtype).widened(values).astype(np.float64)
        for operand, values in zip(inputs, stored, strict=True)
    ]
    return Limits(problem, *stored), right(problem, widened)


def test_operands_are_named_in_order() -> None:
    """A, B, the tensors in the result's element type, and E."""
    result = operands(GemmMultiDProblem(8, 16, 32, "fp8", "rcr", ds="vr"))
    assert [(operand.name, operand.shape, operand.dtype, operand.role) for operand in result] == [
        ("a", (8, 32), "fp8", Role.INPUT),
        ("b", (16, 32), "fp8", Role.INPUT),
        ("d0", (16,), "fp16", Role.BIAS),
        ("d1", (8, 16), "fp16", Role.BIAS),
        ("e", (8, 16), "fp16", Role.OUTPUT),
    ]
    c: Any = c_problem(GemmMultiDProblem(8, 16, 32, "fp8", "rcr", ds="vr"))
    assert [c.m, c.n, c.k, c.split_k, *c.d_strides] == [8, 16, 32, 1, 0, 16]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("ds", ["v", "rv"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_right_results_are_within_the_bounds(function: str, ds: str, dtype: str) -> None:
    """The rounded result of an independent computation passes."""
    limits, result = prepared(function, ds, dtype)
    assert limits.complaint(element_type(dtype).rounded(result)) == ""


@pytest.mark.parametrize("ds", ["v", "rv"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_of_another_function_are_outside(function: str, ds: str) -> None:
    """Each other function gives wrong elements, and so does one element that is off by 2 %."""
    limits, result = prepared(function, ds)
    for other in FUNCTIONS.keys() - {function}:
        expect_values(limits.complaint(prepared(other, ds)[1].astype(np.float16)), "of 768")
    place = np.unravel_index(np.argmax(result), result.shape)
    result[place] *= 1.02
    expect_values(limits.complaint(result.astype(np.float16)), "1 of 768")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_sources_state_function_and_tensors(function: str) -> None:
    """The source of late 2025 has them, before ckh's header; mid-2025 is refused."""
    kernel = parse_multi_d_kernel(f"gemm_multi_d_{function}_2_{EMITTED}")
    source = HIP.emit(kernel, LATE_2025, ARCH)
    assert "index_t num_d = 2;" in source
    assert source.index("using Elementwise = ") < source.index('#include "multi_d_late2025.hpp"')
    with pytest.raises(UnsupportedKernelError, match="mid2025"):
        HIP.emit(kernel, MID_2025, ARCH)


@pytest.mark.parametrize(("headers", "is_refused"), [(LATE_2025, False), (MID_2025, True)])
def test_rules_of_headers_refuse_what_is_not_emitted(headers: GemmHeaders, *, is_refused: bool) -> None:
    """So plans choose among kernels that the headers can build."""
    kernel = parse_multi_d_kernel(f"gemm_multi_d_add_2_{EMITTED}")
    reasons = [reason for rule in HIP.rules(headers) for reason in rule(kernel, ARCH)]
    assert bool(reasons) is is_refused
