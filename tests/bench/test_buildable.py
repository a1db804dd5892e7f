"""Kernels that headers can build: evaluated as a table, and as candidates of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.compilation.hip_toolchain import known_ck_tile
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.hip_device import HipDevice
from ckh.bench.supervision.campaign import Campaign
from ckh.data.settings import Given
from ckh.errors import NoKernelError
from ckh.kernels.judging import judge_table
from ckh.kernels.table import KernelTable
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.pool import POOLS
from ckh.ops.gemm_universal.measuring import hip_rules as gemm_rules
from ckh.ops.grouped_conv.kernel import ConvKernel
from ckh.ops.grouped_conv.measuring import hip_rules as conv_rules
from ckh.ops.grouped_conv.rules.sets import rule_set
from ckh.problems import Direction
from tests.bench.codegen import conv_headers as conv
from tests.bench.codegen import gemm_headers as gemm
from tests.bench.fake_hipcc import write_headers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.bench.planning.plan import Plan
    from ckh.kernels.judging import Verdicts

SOME = 97  # step through a large pool
GEMM_HEADERS = {"mid2025": gemm.MID_2025, "late2025": gemm.LATE_2025, "current": gemm.CURRENT}


def said(verdicts: Verdicts) -> list[str]:
    """The message that refuses each kernel, empty if none does."""
    return ["" if number < 0 else verdicts.sentences[number] for number in verdicts.number.tolist()]


def first(reasons: Sequence[str]) -> str:
    """The first of the reasons, empty if there is none."""
    return reasons[0] if reasons else ""


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("interface", list(conv.HEADERS))
def test_a_table_of_convolutions_is_checked_like_each_kernel(interface: Any, arch: str) -> None:
    """The message for each kernel of the tables is the first reason for which `emit` refuses the kernel alone."""
    headers, spec = conv.HEADERS[interface], load_arch(arch)
    kernels = [
        kernel
        for variant in Direction
        for name in ("default", "tests")
        for kernel in rule_set(name, variant, 2, "bf16", spec)
    ]
    verdicts = judge_table(conv_rules.rules_of(headers), KernelTable.of(ConvKernel, kernels), spec)
    assert said(verdicts) == [first(conv_rules.missing(kernel, headers, spec)) for kernel in kernels]
    assert 0 < len(verdicts.passed) < len(kernels)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("interface", list(GEMM_HEADERS))
def test_a_table_of_gemms_is_checked_like_each_kernel(interface: str, arch: str) -> None:
    """The same for GEMMs in every layout, of three element types."""
    headers, spec = GEMM_HEADERS[interface], load_arch(arch)
    pools = [
        POOLS.sequence(spec, dtype, layout) for dtype in ("fp16", "fp8") for layout in ("rcr", "rrr", "ccr", "crr")
    ]
    kernels = [kernel for pool in pools for kernel in pool[::SOME]]
    verdicts = judge_table(gemm_rules.rules_of(headers), KernelTable.of(GemmKernel, kernels), spec)
    assert said(verdicts) == [first(gemm_rules.missing(kernel, headers, spec)) for kernel in kernels]
    assert 0 < len(verdicts.passed) < len(kernels)


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Headers like those of mid-2025, and nothing else of ROCm."""
    for name in ("HIPCC", "ROCM_PATH", "CK_TILE_INCLUDE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return write_headers(tmp_path / "include")


def planned(headers: Path | None, **settings: Any) -> Plan:
    """The plan of a run for gfx950 with headers."""
    given = Given(**{"variant": "forward", "problems": "resnet50", **settings})
    options = DeviceOptions("gfx950", ck_include=None if headers is None else str(headers))
    return Campaign("hip", given, None, resume=False, options=options).plan


@pytest.mark.parametrize(
    "settings",
    [{"plan": "4"}, {"kernels": "sample:9"}],
    ids=["plan", "sample"],
)
def test_runs_select_among_buildable_kernels(headers: Path, settings: dict[str, Any]) -> None:
    """With headers each kernel of a plan is accepted by `emit`; without, some are not."""
    result = known_ck_tile(str(headers))
    assert result is not None
    judge = HipDevice(DeviceOptions("gfx950", ck_include=str(headers))).refusals
    with_headers, without = planned(headers, **settings), planned(None, **settings)
    refused = [judge(plan.kernels).number >= 0 for plan in (with_headers, without)]  # type: ignore[union-attr]
    assert (refused[0].any(), refused[1].any()) == (False, True)
    assert sum(with_headers.refused.values()) > sum(without.refused.values())
    (kernels, unbuilt), (all_kernels, some) = (plan.groups["forward 2 bf16"] for plan in (with_headers, without))
    assert kernels + unbuilt == all_kernels + some
    assert kernels < all_kernels


def test_all_named_kernels_are_planned(headers: Path) -> None:
    """A pattern is not filtered: kernels that headers cannot build become rows with the reason."""
    assert planned(headers, kernels="*_compv6_*").pairs == planned(None, kernels="*_compv6_*").pairs > 0


def test_without_buildable_kernels_the_reason_is_reported(headers: Path) -> None:
    """Such headers have no kernel of bwd_data, as the error states."""
    with pytest.raises(NoKernelError, match=r"have no bwd_data kernel"):
        planned(headers, variant="bwd_data", kernels="sample:3")
