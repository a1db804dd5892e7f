"""Matrix products of 8-bit operands: the type of the result determines which results are right."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ckh.bench.isolated.typed import element_type
from ckh.bench.isolated.verify import Limits
from ckh.bench.supervision.process import WorkerProcess
from ckh.bench.supervision.protocol import Job, Op, WorkerConfig
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.schema import Status
from tests.bench.faults import FaultyDevice
from tests.bench.float8 import defined
from tests.refusals import expect_values

if TYPE_CHECKING:
    from pathlib import Path

Array = NDArray[Any]

FLOATS = [("fp8", False), ("fp8", True), ("bf8", False), ("bf8", True)]
M, N = 13, 7
TIMEOUT_S = 20.0


def operands(dtype: str, k: int, *, fnuz_floats: bool = False) -> tuple[GemmProblem, Array, Array]:
    """A product in layout rcr with its operands as passed to kernels: A as M x K, B as N x K."""
    random = np.random.default_rng(k)
    element = element_type(dtype, fnuz_floats=fnuz_floats)
    a, b = (element.operand(random.uniform(-1, 1, shape).astype(np.float32)) for shape in ((M, k), (N, k)))
    return GemmProblem(M, N, k, dtype=dtype), a, b


def numbers(dtype: str, codes: Array, *, fnuz_floats: bool) -> Array:
    """Numbers of codes by the definition of their format."""
    name = {"fp8": "E4M3", "bf8": "E5M2"}[dtype] + ("_FNUZ" if fnuz_floats else "")
    return np.array(defined(name))[codes]


@pytest.mark.parametrize(("dtype", "fnuz_floats"), FLOATS)
@pytest.mark.parametrize("k", [1, 37, 1000])
def test_sums_that_are_rounded_to_fp16_are_right(dtype: str, fnuz_floats: bool, k: int) -> None:
    """Forwards and backwards; one missing product of usual size is detected."""
    problem, a, b = operands(dtype, k, fnuz_floats=fnuz_floats)
    limits = Limits(problem, a, b, fnuz_floats=fnuz_floats)
    x, w = (numbers(dtype, codes, fnuz_floats=fnuz_floats) for codes in (a, b))
    for order in (slice(None), slice(None, None, -1)):
        products = (x[:, None, order] * w[None, :, order]).astype(np.float32)
        sums = np.zeros((M, N), np.float32)
        for product in np.moveaxis(products, 2, 0):
            sums += product
        assert limits.complaint(sums.astype(np.float16)) == ""
    sums = x @ w.T
    products = x[5] * w[3]
    sums[5, 3] -= products[np.argsort(np.abs(products))[k // 2]]
    expect_values(limits.complaint(sums.astype(np.float16)), "1 of 91", f"{5 * 7 + 3}: ")


@pytest.mark.parametrize(("dtype", "fnuz_floats"), FLOATS)
def test_the_encoding_of_another_architecture_is_detected(dtype: str, fnuz_floats: bool) -> None:
    """Its numbers are half or twice as large: every product is wrong."""
    problem, a, b = operands(dtype, 64, fnuz_floats=fnuz_floats)
    x, w = (numbers(dtype, codes, fnuz_floats=not fnuz_floats) for codes in (a, b))
    complaint = Limits(problem, a, b, fnuz_floats=fnuz_floats).complaint((x @ w.T).astype(np.float16))
    assert complaint.startswith("91 of 91 outputs wrong")


@pytest.mark.parametrize("k", [1, 37, 5000])
def test_products_of_int8_are_exact(k: int) -> None:
    """The exact sum is right, and one more or less is wrong, also beyond the integers of float32."""
    problem, a, b = operands("int8", k)
    if k == 5000:
        a, b = np.abs(a), np.abs(b)
    sums = a.astype(np.int32) @ b.astype(np.int32).T
    limits = Limits(problem, a, b)
    assert limits.complaint(sums) == ""
    assert (int(np.abs(sums).max()) > 2**24) is (k == 5000)
    for step in (-1, 1):
        off = sums.copy()
        off[2, 6] += step
        expect_values(limits.complaint(off), "1 of 91", "20: ")


def test_unwritten_integers_are_counted() -> None:
    """As NaN is for other types."""
    problem, a, b = operands("int8", 8)
    sums = a.astype(np.int32) @ b.astype(np.int32).T
    sums[[2, 5], [0, 1]] = int(element_type("int32").unwritten)
    complaint = Limits(problem, a, b).complaint(sums)
    expect_values(complaint, "2 of 91", "14: -2.139062e+09", "; 2", "NaN")


# A kernel with the worker's ABI; the meaning of operands and the type of results are inserted.
_KERNEL = """
#include <stdint.h>
#include <time.h>
typedef struct {{ int64_t m, n, k, split_k; }} problem;
static const float meaning[256] = {{{meaning}}};
int32_t ckh_abi_version(void) {{ return 2; }}
int32_t ckh_operand_count(void) {{ return 4; }}
const char* ckh_unsupported(const problem* p) {{ return 0; }}
int64_t ckh_workspace_bytes(const problem* p) {{ return 0; }}
int32_t ckh_run(const problem* p, void* const* operands) {{
    const uint8_t *a = operands[0], *b = operands[1];
    {result}* out = operands[2];
    for (int64_t m = 0; m < p->m; ++m)
        for (int64_t n = 0; n < p->n; ++n) {{
            {sum} sum = 0;
            for (int64_t k = 0; k < p->k; ++k)
                sum += ({sum})meaning[a[m * p->k + k]] * ({sum})meaning[b[n * p->k + k]];
            out[m * p->n + n] = ({result})sum;
        }}
    return 0;
}}
int32_t ckh_time(const problem* p, void* const* operands, int32_t loops, int32_t samples, double* ns) {{
    for (int32_t i = 0; i < samples; ++i) ns[i] = 1e6;
    return 0;
}}
"""


def kernel(folder: Path, meaning: list[float], result: str, total: str) -> str:
    """Path of a kernel in C."""
    table = ", ".join("0" if value != value or abs(value) > 1e30 else repr(value) for value in meaning)  # noqa: PLR0124
    source, library = folder / "kernel.c", folder / "kernel.so"
    source.write_text(_KERNEL.format(meaning=table, result=result, sum=total))
    subprocess.run(
        [shutil.which("gcc") or "cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True
    )
    return str(library)


def measured(library: str, dtype: str, *, fnuz_floats: bool) -> Status:
    """Status of a kernel in a worker for a device with this encoding."""
    worker = WorkerProcess(FaultyDevice(), WorkerConfig(0, None, fnuz_floats=fnuz_floats))
    try:
        worker.send(Job(Op.PROBLEM, 1, problem=GemmProblem(33, 17, 65, dtype=dtype).canonical()))
        assert worker.receive(time.monotonic() + TIMEOUT_S).status is Status.OK
        worker.send(Job(Op.MEASURE, 2, library=library, samples=1))
        return worker.receive(time.monotonic() + TIMEOUT_S).status
    finally:
        worker.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "name"), [("fp8", "E4M3"), ("bf8", "E5M2")])
def test_the_worker_measures_floats_of_eight_bits(tmp_path: Path, dtype: str, name: str) -> None:
    """A kernel with the architecture's encoding is right, one with another encoding is wrong."""
    for folder, suffix, is_fnuz in (("ocp", "", False), ("fnuz", "_FNUZ", True)):
        (tmp_path / folder).mkdir()
        library = kernel(tmp_path / folder, defined(name + suffix), "_Float16", "float")
        assert measured(library, dtype, fnuz_floats=is_fnuz) is Status.OK
        assert measured(library, dtype, fnuz_floats=not is_fnuz) is Status.WRONG_RESULT


@pytest.mark.slow
def test_the_worker_measures_int8(tmp_path: Path) -> None:
    """Results have 32 bits; a kernel with unsigned operands is wrong."""
    signed = [float(ctypes.c_int8(code).value) for code in range(256)]
    assert measured(kernel(tmp_path, signed, "int32_t", "int32_t"), "int8", fnuz_floats=True) is Status.OK
    other = tmp_path / "unsigned"
    other.mkdir()
    unsigned = [float(code) for code in range(256)]
    assert measured(kernel(other, unsigned, "int32_t", "int32_t"), "int8", fnuz_floats=True) is Status.WRONG_RESULT
