"""Common parts of kernels for the `host` device: SIMD registers of this CPU, compiler flags, and headers.

Every parameter of a pool changes the machine code: `templates/host/nest.hpp` implements staging by pipeline and the
order of tiles, `register_tile.hpp` maps waves and warp tiles to a register block.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ckh.errors import UsageError
from ckh.kernels.pipelines import PIPELINES, TABLE_PIPELINES

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
            raise UsageError(
                f"no CPU has {self.registers} SIMD registers of {self.vector_bytes} bytes", code="bad-kernel"
            )


def template_dir() -> Path:
    """Directory of the headers that are included by kernels of several operations."""
    return Path(__file__).parent / "templates" / "host"


def staging_constants(pipeline: str) -> dict[str, bool]:
    """Compile-time constants of a pipeline in the sources of host kernels.

    Raises:
        UsageError: the host has no such pipeline.
    """
    row = PIPELINES.get(pipeline)
    if row is None or row.staging is None:
        raise UsageError(
            f"the host device has no pipeline {pipeline}", "one of " + ", ".join(TABLE_PIPELINES), code="unknown-name"
        )
    return row.staging.constants()


def compile_flags() -> tuple[str, ...]:
    """Compiler flags for one translation unit, including the shared include directory, without input and output."""
    return (*_FLAGS, f"-I{template_dir()}")
