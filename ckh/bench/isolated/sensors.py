"""Sensor readings of the processor and the GPU.

The GPU's sensors are read through amd-smi's Python package if available, and from the kernel driver's files.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ckh.hardware.machine import text_of

_KHZ_PER_MHZ, _HZ_PER_MHZ, _PER_DEGREE, _PER_WATT = 1e3, 1e6, 1e3, 1e6
_PROCESSORS = {"k10temp", "zenpower", "coretemp"}  # hwmon drivers
# amd-smi's metrics by the names of `schema.CARD`; the first numeric one is used.
_METRICS = {
    "clock_mhz": ("current_gfxclks", "current_gfxclk"),
    "temperature_c": ("temperature_hotspot",),
    "power_w": ("current_socket_power", "average_socket_power"),
}
_NO_METRIC = 0xFFFF
_HOST_PIDS = "pid:[4026531836]"  # the first PID namespace (PROC_PID_INIT_INO)
_JUNCTION = "junction"


@dataclass(frozen=True, slots=True)
class Sensors:
    """Clock in MHz and temperature in degrees Celsius; None if not available."""

    clock_mhz: float | None
    temperature_c: float | None


def read_sensors(root: Path = Path("/")) -> Sensors:
    """Highest readings of the processor, from cpufreq, thermal zones and hwmon under `root`."""
    clocks = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*/temp"))
    named = sorted((root / "sys/class/hwmon").glob("hwmon*/name"))
    chips = [path.with_name("temp1_input") for path in named if text_of(path) in _PROCESSORS]
    return Sensors(_highest(clocks, _KHZ_PER_MHZ), _highest([*zones, *chips], _PER_DEGREE))


def read_card(pci: str, kfd_id: int, root: Path = Path("/"), *, is_user: bool = True) -> dict[str, float]:
    """Return the sensor readings of a GPU by the names of `schema.CARD`; missing ones are left out.

    `is_user` says that this process has memory on the GPU.
    """
    monitors = (root / "sys/bus/pci/devices" / pci / "hwmon").glob("hwmon*")
    folder = next((monitor for monitor in monitors if text_of(monitor / "name") == "amdgpu"), root / "none")
    # MI300 has no temp1_input, the edge temperature.
    labels = [path for path in folder.glob("temp*_label") if text_of(path) == _JUNCTION]
    heat = [label.with_name(label.name.replace("_label", "_input")) for label in labels] or [folder / "temp1_input"]
    readings = {
        "clock_mhz": _highest([folder / "freq1_input"], _HZ_PER_MHZ),
        "temperature_c": _highest(heat, _PER_DEGREE),
        "power_w": _highest([folder / "power1_input", folder / "power1_average"], _PER_WATT),
        "power_cap_w": _highest([folder / "power1_cap"], _PER_WATT),
        "other_processes": _other_processes(root, kfd_id, is_user=is_user),
    }
    return {name: reading for name, reading in {**readings, **_metrics(pci)}.items() if reading is not None}


def _other_processes(root: Path, kfd_id: int, *, is_user: bool) -> float | None:
    """Number of other processes with memory on a GPU, without the workers of the same run, which may use other GPUs.

    The driver lists the host's process ids. In a container this process does not know its own, so one is subtracted.
    """
    processes = root / "sys/class/kfd/kfd/proc"
    if not kfd_id or not processes.is_dir():
        return None
    users = {path.parent.name for path in processes.glob(f"[0-9]*/vram_{kfd_id}") if text_of(path) not in {"", "0"}}
    namespace = root / "proc/self/ns/pid"
    if namespace.is_symlink() and str(namespace.readlink()) != _HOST_PIDS:
        return float(max(len(users) - is_user, 0))
    # A worker is below its guard, which leads a session and was started by the run.
    run = _parent(root, os.getsid(0)) if is_user else os.getpid()
    return float(sum(not _is_below(root, int(user), {run, os.getpid()} - {0}) for user in users))


def _is_below(root: Path, process: int, ancestors: set[int]) -> bool:
    """True if a process is one of some, or was started by one, directly or indirectly."""
    while process and process not in ancestors:
        process = _parent(root, process)
    return bool(process)


def _parent(root: Path, process: int) -> int:
    """Parent of a process; 0 if it is unknown."""
    match = re.search(r"^PPid:\s*(\d+)$", text_of(root / f"proc/{process}/status"), re.MULTILINE)
    return int(match[1]) if match else 0


def _metrics(pci: str) -> dict[str, float]:
    """Metrics from amd-smi's Python package; empty if it is missing or fails."""
    package = _amdsmi()
    if package is None:
        return {}
    metrics: dict[str, float] = {}
    with suppress(package.AmdSmiException):
        values = package.amdsmi_get_gpu_metrics_info(package.amdsmi_get_processor_handle_from_bdf(pci))
        for name, keys in _METRICS.items():
            numbers = [number for key in keys if (number := _number(values.get(key))) is not None]
            metrics |= {name: numbers[0]} if numbers else {}
    return metrics


@cache
def _amdsmi() -> Any:
    """The initialized package; None if it is missing or does not work."""
    try:
        import amdsmi
    except (ImportError, OSError, AttributeError, KeyError):  # it loads a ROCm library
        return None
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiException:
        return None
    return amdsmi


def _number(value: object) -> float | None:
    """Value of a metric, the maximum of several; None if it is not numeric."""
    several = value if isinstance(value, list | tuple) else [value]
    numbers = [float(number) for number in several if isinstance(number, int | float) and 0 < number < _NO_METRIC]
    return max(numbers, default=None)


def _highest(paths: list[Path], unit: float) -> float | None:
    values = [float(text) / unit for path in paths if (text := text_of(path)).lstrip("-").isdigit()]
    return max(values, default=None)
