"""GEMM kernels for the `host` device, as C++17 for this CPU.

A translation unit has the kernel's parameters as constants and one include. Pipelines and register blocks are shared by
all host kernels (`nest.hpp`, `register_tile.hpp`); `templates/host/gemm.hpp` maps layouts to them, `edges.hpp`
implements padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.codegen.host_source import staging_constants
from ckh.bench.codegen.unit_source import translation_unit
from ckh.errors import UsageError
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH
from ckh.ops.gemm_universal.kernels.names import kernel_name
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS

if TYPE_CHECKING:
    from ckh.bench.codegen.host_source import HostSimd
    from ckh.ops.gemm_universal.kernel import GemmKernel

_EPILOGUE = "cshuffle"  # writes whole vectors of C, which registers hold
_NATIVE_FLOATS = 4  # in which the remainders of rows are moved
_INTEGERS = tuple(f"{what}_{axis}" for what in ("tile", "wave", "warp_tile") for axis in "mnk")
_PADS = ("pad_m", "pad_n", "pad_k")


def emit(kernel: GemmKernel, simd: HostSimd, abi: str = "gemm_abi.hpp") -> str:
    """Return the C++ source of one kernel, whose exported functions are in the header `abi`."""
    _check(kernel)
    constants = {
        "int vector_bytes": simd.vector_bytes,
        "int registers": simd.registers,
        "Scheduler scheduler": f"Scheduler::{kernel.scheduler}",
        **{f"int {name}": getattr(kernel, name) for name in _INTEGERS},
        **{f"int vector_{operand}": _NATIVE_FLOATS for operand in "abc"},
        **{f"bool {name}": _cpp(getattr(kernel, name)) for name in _PADS},
        **{f"bool {name}": _cpp(value) for name, value in staging_constants(kernel.pipeline).items()},
        "bool a_row_major": _cpp(kernel.layout[0] == "r"),
        "bool b_row_major": _cpp(kernel.layout[1] == "r"),
        "bool double_smem_buffer": _cpp(kernel.pipeline in DOUBLE_SMEM_PIPELINES),
        "const char* name": f'"{kernel_name(kernel)}"',
    }
    lines = (f"inline constexpr {what} = {value};" for what, value in constants.items())
    return translation_unit("kernel.hpp", lines, abi)


def _cpp(value: bool) -> str:  # noqa: FBT001 - a value, not an option
    return str(value).lower()


def _check(kernel: GemmKernel) -> None:
    if missing := kernel.missing:
        raise UsageError(
            f"the kernel lacks {', '.join(missing)}",
            "only complete kernels can be built",
            code="incomplete-kernel",
        )
    if kernel.dtype != "fp32":
        raise UsageError(f"the host device computes fp32, not {kernel.dtype}", code="unknown-dtype")
    lacks = (
        (kernel.layout not in GEMM_LAYOUTS, f"has no layout {kernel.layout}", "one of " + ", ".join(GEMM_LAYOUTS)),
        (kernel.epilogue != _EPILOGUE, f"has no epilogue {kernel.epilogue}", f"only {_EPILOGUE}"),
        (kernel.persistent, "has no persistent kernels", ""),
        (kernel.vectors != (NATIVE_WIDTH,) * 3, "has native vector widths only", ""),
        (kernel.suffix, f"does not support the suffix {kernel.suffix}", ""),
    )
    for is_used, what, hint in lacks:
        if is_used:
            raise UsageError(f"the host device {what}", hint, code="bad-kernel")
