"""Micro-kernels: their problems, and their results on emulated GPUs."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.bench.checks import calibrating
from ckh.bench.checks.calibrating import measured_rates, micro_problems, planned, rate
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import EMULATED_KIND, HIP_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.isolated.micro import MicroProblem
from ckh.bench.supervision.campaign import settle
from ckh.data.settings import Given
from ckh.errors import UsageError
from ckh.learn.models.artifact import wanted_for
from ckh.ops import operation
from tests.real import set_kernel_cache

if TYPE_CHECKING:
    from ckh.archs import ArchSpec


def test_texts_are_read_back() -> None:
    """Problems of workers are texts; those of operations are not micro-problems."""
    for problem in micro_problems(load_arch("gfx950"), 256, is_timed=True).values():
        assert MicroProblem.parse(problem.canonical()) == problem
    assert MicroProblem.parse("micro_none_1_1_1_1_1_1") is None
    assert MicroProblem.parse("gemm_rcr_fp16_m1_n1_k1") is None


def test_work_and_rates_are_those_of_hand() -> None:
    """304 compute units, 2.1 GHz: bytes and operations of a launch, and rates of a time."""
    problems = micro_problems(load_arch("gfx942"), 304, is_timed=True)
    blocks = 304 * 8
    assert problems["bandwidth_gb_s"].work == 131072 // blocks * blocks * 4096
    assert problems["l2_bytes_per_clock"].work == blocks * 1000 * 4096
    assert problems["lds_bytes_per_clock"].work == blocks * 2000 * 4 * 4096
    assert problems["fp16"].work == blocks * 4 * 2000 * 4 * 2 * 32 * 32 * 8
    one_ms = {name: rate(name, problem, 1e6, 304, 2100) for name, problem in problems.items()}
    assert one_ms["launch_us"] == 1000
    assert one_ms["latency_clocks"] == 1e6 * 2.1 / 4000
    assert one_ms["bandwidth_gb_s"] == problems["bandwidth_gb_s"].work / 1e6
    assert one_ms["fp16"] == pytest.approx(problems["fp16"].work / (1e6 * 2.1 * 304))


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp8", "int8"])
def test_sums_of_matrix_instructions_are_those_of_a_loop(dtype: str) -> None:
    """The output's total is that of all products, which does not depend on who holds which row."""
    problem = MicroProblem(dtype, 1, 3, depth=16)
    words = problem.inputs(np.random.default_rng(1), fnuz_floats=False)
    a, b = np.zeros((32, 16)), np.zeros((32, 16))
    storage = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16, "fp8": np.uint8, "int8": np.int8}[dtype]
    stored = words.view(storage)
    for lane in range(64):
        for place in range(8):
            for side, factors in enumerate((a, b)):
                value = stored[(side * 64 + lane) * 8 + place]
                if dtype == "bf16":
                    value = np.array([int(value) << 16], np.uint32).view(np.float32)[0]
                elif dtype == "fp8":  # OCP: 0x38 is 1, 0x40 is 2
                    value = {0: 0, 0x38: 1, 0x40: 2, 0xB8: -1, 0xC0: -2, 0x80: 0}[int(value)]
                factors[lane % 32, lane // 32 * 8 + place] = value
    assert set(a.flat) == {-2, -1, 0, 1, 2}
    total = 64 * 16 * (0 + 1 + 2 + 3) + 4 * 3 * (a @ b.T).sum()
    assert problem.expected(words, fnuz_floats=False)[0, :64].sum() == total


def test_other_generations_are_refused() -> None:
    """There are no matrix instructions of these kinds."""
    with pytest.raises(UsageError, match="gfx1100 cannot be calibrated"):
        micro_problems(load_arch("gfx1100"), 96, is_timed=True)


@pytest.mark.parametrize("op", ["grouped_conv", "gemm_batched", "gemm_preshuffle"])
def test_a_dozen_kernels_of_different_tiles_are_planned(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of each of six problems of increasing work, by the defaults of the operation."""
    monkeypatch.delenv("CK_TILE_INCLUDE", raising=False)
    settings = settle(Given(op=op), HIP_KIND, "bf16")
    problems = measured_of(operation(op)).problems(settings)
    tasks = planned(wanted_for(problems[0], "gfx942"), problems)
    kernels = {kernel for some in tasks.values() for kernel in some}
    assert (len(tasks), len(kernels)) == (6, 12)
    assert len({attrgetter("tile_m", "tile_n", "tile_k", "pipeline")(kernel) for kernel in kernels}) == 12
    flops = [operation(op).problems.parse(text).flops for text in tasks]
    assert 2e7 <= min(flops) < max(flops) / 100 <= 2e8


@pytest.mark.compiles
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_micro_kernels_are_right_on_emulated_gpus(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of each generation; with a step more than expected, each that has steps is wrong."""
    set_kernel_cache(monkeypatch)
    device = open_device(EMULATED_KIND, DeviceOptions(arch=arch))
    problems = micro_problems(device.arch, 2, is_timed=False)
    assert list(problems)[5:] == [
        dtype for dtype in ("fp32", "fp16", "bf16", "fp8", "int8") if _has(device.arch, dtype)
    ]
    result = list(measured_rates(device, problems, 60.0, lambda: False))
    assert {
        measured_rate.name: (measured_rate.status, measured_rate.value) for measured_rate in result
    } == dict.fromkeys(problems, ("verified", None))
    other = replace(problems["fp16"], depth=problems["fp16"].depth * 2)
    monkeypatch.setattr(calibrating, "DEFAULT_SAMPLES", 1)
    (wrong,) = measured_rates(device, {"fp16": other}, 60.0, lambda: False)
    assert wrong.status == "wrong_result"


def _has(arch: ArchSpec, dtype: str) -> bool:
    assert arch.peaks is not None
    return dtype in arch.peaks.flops_per_cu_clock
