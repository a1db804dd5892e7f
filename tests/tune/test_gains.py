"""Gains of tuning are those of common rounds, weighted by counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from ckh import GemmProblem
from ckh.data.journal_records import ReferenceRecord, ResultRow
from ckh.schema import Status
from ckh.shapes.layers import WeightedProblem
from ckh.tune.gains import (
    SAME_KERNEL,
    MeasuredRun,
    OwnTime,
    Ratio,
    TuneDocument,
    TunedShape,
    Unestablished,
    VisitNoise,
    established,
    is_worth_it,
    log_ratios,
    ratio_of_visits,
    total_gain,
    tuned_shapes,
)
from ckh.tune.page import page, summary
from tests.refusals import has_values

LARGE, SMALL = (
    WeightedProblem("gemm_universal", GemmProblem(64, 128, 32 * k, "fp32"), count, (f"layer{k}",), "here")
    for k, count in ((4, 80), (1, 3))
)
TEXTS = LARGE.problem.canonical(), SMALL.problem.canonical()
TIMES = {"a": 4.0, "b": 2.0, "c": 8.0}


def row(kernel: str, samples_ms: tuple[float, ...], *, time: float = 10.0, again: bool = True) -> ResultRow:
    """Row of a kernel on the large problem, as bench writes it."""
    ms = float(np.median(samples_ms))
    spread = float(np.median(np.abs(np.array(samples_ms) - ms))) / ms
    samples_ns = tuple(1e6 * sample for sample in samples_ms)
    status = Status.UNSTABLE if spread > 0.05 else Status.OK
    problem = LARGE.problem.canonical()
    return ResultRow("run", problem, kernel, status, "", ms, ms, spread, samples_ns, 1, again, "", time)


def look(ratio: float, time: float) -> ReferenceRecord:
    """A reference measurement."""
    return ReferenceRecord("run", "p", "k", ratio, ratio, None, None, time)


def gain_of(*records: ResultRow | ReferenceRecord) -> Ratio | Unestablished:
    """Gain of kernel b over kernel a."""
    return MeasuredRun.of(records).gain(LARGE.problem.canonical(), "a", "b")


def both(first: ResultRow, *rows: ResultRow) -> list[ResultRow]:
    """Rows of a visit, and the same of another one."""
    return [structs.replace(row, time=row.time + later) for later in (0.0, 7.0) for row in (first, *rows)]


def test_the_ratio_is_of_rounds_and_visits() -> None:
    """By hand: the middle rounds of two visits, and t of 8 and of 3 degrees of freedom, in quadrature."""
    first = log_ratios((4.0, 4.4, 4.0, 4.2, 9.0), (2.0,) * 5)  # the burst and the smallest do not count
    second = log_ratios((2.0, 2.1, 2.0, 2.0, 2.0), (1.0,) * 5)
    logs = [np.log([2.0, 2.2, 2.0, 2.1, 4.5]), np.log([2.0, 2.1, 2.0, 2.0, 2.0])]
    center = (np.log(2.0 * 2.1 * 2.2) + np.log(2.0) * 3) / 6
    within = math.sqrt(sum(np.sum((part - part.mean()) ** 2) for part in logs) / 8 / 10) * 2.306004
    between = math.sqrt(2 * 0.0004 / 2) * 3.182446
    result = ratio_of_visits([first, second], VisitNoise(0.0004, 3))
    assert result.value == pytest.approx(math.exp(center), rel=1e-12)
    half = math.hypot(within, between)
    assert result.interval == pytest.approx((math.exp(center - half), math.exp(center + half)), rel=1e-6)
    far = ratio_of_visits([np.zeros(5), np.full(5, math.log(1.21))], VisitNoise(1e-6, 30))
    assert (far.value, *far.interval) == pytest.approx((1.1, 1.0, 1.21))  # both visits are in it


def test_the_noise_of_visits_is_of_all_kernels_and_shapes() -> None:
    """The interaction of kernels and visits, by hand: a slow visit is none, a kernel that is slow in one visit is."""
    first = [row(name, (ms,) * 5) for name, ms in (("a", 4.0), ("b", 2.0), ("c", 3.0))]
    slow = [row(name, (1.3 * ms,) * 5, time=20.0) for name, ms in (("a", 4.0), ("b", 2.0), ("c", 3.0))]
    assert MeasuredRun.of([*first, *slow]).visit_noise.variance == pytest.approx(0.0, abs=1e-12)
    slow[1] = row("b", (1.3 * 2.0 * 1.1,) * 5, time=20.0)
    other = [structs.replace(row, problem=TEXTS[1]) for row in first]
    noise = MeasuredRun.of([*first, *slow, *other]).visit_noise
    # Of the logarithm x of 1.1: -x/3 and x/3 for b, half as much for a and c with the other sign.
    assert noise.variance == pytest.approx((2 / 9 + 4 / 36) * math.log(1.1) ** 2 / 2, rel=1e-9)
    assert noise.degrees == 2
    run = MeasuredRun.of([*first, *slow])
    result = run.gain(TEXTS[0], "a", "b")
    expected = ratio_of_visits([np.full(5, math.log(2.0)), np.full(5, math.log(2 / 1.1))], noise)
    assert isinstance(result, Ratio)
    assert (result.value, *result.interval) == pytest.approx((expected.value, *expected.interval))


def test_a_visit_does_not_judge_its_own_choice() -> None:
    """The kernel that is the fastest of a visit by chance is compared by its time in the other one."""
    first = [row("a", (1.0,) * 5), row("b", (0.9,) * 5), row("c", (1.02,) * 5)]
    second = [row("a", (1.0,) * 5, time=20.0), row("b", (1.01,) * 5, time=20.0), row("c", (0.92,) * 5, time=20.0)]
    result = MeasuredRun.of([*first, *second]).gain(TEXTS[0], "a", "c")
    assert isinstance(result, Ratio)
    assert result.value == pytest.approx(1 / math.sqrt(1.02 * 1.01))  # neither 1 / 0.9 nor 1 / 0.92


def test_measurements_on_a_shared_gpu_are_counted() -> None:
    """All of the journal's, those repeated in rounds too."""
    shared = [structs.replace(row("a", (2.0,), again=again), card={"other_processes": 1.0}) for again in (False, True)]
    alone = structs.replace(row("b", (2.0,)), card={"other_processes": 0.0})
    assert MeasuredRun.of([*shared, alone, row("c", (2.0,))]).shared == 2
    values: Any = dict.fromkeys(TuneDocument.field_names) | {
        "shapes": (),
        "established": 0,
        "pairs": 3,
        "pairs_planned": 3,
        "weights": {"1": 2000, "64": 1},
        "left_out": ("left out 3 % of the work",),
    }
    for count in (0, 2):
        document = TuneDocument(
            **values | {"folder": "t", "op": "gemm_universal", "shared": count, "is_complete": True}
        )
        for text in (summary(document, ""), page(document, "", ())):
            lines = [line for line in text.splitlines() if "other processes" in line]
            assert [has_values(line, count) for line in lines] == [True] * (count > 0)
            assert "1:2000, 64:1" in text
            assert document.left_out[0] in text


def test_drift_within_rounds_cancels() -> None:
    """A machine that becomes slower by 4 % a round leaves the ratio of two kernels exact."""
    drifts = [1.04**number for number in range(5)]
    result = ratio_of_visits([log_ratios([3.0 * drift for drift in drifts], [2.0 * drift for drift in drifts])])
    assert (result.value, *result.interval) == pytest.approx((1.5, 1.5, 1.5), rel=1e-12)


def test_a_gain_of_separate_measurements_is_not_established() -> None:
    """Today's kernel sampled once on a drifting machine, the winner again: neither 3.86x nor any other gain."""
    today = row("a", (2.6, 18.7, 23.2, 2.6, 19.3), again=False)
    winner = [row("b", (1.4, 1.39, 1.387, 1.38, 1.4)), row("c", (1.45,) * 5)]
    looks = [look(1.0, 0.0), look(1.53, 9.0), look(1.5, 70.0)]
    assert gain_of(today, *winner, *looks) is Unestablished.NO_ROUNDS
    run = MeasuredRun.of([today, *winner, *looks])
    assert (run.drift, run.unstable) == ((1.0, 1.53), 1.0)
    (shape,) = tuned_shapes([LARGE], {TEXTS[0]: "a"}, {TEXTS[0]: {"a": 18.7, "b": 1.387}}, run, {}, {})
    assert (shape.gain, shape.gain_interval, shape.not_established) == (None, None, "no common rounds")
    assert total_gain(established([shape])) is None


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (both(row("a", (2.0,) * 5, time=9.0), row("b", (1.0,) * 5)), Unestablished.NO_ROUNDS),
        (both(row("a", (2.0,) * 4), row("b", (1.0,) * 4)), Unestablished.NO_ROUNDS),
        ([row("a", (2.0,) * 5), row("b", (1.0,) * 5)], Unestablished.ONE_VISIT),
        (both(row("a", (2.6, 18.7, 23.2, 2.6, 19.3)), row("b", (1.4,) * 5)), Unestablished.UNSTABLE),
        (both(row("a", (2.0,) * 5), row("b", (1.0, 1.2, 0.8, 1.3, 0.7))), Unestablished.UNSTABLE),
        ([look(1.0, 0.0), *both(row("a", (2.0,) * 5), row("b", (1.0,) * 5)), look(1.06, 20.0)], Unestablished.DRIFT),
        ([look(1.0, 0.0), look(0.94, 5.0), *both(row("a", (2.0,) * 5), row("b", (1.0,) * 5))], Unestablished.DRIFT),
    ],
)
def test_unsteady_times_establish_no_gain(records: list[ResultRow | ReferenceRecord], expected: Unestablished) -> None:
    """Of different or too few rounds or visits, unstable on either side, or beside a reference that moved over 5 %."""
    assert gain_of(*records) is expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"status": Status.UNSTABLE}, Unestablished.CLOCK),
        ({"card": {"other_processes": 1.0}}, Unestablished.SHARED),
    ],
)
def test_a_changed_clock_and_others_establish_no_gain(change: dict[str, Any], expected: Unestablished) -> None:
    """Although the samples agree, until a third visit is steady."""
    today, best = row("a", (2.0,) * 5), row("b", (1.0,) * 5)
    visits = [*both(today, best), structs.replace(best, **change)]
    assert gain_of(*visits) is expected
    assert isinstance(
        gain_of(*visits, *both(structs.replace(today, time=50.0), structs.replace(best, time=50.0))), Ratio
    )


def test_drift_at_another_time_is_no_reason() -> None:
    """The reference times before and after the rounds count; a visit during drift, or without a kernel, does not."""
    records: list[ResultRow | ReferenceRecord] = [
        look(1.0, 0.0),
        *both(row("a", (3.0,) * 5), row("b", (1.0,) * 5)),
        *(look(1.01, 20.0), look(1.3, 80.0)),
        *(row("a", (8.0,) * 5, time=90.0), row("b", (1.0,) * 5, time=90.0)),
        *(row("b", (1.0,) * 5, time=95.0), row("c", (1.0,) * 5, time=95.0)),
    ]
    result = gain_of(*records)
    assert isinstance(result, Ratio)
    assert result.value == pytest.approx(3.0)


def test_an_unchanged_kernel_gains_exactly_nothing() -> None:
    """However uncertain its time is."""
    assert MeasuredRun().gain(LARGE.problem.canonical(), "a", "a") == SAME_KERNEL


def test_the_fastest_measured_kernel_is_compared_with_the_current_one() -> None:
    """A shape's share is of the time with current kernels; unmeasured shapes have no gain."""
    run = MeasuredRun.of(both(row("a", (4.0,) * 5), row("b", (2.0,) * 5)))
    today = {TEXTS[0]: "a", TEXTS[1]: "d"}
    large, small = tuned_shapes([LARGE, SMALL], today, dict.fromkeys(TEXTS, TIMES), run, {}, {})
    assert (large.kernel, large.latency_ms, large.count, large.layers) == ("b", 2.0, 80, ("layer4",))
    assert large.gain == pytest.approx(2.0)
    assert (large.not_established, large.share) == (None, 1.0)
    assert (small.gain, small.today_ms, small.latency_ms, small.share) == (None, None, 2.0, None)
    assert small.not_established == "not measured"
    (nothing,) = tuned_shapes([SMALL], {}, {}, run, {}, {})
    assert (nothing.today, nothing.kernel, nothing.latency_ms) == (None, None, None)


def test_shares_are_of_measured_times_or_of_those_in_tables() -> None:
    """A kernel of the consumer's own table is today's; its time there counts where nothing was measured."""
    tables = {TEXTS[0]: OwnTime("t", 1.0), TEXTS[1]: OwnTime("a", 20.0)}
    large, small = tuned_shapes([LARGE, SMALL], {TEXTS[0]: "a"}, {}, MeasuredRun(), tables, {})
    assert (large.today, large.today_ms, large.table_ms) == ("t", None, 1.0)
    assert (large.share, small.share) == (80 / 140, 60 / 140)
    _, small = tuned_shapes([LARGE, SMALL], {}, {TEXTS[1]: TIMES}, MeasuredRun(), tables, {})
    assert (small.today_ms, small.table_ms, small.share) == (4.0, 20.0, 1.0)


def shape(
    weighted: WeightedProblem, today_ms: float | None, gain: Ratio | None, kernel: str | None = "b"
) -> TunedShape:
    """A shape with a gain."""
    text, value = weighted.problem.canonical(), None if gain is None else gain.value
    interval, why = (None, "drift") if gain is None else (gain.interval, None)
    times = today_ms, None, kernel, None
    return TunedShape(text, weighted.count, (), "a", *times, value, interval, why, None, None, None, None)


def test_the_total_is_of_established_gains() -> None:
    """Weighted by count and time, with the errors of independent shapes; others do not count."""
    rows = [
        shape(LARGE, 4.0, Ratio(2.0, (1.8, 2.0**2 / 1.8))),
        shape(SMALL, 8.0, Ratio(4.0, (4.0, 4.0))),
        shape(SMALL, 50.0, None),
    ]
    assert [ms for ms, _ in established(rows)] == [80 * 4.0, 3 * 8.0]
    gain = total_gain(established(rows))
    assert gain is not None
    assert gain.value == (80 * 4.0 + 3 * 8.0) / (80 * 2.0 + 3 * 2.0)
    half = 160 / 166 * math.log(2.0 / 1.8)
    assert gain.interval == pytest.approx((gain.value * math.exp(-half), gain.value * math.exp(half)), rel=1e-12)
    assert total_gain(established(rows[2:])) is None


@pytest.mark.parametrize(("value", "low", "expected"), [(1.2, 1.1, True), (1.2, 0.9, False), (1.005, 1.001, False)])
def test_gains_below_the_noise_are_not_worth_it(value: float, low: float, expected: bool) -> None:
    """Only a gain above both noise and one percent counts; beside shapes that may gain there is no verdict."""
    gain = Ratio(value, (low, value**2 / low))
    sure, unsure, unmeasured = shape(LARGE, 4.0, gain), shape(LARGE, 4.0, None), shape(SMALL, None, None, None)
    assert is_worth_it(gain, [sure, unmeasured]) is expected
    assert is_worth_it(gain, [sure, unsure]) is (expected or None)


def document_of(*shapes: TunedShape, **values: Any) -> TuneDocument:
    """A document of measured shapes."""
    known: dict[str, Any] = dict.fromkeys(TuneDocument.field_names) | {"folder": "t", "op": "gemm_universal"}
    known |= {
        "weights": (),
        "shapes": shapes,
        "device": "gpu",
        "pairs": 3,
        "pairs_planned": 3,
        "is_complete": True,
        "left_out": (),
        "shared": 0,
    }
    total = total_gain(established(shapes))
    if total is not None:
        known |= {"gain": total.value, "gain_interval": total.interval}
    return TuneDocument(**known | {"established": len(established(shapes))} | values)


def test_predicted_and_measured_gains_are_of_the_same_shapes() -> None:
    """Both totals are of the shapes that have both, by hand; the other prediction stands apart."""
    both = shape(LARGE, 4.0, Ratio(2.0, (1.8, 2.0**2 / 1.8)))
    values = {name: getattr(both, name) for name in TunedShape.field_names}
    predicted = TunedShape(**values | {"predicted_gain": 1.6, "predicted_gain_interval": (1.5, 1.7)})
    unsure = TunedShape(**values | {"predicted_gain": 9.0, "predicted_gain_interval": (8.0, 10.0), "gain": None})
    measured = shape(SMALL, 8.0, Ratio(4.0, (4.0, 4.0)))
    lines = page(document_of(predicted, unsure, measured), "", ()).splitlines()
    (line,) = (line for line in lines if "measured on these" in line)
    assert has_values(line, 1, "1.600x", "2.000x")
    assert "predicted for" not in page(document_of(unsure, measured), "", ())
    (line,) = (line for line in lines if line.startswith("- gain"))
    assert has_values(line, f"{(80 * 4 + 3 * 8) / (80 * 2 + 3 * 2):.3f}x", 2, 3)


def test_names_of_a_strangers_model_are_text_on_the_page() -> None:
    """HTML, Markdown, line feeds and the end of a block of commands in layers, sentences and sources."""
    evil = "<img src=x>|a_b|_i_ [x](http://x) `c`\n```\n# &lt;"
    values = {name: getattr(shape(LARGE, 4.0, None), name) for name in TunedShape.field_names}
    document = document_of(TunedShape(**values | {"layers": (evil,)}), left_out=(evil,))
    lines = page(document, "", [f"ckh shapes {evil}"]).splitlines()
    shown = "\\<img src=x\\>\\|a_b\\|\\_i\\_ \\[x\\](http://x) \\`c\\`\\\\n\\`\\`\\`\\\\n# \\&lt;"
    assert f"- {shown}" in lines
    assert f"| {shown} |" in next(line for line in lines if line.startswith("| gemm_fp32"))
    fences = [number for number, line in enumerate(lines) if line.startswith("```")]
    assert [lines[number] for number in fences] == ["```console", "```"]
    assert fences[1] == fences[0] + 2 == len(lines) - 1


@pytest.mark.parametrize(("efficiency", "is_poor"), [(0.69, True), (0.95, False)])
def test_a_poor_model_is_called_so(efficiency: float, *, is_poor: bool) -> None:
    """By its mean efficiency on shapes that it has not seen."""
    document = document_of(held_out_efficiency=(efficiency, 0.6, 0.97))
    for text in (summary(document, "15m"), page(document, "15m", ())):
        assert ("poor model" in text) is is_poor


@pytest.mark.parametrize("reason", [reason for reason in Unestablished if reason is not Unestablished.NOT_MEASURED])
def test_reasons_and_warnings_are_shown(reason: Unestablished) -> None:
    """At a terminal and on the page: why a gain is not established, and what made the run's times doubtful."""
    values = {name: getattr(shape(LARGE, 4.0, None), name) for name in TunedShape.field_names}
    document = document_of(
        TunedShape(**values | {"not_established": str(reason)}), drift=(0.9, 1.53), unstable=0.4, shared=2
    )
    for text in (summary(document, ""), page(document, "", ())):
        assert has_values(" ".join(text.split()), str(reason), "0.90", "1.53", 2, "40%")
