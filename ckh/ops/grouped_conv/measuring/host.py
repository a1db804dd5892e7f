"""Convolution kernels for the `host` device, as C++17 for this CPU.

A translation unit has the kernel's parameters as constants and one include, `templates/host/conv.hpp`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ckh.bench.codegen.unit import staging_constants, translation_unit
from ckh.errors import UsageError

if TYPE_CHECKING:
    from ckh.bench.codegen.unit import HostSimd
    from ckh.ops.grouped_conv.kernel import ConvKernel

_INTEGERS = (
    *(f"{what}_{axis}" for what in ("tile", "wave", "warp_tile") for axis in "mnk"),
    *("vector_a", "vector_b", "vector_c"),
)
_BOOLEANS = ("double_smem_buffer", "split_image")


def emit(kernel: ConvKernel, simd: HostSimd) -> str:
    """Return the C++ source of one kernel; the same for 2D and 3D, since 2D is depth 1."""
    _check(kernel)
    flags = {name: getattr(kernel, name) for name in _BOOLEANS} | staging_constants(kernel.pipeline)
    lines = [
        f"inline constexpr int vector_bytes = {simd.vector_bytes};",
        f"inline constexpr int registers = {simd.registers};",
        f"inline constexpr Variant variant = Variant::{kernel.variant};",
        f"inline constexpr Scheduler scheduler = Scheduler::{kernel.scheduler};",
        *(f"inline constexpr int {name} = {getattr(kernel, name)};" for name in _INTEGERS),
        *(f"inline constexpr bool {name} = {str(value).lower()};" for name, value in flags.items()),
    ]
    source_id = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    lines.append(f'inline constexpr const char* source_id = "{source_id}";')
    return translation_unit("kernel.hpp", lines, "conv.hpp")


def _check(kernel: ConvKernel) -> None:
    missing = [name for name in _INTEGERS if getattr(kernel, name) is None]
    if missing:
        raise UsageError(
            f"the kernel lacks {', '.join(missing)}",
            "only complete kernels can be built",
            code="incomplete-kernel",
        )
    if kernel.dtype != "fp32":
        raise UsageError(f"the host device computes fp32, not {kernel.dtype}", code="unknown-dtype")
