"""Devices that kernels are measured on, behind one small interface; `host` is the CPU of this machine."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ckh.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.kernels.config import ConvKernel

HOST_KIND = "host"
DEVICE_KINDS = (HOST_KIND, "hip")

# BLAS in the worker must not use the cores that kernels are timed on.
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """What distinguishes a device in the data; `hardware` is its profile under the names of `schema.HARDWARE`."""

    kind: str
    arch: str
    name: str
    clock_mhz: int
    hardware: dict[str, int]
    compiler: str
    flags: tuple[str, ...]


class Device(Protocol):
    """What bench needs from a device."""

    @property
    def arch(self) -> ArchSpec:
        """The architecture whose pool of kernels runs on it."""

    def identity(self) -> DeviceIdentity:
        """What it is, for provenance."""

    def emit(self, kernel: ConvKernel) -> str:
        """The source of a kernel; kernels with the same source are compiled once."""

    def cache_salt(self) -> bytes:
        """What a compiled kernel depends on besides its source: headers, flags, compiler, processor."""

    def compile_command(self, source: Path, library: Path) -> list[str]:
        """The command that makes a shared library."""

    def worker_command(self) -> list[str]:
        """The command that starts a worker, without its configuration."""

    def worker_environment(self) -> dict[str, str]:
        """The environment of a worker."""


class HostDevice:
    """This machine's CPU, one thread.

    Raises:
        DeviceError: there is no C++ compiler.
    """

    def __init__(self) -> None:
        from ckh.archs import load_arch
        from ckh.bench.compile import find_compiler

        self._arch = load_arch(HOST_KIND)
        self._compiler = find_compiler()

    @property
    def arch(self) -> ArchSpec:
        """The architecture `host`."""
        return self._arch

    def identity(self) -> DeviceIdentity:
        """What it is; the include directory is left out of the flags, since it only says where ckh is installed."""
        return DeviceIdentity(
            kind=HOST_KIND,
            arch=self._arch.name,
            name=_cpu_field("model name"),
            clock_mhz=self._arch.hardware.max_clock_mhz,
            hardware=self._arch.hardware.to_dict(),
            compiler=self._compiler.version,
            flags=_portable_flags(),
        )

    def emit(self, kernel: ConvKernel) -> str:
        """The kernel as C++17 for this CPU's vector registers."""
        from ckh.bench.codegen.host import HostSimd, emit

        machine = self._arch.machine
        assert machine is not None
        return emit(kernel, HostSimd(machine.vector_bytes, machine.vector_registers))

    def cache_salt(self) -> bytes:
        """Headers, flags, compiler version and what `-march=native` looks at."""
        from ckh.bench.codegen.host import source_hash_inputs

        cpu = "\0".join(_cpu_field(field) for field in ("vendor_id", "cpu family", "model", "model name", "flags"))
        parts = (self._compiler.version, *self._compiler.command[1:], *_portable_flags(), cpu)
        return source_hash_inputs() + "\0".join(parts).encode()

    def compile_command(self, source: Path, library: Path) -> list[str]:
        """One call of the C++ compiler."""
        from ckh.bench.codegen.host import compile_flags

        return [*self._compiler.command, *compile_flags(), "-o", str(library), str(source)]

    def worker_command(self) -> list[str]:
        """This Python with the worker module."""
        return [sys.executable, "-m", "ckh.bench.worker"]

    def worker_environment(self) -> dict[str, str]:
        """Ours, with one thread for BLAS, and ckh importable wherever the command was started."""
        package_parent = str(Path(__file__).resolve().parents[2])
        paths = [package_parent, *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": os.pathsep.join(paths)}


def open_device(kind: str) -> Device:
    """The device of that kind.

    Raises:
        UsageError: there is no such kind.
        DeviceError: it cannot be used here.
    """
    if kind not in DEVICE_KINDS:
        raise UsageError(f"unknown device {kind!r}", "one of " + ", ".join(DEVICE_KINDS))
    if kind != HOST_KIND:
        raise DeviceError("no usable device: the hip device is not in this version", "use --device host")
    return HostDevice()


def _portable_flags() -> tuple[str, ...]:
    from ckh.bench.codegen.host import compile_flags

    return tuple(flag for flag in compile_flags() if not flag.startswith("-I"))


def _cpu_field(name: str) -> str:
    """A field of the first processor in /proc/cpuinfo, or "unknown"."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    match = re.search(rf"^{re.escape(name)}\s*: (.*)$", text, re.MULTILINE)
    return match[1].strip() if match else "unknown"
