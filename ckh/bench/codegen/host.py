"""The `host` device: a kernel of the table as C++17 for this CPU.

A translation unit is the kernel's parameters as constants and one include. Whatever varies in the pool changes the
machine code: `templates/host/nest.hpp` says what a pipeline stages and in which order tiles are visited,
`register_tile.hpp` how waves and warp tiles become a register block.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.kernels.pipelines import TABLE_PIPELINES

if TYPE_CHECKING:
    from ckh.kernels.config import ConvKernel

_INTEGERS = (
    "tile_m",
    "tile_n",
    "tile_k",
    "wave_m",
    "wave_n",
    "wave_k",
    "warp_tile_m",
    "warp_tile_n",
    "warp_tile_k",
    "vector_a",
    "vector_b",
    "vector_c",
)
_BOOLEANS = ("double_smem_buffer", "split_image")
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-stack-protector",
    "-fvisibility=default",
    "-shared",
    "-fPIC",
)


@dataclass(frozen=True, slots=True)
class HostSimd:
    """The SIMD registers of a CPU: their size in bytes (16, 32 or 64) and their number (16 or 32)."""

    vector_bytes: int
    registers: int

    def __post_init__(self) -> None:
        if self.vector_bytes not in (16, 32, 64) or self.registers not in (16, 32):
            raise UsageError(f"no CPU has {self.registers} SIMD registers of {self.vector_bytes} bytes")


def template_dir() -> Path:
    """The directory that emitted sources include from."""
    return Path(__file__).parent / "templates" / "host"


def source_hash_inputs() -> bytes:
    """Names and contents of all template headers: what a compiled kernel depends on besides its own source."""
    headers = sorted(template_dir().glob("*.hpp"))
    return b"".join(header.name.encode() + b"\0" + header.read_bytes() + b"\0" for header in headers)


def compile_flags() -> tuple[str, ...]:
    """Compiler flags for one translation unit, with the include directory and without input and output."""
    return (*_FLAGS, f"-I{template_dir()}")


def emit(kernel: ConvKernel, simd: HostSimd) -> str:
    """The C++ source of one kernel; the same for 2D and 3D, since 2D is depth 1.

    Raises:
        UsageError: the kernel leaves a parameter out, or asks for something that the host device does not have.
    """
    _check(kernel)
    lines = [
        f"inline constexpr int vector_bytes = {simd.vector_bytes};",
        f"inline constexpr int registers = {simd.registers};",
        f"inline constexpr Variant variant = Variant::{kernel.variant};",
        f"inline constexpr Pipeline pipeline = Pipeline::{kernel.pipeline};",
        f"inline constexpr Scheduler scheduler = Scheduler::{kernel.scheduler};",
        *(f"inline constexpr int {name} = {getattr(kernel, name)};" for name in _INTEGERS),
        *(f"inline constexpr bool {name} = {str(getattr(kernel, name)).lower()};" for name in _BOOLEANS),
    ]
    source_id = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    lines.append(f'inline constexpr const char* source_id = "{source_id}";')
    head, tail = (
        '#include "kernel.hpp"\n\nnamespace ckh::kernel {\n',
        '\n}  // namespace ckh::kernel\n\n#include "conv.hpp"\n',
    )
    return "\n".join((head, *lines, tail))


def _check(kernel: ConvKernel) -> None:
    missing = [name for name in _INTEGERS if getattr(kernel, name) is None]
    if missing:
        raise UsageError(f"the kernel leaves out {', '.join(missing)}", "only complete kernels can be built")
    if kernel.dtype != "fp32":
        raise UsageError(f"the host device computes fp32, not {kernel.dtype}")
    if kernel.pipeline not in TABLE_PIPELINES:
        raise UsageError(f"the host device has no pipeline {kernel.pipeline}", "one of " + ", ".join(TABLE_PIPELINES))
