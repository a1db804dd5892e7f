"""Open the device of a kind or an architecture, and choose the default kind."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING

from ckh.bench.devices.device import DEVICE_KINDS, EMULATED_KIND, HIP_KIND, HOST_KIND, DeviceOptions
from ckh.errors import DeviceError, UsageError
from ckh.text.log import warn
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from ckh.bench.devices.device import Device
    from ckh.bench.supervision.protocol import WorkerConfig


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
    from ckh.bench.devices.host_device import HostDevice

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
