"""Journal rows from worker replies."""

from __future__ import annotations

import pytest

from ckh.bench.compilation.compile import Built
from ckh.bench.supervision.protocol import Reply
from ckh.bench.supervision.runner import below_peak, result_row
from ckh.schema import Status
from tests.refusals import expect_values
from tests.runs import host_run

BUILT = Built(Status.OK, "/k.so", "hash")


def test_the_row_of_samples() -> None:
    """Median and minimum in ms, with the samples and loops."""
    row = result_row("run", "problem", "kernel", Reply(1, Status.OK, "", (2e6, 3e6, 3e6), 4), BUILT)
    assert (row.status, row.latency_ms, row.latency_min_ms, row.loops) == (Status.OK, 3.0, 2.0, 4)


@pytest.mark.parametrize(
    ("samples_ns", "status"),
    [
        ((1.00e6, 1.10e6), Status.OK),  # 4.8 % from the median 1.05
        ((1.00e6, 1.12e6), Status.UNSTABLE),  # 5.7 % from 1.06
        ((1e6,), Status.OK),
    ],
)
def test_two_differing_samples_are_unstable(samples_ns: tuple[float, ...], status: Status) -> None:
    """As for any number of samples, if they spread by more than 5 %; a single one cannot."""
    assert result_row("run", "problem", "kernel", Reply(1, Status.OK, "", samples_ns, 1), BUILT).status is status


@pytest.mark.parametrize(
    ("median_ns", "by_graph", "status"),
    [
        (12_000.0, False, Status.OK),  # three launches of 4 us
        (11_999.0, False, Status.LAUNCH_BOUND),
        (6_000.0, True, Status.OK),  # one and a half
        (5_999.0, True, Status.LAUNCH_BOUND),
    ],
)
def test_the_row_of_a_kernel_that_is_shorter_than_its_launch(median_ns: float, by_graph: bool, status: Status) -> None:
    """It has its time and that of an empty kernel, and is launch-bound whatever its spread."""
    samples = (median_ns / 2, median_ns, median_ns) if status is Status.LAUNCH_BOUND else (median_ns,)
    reply = Reply(1, Status.OK, "", samples, 1, launch_ns=4000.0, by_graph=by_graph)
    row = result_row("run", "problem", "kernel", reply, BUILT)
    assert (row.status, row.latency_ms, row.launch_ms, row.by_graph) == (status, median_ns / 1e6, 0.004, by_graph)


@pytest.mark.parametrize(
    ("samples_ns", "said"),
    [
        ((), "there is no time"),
        ((1e6, float("nan")), "the kernel says that it took nan ns"),
        ((float("inf"),), "the kernel says that it took inf ns"),
        ((0.0, 1e6), "the kernel says that it took 0 ns"),
        ((1e6, -1e6, 1e6), "the kernel says that it took -1e+06 ns"),
    ],
)
def test_impossible_times_are_never_measured(samples_ns: tuple[float, ...], said: str) -> None:
    """The row of an OK reply with such times has none."""
    row = result_row("run", "problem", "kernel", Reply(1, Status.OK, "", samples_ns, 1), BUILT)
    assert (row.status, row.message) == (Status.IMPOSSIBLE_TIME, said)
    assert (row.latency_ms, row.latency_min_ms, row.samples_ns) == (None, None, ())


def test_the_row_of_a_race() -> None:
    """It has the status and the reason, but no time."""
    row = result_row("run", "problem", "kernel", Reply(1, Status.NONDETERMINISTIC, "3 of 9 outputs differ"), BUILT)
    assert (row.status, row.message, row.latency_ms) == ("nondeterministic", "3 of 9 outputs differ", None)


GEMM = "gemm_fp16_rcr_m8192_n8192_k8192_splitk1"
# 2 x 8192^3 operations at 2,048 per CU and clock, of the 304 CUs of an MI300X at 2,100 MHz.
LEAST_NS = 2 * 8192**3 / (2048 * 304 * 2.1)


@pytest.mark.parametrize(("share", "status"), [(1.19, Status.OK), (1.21, Status.IMPOSSIBLE_TIME)])
def test_times_above_the_peak_are_not_believed(share: float, status: Status) -> None:
    """Those of a reader are held against the same bound, a fifth above the nominal peak of the run's GPU."""
    reply = Reply(1, Status.OK, "", (LEAST_NS / share,), 1)
    judged = below_peak(reply, GEMM, host_run({"num_cus": 304}, arch="gfx942"))
    assert (judged.status, bool(judged.samples_ns)) == (status, status is Status.OK)
    assert below_peak(reply, GEMM, host_run({"num_cus": 304})) is reply
    if status is not Status.OK:
        expect_values(judged.message, f"{LEAST_NS / share / 1e6:.3g}", "gfx942", f"{LEAST_NS / 1e6:.3g}")
