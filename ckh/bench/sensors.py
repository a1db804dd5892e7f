"""Clock and temperature, where the system shows them: of an AMD GPU, else of the processor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ckh.machine import text_of

_KHZ_PER_MHZ, _HZ_PER_MHZ, _PER_DEGREE = 1e3, 1e6, 1e3
_PROCESSORS = {"k10temp", "zenpower", "coretemp"}  # drivers of their thermometers


@dataclass(frozen=True, slots=True)
class Sensors:
    """The clock in MHz and the temperature in degrees Celsius; None where neither is shown."""

    clock_mhz: float | None
    temperature_c: float | None


def read_sensors(root: Path = Path("/")) -> Sensors:
    """The highest values of the files under `root`: hwmon of amdgpu, else cpufreq, and thermal zones and hwmon."""
    monitors = sorted((root / "sys/class/drm").glob("card*/device/hwmon/hwmon*"))
    gpus = [one for one in monitors if text_of(one / "name") == "amdgpu"]
    if gpus:
        clock = _highest([one / "freq1_input" for one in gpus], _HZ_PER_MHZ)
        return Sensors(clock, _highest([one / "temp1_input" for one in gpus], _PER_DEGREE))
    clocks = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*/temp"))
    named = sorted((root / "sys/class/hwmon").glob("hwmon*/name"))
    chips = [one.with_name("temp1_input") for one in named if text_of(one) in _PROCESSORS]
    return Sensors(_highest(clocks, _KHZ_PER_MHZ), _highest([*zones, *chips], _PER_DEGREE))


def _highest(paths: list[Path], unit: float) -> float | None:
    values = [float(text) / unit for path in paths if (text := text_of(path)).lstrip("-").isdigit()]
    return max(values, default=None)
