"""`ckh.run` and `ckh.kernel` on the host: results compared with einsum, refusals, and failing candidates."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ckh
from ckh import ConvProblem, Direction, GemmProblem
from ckh.bench.supervision.process import WorkerProcess
from ckh.running import runnable
from tests.bench.faults import FAULTS, GOOD, HANG, SEGFAULT, FaultyDevice
from tests.refusals import expect_refusal, expect_values
from tests.running.arrays import expected, operands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.faults import Fault

CONV = ConvProblem(Direction.FORWARD, n=2, c=12, k=6, g=3, hi=7, wi=5, y=3, x=2, stride_h=2, pad_h=1, pad_w=1)
DEEP = ConvProblem(Direction.FORWARD, n=1, c=4, k=6, g=1, hi=4, wi=5, y=2, x=3, ndim=3, di=4, z=3, dilation_d=1)
GEMM = GemmProblem(20, 12, 33)


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache for all tests of this file, and separate workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CKH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("CKH_DATA_DIR", str(tmp_path_factory.mktemp("user")))
        runnable.close_all()
        yield
        runnable.close_all()


@pytest.mark.slow
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("problem", [CONV, DEEP], ids=["2d", "3d"])
def test_convolutions(direction: Direction, problem: ConvProblem) -> None:
    """Every direction, with groups, strides, padding and depth, equals einsum."""
    problem = problem.replaced(variant=direction)
    first, second = operands(problem)
    done = ckh.run(problem, first, second, device="host", verify=True)
    assert done.dtype == np.float32
    np.testing.assert_array_equal(done, expected(problem, first, second))


@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
def test_matrix_products(layout: str) -> None:
    """Operands are M x K and K x N for any layout and memory order."""
    problem = GEMM.replaced(layout=layout)
    a, b = operands(problem)
    chosen = ckh.kernel(problem, device="host")
    np.testing.assert_array_equal(chosen(a, b), a @ b)
    np.testing.assert_array_equal(chosen(np.asfortranarray(a), b[:, ::-1][:, ::-1], verify=True), a @ b)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_operands_that_are_not_finite_are_data(value: float) -> None:
    """NaN equals NaN and infinity equals infinity in a verified result, and no kernel fails for it."""
    a, b = operands(GEMM)
    special = a.copy()
    special[3, 5] = value
    chosen = ckh.kernel(GEMM, device="host")
    first = chosen.name
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(chosen(special, b, verify=True), special @ b)
    assert np.isfinite(chosen(a, b, verify=True)).all()
    assert chosen.name == first


@pytest.mark.slow
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("place", [0, 1])
def test_infinite_operands_of_convolutions(direction: Direction, place: int) -> None:
    """With padding, groups and strides, NaN and infinities are where the reference has them."""
    problem = CONV.replaced(variant=direction)
    given = operands(problem)
    given[place].flat[7] = np.inf
    done = ckh.run(problem, *given, device="host", verify=True)
    assert 0 < np.isinf(done).sum() + np.isnan(done).sum() < done.size


@pytest.mark.slow
def test_other_shapes_and_canonical_texts() -> None:
    """Channels of all groups may be one axis, also in the result; a problem may be its canonical text."""
    x, w = operands(CONV)
    y = ckh.run(CONV.canonical(), x.reshape(2, 7, 5, 12), w.reshape(6, 3, 2, 4), device="host")
    assert y.shape == (2, 4, 6, 6)
    np.testing.assert_array_equal(y.reshape(CONV.output_shape), expected(CONV, x, w))


def test_run_uses_the_kernel_of_predict() -> None:
    """The kernel is the first of `ckh.rank`, and its signature is shown."""
    chosen = ckh.kernel(CONV, device="host")
    assert chosen.name == ckh.rank(CONV, top=1, arch="host")[0].name
    assert (chosen.arch, chosen.problem, chosen.runs) == ("host", CONV, CONV)
    expect_values(repr(chosen), "fp32", "x (2, 7, 5, 3, 4)", "w (3, 2, 3, 2, 4)", "y (2, 4, 6, 3, 2)", chosen.name)


def test_dlpack_and_byte_order() -> None:
    """Arrays exported by DLPack, and arrays of another byte order, are read."""

    class Exported:
        def __init__(self, values: Any) -> None:
            self._values = values

        def __dlpack__(self, **options: Any) -> Any:
            return self._values.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self._values.__dlpack_device__()

    a, b = operands(GEMM)
    np.testing.assert_array_equal(ckh.run(GEMM, Exported(a), b.astype(">f4"), device="host"), a @ b)


def test_tensors_of_pytorch() -> None:
    """The result for tensors is a tensor, also for strided and differentiable ones."""
    torch = pytest.importorskip("torch", reason="PyTorch is absent: pip install torch")
    a, b = (torch.from_numpy(operand) for operand in operands(GEMM))
    done = ckh.run(GEMM, a.requires_grad_(), b.t().contiguous().t(), device="host")
    assert done.dtype == torch.float32
    assert torch.equal(done, (a @ b).detach())


@pytest.mark.parametrize(
    ("arrays", "code", "values"),
    [
        ((np.zeros((20, 33), np.float32),), "usage", ("1", "a and b")),
        ((np.zeros((33, 20), np.float32), np.zeros((33, 12), np.float32)), "bad-problem", ("(33, 20)", "(20, 33)")),
        ((np.zeros((20, 33)), np.zeros((33, 12), np.float32)), "column-type", ("float64", "fp32")),
        (([[1.0]], np.zeros((33, 12), np.float32)), "column-type", ("list",)),
    ],
)
def test_wrong_arrays(arrays: tuple[Any, ...], code: str, values: tuple[str, ...]) -> None:
    """A wrong number, shape or element type is refused in one line before anything runs."""
    with expect_refusal(ckh.UsageError, code, *values):
        ckh.run(GEMM, *arrays, device="host")


def test_problems_that_cannot_be_run() -> None:
    """An operation whose kernels ckh does not build, an unknown device, and a model of another architecture."""
    text = "aiter_gemm_a8w8_gfx942_fp8_fp8_bf16_m1_n1_k1"
    with pytest.raises(ckh.CkhError):
        ckh.run(text, device="host")
    with expect_refusal(ckh.UsageError, "unknown-name", "fpga"):
        ckh.run(GEMM, device="fpga")
    with pytest.raises(ckh.CkhError):
        ckh.kernel(GEMM, device="host", model="models/nowhere")
    with expect_refusal(ckh.UsageError, "bad-problem"):
        ckh.run("gemm_fp32", device="host")


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Injects faults into the first candidates of a problem, in the order in which they are tried."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path))

    def replace(*faults: Fault) -> list[str]:
        device = FaultyDevice()
        best = ckh.rank(CONV, top=None, arch="host")[: len(faults)]
        device._faults = {item.kernel: fault for item, fault in zip(best, faults, strict=True)}
        monkeypatch.setattr(runnable, "open_device", lambda *_: device)
        runnable.close_all()
        return [item.name for item in best]

    yield replace
    runnable.close_all()


def _called(times: int = 1, **options: Any) -> tuple[ckh.RunnableKernel, list[Any]]:
    chosen = ckh.kernel(CONV, device="host", **options)
    x, w = operands(CONV)
    return chosen, [chosen(x, w) for _ in range(times)]


@pytest.mark.slow
def test_the_next_candidate_replaces_a_failed_one(faulty: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A compile error, a crash and a refusal lead to the fourth candidate, with one warning and once."""
    names = faulty(FAULTS["does not compile"][0], SEGFAULT, FAULTS["unsupported"][0], GOOD)
    chosen, results = _called(2)
    assert chosen.name == names[3]
    for result in results:
        np.testing.assert_array_equal(result, expected(CONV, *operands(CONV)))
    (line,) = (text for text in capsys.readouterr().err.splitlines() if text.startswith("warning"))
    expect_values(line, names[3], names[0], "compile_error", "[no-working-kernel]")
    assert ckh.kernel(CONV, device="host").name == names[3]


@pytest.mark.slow
def test_a_hang_ends_after_the_time_limit(faulty: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The worker is killed, not this process."""
    names = faulty(HANG, GOOD)
    chosen, (result,) = _called(timeout_s=1.0)
    assert chosen.name == names[1]
    np.testing.assert_array_equal(result, expected(CONV, *operands(CONV)))
    expect_values(capsys.readouterr().err, "timeout")


@pytest.mark.slow
def test_only_verification_detects_a_wrong_kernel(faulty: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Without `verify` its result is returned, with it the next candidate's."""
    wrong = FAULTS["one wrong number"][0]
    names = faulty(wrong, GOOD)
    x, w = operands(CONV)
    right = expected(CONV, x, w)
    assert np.count_nonzero(ckh.run(CONV, x, w, device="host") != right) == 1
    np.testing.assert_array_equal(ckh.run(CONV, x, w, device="host", verify=True), right)
    expect_values(capsys.readouterr().err, names[0], "wrong_result")


@pytest.mark.slow
def test_wrong_results_of_operands_with_nan_are_not_kept(faulty: Any) -> None:
    """A kernel that fails verification with NaN in an operand is tried again in later calls."""
    names = faulty(FAULTS["one wrong number"][0], GOOD)
    x, w = operands(CONV)
    special = x.copy()
    special.flat[-1] = np.nan
    chosen = ckh.kernel(CONV, device="host")
    chosen(special, w, verify=True)
    assert chosen.name == names[0]
    chosen(x, w, verify=True)
    assert chosen.name == names[1]


@pytest.mark.slow
def test_out_of_bounds_writes_are_detected_without_verification(faulty: Any) -> None:
    """Memory beyond the result is checked after each call."""
    names = faulty(FAULTS["write behind"][0], GOOD)
    assert _called()[0].name == names[1]


@pytest.mark.slow
def test_no_working_candidate(faulty: Any) -> None:
    """The error has the first candidate and its reason; the next call has a new worker."""
    names = faulty(*[SEGFAULT] * 8)
    with expect_refusal(ckh.NoKernelError, "no-working-kernel", "8", names[0], "SIGSEGV"):
        _called()


@pytest.mark.slow
def test_exhaustive_measurement_chooses_the_fastest(
    faulty: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All candidates are measured once, and the times are kept."""
    from tests.bench.faults import claims

    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    names = [item.name for item in ckh.rank(CONV, arch="host")][:3]
    faulty(claims(90.0), claims(70.0), claims(80.0))
    chosen, (result,) = _called(kernels=names, exhaustive=True)
    assert chosen.name == names[1]
    np.testing.assert_array_equal(result, expected(CONV, *operands(CONV)))
    assert [candidate.measured_latency_ms for candidate in chosen.ranked] == [70.0, 80.0, 90.0]

    def no_measuring(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("ckh.bench.supervision.driver.compare_kernels", no_measuring)
    assert _called(kernels=names, exhaustive=True)[0].name == names[1]


@pytest.mark.slow
def test_a_worker_serves_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of several problems and threads share a worker; a killed one is replaced."""
    started: list[WorkerProcess] = []
    start = WorkerProcess._start

    def counted(self: WorkerProcess, *args: Any) -> None:
        started.append(self)
        start(self, *args)

    monkeypatch.setattr(WorkerProcess, "_start", counted)
    runnable.close_all()
    a, b = operands(GEMM)
    chosen = ckh.kernel(GEMM, device="host")
    results: list[Any] = [chosen(a, b) for _ in range(3)]
    thread = threading.Thread(target=lambda: results.append(chosen(a, b)))
    thread.start()
    thread.join()
    ckh.run(CONV, *operands(CONV), device="host")
    assert len(started) == 1
    os.kill(started[0]._pid, 9)
    results.append(chosen(a, b))
    assert len(started) == 2
    for result in results:
        np.testing.assert_array_equal(result, a @ b)


def test_tensors_without_elements_are_refused() -> None:
    """Sparse, meta and masked operands in one line; a negated view is computed."""
    torch = pytest.importorskip("torch", reason="PyTorch is absent: pip install torch")
    a, b = (torch.from_numpy(operand) for operand in operands(GEMM))
    for strange in (a.to_sparse(), a.to("meta")):
        with expect_refusal(ckh.UsageError, "column-type", "a"):
            ckh.run(GEMM, strange, b, device="host")
    negated = torch._neg_view(a)
    assert torch.equal(ckh.run(GEMM, negated, b, device="host"), (-a) @ b)


def test_masked_arrays_are_refused() -> None:
    """Their masks are not ignored."""
    a, b = operands(GEMM)
    with expect_refusal(ckh.UsageError, "column-type", "a"):
        ckh.run(GEMM, np.ma.masked_array(a, a > 0), b, device="host")
