"""The rules of timing, with numbers computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckh.bench.isolated.timing import (
    MAX_LOOPS,
    Clocked,
    Launching,
    Timing,
    WarmUp,
    complaint,
    in_graphs,
    is_hopeless,
    is_too_few,
    lags_host,
    loops_for,
    outlasts_host,
    sample_count,
    summarize,
    warm_up_loops,
)


@pytest.mark.parametrize(
    ("estimate_ns", "best_ns", "count"),
    [
        (100, 0, 5),  # nothing to compare with
        (100, 100, 5),
        (300, 100, 5),
        (301, 100, 2),  # more than 3 times the best
        (1000, 100, 2),
        (1001, 100, 1),  # more than 10 times the best
        (50, 100, 5),  # a new best
        (0.4e9, 0.4e9, 5),  # all samples together may last two seconds
        (0.5e9, 0.5e9, 4),
        (1.1e9, 0, 1),
        (9e9, 0, 1),  # there is always one
        (0, 0, 5),
    ],
)
def test_slow_kernels_get_fewer_samples(estimate_ns: float, best_ns: float, count: int) -> None:
    """Above 3 times the best a kernel gets two samples, above 10 times one, and never more than fit in two seconds."""
    assert sample_count(estimate_ns, best_ns, 5) == count


def test_no_kernel_gets_more_samples_than_wanted() -> None:
    """A request of one sample gives one, of a slow kernel too, and a request of fifty gives fifty."""
    assert [sample_count(estimate_ns, 100, 1) for estimate_ns in (100, 400, 4000)] == [1, 1, 1]
    assert sample_count(100, 100, 50) == 50


@pytest.mark.parametrize(
    ("estimate_ns", "loops"),
    [(1000, 500), (999, 501), (1001, 500), (499_999, 2), (500_000, 1), (7e9, 1), (1, 500_000), (0, 500_000)],
)
def test_a_sample_lasts_half_a_millisecond(estimate_ns: float, loops: int) -> None:
    """A sample has the fewest runs that last 500,000 ns."""
    assert loops_for(estimate_ns) == loops


def test_loops_are_bounded() -> None:
    """However long the target, a sample is at most a million runs."""
    assert loops_for(10, 1e6) == 100_000
    assert loops_for(1, 5e6) == MAX_LOOPS == 1_000_000


@given(st.floats(1, 1e10))
def test_a_sample_is_long_enough_and_no_longer(estimate_ns: float) -> None:
    """One run fewer would be too short."""
    loops = loops_for(estimate_ns)
    assert loops * estimate_ns >= 500_000 * (1 - 1e-12)
    assert loops == 1 or (loops - 1) * estimate_ns < 500_000


@pytest.mark.parametrize(
    ("first_ns", "loops"), [(1000, 250), (250_000, 1), (3_999_999, 1), (4_000_000, 0), (1e9, 0), (100, 2500)]
)
def test_warm_up_lasts_half_a_sample_unless_the_first_run_did(first_ns: float, loops: int) -> None:
    """A first run of 4 ms is warm; a shorter one is followed by runs for 250,000 ns."""
    assert warm_up_loops(first_ns) == loops


@pytest.mark.parametrize(
    ("first_ns", "best_ns", "suffices"),
    [
        (1e9, 0, False),  # no other kernel is known
        (500_000, 50_000, False),  # not more than ten times the best
        (500_001, 50_000, True),
        (500_000, 49_999, True),
        (499_999, 1, False),  # too short to be a sample
        (1e6, 2e6, False),
    ],
)
def test_a_long_run_far_from_the_best_is_hopeless(first_ns: float, best_ns: float, suffices: bool) -> None:
    """Both conditions are required: more than ten times the best, and the length of a sample."""
    assert is_hopeless(first_ns, best_ns) is suffices


@pytest.mark.parametrize(
    ("samples_ns", "too_few"),
    [
        ((400.0, 401.0), False),  # slow, and both agree
        ((400.0, 500.0), True),  # 11 % from the median 450
        ((250.0, 251.0), True),  # not slow, whatever was estimated
        ((2000.0,), False),
        ((100.0,), True),
        ((400.0, 500.0, 400.0, 400.0, 900.0), False),  # all samples
    ],
)
def test_a_paused_kernel_gets_all_samples(samples_ns: tuple[float, ...], too_few: bool) -> None:
    """Fewer than all samples are enough only if they agree, and are as slow as estimated."""
    assert is_too_few(samples_ns, 100.0, 5) is too_few


def test_kernels_shorter_than_three_launches_are_timed_by_a_graph() -> None:
    """If there are graphs, and the time of an empty kernel is known."""
    assert [Launching(4000, 1500).wants_graph(run_ns) for run_ns in (11_999, 12_000)] == [True, False]
    assert not Launching(4000, 0).wants_graph(5000)
    assert not Launching(0, 0).wants_graph(5000)


@pytest.mark.parametrize(
    ("idle_s", "times_ns", "over_at"),
    [
        (0.01, (0.5e6,) * 9, 3),  # 1.5 ms, and three that agree
        (0.01, (0.25e6,) * 9, 6),  # 1.5 ms
        (0.01, (0.6e6, 0.5e6, 0.5e6, 0.5e6), 4),
        (0.01, (0.5e6, 0.505e6, 0.51e6, 0.51e6), 3),  # by 2 %
        (0.01, (0.5e6, 0.505e6, 0.511e6, 0.511e6, 0.511e6), 4),  # by more
        (0.21, (0.5e6,) * 99, 50),  # 25 ms
        (None, (0.5e6,) * 999, 500),  # 250 ms
        (0.01, (0.5e6, 1e6) * 99, 69),  # never agree: 51.5 ms
        (None, (1.0,) * 1001, 1000),  # a clock that does not advance
    ],
)
def test_a_gpu_is_warm_after_some_time_when_samples_agree(
    idle_s: float | None, times_ns: tuple[float, ...], over_at: int
) -> None:
    """The first after 250 ms, after a pause after 25, else after 1.5; three agree within 2 %, or 50 ms more."""
    warm_up = WarmUp(idle_s)
    for count, time_ns in enumerate(times_ns):
        assert warm_up.is_over is (count >= over_at), count
        if warm_up.is_over:
            return
        warm_up.add(time_ns, 1)
    assert warm_up.is_over
    assert len(times_ns) == over_at


def test_summary_of_five_samples_by_hand() -> None:
    """Deviations from the median 11 are 1, 1, 0, 9, 2: their median is 1."""
    assert summarize([10.0, 12.0, 11.0, 20.0, 9.0]) == Timing(11.0, 9.0, 1 / 11)


def test_summary_of_an_even_number_of_samples() -> None:
    """The median is the mean of the middle two: of 10 and 14 it is 12, and of the deviations 2, 2, 6, 18 it is 4."""
    assert summarize([30.0, 10.0, 14.0, 6.0]) == Timing(12.0, 6.0, 4 / 12)


def test_summary_of_one_sample_and_of_a_stopped_clock() -> None:
    """One sample has no spread; a median of zero is not divided by."""
    assert summarize([7.0]) == Timing(7.0, 7.0, 0.0)
    assert summarize([0.0, 0.0, 3.0]) == Timing(0.0, 0.0, 0.0)


def test_one_outlier_does_not_count_as_spread() -> None:
    """A sample a hundred times too long affects neither median nor spread."""
    assert summarize([10.0, 10.0, 10.0, 10.0, 1000.0]) == Timing(10.0, 10.0, 0.0)


@pytest.mark.parametrize(
    ("samples_ns", "said"),
    [
        ((1.0, 2e9), ""),
        ((), "there is no time"),
        ((1.0, float("nan")), "the kernel says that it took nan ns"),
        ((float("inf"), 1.0), "the kernel says that it took inf ns"),
        ((1.0, 0.0, 1.0), "the kernel says that it took 0 ns"),
        ((-1.0,), "the kernel says that it took -1 ns"),
    ],
)
def test_invalid_times_are_reported(samples_ns: tuple[float, ...], said: str) -> None:
    """A time is positive and finite, and there must be at least one."""
    assert complaint(samples_ns) == said


@pytest.mark.parametrize(
    ("events_ms", "host_ms", "is_right"), [(2.5, 2.6, True), (2.5, 2.4, True), (2.5, 2.2, False), (0.02, 0.001, True)]
)
def test_events_do_not_outlast_the_call(events_ms: float, host_ms: float, is_right: bool) -> None:
    """A twentieth and 50 us are left for two clocks and the resolution of events."""
    assert (outlasts_host(Clocked(events_ms * 1e6, host_ms * 1e6)) == "") == is_right


@pytest.mark.parametrize(
    ("events_ms", "host_ms", "lags"),
    [
        ((0.5, 2.5), (3.5, 5.5), False),  # making a graph takes 3 ms in both calls
        ((0.5, 2.5), (0.6, 3.0), False),  # 100 us between samples
        ((0.5, 2.5), (1.0, 5.0), True),  # half
        ((0.5, 2.5), (5.0, 25.0), True),  # a tenth
        ((0.5, 1.0), (1.0, 3.0), False),  # too little to compare
    ],
)
def test_events_lag_the_host(events_ms: tuple[float, float], host_ms: tuple[float, float], lags: bool) -> None:
    """What calls of few and of many samples have in common does not count."""
    few, many = (Clocked(events * 1e6, host * 1e6) for events, host in zip(events_ms, host_ms, strict=True))
    assert bool(lags_host(few, many)) == lags


@pytest.mark.parametrize(
    ("loops", "sets", "launches"), [(1, 1, 32), (32, 1, 32), (33, 1, 64), (100, 5, 105), (1, 64, 64), (70, 35, 70)]
)
def test_graphs_are_started_whole(loops: int, sets: int, launches: int) -> None:
    """32 launches or more, of all sets equally often."""
    assert in_graphs(loops, sets) == launches
