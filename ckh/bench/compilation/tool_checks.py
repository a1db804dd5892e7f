"""Checks, within seconds, whether kernels can be built and run on this machine, with a remedy for each fault."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ckh.bench.compilation.hip_toolchain import find_ck_tile, find_hipcc
from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.compilation.toolchain import find_compiler, require_toolchain
from ckh.bench.devices.device import HIP_KIND, HOST_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device, require_usable
from ckh.errors import CkhError, DeviceError, ExitCode
from ckh.hardware.gpus import detect_gpu_arch

if TYPE_CHECKING:
    from collections.abc import Callable

_ARCH_TO_TRY = "gfx942"  # without a GPU


@dataclass(frozen=True, slots=True)
class ToolCheck:
    """Result of a check."""

    json_properties: ClassVar = ("ok",)

    name: str
    """Name of the checked part."""
    found: str
    """Result: version or path, or the fault."""
    remedy: str
    """Remedy for the fault; empty if none is known."""
    exit_code: int
    """0 if the part works, else that of the error."""
    seconds: float
    """Duration of the check in seconds."""

    @property
    def ok(self) -> bool:
        """True if the part works."""
        return self.exit_code == ExitCode.OK


def check_tools(options: DeviceOptions) -> list[ToolCheck]:
    """Open the GPUs in workers; compile, link and load the simplest kernel for a GPU and for the CPU."""
    wanted = replace(options, arch=options.arch or detect_gpu_arch() or _ARCH_TO_TRY)
    return [
        checked("GPU", lambda: opened(HIP_KIND, wanted)),
        checked("HIP compiler", lambda: built_simplest(HIP_KIND, wanted)),
        checked("CK Tile headers", lambda: _headers(wanted)),
        checked("C++ compiler", lambda: built_simplest(HOST_KIND, DeviceOptions())),
    ]


def checked(name: str, find: Callable[[], str]) -> ToolCheck:
    """Result of calling `find`, or of the error that it raises."""
    start = time.monotonic()
    try:
        result, remedy, code = find(), "", ExitCode.OK
    except CkhError as error:
        result, remedy, code = error.message, error.hint, error.exit_code
    except OSError as error:
        result, remedy, code = f"cannot write: {error}", "free disk space, or set CKH_CACHE_DIR", ExitCode.INPUT_OUTPUT
    return ToolCheck(name, result, remedy, int(code), round(time.monotonic() - start, 3))


def opened(kind: str, options: DeviceOptions) -> str:
    """Open each GPU of a device in a worker, and write and read its memory."""
    device = open_device(kind, options)
    require_usable(device)
    count = len(device.worker_configs())
    return f"{device.arch.name}, {count} worker{'s' * (count > 1)}"


def built_simplest(kind: str, options: DeviceOptions) -> str:
    """Compile, link and load the simplest kernel."""
    compiler = find_compiler() if kind == HOST_KIND else find_hipcc(options.hipcc)
    with KernelCache().workshop() as folder:
        require_toolchain(open_device(kind, options), folder)
    target = "" if options.arch is None else f" for {options.arch}"
    return f"{' '.join(compiler.command)} builds what can be loaded{target}"


def _headers(options: DeviceOptions) -> str:
    hipcc = None
    with suppress(DeviceError):  # headers may be usable without one
        hipcc = find_hipcc(options.hipcc)
    headers = find_ck_tile(options.ck_include, hipcc)
    return f"{headers.include} (interface {headers.interface})"
