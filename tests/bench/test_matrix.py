"""Matrices: every combination once, each with a problem that it can run, and accurate findings."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.computation import MatrixSettings
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.harness import try_cases
from ckh.bench.supervision.limits import BenchLimits
from ckh.bench.supervision.protocol import WorkerConfig
from ckh.errors import NoKernelError, UsageError
from ckh.kernels.pipelines import PIPELINE_CODES, Scheduler
from ckh.ops.gemm_universal.measuring.measured import matrix as gemm_matrix
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.kernels.variants import SPECIALIZATIONS, VARIANT_PIPELINES
from ckh.ops.grouped_conv.measuring.trials import MATRICES, matrix
from ckh.problems import Direction
from ckh.schema import Status
from tests.bench.faults import GOOD, HANG, SEGFAULT, Fault, FaultyDevice
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.bench.computation import Case
    from ckh.bench.supervision.harness import Finding

ALL = tuple(Direction)
LIMITS, CONFIGS = BenchLimits(timeout_s=3.0, jobs=2), [WorkerConfig(1 << 30, None)]
WRONG = Fault("for (int64_t i = 0; i < size(*p); ++i) out[i] = 3; return 0;")


def findings(device: FaultyDevice, cases: Sequence[Case[Any, Any]], *, run: bool = True) -> list[Finding]:
    """Try all cases without stopping."""
    return list(try_cases(Driver(device, LIMITS, lambda: False, CONFIGS), cases, run=run))


@pytest.mark.parametrize(("name", "count"), [("pipelines", 8), ("schedulers", 16), ("options", 16)])
def test_a_matrix_has_every_combination_once(name: str, count: int) -> None:
    """Each direction and number of dimensions has all of its cases, without duplicates."""
    cases = matrix(name, load_arch("gfx942"), ALL, (2, 3), "fp16")
    assert len(cases) == 3 * 2 * count
    assert len({(case.kernel.variant, case.kernel.ndim_spatial, case.label) for case in cases}) == len(cases)


def test_all_pipelines_and_schedulers_are_included() -> None:
    """The cases are the product of the tables."""
    cases = matrix("schedulers", load_arch("gfx942"), (Direction.FORWARD,), (2,), "bf16")
    expected = {(pipeline, scheduler) for pipeline in VARIANT_PIPELINES[Direction.FORWARD] for scheduler in Scheduler}
    assert {(case.kernel.pipeline, case.kernel.scheduler) for case in cases} == expected


def test_options_include_every_specialization() -> None:
    """No specialization is missing."""
    cases = matrix("options", load_arch("gfx942"), (Direction.BWD_WEIGHT,), (2,), "bf16")
    assert {case.kernel.specialization for case in cases} == set(SPECIALIZATIONS)


@pytest.mark.parametrize("name", list(MATRICES))
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_no_case_is_refused_for_its_problem(name: str, arch: str) -> None:
    """Refusals depend on the kernel only: every problem meets its conditions."""
    spec = load_arch(arch)
    for case in matrix(name, spec, ALL, (2, 3), "fp16"):
        if not CONV_RULES.check(case.kernel, spec):
            assert CONV_RULES.of_problem(case.kernel, spec, case.problem) == [], case.label


def test_unknown_matrices_and_dtypes_are_refused() -> None:
    """An unknown matrix, or an element type that the architecture does not run."""
    host = load_arch("host")
    with expect_refusal(UsageError, "unknown-name", "tiles"):
        matrix("tiles", host, ALL, (2,), "fp32")
    with expect_refusal(NoKernelError, "no-kernel", "host", "forward", "kernel", "fp16", "2D"):
        matrix("pipelines", host, ALL, (2,), "fp16")


@pytest.mark.slow
def test_findings_report_the_outcome() -> None:
    """Right, wrong, crashed, hung, and refused by a rule: each case has its own status and does not affect others."""
    device = FaultyDevice(GOOD, WRONG, SEGFAULT, HANG, GOOD)
    some = matrix("pipelines", load_arch("host"), (Direction.FORWARD,), (2,), "fp32")[0]
    cases = [replace(some, kernel=kernel, label=str(i)) for i, kernel in enumerate(device.kernels)]
    cases.append(replace(some, kernel=replace(device.kernels[0], two_stage=True)))
    result = findings(device, cases)
    statuses = [Status.OK, Status.WRONG_RESULT, Status.CRASH, Status.TIMEOUT, Status.OK, Status.INVALID]
    assert [item.status for item in result] == statuses
    assert [finding.is_accepted for finding in result] == [True, False, False, False, True, True]
    expect_values(result[-1].reason, "host", "bwd_weight", "forward")
    assert [bool(finding.built) for finding in result] == [True, True, True, True, True, False]


def test_a_library_of_another_kernel_is_detected() -> None:
    """The name is the one reported by the library."""
    source = GOOD.source.replace('extern "C" {', 'extern "C" {\nconst char* ckh_name(void) { return "compv3"; }')

    class Swapped(FaultyDevice):
        def emit(self, kernel: object) -> str:
            return source

    device = Swapped(GOOD)
    some = matrix("pipelines", load_arch("host"), (Direction.FORWARD,), (2,), "fp32")[0]
    (finding,) = findings(device, [replace(some, kernel=device.kernels[0])])
    assert (finding.status, finding.built, finding.is_accepted) == (Status.WRONG_RESULT, "compv3", False)
    assert "another kernel" in finding.reason


@pytest.mark.slow
def test_without_running_kernels_are_only_loaded() -> None:
    """A kernel that would crash is ok if it is not run."""
    device = FaultyDevice(SEGFAULT)
    some = matrix("pipelines", load_arch("host"), (Direction.FORWARD,), (2,), "fp32")[0]
    (finding,) = findings(device, [replace(some, kernel=device.kernels[0])], run=False)
    assert finding.status == Status.OK
    assert finding.reason


@pytest.mark.slow
def test_a_gemm_matrix_has_each_layout() -> None:
    """Every pipeline and scheduler in every layout, on whole tiles; directions are refused."""
    settings = MatrixSettings(load_arch("gfx942"), "fp16")
    cases = gemm_matrix("schedulers", settings)
    expected = set(product(GEMM_LAYOUTS, PIPELINE_CODES, Scheduler))
    assert {(item.of["layout"], item.kernel.pipeline, item.kernel.scheduler) for item in cases} == expected
    assert len(cases) == len(expected)
    assert all((item.problem.m % item.kernel.tile_m, item.problem.k % item.kernel.tile_k) == (0, 0) for item in cases)
    with expect_refusal(UsageError, "unknown-name", "options"):
        gemm_matrix("options", settings)
    with expect_refusal(UsageError, "inapplicable-option"):
        gemm_matrix("pipelines", replace(settings, variant="forward"))
