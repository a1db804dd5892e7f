"""`python -m tests.emulator.checked LIBRARY ARCH`: what the kernels that check results say on the emulated GPU.

Prints for each problem the largest errors of its sums and sums of magnitudes, relative to the latter, whether a right
output is right, and the kinds of damage that are not found.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh import ConvProblem, Direction, GemmProblem
from ckh.bench.computation import Split, computation_of
from ckh.bench.isolated.checks import GpuChecks, GpuLimits
from ckh.bench.isolated.hip_runtime import LIBRARY_VARIABLE, HipRuntime
from ckh.bench.isolated.memory import HipMemory
from ckh.bench.isolated.operands import drawn, gaps_of, laid_out, stored_shape, tensor_of
from ckh.bench.isolated.typed import element_type
from ckh.bench.isolated.verify import Limits, host_sums, wrong_sums
from ckh.emulator.launch import attach
from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_grouped.problem import GemmGroupedProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.ops.base import Problem

CONV = ConvProblem(
    *(Direction.FORWARD, 2, 6, 4, 2, 7, 6, 3, 2), stride_h=2, stride_w=3, pad_h=2, pad_w=1, dilation_h=2, dtype="fp16"
)
DEEP = CONV.replaced(ndim=3, layout="", di=4, z=2, stride_d=2, pad_d=1, dilation_d=3, dtype="bf16")
GAPS: dict[str, Any] = {"lda": 24, "ldb": 40, "ldc": 25, "batch_stride_c": 500}
PROBLEMS: tuple[Problem, ...] = (
    *(GemmProblem(17, 18, 70, dtype, "rcr") for dtype in ("fp32", "fp16", "bf16", "fp8", "bf8", "int8")),
    *(GemmProblem(9, 20, 33, "fp16", layout) for layout in ("rrr", "ccr", "crr")),
    GemmBatchedProblem(18, 20, 16, "fp16", "rcr", batch=3, **GAPS),
    GemmGroupedProblem(ms="9+4x2+0", n=8, k=12, dtype="bf16", layout="crr"),
    *(problem.replaced(variant=direction) for problem in (CONV, DEEP) for direction in Direction),
)


def damages(right: np.ndarray, gaps: np.ndarray, unwritten: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield damaged copies of a stored result."""
    inside = np.arange(right.size) if not gaps.size else np.flatnonzero(~gaps)
    for name, place in (("first", inside[0]), ("middle", inside[inside.size // 2]), ("last", inside[-1])):
        other, nothing = right.copy(), right.copy()
        bits = other.reshape(-1).view(f"u{right.itemsize}")
        bits[place] ^= 1 << (8 * right.itemsize - 1) if bits[place] else 0x4000  # the sign, or a number
        yield f"{name} changed", other
        nothing.reshape(-1)[place : place + 1].view(np.uint8)[...] = unwritten
        yield f"{name} never written", nothing
    if gaps.any():
        between = right.copy()
        between.reshape(-1)[np.flatnonzero(gaps)[-1]] = 0
        yield "between rows", between


def report(problem: Problem, library: str, runtime: HipRuntime, *, fnuz_floats: bool) -> dict[str, Any]:
    """What the checks say of a problem."""
    memory = HipMemory(runtime, 0)
    checks = GpuChecks(library, runtime, memory)
    operands, output = computation_of(problem).operands_of(problem)
    random, element = np.random.Generator(np.random.SFC64(1)), element_type(output.dtype)
    tensors = [tensor_of(each, memory.add_input(drawn(each, random, fnuz_floats=fnuz_floats))) for each in operands]
    memory.set_output(stored_shape(output), element)
    sums = checks.sums(problem, tensors, fnuz_floats=fnuz_floats)
    assert sums is not None
    host = host_sums(problem, *tensors, fnuz_floats=fnuz_floats)
    magnitude = np.maximum(np.abs(host.magnitude).astype(np.float64), 1e-30)
    limits = GpuLimits(checks, Limits(problem, *tensors, fnuz_floats=fnuz_floats, sums=sums), output, element)
    right = laid_out(output, element.rounded(host.exact).reshape(output.shape), fnuz_floats=False)

    def holds(stored: np.ndarray) -> bool:
        runtime.upload(memory.output(0), stored.ctypes.data, stored.nbytes)
        return limits.holds(0, Split())

    found = {name: not holds(stored) for name, stored in damages(right, gaps_of(output), element.unwritten_byte)}
    return {
        "problem": problem.canonical(),
        "error": float(np.max(np.abs(sums.exact - host.exact) / magnitude)),
        "bound_error": 0.0 if element.is_exact else float(np.max(np.abs(sums.magnitude - host.magnitude) / magnitude)),
        "wrong": wrong_sums(problem, sums, *tensors, fnuz_floats=fnuz_floats),
        "is_right": holds(right),
        "missed": [name for name, is_found in found.items() if not is_found],
        "differing": checks.memory.compare and checks.memory.compare(memory.output(0), memory.pointers()[0], 8),
    }


def main() -> None:
    """Print the reports as JSON."""
    library, arch = sys.argv[1:]
    attach(os.environ[LIBRARY_VARIABLE], arch)
    runtime = HipRuntime(0)
    reports = [report(each, library, runtime, fnuz_floats=arch == "gfx942") for each in PROBLEMS]
    sys.stdout.write(json.dumps(reports))


if __name__ == "__main__":
    main()
