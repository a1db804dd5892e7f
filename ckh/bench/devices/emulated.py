"""The device `emulated`: kernels built by a HIP compiler, executed on the CPU instruction by instruction.

It verifies results and never measures times: its rows are `verified` or give the failure, without times.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ckh.bench.compilation.compiling import run_compiler
from ckh.bench.compilation.kernel_cache import CachedLibrary, KernelCache
from ckh.bench.compilation.toolchain import version_of
from ckh.bench.devices.device import EMULATED_KIND, DeviceIdentity
from ckh.bench.devices.hip_device import HipDevice
from ckh.bench.isolated.hip_runtime import LIBRARY_VARIABLE
from ckh.emulator.build import FLAGS, RUNTIME_NAMES, compile_command, find_c_compiler, source_files
from ckh.errors import DeviceError, UsageError
from ckh.hardware.machine import processor_identity
from ckh.schema import Status
from ckh.text.log import note

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.bench.devices.device import DeviceOptions
    from ckh.bench.supervision.protocol import WorkerConfig

EMULATED_ARCHS = ("gfx942", "gfx950", "gfx90a")
_FOLDER = "emulator"
_BUILD_TIMEOUT_S = 600.0
_LOADER_PATH = "LD_LIBRARY_PATH"


class EmulatedDevice(HipDevice):
    """An emulated GPU. Kernels are emitted and compiled as for a real GPU."""

    def __init__(self, options: DeviceOptions) -> None:
        if options.gpus is not None or options.cold or options.rotating:
            raise UsageError(
                "the emulated device has neither GPUs to select nor caches",
                "omit the option",
                code="inapplicable-option",
            )
        super().__init__(replace(options, arch=options.arch or EMULATED_ARCHS[0]))
        if self.arch.name not in EMULATED_ARCHS:
            raise UsageError(
                f"{self.arch.name} is not emulated", "one of " + ", ".join(EMULATED_ARCHS), code="unsupported"
            )

    def identity(self) -> DeviceIdentity:
        """Identity of the emulated architecture."""
        return replace(super().identity(), kind=EMULATED_KIND, name=f"emulated {self.arch.name}")

    def worker_configs(self) -> tuple[WorkerConfig, ...]:
        """One worker per core."""
        (config,) = super().worker_configs()
        return (replace(config, kind=EMULATED_KIND, arch=self.arch.name),) * len(os.sched_getaffinity(0))

    def worker_environment(self) -> dict[str, str]:
        """This process's environment, with the emulated runtime in place of HIP's; it is built on first use."""
        environment = super().worker_environment()
        folders = [str(self._runtime.parent), *filter(None, [environment.get(_LOADER_PATH)])]
        return {**environment, _LOADER_PATH: os.pathsep.join(folders), LIBRARY_VARIABLE: str(self._runtime)}

    @cached_property
    def _runtime(self) -> Path:
        return emulated_runtime()


def emulated_runtime() -> Path:
    """Build the emulated HIP runtime, in a folder where the loader finds it by every name that kernels require.

    It is cached with the compiled libraries, by a hash of its sources, flags, compiler and processor.
    """
    compiler = find_c_compiler()
    cache = KernelCache(_FOLDER)
    key = _key(compiler)
    result = cache.find(key) or _build(cache, key, compiler)
    folder = cache.folder / f"{key}.names"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in RUNTIME_NAMES:
        link = folder / name
        if not link.is_symlink():
            fresh = folder / f".{name}.{os.getpid()}"
            fresh.symlink_to(os.path.relpath(result.path, folder))
            fresh.replace(link)
    return folder / RUNTIME_NAMES[0]


def _key(compiler: tuple[str, ...]) -> str:
    parts = (version_of(compiler), *compiler[1:], *FLAGS, processor_identity())
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in source_files():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _build(cache: KernelCache, key: str, compiler: tuple[str, ...]) -> CachedLibrary:
    note("building the emulated GPU, which is done once")
    with cache.workshop() as folder:
        library = folder / "library.so"
        run = run_compiler(compile_command(compiler, library), library, _BUILD_TIMEOUT_S, lambda: False)
        assert run is not None
        if run.status is not Status.OK:
            raise DeviceError(
                f"the emulated GPU cannot be built: {run.message}", "set CC to gcc 12 or newer", code="no-emulator"
            )
        return cache.put(key, library, None)
