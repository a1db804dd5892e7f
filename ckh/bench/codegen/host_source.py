"""Parts that kernels for the `host` device share: this CPU's vector registers, the compiler's flags, and headers.

What varies in a pool changes the machine code: `templates/host/nest.hpp` says what a pipeline stages and in which order
tiles are visited, `register_tile.hpp` how waves and warp tiles become a register block.
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
    """The directory of the headers that kernels of several operations include."""
    return Path(__file__).parent / "templates" / "host"


def staging_constants(pipeline: str) -> dict[str, bool]:
    """The constants that a pipeline has in the sources of the host's kernels.

    Raises:
        UsageError: the host does not have it.
    """
    row = PIPELINES.get(pipeline)
    if row is None or row.staging is None:
        raise UsageError(
            f"the host device has no pipeline {pipeline}", "one of " + ", ".join(TABLE_PIPELINES), code="unknown-name"
        )
    return row.staging.constants()


def compile_flags() -> tuple[str, ...]:
    """Compiler flags for one translation unit, with the shared include directory and without input and output."""
    return (*_FLAGS, f"-I{template_dir()}")
