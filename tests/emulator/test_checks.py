"""The kernels that check results, compiled for real and executed on the emulated GPU. Needs a HIP compiler."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.hip_device import EmulatedDevice
from tests.emulator.checked import PROBLEMS
from tests.real import compiles, set_kernel_cache, skip_without_compiler


@compiles()
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_sums_are_the_hosts_and_damage_is_found(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of layouts, gaps, groups and directions; elements that are changed, or never written, at any place."""
    skip_without_compiler()
    set_kernel_cache(monkeypatch)
    device = EmulatedDevice(DeviceOptions(arch, verify_on="gpu"))
    command = [sys.executable, "-m", "tests.emulator.checked", device.checks_library(), arch]
    done = subprocess.run(
        command, check=True, capture_output=True, env=device.worker_environment(), cwd=Path(__file__).parents[2]
    )
    reports = json.loads(done.stdout)
    assert len(reports) == len(PROBLEMS)
    for each in reports:
        assert each["error"] <= 1e-14, each
        assert each["bound_error"] <= 1e-5, each
        assert (each["wrong"], each["is_right"], each["missed"]) == ("", True, []), each
        assert each["differing"] > 0, each


def test_the_emulated_gpu_is_checked_by_the_host_unless_asked_for() -> None:
    """As the host is faster; nothing is compiled."""
    assert EmulatedDevice(DeviceOptions("gfx942")).checks_library() == ""
