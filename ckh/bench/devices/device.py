"""Interface and common parts of the devices that kernels are measured on."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

from ckh.bench.codegen.unit import header_contents
from ckh.bench.supervision.protocol import EMULATED, HIP, WorkerConfig
from ckh.declared import Declared, declared
from ckh.files.child import module_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.bench.compilation.binary import Binary
    from ckh.kernels.judging import Verdicts
    from ckh.ops.base import AnyOperation, Kernel

HOST_KIND, HIP_KIND, EMULATED_KIND = "host", HIP, EMULATED
VERIFIERS = ("gpu", "host")
DEVICE_KINDS = (HOST_KIND, HIP_KIND, EMULATED_KIND)

# BLAS in a host worker must not use the cores that kernels are timed on.
_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Options of a `hip` or `emulated` device; None: detected."""

    arch: str | None = declared(
        Declared("hip: compile for this architecture.  [the GPU's]", completion="architectures"), default=None
    )
    hipcc: str | None = declared(
        Declared("hip: the compiler, with options of its own if any.  [HIPCC, ROCM_PATH, PATH]"), default=None
    )
    ck_include: str | None = declared(
        Declared("hip: folder with CK Tile's headers.  [CK_TILE_INCLUDE, ROCm's]"), default=None
    )
    gpus: tuple[int, ...] | None = declared(
        Declared("hip: GPUs to use, a worker each.  [all]", metavar="N[,N…]"), default=None
    )
    verify_on: str | None = declared(
        Declared("hip: check results on: {}.  [gpu]", choices=lambda: VERIFIERS), default=None
    )
    cold: bool = False
    """True: caches are flushed before every timed run."""
    rotating: int = 0
    """Number of operand sets that timed runs rotate through; 0: as many as exceed the caches."""


_NO_KIND = ("clock_mhz", "max_clock_mhz", "hardware")  # fields of `hardware` are compared one by one


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Identity of a device as recorded in the data.

    `hardware` is its profile under the names of `schema.HARDWARE`, with `bandwidth_gb_s` for known products.
    `environment` has the environment variables, with values, that slow down its launches.
    """

    kind: str
    arch: str
    name: str
    clock_mhz: int
    hardware: dict[str, int]
    compiler: str
    flags: tuple[str, ...]
    environment: tuple[str, ...] = ()

    def difference(self, other: DeviceIdentity) -> str:
        """First difference in kind from another device, with both values; empty if both are of the same kind.

        Clocks are ignored: a CPU may report its current clock. The speed of devices is measured instead.
        """
        own, theirs = ({**asdict(each), **each.hardware} for each in (self, other))
        names = (name for name in own if name not in _NO_KIND and own[name] != theirs.get(name))
        return next((f"{name} {own[name]} and {theirs.get(name)}" for name in names), "")


class Device(Protocol):
    """A device that kernels are measured on; its defaults are those of a CPU, whose headers are parsed quickly."""

    arch: ArchSpec
    """Architecture whose pool of kernels runs on it."""
    job_bytes: int
    """Memory that one compiler may need, in bytes."""
    unit_kernels: int = 1
    """Maximum number of kernels per translation unit; 1: each is compiled alone."""
    has_run: bool = False
    """True once it ran a kernel, right or wrong."""
    least_source: str
    """Source of a minimal kernel, which every working toolchain can build."""

    def identity(self) -> DeviceIdentity:
        """The device's identity, for provenance."""

    def emit(self, kernel: Kernel) -> str:
        """Source of a kernel; kernels with the same source are compiled once."""

    def refusals(self, kernels: Sequence[Kernel]) -> Verdicts | None:  # noqa: ARG002 - for GPUs
        """Kernels of an operation that `emit` refuses; None if there are none, or without headers."""
        return None

    def compile_s(self, op: AnyOperation) -> Mapping[str, float]:
        """Default CPU seconds to compile a kernel of an operation, by kind; "" for all other kinds."""

    def emit_unit(self, kernel: Kernel, sources: Sequence[str]) -> str:  # noqa: ARG002 - for GPUs
        """Combine sources of kernels of that kernel's operation into one translation unit."""
        (source,) = sources
        return source

    def cache_salt(self) -> bytes:
        """What a compiled kernel depends on besides its source: shared headers, flags, compiler, processor."""

    def compile_command(self, kernel: Kernel, source: Path, library: Path) -> list[str]:
        """Command that compiles a kernel's source to a shared library."""

    def least_command(self, source: Path, library: Path) -> list[str]:
        """Command that compiles the minimal kernel to a shared library."""

    def inspect(self, kernel: Kernel, source: str, messages: str, library: bytes) -> Binary | None:  # noqa: ARG002 - for GPUs
        """Metadata of a kernel just compiled, by the compiler's `messages` on it and its library or unit.

        None: its source identifies it.
        """
        return None

    def checks_library(self) -> str:
        """Library of kernels that check results on its GPUs; empty: the host checks them."""
        return ""

    def worker_configs(self) -> tuple[WorkerConfig, ...]:
        """One configuration for each worker that may run in parallel."""

    def worker_command(self) -> list[str]:
        """Command that starts a worker, without its configuration: the worker module with this Python."""
        return module_command("ckh.bench.isolated.worker")

    def worker_environment(self) -> dict[str, str]:
        """Environment variables of a worker."""


def headers_comment(folders: tuple[Path, ...]) -> str:
    """Comment with a hash of an operation's own headers, which the salt of the cache does not cover."""
    contents = b"".join(map(header_contents, folders))
    return f"// headers {hashlib.sha256(contents).hexdigest()}\n"


def worker_environment(blas_threads: int) -> dict[str, str]:
    """This process's environment with `blas_threads` BLAS threads."""
    return {**os.environ, **dict.fromkeys(_BLAS_THREADS, str(blas_threads))}
