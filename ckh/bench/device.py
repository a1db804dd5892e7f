"""Devices that kernels are measured on, behind one small interface; `host` is the CPU of this machine."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ckh.bench.codegen.source import header_contents
from ckh.bench.codegen.unsupported import UnsupportedKernelError
from ckh.bench.computation import measured_of
from ckh.bench.protocol import EMULATED, HIP, WorkerConfig
from ckh.errors import DeviceError, UsageError
from ckh.machine import processor_identity, processor_name
from ckh.ops import operation_of_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.archs import ArchSpec
    from ckh.bench.binary import Binary
    from ckh.bench.computation import HostEmission
    from ckh.ops.base import Kernel

HOST_KIND, HIP_KIND, EMULATED_KIND = "host", HIP, EMULATED
DEVICE_KINDS = (HOST_KIND, HIP_KIND, EMULATED_KIND)

_JOB_BYTES = 1 << 30
_MEMORY_SHARE = 0.8  # of what is free, for the worker

# BLAS in a worker of the host must not use the cores that kernels are timed on.
_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """What is wanted of a `hip` or `emulated` device; None: what is found.

    Attributes:
        arch: architecture to compile for, with target features if it has any ("gfx90a:xnack-").
        hipcc: the compiler.
        ck_include: the folder with CK Tile's headers.
        gpus: numbers of the GPUs to use; None: all of the architecture.
        cold: whether caches are emptied before every timed run.
    """

    arch: str | None = None
    hipcc: str | None = None
    ck_include: str | None = None
    gpus: tuple[int, ...] | None = None
    cold: bool = False


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

    @property
    def job_bytes(self) -> int:
        """Memory that one compiler may need."""

    def emit(self, kernel: Kernel) -> str:
        """The source of a kernel; kernels with the same source are compiled once.

        Raises:
            UnsupportedKernelError: the device cannot build it.
        """

    @property
    def unit_kernels(self) -> int:
        """The most kernels that are compiled together; 1: each alone."""

    def emit_unit(self, kernel: Kernel, sources: Sequence[str]) -> str:
        """Sources of kernels of that kernel's operation as one, from which a library of all of them is compiled."""

    def cache_salt(self) -> bytes:
        """What a compiled kernel depends on besides its source: shared headers, flags, compiler, processor."""

    def compile_command(self, kernel: Kernel, source: Path, library: Path) -> list[str]:
        """The command that makes a shared library of a kernel's source."""

    def inspect(self, kernel: Kernel, source: str, messages: str) -> Binary | None:
        """What is to be kept of a kernel that was just compiled; `messages` are what the compiler said of it."""

    def worker_configs(self) -> tuple[WorkerConfig, ...]:
        """One for each worker that may run at a time."""

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
        from ckh.bench.compiler import find_compiler

        self._arch = load_arch(HOST_KIND)
        self._compiler = find_compiler()
        self._comment_on = cache(headers_comment)

    @property
    def arch(self) -> ArchSpec:
        """The architecture `host`."""
        return self._arch

    def identity(self) -> DeviceIdentity:
        """What it is; the include directory is left out of the flags, since it only says where ckh is installed."""
        return DeviceIdentity(
            kind=HOST_KIND,
            arch=self._arch.name,
            name=processor_name(),
            clock_mhz=self._arch.hardware.max_clock_mhz,
            hardware=self._arch.hardware.to_dict(),
            compiler=self._compiler.version,
            flags=_portable_flags(),
        )

    @property
    def job_bytes(self) -> int:
        """What the template headers make of a compiler."""
        return _JOB_BYTES

    def emit(self, kernel: Kernel) -> str:
        """The kernel as C++17 for this CPU's vector registers."""
        from ckh.bench.codegen.host import HostSimd

        machine = self._arch.machine
        assert machine is not None
        simd, emission = HostSimd(machine.vector_bytes, machine.vector_registers), _emission(kernel)
        return emission.emit(kernel, simd) + self._comment_on(emission.templates)

    def cache_salt(self) -> bytes:
        """Headers, flags, compiler version and what `-march=native` looks at."""
        from ckh.bench.codegen.host import template_dir

        parts = (self._compiler.version, *self._compiler.command[1:], *_portable_flags(), processor_identity())
        return header_contents(template_dir()) + "\0".join(parts).encode()

    def compile_command(self, kernel: Kernel, source: Path, library: Path) -> list[str]:
        """One call of the C++ compiler."""
        from ckh.bench.codegen.host import compile_flags

        folder = f"-I{_emission(kernel).templates}"
        return [*self._compiler.command, *compile_flags(), folder, "-o", str(library), str(source)]

    @property
    def unit_kernels(self) -> int:
        """One: our headers are read in a moment."""
        return 1

    def emit_unit(self, kernel: Kernel, sources: Sequence[str]) -> str:  # noqa: ARG002 - the interface's
        """The only one."""
        (source,) = sources
        return source

    def inspect(self, kernel: Kernel, source: str, messages: str) -> Binary | None:  # noqa: ARG002 - the interface's
        """Nothing: what runs on a CPU is identified by its source."""
        return None

    def worker_configs(self) -> tuple[WorkerConfig, ...]:
        """One worker on the last core, with most of the free memory: two would slow each other."""
        from ckh.bench.compile import available_bytes

        return (WorkerConfig(int(available_bytes() * _MEMORY_SHARE), max(os.sched_getaffinity(0))),)

    def worker_command(self) -> list[str]:
        """This Python with the worker module."""
        return worker_module_command()

    def worker_environment(self) -> dict[str, str]:
        """Ours, with one thread for BLAS."""
        return worker_environment(blas_threads=1)


def _emission(kernel: Kernel) -> HostEmission[Kernel]:
    """How the kernels of a kernel's operation are built for the CPU."""
    op = operation_of_kernel(kernel)
    if (emission := measured_of(op).host) is None:
        raise UnsupportedKernelError(f"{op.name} has no kernels for the CPU")
    return emission


def headers_comment(folder: Path) -> str:
    """A line in which sources differ when an operation's own headers do, which the salt of the cache does not hold."""
    return f"// headers {hashlib.sha256(header_contents(folder)).hexdigest()}\n"


def worker_module_command() -> list[str]:
    """This Python with the worker module."""
    return [sys.executable, "-m", "ckh.bench.worker"]


def worker_environment(blas_threads: int) -> dict[str, str]:
    """Ours, with so many threads for BLAS, and ckh importable wherever the command was started."""
    package_parent = str(Path(__file__).resolve().parents[2])
    paths = [package_parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **dict.fromkeys(_BLAS_THREADS, str(blas_threads)), "PYTHONPATH": os.pathsep.join(paths)}


def open_device(kind: str, options: DeviceOptions = DeviceOptions()) -> Device:
    """The device of that kind.

    Raises:
        UsageError: there is no such kind, or an option does not go with it.
        DeviceError: it cannot be used here.
    """
    if kind == HIP_KIND:
        from ckh.bench.hip_device import HipDevice

        return HipDevice(options)
    if kind == EMULATED_KIND:
        from ckh.bench.emulated import EmulatedDevice

        return EmulatedDevice(options)
    if kind != HOST_KIND:
        raise UsageError(f"unknown device {kind!r}", "one of " + ", ".join(DEVICE_KINDS))
    given = [field.name for field in fields(options) if getattr(options, field.name) != field.default]
    if given:
        raise UsageError(f"the host device has no {', '.join(given)}", "use --device hip")
    return HostDevice()


def device_of(arch: str) -> Device:
    """This machine's device of an architecture.

    Raises:
        DeviceError: it has none, or it cannot be used.
    """
    from ckh.archs import HOST

    is_host = arch == HOST
    device = open_device(HOST_KIND if is_host else HIP_KIND, DeviceOptions(None if is_host else arch))
    if device.arch.name != arch:
        raise DeviceError(f"the model is for {arch}, this machine has {device.arch.name}")
    require_usable(device)
    return device


def default_device_kind(options: DeviceOptions) -> str:
    """`hip` where there is an AMD GPU, or where an option is given that only a GPU has; else `host`."""
    from ckh.archs import detect_gpu_arch

    return HIP_KIND if options != DeviceOptions() or detect_gpu_arch() else HOST_KIND


def require_usable(device: Device) -> None:
    """Find out whether the GPUs can be used, before hours of compilation.

    Raises:
        DeviceError: a worker cannot be started; says why.
    """
    from ckh.bench.process import WorkerProcess

    for config in device.worker_configs():
        if config.is_hip:
            WorkerProcess(device, config).kill()


def _portable_flags() -> tuple[str, ...]:
    from ckh.bench.codegen.host import compile_flags

    return tuple(flag for flag in compile_flags() if not flag.startswith("-I"))
