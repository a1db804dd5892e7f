"""Devices that kernels are measured on: what bench needs from one, and what they share."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ckh.bench.codegen.unit_source import header_contents
from ckh.bench.supervision.protocol import EMULATED, HIP, WorkerConfig
from ckh.declared import Declared, declared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.archs import ArchSpec
    from ckh.bench.compilation.binary import Binary
    from ckh.kernels.judging import Verdicts
    from ckh.ops.base import AnyOperation, Kernel

HOST_KIND, HIP_KIND, EMULATED_KIND = "host", HIP, EMULATED
DEVICE_KINDS = (HOST_KIND, HIP_KIND, EMULATED_KIND)

# BLAS in a worker of the host must not use the cores that kernels are timed on.
_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """The options of a `hip` or `emulated` device; None: what is found.

    Attributes:
        arch: architecture to compile for, with target features if it has any ("gfx90a:xnack-").
        hipcc: the compiler.
        ck_include: the folder with CK Tile's headers.
        gpus: numbers of the GPUs to use; None: all of the architecture.
        cold: whether caches are emptied before every timed run.
        rotating: sets of operands that timed runs take in turn; 0: as many as outlast the caches.
    """

    arch: str | None = declared(
        Declared("hip: compile for this architecture.  [the GPU's]", completion="architectures"), default=None
    )
    hipcc: str | None = declared(Declared("hip: the compiler.  [HIPCC, ROCM_PATH, PATH]"), default=None)
    ck_include: str | None = declared(
        Declared("hip: folder with CK Tile's headers.  [CK_TILE_INCLUDE, ROCm's]"), default=None
    )
    gpus: tuple[int, ...] | None = declared(
        Declared("hip: GPUs to use, a worker each.  [all]", metavar="N[,N…]"), default=None
    )
    cold: bool = False
    rotating: int = 0


_NO_KIND = ("clock_mhz", "max_clock_mhz", "hardware")  # what `hardware` holds is compared by itself


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """The identity of a device in the data.

    `hardware` is its profile under the names of `schema.HARDWARE`, with `bandwidth_gb_s` of products that are known.
    `environment` has the variables, with their values, that make its launches slower.
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
        """What makes another device one of another kind, with both values; empty if it is of the same.

        Clocks do not: a CPU may state what it runs at now. How fast devices are is measured.
        """
        one, two = ({**asdict(each), **each.hardware} for each in (self, other))
        names = (name for name in one if name not in _NO_KIND and one[name] != two.get(name))
        return next((f"{name} {one[name]} and {two.get(name)}" for name in names), "")


class Device(Protocol):
    """A device that kernels are measured on."""

    @property
    def arch(self) -> ArchSpec:
        """The architecture whose pool of kernels runs on it."""

    def identity(self) -> DeviceIdentity:
        """The device's identity, for provenance."""

    @property
    def job_bytes(self) -> int:
        """Memory that one compiler may need."""

    def emit(self, kernel: Kernel) -> str:
        """The source of a kernel; kernels with the same source are compiled once.

        Raises:
            UnsupportedKernelError: the device cannot build it.
        """

    def refusals(self, kernels: Sequence[Kernel]) -> Verdicts | None:
        """Which of an operation's kernels `emit` refuses; None: none, or it is not known, as there are no headers."""

    def compile_s(self, op: AnyOperation) -> Mapping[str, float]:
        """CPU seconds of a compiler for a kernel of an operation by its kind, where none was seen; "" of the others."""

    @property
    def unit_kernels(self) -> int:
        """The most kernels that are compiled together; 1: each alone."""

    def emit_unit(self, kernel: Kernel, sources: Sequence[str]) -> str:
        """Sources of kernels of that kernel's operation as one, from which a library of all of them is compiled."""

    def cache_salt(self) -> bytes:
        """All that a compiled kernel depends on besides its source: shared headers, flags, compiler, processor."""

    def compile_command(self, kernel: Kernel, source: Path, library: Path) -> list[str]:
        """The command that makes a shared library of a kernel's source."""

    @property
    def least_source(self) -> str:
        """The source of the least kernel, which any toolchain that works can build."""

    def least_command(self, source: Path, library: Path) -> list[str]:
        """The command that makes a shared library of that."""

    def inspect(self, kernel: Kernel, source: str, messages: str) -> Binary | None:
        """The facts to keep of a kernel that was just compiled, from the compiler's `messages`."""

    def worker_configs(self) -> tuple[WorkerConfig, ...]:
        """One for each worker that may run at a time."""

    def worker_command(self) -> list[str]:
        """The command that starts a worker, without its configuration."""

    def worker_environment(self) -> dict[str, str]:
        """The environment of a worker."""


def headers_comment(folder: Path) -> str:
    """A line in which sources differ when an operation's own headers do, which the salt of the cache does not hold."""
    return f"// headers {hashlib.sha256(header_contents(folder)).hexdigest()}\n"


def worker_module_command() -> list[str]:
    """This Python with the worker module."""
    return [sys.executable, "-m", "ckh.bench.isolated.worker"]


def worker_environment(blas_threads: int) -> dict[str, str]:
    """Ours, with so many threads for BLAS, and ckh importable wherever the command was started."""
    package_parent = str(Path(__file__).resolve().parents[3])
    paths = [package_parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **dict.fromkeys(_BLAS_THREADS, str(blas_threads)), "PYTHONPATH": os.pathsep.join(paths)}
