"""The device `host`: the CPU of this machine, one thread."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.bench.codegen.unit import HostSimd, UnsupportedKernelError, compile_flags, header_contents, template_dir
from ckh.bench.compilation.compile import available_bytes
from ckh.bench.compilation.toolchain import LEAST_HOST, find_compiler
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import (
    HOST_KIND,
    Device,
    DeviceIdentity,
    headers_comment,
    worker_environment,
)
from ckh.bench.supervision.protocol import WorkerConfig
from ckh.hardware.machine import processor_identity, processor_name
from ckh.ops import operation_of_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ckh.bench.computation import HostEmission
    from ckh.ops.base import AnyOperation, Kernel

_JOB_BYTES = 1 << 30
_MEMORY_SHARE = 0.8  # share of the free memory that the worker may use


class HostDevice(Device):
    """This machine's CPU, one thread."""

    job_bytes, least_source = _JOB_BYTES, LEAST_HOST

    def __init__(self) -> None:
        self.arch = load_arch(HOST_KIND)
        self._compiler = find_compiler()
        self._comment_on = cache(headers_comment)

    def identity(self) -> DeviceIdentity:
        """Identity; the include directory is removed from the flags, as it only depends on where ckh is installed."""
        return DeviceIdentity(
            kind=HOST_KIND,
            arch=self.arch.name,
            name=processor_name(),
            clock_mhz=self.arch.hardware.max_clock_mhz,
            hardware=self.arch.hardware.to_dict(),
            compiler=self._compiler.version,
            flags=_portable_flags(),
        )

    def emit(self, kernel: Kernel) -> str:
        """Emit the kernel as C++17 for this CPU's SIMD registers."""
        machine = self.arch.machine
        assert machine is not None
        simd, emission = HostSimd(machine.vector_bytes, machine.vector_registers), _emission(kernel)
        return emission.emit(kernel, simd) + self._comment_on(emission.templates)

    def compile_s(self, op: AnyOperation) -> Mapping[str, float]:
        return _emission_of(op).compile_s

    def cache_salt(self) -> bytes:
        """Headers, flags, compiler version and the processor features used by `-march=native`."""
        parts = (self._compiler.version, *self._compiler.command[1:], *_portable_flags(), processor_identity())
        return header_contents(template_dir()) + "\0".join(parts).encode()

    def compile_command(self, kernel: Kernel, source: Path, library: Path) -> list[str]:
        folders = (f"-I{folder}" for folder in _emission(kernel).templates)
        return [*self._compiler.command, *compile_flags(), *folders, "-o", str(library), str(source)]

    def least_command(self, source: Path, library: Path) -> list[str]:
        return [*self._compiler.command, *compile_flags(), "-o", str(library), str(source)]

    def worker_configs(self) -> tuple[WorkerConfig, ...]:
        """One worker on the last core, with most of the free memory: two would slow each other down."""
        return (WorkerConfig(int(available_bytes() * _MEMORY_SHARE), max(os.sched_getaffinity(0))),)

    def worker_environment(self) -> dict[str, str]:
        return worker_environment(blas_threads=1)


def _emission(kernel: Kernel) -> HostEmission[Kernel]:
    """How kernels of this kernel's operation are built for the CPU."""
    return _emission_of(operation_of_kernel(kernel))


def _emission_of(op: AnyOperation) -> HostEmission[Kernel]:
    if (emission := measured_of(op).host) is None:
        raise UnsupportedKernelError(f"{op.name} has no kernels for the CPU")
    return emission


def _portable_flags() -> tuple[str, ...]:
    return tuple(flag for flag in compile_flags() if not flag.startswith("-I"))
