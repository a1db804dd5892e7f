"""Results are checked on the GPU that computes them, which is a stub: the protocol, and what it finds."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.bench.computation import Split
from ckh.bench.isolated import measure, timing, verify
from ckh.bench.isolated.checks import GpuChecks
from ckh.bench.isolated.hip_runtime import HipRuntime
from ckh.bench.isolated.measure import Bench, answer
from ckh.bench.isolated.memory import HipMemory
from ckh.bench.isolated.verify import Sums
from ckh.bench.supervision.protocol import Job, Op, PhaseClock, Reply
from ckh.schema import Status
from tests.bench.hip_stub.build import StubKernel, build_checks
from tests.bench.hip_stub.workers import setup
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETS, OUTPUTS = 4, 2 * 4 * 4 * 8
_ELSEWHERE = "static void* first; if (!timing) first = out; if (timing && out != first)"


@pytest.fixture(scope="module")
def checks_path(hip_library: Path) -> str:
    """The kernels that check results, for the stub."""
    return build_checks(hip_library)


@pytest.fixture
def bench(checks_path: str) -> Bench:
    """A bench whose launches take turns with four sets of operands."""
    runtime = HipRuntime(0)
    memory = HipMemory(runtime, 0, rotating=SETS)
    return Bench(memory, PhaseClock(), checks=GpuChecks(checks_path, runtime, memory))


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes as the stub says."""
    stub = ctypes.CDLL(os.environ["CKH_HIP_LIBRARY"])
    stub.stub_now_ms.restype = ctypes.c_double
    monkeypatch.setattr(timing, "perf_counter_ns", lambda: int(stub.stub_now_ms() * 1e6))


def measured(bench: Bench, library: str, dtype: str = "fp16") -> Reply:
    """The reply of a kernel on a problem that is set up anew."""
    ready = answer(setup(dtype), bench.set_problem)
    assert ready.status is Status.OK, ready.message
    return answer(Job(Op.MEASURE, 1, library=library, samples=3), bench.measure)


@pytest.mark.parametrize(
    ("element", "dtype"), [("fp32", "fp32"), ("fp16", "fp16"), ("bf16", "bf16"), ("bf16_cut", "bf16")]
)
def test_the_host_computes_and_compares_no_result(
    bench: Bench, build: Callable[[StubKernel], str], monkeypatch: pytest.MonkeyPatch, element: str, dtype: str
) -> None:
    """Neither the reference, nor the first output, nor those of timed launches."""
    monkeypatch.setattr(verify, "host_sums", None)
    monkeypatch.setattr(HipMemory, "result", None)
    reply = measured(bench, build(StubKernel(element, short="20000")), dtype)
    assert (reply.status, reply.message) == (Status.OK, "")


@pytest.mark.parametrize(
    ("damage", "status", "said"),
    [
        ("out[3] = ELEMENT::of(40)", Status.WRONG_RESULT, (1, OUTPUTS, 3, 40)),
        (f"{_ELSEWHERE} out[size - 1] = ELEMENT::of(40)", Status.WRONG_RESULT, ("set 2", 1, OUTPUTS, OUTPUTS - 1, 40)),
        (f"{_ELSEWHERE} out[0] = ELEMENT::of(0.f / 0.f)", Status.WRONG_RESULT, ("set 2", 1, OUTPUTS, 0, "1 are NaN")),
        (f"{_ELSEWHERE} memset(out, 0xff, 32)", Status.WRONG_RESULT, ("set 2", 16, OUTPUTS, "16 are NaN")),
        (f"{_ELSEWHERE} memset(out, 0, 512)", Status.WRONG_RESULT, ("set 2", OUTPUTS)),  # as if never written
        (f"{_ELSEWHERE} b[0] = ELEMENT::of(3)", Status.WRONG_RESULT, ("overwrote its inputs",)),
        (f"{_ELSEWHERE} ++*(int*)(out + 100)", Status.NONDETERMINISTIC, ("set 2", f"1 of {OUTPUTS}", "race")),
    ],
)
def test_damage_is_found_in_any_set(
    bench: Bench, build: Callable[[StubKernel], str], damage: str, status: Status, said: tuple[Any, ...]
) -> None:
    """Elements, NaN, nothing written, inputs, and another rounding; the next kernel on the problem is right."""
    dtype = "fp32" if "int*" in damage else "fp16"
    reply = measured(bench, build(StubKernel(dtype, after=damage, short="20000")), dtype)
    assert reply.status is status
    expect_values(reply.message, *said)
    good = Job(Op.MEASURE, 2, library=build(StubKernel(dtype, short="20000")), samples=3)
    assert answer(good, bench.measure).status is Status.OK


@pytest.mark.parametrize(("parts", "status"), [(4, Status.OK), (1, Status.WRONG_RESULT)])
def test_what_was_added_to_when_timed_is_launched_again(
    bench: Bench, build: Callable[[StubKernel], str], monkeypatch: pytest.MonkeyPatch, parts: int, status: Status
) -> None:
    """Results of kernels that add to them are wrong after timed launches; each set is judged on a launch of its own."""
    adds = f"{_ELSEWHERE} for (int64_t i = 0; i < size; ++i) out[i] = ELEMENT::of(2 * float(out[i]))"
    monkeypatch.setattr(measure._Problem, "split", lambda *_: Split(parts))
    assert measured(bench, build(StubKernel(after=adds, short="20000"))).status is status


@pytest.mark.parametrize(("element", "factor"), [(0, 1 + 1e-12), (OUTPUTS - 1, 1 + 1e-12), (7, np.nan)])
@pytest.mark.parametrize("name", ["exact", "magnitude"])
def test_a_wrong_reference_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, element: int, factor: float, name: str
) -> None:
    """Nothing is measured where a sum, or a sum of magnitudes, is not the host's: of 256 elements, all are compared."""
    sums = GpuChecks.sums

    def damaged(*arguments: Any, **options: Any) -> Sums:
        result = sums(*arguments, **options)
        assert result is not None
        getattr(result, name)[element] *= factor if name == "exact" else 1 + 1e8 * (factor - 1)
        return result

    monkeypatch.setattr(verify, "_SAMPLES", 2000)
    monkeypatch.setattr(GpuChecks, "sums", damaged)
    reply = answer(setup(), bench.set_problem)
    assert reply.status is Status.LAUNCH_ERROR
    expect_values(reply.message, "reference", f"at {element} of {OUTPUTS}", "--verify-on host")


def test_the_host_checks_where_memory_is_short(
    bench: Bench, build: Callable[[StubKernel], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allocations for the reference and the limits may fail, each in turn: kernels have a time."""
    library = build(StubKernel(short="20000"))
    damaged = build(StubKernel(after=f"{_ELSEWHERE} out[3] = ELEMENT::of(40)", short="20000"))
    host_sums, computed = verify.host_sums, list[Sums]()

    def counted(*arguments: Any, **options: Any) -> Sums:
        computed.append(host_sums(*arguments, **options))
        return computed[-1]

    monkeypatch.setattr(verify, "host_sums", counted)
    stub = ctypes.CDLL(os.environ["CKH_HIP_LIBRARY"])
    for number in range(5, 11):  # behind two inputs, the output and its copy
        stub.stub_arm(f"hipMalloc@{number}=2".encode())
        assert measured(bench, library).status is Status.OK
        job = Job(Op.MEASURE, 2, library=damaged, samples=3)
        assert answer(job, bench.measure).status is Status.WRONG_RESULT
    assert len(computed) == 3  # codes, sums and magnitudes
