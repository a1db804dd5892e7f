"""The device `host`, the CPU of this machine; devices of a kind or an architecture, and the default kind."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.bench.codegen.unit import HostSimd, UnsupportedKernelError, compile_flags, header_contents, template_dir
from ckh.bench.compilation.compile import available_bytes
from ckh.bench.compilation.toolchain import LEAST_HOST, find_compiler
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import (
    DEVICE_KINDS,
    EMULATED_KIND,
    HIP_KIND,
    HOST_KIND,
    Device,
    DeviceIdentity,
    DeviceOptions,
    headers_comment,
    worker_environment,
)
from ckh.bench.supervision.protocol import WorkerConfig
from ckh.errors import DeviceError, UsageError
from ckh.hardware.machine import processor_identity, processor_name
from ckh.ops import operation_of_kernel
from ckh.text.log import warn
from ckh.text.prose import one_of

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


def open_device(kind: str, options: DeviceOptions = DeviceOptions()) -> Device:
    """Open the device of a kind."""
    if kind == HIP_KIND:
        from ckh.bench.devices.hip_device import HipDevice

        return HipDevice(options)
    if kind == EMULATED_KIND:
        from ckh.bench.devices.hip_device import EmulatedDevice

        return EmulatedDevice(options)
    if kind != HOST_KIND:
        raise UsageError(f"unknown device {kind!r}", one_of(kind, DEVICE_KINDS), code="unknown-name")
    given = [field.name for field in fields(options) if getattr(options, field.name) != field.default]
    if given:
        raise UsageError(f"the host device has no {', '.join(given)}", "use --device hip", code="inapplicable-option")
    return HostDevice()


def device_of(arch: str) -> Device:
    """Open this machine's device of an architecture."""
    from ckh.archs import HOST

    is_host = arch == HOST
    device = open_device(HOST_KIND if is_host else HIP_KIND, DeviceOptions(None if is_host else arch))
    if device.arch.name != arch:
        raise DeviceError(f"the model is for {arch}, this machine has {device.arch.name}", code="model-mismatch")
    require_usable(device)
    return device


def default_device_kind(options: DeviceOptions) -> str:
    """`hip` if there is an AMD GPU, or if an option is given that only a GPU has; else `host`."""
    from ckh.archs import detect_gpu_arch

    return HIP_KIND if options != DeviceOptions() or detect_gpu_arch() else HOST_KIND


def caution_of(device: Device) -> str:
    """Reason why a device's kernels are not verified; empty if they are, or if nothing can be built."""
    from ckh.bench.devices.hip_device import HipDevice

    with suppress(DeviceError):
        return device.caution if isinstance(device, HipDevice) else ""
    return ""


def require_usable(device: Device) -> None:
    """Check that all GPUs can be used, before hours of compilation; warn if other processes use some."""
    if shared := shared_gpus(device):
        warn(shared, "shared-gpu")


def shared_gpus(device: Device) -> str:
    """Check that all GPUs can be used, in parallel; returns a warning if other processes use some, else nothing."""
    from concurrent.futures import ThreadPoolExecutor

    from ckh.bench.supervision.process import WorkerProcess

    def others(config: WorkerConfig) -> float:
        worker = WorkerProcess(device, config)
        worker.kill()
        return worker.card.get("other_processes", 0)

    configs = list(dict.fromkeys(config for config in device.worker_configs() if config.is_hip))
    with ThreadPoolExecutor(max(1, len(configs))) as pool:
        counts = list(pool.map(others, configs))
    shared = [str(config.gpu) for config, count in zip(configs, counts, strict=True) if count]
    return f"other processes have memory on GPU {', '.join(shared)}: times may be too long" if shared else ""
