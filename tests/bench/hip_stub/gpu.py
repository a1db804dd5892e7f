"""A device with the GPU of stub.c, with given kernel times and faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.bench.devices.device_choice import HostDevice
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.protocol import HIP, WorkerConfig
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.ops.grouped_conv.kernel import ConvKernel


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """A right kernel: its time at full speed, and the faults (see stub.c) that it triggers in its first run."""

    us: float = 100.0
    fault: str = ""

    def source(self, name: str) -> str:
        """The C source that is linked to exported.cpp."""
        return (
            f'const char stub_label[] = "ckh-kernel:{name}";\n'
            f"double stub_ns(const long* sizes) {{ return (void)sizes, {self.us * 1e3!r}; }}\n"
            f'const char stub_fault[] = "{self.fault}";\n'
        )


class StubGpus(HostDevice):
    """GPUs with these kernels, which have names of the host's pool; a worker for each."""

    def __init__(self, runtime: Path, exported: Path, kernels: Sequence[GpuKernel], gpus: int = 1) -> None:
        super().__init__()
        self.kernels: tuple[ConvKernel, ...] = conv_pool(Direction.FORWARD, self.arch)[: len(kernels)]
        self.names = tuple(full_name(kernel) for kernel in self.kernels)
        self._runtime, self._exported, self._gpus = runtime, exported, gpus
        self._of_kernel = dict(zip(self.kernels, kernels, strict=True))

    def emit(self, kernel: Any) -> str:
        """The part of the source that is specific to the kernel."""
        return self._of_kernel[kernel].source(full_name(kernel))

    def cache_salt(self) -> bytes:
        """Libraries are linked to the stub of this session."""
        return str(self._runtime).encode()

    def compile_command(self, kernel: Any, source: Path, library: Path) -> list[str]:
        """Compile only the part that is specific to the kernel."""
        shared = ("-x", "none", str(self._exported), str(self._runtime))
        return ["g++", "-shared", "-fPIC", "-s", "-o", str(library), "-x", "c", str(source), *shared]

    def worker_configs(self) -> tuple[WorkerConfig, ...]:
        """One worker per GPU."""
        return tuple(WorkerConfig(0, None, HIP, number) for number in range(self._gpus))
