"""The devices `hip` and `emulated`: AMD GPUs, with CK Tile kernels compiled by hipcc, and their emulation on the CPU.

Nothing here opens a GPU: GPUs are detected through the kernel driver, and only workers use the HIP runtime. An
emulated GPU executes kernels instruction by instruction. It verifies results and never measures times: its rows are
`verified` or give the failure, without times.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from ckh.archs import arch_of_gpu, load_arch
from ckh.bench.codegen import ck_tile
from ckh.bench.codegen.ck_tile import NOT_VERIFIED, dispatcher_macro, framework_flags
from ckh.bench.codegen.unit import UnsupportedKernelError, code_hash, header_contents, unit_source
from ckh.bench.compilation.binary import Binary, calling_functions, parse_resources
from ckh.bench.compilation.hip_toolchain import (
    HIP_FLAGS,
    all_flags,
    find_ck_tile,
    find_hipcc,
    known_ck_tile,
    runtime_beside,
)
from ckh.bench.compilation.kernel_cache import CachedLibrary, KernelCache
from ckh.bench.compilation.toolchain import LEAST_HIP, run_compiler, version_of
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import (
    EMULATED_KIND,
    HIP_KIND,
    VERIFIERS,
    Device,
    DeviceIdentity,
    headers_comment,
    worker_environment,
)
from ckh.bench.isolated.hip_runtime import LIBRARY_VARIABLE
from ckh.bench.supervision.protocol import WorkerConfig
from ckh.emulator.build import FLAGS, RUNTIME_NAMES, compile_command, find_c_compiler, source_files
from ckh.errors import DeviceError, UsageError
from ckh.hardware.gpus import visible_gpus
from ckh.hardware.machine import processor_identity
from ckh.kernels.judging import judge_table
from ckh.kernels.table import KernelTable
from ckh.ops import operation_of_kernel
from ckh.schema import Status
from ckh.text.log import note
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ckh.bench.codegen.ck_tile import Headers
    from ckh.bench.compilation.toolchain import Compiler
    from ckh.bench.computation import HipEmission
    from ckh.bench.devices.device import DeviceOptions
    from ckh.kernels.judging import Verdicts
    from ckh.ops.base import AnyOperation, Kernel


_TARGET = re.compile(r"gfx[0-9a-f]+(?!:(\w+)[+-]:\1)(?::(?:sramecc|xnack)[+-]){0,2}")
_JOB_BYTES = 3 << 30  # measured: 0.7 GB for a kernel, 1.5 GB for eight with different tiles
_UNIT_KERNELS = 12
_FLUSH_FACTOR = 2  # size of the flush buffer, as a multiple of the GPU's caches
_KB = 1024
_SLOWING = ("HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL", "AMD_SERIALIZE_COPY")  # which serialize launches
EMULATED_ARCHS = ("gfx942", "gfx950", "gfx90a")
_FOLDER = "emulator"
_CHECKS = ck_tile.template_dir().parent / "checks" / "checks.hip"
_BUILD_TIMEOUT_S = 600.0
_LOADER_PATH = "LD_LIBRARY_PATH"


class HipDevice(Device):
    """The AMD GPUs of one architecture in this machine, or a target architecture without a GPU.

    Compiler and headers are looked up on first use, which raises `DeviceError` if they are missing.
    """

    job_bytes, unit_kernels, least_source = _JOB_BYTES, _UNIT_KERNELS, LEAST_HIP

    def __init__(self, options: DeviceOptions) -> None:
        gpus = visible_gpus()
        if options.arch is None and not gpus:
            raise DeviceError(
                "no usable device: no AMD GPU is found", "name one with --arch to compile for it", code="no-gpu"
            )
        if options.verify_on not in (None, *VERIFIERS):
            raise UsageError(
                f"results are not checked on {options.verify_on!r}",
                one_of(options.verify_on, VERIFIERS),
                code="unknown-name",
            )
        name = gpus[0].arch if options.arch is None else options.arch
        arch, is_product = arch_of_gpu(name)
        self.arch, self._target = load_arch(name), arch if is_product else name
        if not _TARGET.fullmatch(self._target):
            raise UsageError(
                f"{self._target!r} is not a target of the HIP compiler",
                "such as gfx942 or gfx90a:xnack-",
                code="unknown-arch",
            )
        self._gpus = {gpu.number: gpu for gpu in gpus if gpu.arch == self.arch.name}
        self._numbers = tuple(self._gpus) if options.gpus is None else options.gpus
        if strange := [number for number in self._numbers if number not in self._gpus]:
            raise UsageError(
                f"no {self.arch.name} GPU {strange[0]} on this machine",
                f"GPUs: {list(self._gpus)}",
                code="no-such-gpu",
            )
        if self._numbers:  # another number may be that of another GPU, or of the product that --arch names
            self.arch = self.arch.sized(self._gpus[self._numbers[0]].num_cus)
        self._options = options
        self._comment_on, self._checks_lock = cache(headers_comment), threading.Lock()

    def identity(self) -> DeviceIdentity:
        """Identity of the GPU if there is one, else of the architecture."""
        hardware = self.arch.hardware.to_dict()
        gpu = next((self._gpus[number] for number in self._numbers), None)
        if gpu is not None and gpu.num_cus and gpu.max_clock_mhz:
            hardware |= {"num_cus": gpu.num_cus, "max_clock_mhz": gpu.max_clock_mhz}
            hardware["num_xcd"] = gpu.num_xcd or hardware["num_xcd"]
            hardware["l3_cache_kb"] //= gpu.memory_parts
            if gpu.bandwidth_gb_s:
                hardware["bandwidth_gb_s"] = gpu.bandwidth_gb_s
        product = " ".join(filter(None, (gpu.product, gpu.partition))) if gpu is not None else ""
        return DeviceIdentity(
            kind=HIP_KIND,
            arch=self.arch.name,
            name=f"{self._target}{f' {product}' if product else ''}, "
            f"{hardware['num_cus']} CUs at {hardware['max_clock_mhz']} MHz",
            clock_mhz=hardware["max_clock_mhz"],
            hardware=hardware,
            compiler=f"{self._compiler.version}; CK Tile {self._headers.interface} {self._headers_hash[:12]}; "
            f"flags {hashlib.sha256(' '.join(self._flags).encode()).hexdigest()[:8]}",
            flags=(*self._flags, f"--offload-arch={self._target}"),
            environment=tuple(f"{name}={os.environ[name]}" for name in _SLOWING if os.environ.get(name, "0") != "0"),
        )

    def emit(self, kernel: Kernel) -> str:
        emission = _emission(kernel)
        return emission.emit(kernel, self._headers, self.arch) + self._comment_on(emission.templates)

    def refusals(self, kernels: Sequence[Kernel]) -> Verdicts | None:
        """Return the kernels that these headers cannot build; None where there are no headers."""
        headers = known_ck_tile(self._options.ck_include)
        if not kernels or headers is None:
            return None
        table = KernelTable.of(type(kernels[0]), kernels)
        return judge_table(_emission(kernels[0]).rules(headers), table, self.arch)

    def emit_unit(self, kernel: Kernel, sources: Sequence[str]) -> str:
        return unit_source(sources, _folders(kernel))

    def compile_s(self, op: AnyOperation) -> Mapping[str, float]:
        return _emission_of(op).compile_s

    def cache_salt(self) -> bytes:
        parts = (self._compiler.version, *self._compiler.command[1:], *self._flags, self._target, self._headers_hash)
        return header_contents(ck_tile.template_dir()) + "\0".join(parts).encode()

    def compile_command(self, kernel: Kernel, source: Path, library: Path) -> list[str]:
        folders = (f"-I{folder}" for folder in (*_folders(kernel), self._headers.include))
        macros = (f"-D{dispatcher_macro(self._headers)}", *framework_flags(self._headers, self._target))
        target = (f"--offload-arch={self._target}", *macros)
        return [*self._compiler.program, *self._flags, *target, *folders, "-o", str(library), str(source)]

    def least_command(self, source: Path, library: Path) -> list[str]:
        """One call of hipcc, without CK Tile's headers."""
        target = f"--offload-arch={self._target}"
        return [*self._compiler.program, *self._flags, target, "-o", str(library), str(source)]

    def inspect(self, kernel: Kernel, source: str, messages: str, library: bytes) -> Binary | None:
        """Resource usage reported by the compiler, functions that call others, and a hash of the code."""
        resources = (parse_resources(messages, function) for function in _emission(kernel).functions)
        calling = calling_functions(library, self.arch.name, messages)
        return Binary(code_hash(source, _folders(kernel)), next(filter(None, resources), None), calling)

    def checks_library(self) -> str:
        with self._checks_lock, suppress(DeviceError):  # without a compiler, a worker still says whether there is a GPU
            return "" if self._options.verify_on == "host" else self._checks
        return ""

    @cached_property
    def _checks(self) -> str:
        """Compile the kernels that check results, which is cached; a failure is a warning, and leaves them unused."""
        text, cache = _CHECKS.read_text(encoding="utf-8"), KernelCache(_CHECKS.stem)
        parts = (text, self._compiler.version, *self._compiler.command[1:], *self._flags, self._target)
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
        if (found := cache.find(key)) is not None:
            return str(found.path)
        with cache.workshop() as folder:
            source, library = folder / "checks.cpp", folder / "checks.so"
            source.write_text(text, encoding="utf-8")
            run = run_compiler(self.least_command(source, library), source, _BUILD_TIMEOUT_S, lambda: False)
            assert run is not None
            if run.status is Status.OK:
                return str(cache.put(key, library, None).path)
        note(f"the host checks results: the kernels for it cannot be compiled: {run.message}")
        return ""

    def worker_configs(self) -> tuple[WorkerConfig, ...]:
        """One worker per GPU; without a GPU, one that reports so."""
        profile = self.arch.hardware
        caches_kb = profile.l3_cache_kb + profile.l2_cache_kb * max(profile.num_xcd, 1)
        outlasting_bytes = _FLUSH_FACTOR * caches_kb * _KB
        is_cold, floats = self._options.cold, self.arch.fnuz_floats
        if is_cold:
            config = WorkerConfig(0, None, HIP_KIND, 0, outlasting_bytes, fnuz_floats=floats)
        else:
            rotating = self._options.rotating
            config = WorkerConfig(
                0, None, HIP_KIND, 0, fnuz_floats=floats, rotating=rotating, rotating_bytes=outlasting_bytes
            )
        gpus = [self._gpus[number] for number in self._numbers]
        every = tuple(replace(config, gpu=gpu.number, pci=gpu.pci, kfd_id=gpu.kfd_id) for gpu in gpus)
        return every or (config,)

    def worker_environment(self) -> dict[str, str]:
        """This process's environment, with this worker's share of cores for BLAS, and the HIP runtime.

        BLAS computes the reference results. Kernels need the runtime of the compiler's ROCm, which the loader may not
        find.
        """
        environment = worker_environment(max(1, len(os.sched_getaffinity(0)) // max(1, len(self._numbers))))
        with suppress(DeviceError):
            if runtime := runtime_beside(self._compiler):
                environment.setdefault(LIBRARY_VARIABLE, str(runtime))
        return environment

    @property
    def caution(self) -> str:
        """Reason why kernels built with these headers are not verified; empty if ckh's tests build such kernels."""
        headers = self._headers
        return "" if headers.interface.is_verified and not headers.unlike else NOT_VERIFIED

    @cached_property
    def _compiler(self) -> Compiler:
        return find_hipcc(self._options.hipcc)

    @cached_property
    def _flags(self) -> tuple[str, ...]:
        """Flags of every kernel."""
        return (*HIP_FLAGS, *all_flags(self._compiler))

    @cached_property
    def _headers(self) -> Headers:
        return find_ck_tile(self._options.ck_include, self._compiler)

    @cached_property
    def _headers_hash(self) -> str:
        """Hash of all CK Tile headers, as they do not state their version."""
        digest = hashlib.sha256()
        for header in sorted((self._headers.include / "ck_tile").rglob("*.hpp")):
            digest.update(str(header.relative_to(self._headers.include)).encode() + b"\0" + header.read_bytes() + b"\0")
        return digest.hexdigest()


def _folders(kernel: Kernel) -> tuple[Path, ...]:
    """Folders of ckh's headers for a kernel."""
    return ck_tile.template_dir(), *_emission(kernel).templates


def _emission(kernel: Kernel) -> HipEmission[Kernel]:
    """How kernels of this kernel's operation are built for AMD GPUs."""
    return _emission_of(operation_of_kernel(kernel))


def _emission_of(op: AnyOperation) -> HipEmission[Kernel]:
    if (emission := measured_of(op).hip) is None:
        raise UnsupportedKernelError(f"{op.name} has no kernels for AMD GPUs")
    return emission


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

    def checks_library(self) -> str:
        """As of `HipDevice`, but only on request: the emulation takes longer than the host."""
        return super().checks_library() if self._options.verify_on == "gpu" else ""

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
    compiler, cache = find_c_compiler(), KernelCache(_FOLDER)
    parts = (version_of(compiler), *compiler[1:], *FLAGS, processor_identity())
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in source_files():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    key = digest.hexdigest()[:32]
    runtime = cache.find(key) or _build(cache, key, compiler)
    folder = cache.folder / f"{key}.names"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in RUNTIME_NAMES:
        link = folder / name
        if not link.is_symlink():
            fresh = folder / f".{name}.{os.getpid()}"
            fresh.symlink_to(os.path.relpath(runtime.path, folder))
            fresh.replace(link)
    return folder / RUNTIME_NAMES[0]


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
