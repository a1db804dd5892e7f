"""Rows of the journal from replies of a worker, whatever it says."""

from __future__ import annotations

import pytest

from ckh.bench.compile import Built
from ckh.bench.protocol import Reply
from ckh.bench.rows import result_row
from ckh.schema import Status

BUILT = Built(Status.OK, "/k.so", "hash")


def test_the_row_of_samples() -> None:
    """Median and least in ms, with the samples and loops that they come from."""
    row = result_row("run", "problem", "kernel", Reply(1, Status.OK, "", (2e6, 3e6, 3e6), 4), BUILT)
    assert (row.status, row.latency_ms, row.latency_min_ms, row.loops) == (Status.OK, 3.0, 2.0, 4)


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
    """The row of a reply that calls them OK is a launch error without any time."""
    row = result_row("run", "problem", "kernel", Reply(1, Status.OK, "", samples_ns, 1), BUILT)
    assert (row.status, row.message) == (Status.LAUNCH_ERROR, said)
    assert (row.latency_ms, row.latency_min_ms, row.samples_ns) == (None, None, ())


def test_the_row_of_a_race() -> None:
    """It has the status and the reason, and no time."""
    row = result_row("run", "problem", "kernel", Reply(1, Status.NONDETERMINISTIC, "3 of 9 outputs differ"), BUILT)
    assert (row.status, row.message, row.latency_ms) == ("nondeterministic", "3 of 9 outputs differ", None)
