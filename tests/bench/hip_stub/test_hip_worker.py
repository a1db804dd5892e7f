"""Kernels on a GPU through the real worker and supervisor; only the GPU is a stub."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ckh.bench.supervision.process import WorkerProcess
from ckh.bench.supervision.protocol import Job, Op
from ckh.schema import Status
from tests.bench.faults import FaultyDevice
from tests.bench.hip_stub.build import StubKernel
from tests.bench.hip_stub.workers import GOOD, ask, config, problem, setup, supervise
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SAMPLE_NS = 30e6  # as stated by kernel.cpp
OUTPUTS = 2 * 4 * 4 * 8


@pytest.mark.parametrize(
    ("element", "dtype"), [("fp32", "fp32"), ("fp16", "fp16"), ("bf16", "bf16"), ("bf16_cut", "bf16")]
)
def test_a_correct_kernel_is_measured(build: Callable[[StubKernel], str], element: str, dtype: str) -> None:
    """Inputs of the dtype arrive, the result is returned and right, and the samples are the kernel's own."""
    replies, _ = supervise([build(StubKernel(element))], dtype)
    assert [(reply.status, reply.message, reply.samples_ns) for reply in replies] == [(Status.OK, "", (SAMPLE_NS,) * 3)]


@pytest.mark.parametrize("element", ["fp32", "fp16", "bf16", "bf16_cut"])
def test_a_missing_product_is_detected(build: Callable[[StubKernel], str], element: str) -> None:
    """One missing product of one element exceeds the rounding error and makes the result wrong."""
    kernel = StubKernel(element, skip="n==1&&h==2&&w==2&&k==5&&y==1&&x==1&&c==2")
    (reply,), _ = supervise([build(kernel)], element.removesuffix("_cut"))
    assert reply.status is Status.WRONG_RESULT
    expect_values(reply.message, 1, OUTPUTS, ((1 * 4 + 2) * 4 + 2) * 8 + 5)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (StubKernel(after="out[size] = out[0]"), "the kernel wrote out of bounds: 2 bytes behind the output"),
        (StubKernel(after="out[-1] = out[0]"), "the kernel wrote out of bounds: 2 bytes in front of the output"),
        (StubKernel(after="workspace[9] = 1", workspace="9"), "out of bounds: 1 bytes behind the workspace"),
        (StubKernel(before="return 0"), f"{OUTPUTS} are NaN or were never written"),
        (StubKernel(before="if (workspace[3]) return 0", workspace="64"), "never written"),
    ],
)
def test_a_wrong_kernel_is_detected(build: Callable[[StubKernel], str], kernel: StubKernel, message: str) -> None:
    """Guards and NaN on the GPU reveal the error, and the next kernel is right, in the same worker."""
    replies, restarts = supervise([build(kernel), build(GOOD)])
    assert [reply.status for reply in replies] == [Status.WRONG_RESULT, Status.OK]
    assert message in replies[0].message
    assert restarts == 0


def test_only_the_kernel_that_overwrites_inputs_is_blamed(build: Callable[[StubKernel], str]) -> None:
    """Inputs are restored after a wrong result; a right kernel that overwrites them does not fail the next one."""
    spoils_first = StubKernel(before="b[7] = ELEMENT::of(float(b[7]) + 3)")
    spoils_last = StubKernel(after="a[11] = ELEMENT::of(5)")
    good = build(GOOD)
    replies, restarts = supervise([build(spoils_first), good, build(spoils_last), good, good])
    statuses = [reply.status for reply in replies]
    assert statuses[:2] == [Status.WRONG_RESULT, Status.OK]
    assert statuses[3:] == [Status.OK, Status.OK]
    assert "inputs" in replies[0].message
    assert restarts == 0


def test_a_kernel_with_damaged_inputs_is_run_again(
    build: Callable[[StubKernel], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that changes under a right kernel causes a second run, not a failure."""
    monkeypatch.setenv("CKH_STUB_CORRUPT_AT", "1")
    (reply,), _ = supervise([build(GOOD)])
    assert reply.status is Status.OK


def test_inputs_are_uploaded_once(
    build: Callable[[StubKernel], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Three right kernels on a problem cause two uploads, of the operands."""
    log = tmp_path / "log"
    monkeypatch.setenv("CKH_STUB_LOG", str(log))
    replies, _ = supervise([build(GOOD)] * 3)
    assert [reply.status for reply in replies] == [Status.OK] * 3
    uploads = [line for line in log.read_text().splitlines() if line.startswith("upload")]
    assert uploads == [f"upload {2 * 2 * 8 * 8 * 8}", f"upload {2 * 8 * 3 * 3 * 4}"]


def test_caches_are_flushed_on_request(build: Callable[[StubKernel], str]) -> None:
    """The kernel gets a writable buffer on the GPU."""
    (reply,), _ = supervise([build(GOOD)], flush_bytes=12_288)
    assert reply.samples_ns == (SAMPLE_NS + 12_288,) * 3


def test_the_first_run_is_not_a_sample(build: Callable[[StubKernel], str]) -> None:
    """A GPU's first run loads the kernel: its time is neither a sample nor evidence of a hopeless kernel."""
    slow_first = build(StubKernel(before="if (!timing) stub_pass(300)"))
    worker = WorkerProcess(FaultyDevice(), config())
    try:
        for best_ns, count in ((SAMPLE_NS, 3), (SAMPLE_NS / 4, 2), (SAMPLE_NS / 20, 1)):
            assert ask(worker, Job(Op.PROBLEM, 1, problem=problem().canonical(), best_ns=best_ns)).status is Status.OK
            reply = ask(worker, Job(Op.MEASURE, 2, library=slow_first, samples=3))
            assert reply.samples_ns == (SAMPLE_NS,) * count
        timed = ask(worker, Job(Op.TIME, 3, library=slow_first, samples=2, loops=2))
        assert timed.samples_ns == (SAMPLE_NS,) * 2
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("kernel", "result"),
    [
        (StubKernel(short="2500", graph="1500"), (4000.0, 1500.0, True)),  # 4000 ns launch by launch
        (StubKernel(short="2500"), (4000.0, 4000.0, False)),
        (StubKernel(short="12000", graph="1500"), (12000.0, 4000.0, False)),
    ],
)
def test_a_kernel_shorter_than_three_launches_is_timed_by_a_graph(
    build: Callable[[StubKernel], str], kernel: StubKernel, result: tuple[float, float, bool]
) -> None:
    """If there are graphs; the reply has the launch time of the same method."""
    (reply,), _ = supervise([build(kernel)])
    assert reply.status is Status.OK, reply.message
    assert (reply.samples_ns[0], reply.launch_ns, reply.by_graph) == result


def test_leaders_are_timed_by_graphs_too(build: Callable[[StubKernel], str]) -> None:
    """A kernel with many runs per sample is short."""
    library = build(StubKernel(short="2500", graph="1500"))
    worker = WorkerProcess(FaultyDevice(), config())
    try:
        assert ask(worker, setup()).status is Status.OK
        for loops, by_graph in ((125, True), (41, False)):
            reply = ask(worker, Job(Op.TIME, 3, library=library, samples=2, loops=loops))
            assert reply.status is Status.OK, reply.message
            assert (reply.by_graph, reply.samples_ns) == (by_graph, (4000.0, 4000.0))
    finally:
        worker.kill()
