"""Calibration of the estimate: its factor, interval and rates, against NumPy and by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.learn.analytic import calibrated
from ckh.learn.analytic.calibrated import (
    DeviceCalibration,
    MeasuredPair,
    TimeFactor,
    calibration_of,
    is_better,
    rates_of,
    save_calibration,
    time_factor,
)
from ckh.learn.analytic.transfer import EstimateModel
from ckh.learn.models.artifact import wanted_for
from ckh.ops.gemm_universal.kernels.pool import gemm_pool
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.refusals import expect_values

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

DEVICE = "gfx942, 304 CUs, 2100 MHz"
KNOWN = DeviceCalibration(DEVICE, "gfx942", "2026-11-26T12:00:00+00:00", "a compiler", 304, 2100)
PROBLEMS = [GemmProblem(m, 1024, 1024, "bf16", "rcr") for m in (256, 1024, 4096, 8192)]
WANTED = wanted_for(PROBLEMS[0], "gfx942")


def drawn(seed: int, problems: int, pairs: int) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Errors with a mean of 0.3, and deviations of 0.2 of problems and of 0.1 of pairs."""
    random = np.random.default_rng(seed)
    problem = np.repeat(np.arange(problems), pairs)
    return 0.3 + random.normal(0, 0.2, problems)[problem] + random.normal(0, 0.1, len(problem)), problem


def test_the_factor_is_the_median_of_medians() -> None:
    """By hand; a kernel that is far slower changes the interval alone."""
    errors, problem = np.log([2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 3.0, 3.0, 3.0]), np.repeat([0, 1, 2], 3)
    factor, low, high = time_factor(errors, problem)
    assert factor == pytest.approx(3.0)
    # Student's t, 95 %, two degrees of freedom: 2.920.
    spread = np.log([2.0, 4.0, 3.0]).std(ddof=1) * np.sqrt(1 + 1 / 3)
    assert np.log([low, high]) == pytest.approx([-2.920 * spread, 2.920 * spread], rel=1e-3)
    errors[0] = np.log(20.0)
    slower = time_factor(errors, problem)
    assert slower[0] == pytest.approx(3.0)
    assert slower[2] > high


def test_the_interval_covers_nine_of_ten_times() -> None:
    """Of a pair of a new problem, over many calibrations."""
    inside = []
    for seed in range(400):
        factor, low, high = time_factor(*drawn(seed, 6, 12))
        (new,) = drawn(1000 + seed, 1, 1)[0]
        inside.append(np.log(factor * low) <= new <= np.log(factor * high))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.04)


@pytest.mark.slow
def test_rates_must_order_kernels_better_than_by_chance() -> None:
    """An exact order passes against a reversed one; equal and random orders do not, nor one bad problem."""
    random = np.random.default_rng(0)
    log_us, problem = random.normal(size=72), np.repeat(np.arange(6), 12)
    assert is_better(log_us, -log_us, log_us, problem)
    assert not is_better(log_us, log_us, log_us, problem)
    assert not is_better(-log_us, log_us, log_us, problem)
    taken = [
        is_better(np.random.default_rng(seed).normal(size=72), np.random.default_rng(-seed - 1 & 999).normal(size=72),
                  log_us, problem)
        for seed in range(200)
    ]  # fmt: skip
    assert np.mean(taken) < 0.07
    one_bad = np.where(problem == 0, -log_us, log_us)
    almost = log_us + random.normal(0, 0.01, 72)
    assert not is_better(one_bad, almost, log_us, problem)


def test_plausible_rates_replace_those_of_archspecs() -> None:
    """Matrix instructions of a type scale together, bf8 with fp8; implausible rates are named and not used."""
    arch = load_arch("gfx942")
    rates = {"launch_us": 2.0, "bandwidth_gb_s": 4000.0, "bf16": 1536.0, "fp8": 3072.0, "lds_bytes_per_clock": 300.0}
    known = replace(KNOWN, rates=rates, num_cus=38)
    assert list(known.refused) == ["lds_bytes_per_clock"]
    expect_values(known.refused["lds_bytes_per_clock"], 300, 2.34, 128)
    peaks, before = known.applied(arch).peaks, arch.peaks
    assert peaks is not None
    assert before is not None
    assert (peaks.launch_us, peaks.bandwidth_gb_s, peaks.lds_bytes_per_clock) == (2.0, 4000.0, 128)
    assert peaks.matrix_flops_per_cu_clock["bf16"][32, 32, 8] == 1536
    assert peaks.matrix_flops_per_cu_clock["bf16"][4, 64, 16] == 768
    assert peaks.flops_per_cu_clock["bf8"] == 3072
    assert peaks.matrix_flops_per_cu_clock["fp16"] == before.matrix_flops_per_cu_clock["fp16"]
    assert (known.applied(arch).hardware.num_cus, arch.hardware.num_cus) == (38, 304)
    assert rates_of(arch)["l2_bytes_per_clock"] == 64


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeviceCalibration:
    """A calibration by kernels whose times are those of the estimate with other rates, times 1.5."""
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(calibrated, "this_device", {"gfx942": DEVICE}.get)
    true = replace(KNOWN, rates={"bandwidth_gb_s": 2000.0, "bf16": 512.0, "latency_clocks": 500.0})
    save_calibration(replace(true, factors={str(WANTED): TimeFactor(1.0, 0.9, 1.1, 4, 48, uses_rates=True)}))
    model, kernels = EstimateModel(WANTED), list(gemm_pool(load_arch("gfx942"), "bf16", "rcr"))[::40]
    name = model.spec.op.kernels.name
    pairs = [
        MeasuredPair(problem.canonical(), name(kernel), 1.5e-3 * us, "ok")
        for problem in PROBLEMS
        for kernel, us in zip(kernels, -model.predict(problem, kernels), strict=True)
    ]
    return replace(true, pairs={str(WANTED): pairs})


def test_rates_that_explain_the_times_are_taken(measured: DeviceCalibration) -> None:
    """The factor is exact by them; wrong rates are not taken, and the factor is wide."""
    result = measured.fitted(str(WANTED))
    assert result is not None
    assert (result.uses_rates, result.pairs) == (True, len(measured.pairs[str(WANTED)]))
    assert (result.factor, result.low, result.high) == pytest.approx((1.5, 1.0, 1.0))
    wrong = replace(measured, rates={"bf16": 3000.0, "latency_clocks": 2900.0}).fitted(str(WANTED))
    assert wrong is not None
    assert not wrong.uses_rates
    assert wrong.high > 1.1


def test_few_problems_have_no_factor(measured: DeviceCalibration) -> None:
    """Nor failed kernels."""
    pairs = measured.pairs[str(WANTED)]
    few = [pair for pair in pairs if pair.problem in {PROBLEMS[0].canonical(), PROBLEMS[1].canonical()}]
    assert replace(measured, pairs={str(WANTED): few}).fitted(str(WANTED)) is None
    failed = [replace(pair, latency_ms=None, status="crash") for pair in pairs]
    assert replace(measured, pairs={str(WANTED): failed}).fitted(str(WANTED)) is None


def test_the_model_predicts_calibrated_speeds(measured: DeviceCalibration) -> None:
    """TFLOPS by the estimate with the measured rates times the factor; without a calibration there are none."""
    factor = measured.fitted(str(WANTED))
    assert factor is not None
    save_calibration(replace(measured, factors={str(WANTED): factor}))
    assert calibration_of("gfx942") == replace(measured, factors={str(WANTED): factor})
    model, kernels = EstimateModel(WANTED), list(gemm_pool(load_arch("gfx942"), "bf16", "rcr"))[::40]
    times = [pair.latency_ms for pair in measured.pairs[str(WANTED)] if pair.problem == PROBLEMS[2].canonical()]
    tflops = [PROBLEMS[2].flops / (ms or 0) / 1e9 for ms in times]
    _, speeds = model.score_pool([PROBLEMS[2]], kernels)
    assert speeds is not None
    assert speeds[0] == pytest.approx(tflops)
    assert model.bands == ((0.0, factor.low, factor.high),)
    assert EstimateModel(WANTED, uses_calibration=False).score_pool([PROBLEMS[2]], kernels)[1] is None
    other = wanted_for(replace(PROBLEMS[0], dtype="fp16"), "gfx942")
    assert not EstimateModel(other).predicts_speeds
