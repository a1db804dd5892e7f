"""The processor of this machine, read from files."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# (flag of /proc/cpuinfo, bytes of a vector register, number of registers), widest first.
_VECTOR_UNITS = (("avx512f", 64, 32), ("avx", 32, 16), ("asimd", 16, 32), ("sse2", 16, 16))
_CLOCK_WHEN_UNKNOWN_MHZ = 2000
_CACHE_WHEN_UNKNOWN_KB = {1: 32, 2: 512, 3: 0}
_UNITS_KB = {"K": 1, "M": 1024, "G": 1024 * 1024}


class Machine(NamedTuple):
    """The processor of this machine.

    Cache sizes are those seen by the first core, in KB, 0 if missing; `l3_domains` is the number of level-3 caches.
    """

    cores: int
    threads_per_core: int
    sockets: int
    max_clock_mhz: int
    l1_cache_kb: int
    l2_cache_kb: int
    l3_cache_kb: int
    l3_domains: int
    vector_bytes: int
    vector_registers: int


def read_machine(root: Path = Path("/")) -> Machine:
    """Describe the processor from `sys/devices/system/cpu` and `proc/cpuinfo` under `root`; never fails."""
    cpus = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*"), key=trailing_number)
    cpuinfo = text_of(root / "proc/cpuinfo")
    threads = len(cpus) or os.cpu_count() or 1
    packages = [text_of(cpu / "topology/physical_package_id") or "0" for cpu in cpus]
    core_ids = [text_of(cpu / "topology/core_id") or cpu.name for cpu in cpus]
    cores = len(set(zip(packages, core_ids, strict=True))) or threads
    caches, l3_domains = _caches(cpus)
    vector_bytes, vector_registers = _vectors(cpuinfo)
    return Machine(
        cores=cores,
        threads_per_core=max(1, threads // cores),
        sockets=len(set(packages)) or 1,
        max_clock_mhz=_clock_mhz(cpus, cpuinfo),
        l1_cache_kb=caches[1],
        l2_cache_kb=caches[2],
        l3_cache_kb=caches[3],
        l3_domains=l3_domains,
        vector_bytes=vector_bytes,
        vector_registers=vector_registers,
    )


def machine_name() -> str:
    """Host name of this machine."""
    return os.uname().nodename or "unknown"


def processor_name(root: Path = Path("/")) -> str:
    """Processor name in `proc/cpuinfo` under `root`, or "unknown"."""
    return processor_field("model name", root)


def processor_field(name: str, root: Path = Path("/")) -> str:
    """A field of the first processor in `proc/cpuinfo` under `root`, or "unknown"."""
    with suppress(OSError, UnicodeDecodeError), (root / "proc/cpuinfo").open(encoding="utf-8") as lines:
        for line in lines:
            key, colon, value = line.partition(": ")
            if colon and key.rstrip() == name:
                return value.strip()
    return "unknown"


def processor_identity() -> str:
    """Everything that code compiled for this very processor depends on."""
    return "\0".join(processor_field(field) for field in ("vendor_id", "cpu family", "model", "model name", "flags"))


def _clock_mhz(cpus: list[Path], cpuinfo: str) -> int:
    limits_khz = [text_of(cpu / "cpufreq/cpuinfo_max_freq") for cpu in cpus]
    known = [int(limit) // 1000 for limit in limits_khz if limit.isdigit()]
    current = [round(float(clock)) for clock in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", cpuinfo, re.MULTILINE)]
    return max(known or current or [_CLOCK_WHEN_UNKNOWN_MHZ])


def _caches(cpus: list[Path]) -> tuple[dict[int, int], int]:
    """KB of the first core's data caches by level, and the number of level-3 caches."""
    sizes = dict(_CACHE_WHEN_UNKNOWN_KB)
    l3_owners = set()
    for cpu in cpus:
        for index in (cpu / "cache").glob("index*"):
            level, size = text_of(index / "level"), text_of(index / "size")
            if text_of(index / "type") == "Instruction" or not level.isdigit() or not size[:-1].isdigit():
                continue
            if cpu is cpus[0]:
                sizes[int(level)] = int(size[:-1]) * _UNITS_KB.get(size[-1], 1)
            if level == "3":
                l3_owners.add(text_of(index / "shared_cpu_list") or cpu.name)
    return sizes, len(l3_owners) or 1


def _vectors(cpuinfo: str) -> tuple[int, int]:
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    flags = match[1].split() if match else []
    return next(((width, count) for flag, width, count in _VECTOR_UNITS if flag in flags), _VECTOR_UNITS[-1][1:])


def text_of(path: Path) -> str:
    """Stripped content of a file, empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def trailing_number(path: Path) -> int:
    """Number at the end of a name, -1 if there is none; sorts cpu10 after cpu9."""
    match = re.search(r"\d+$", path.name)
    return int(match[0]) if match else -1
