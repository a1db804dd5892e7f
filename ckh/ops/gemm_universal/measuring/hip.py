"""A GEMM kernel as one translation unit: of CK Tile, for each interface of its templates, or for the host.

Features that the headers lack, or compute wrongly, are refused with the reason, never replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import LABEL, LABEL_BYTES
from ckh.bench.codegen.unit import UnsupportedKernelError, staging_constants, translation_unit
from ckh.errors import UsageError
from ckh.kernels.declaration import fields_of
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.kernels.table import SIZES, TRIPLES
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH, GemmKernel, kernel_name
from ckh.ops.gemm_universal.measuring.hip_rules import ELEMENTS, EMITTED, EPILOGUES, missing
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, output_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.archs import ArchSpec
    from ckh.bench.codegen.unit import HostSimd
    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders


_OUTPUTS = {**ELEMENTS, "int32": "ck_tile::int32_t"}
_LETTERS = {"r": "RowMajor", "c": "ColumnMajor"}

_INTEGERS, _BOOLEANS = (fields_of(GemmKernel, kind) for kind in (int, bool))


def emit(kernel: GemmKernel, headers: GemmHeaders, arch: ArchSpec) -> str:
    """Return the C++ source of one kernel for an architecture."""
    reasons = missing(kernel, headers, arch)
    if reasons:
        raise UnsupportedKernelError("; ".join(reasons))
    return source_of(kernel, headers, f"gemm_{headers.common.interface}.hpp", "gemm_exports.hpp")


def source_of(
    kernel: GemmKernel,
    headers: GemmHeaders,
    *includes: str,
    vocabulary: str = "gemm_vocabulary.hpp",
    own: Sequence[str] = (),
) -> str:
    """Return the source of a kernel that can be built."""
    assert kernel.epilogue is not None
    is_shared = kernel.pipeline in EMITTED[headers.common.interface]  # others are in headers of their operation
    constants = {
        **{f"bool {name}": str(bool(getattr(kernel, name))).lower() for name in _BOOLEANS},
        "bool double_smem_buffer": str(kernel.pipeline in headers.common.double_buffered).lower(),
        "Pipeline pipeline": f"Pipeline::{kernel.pipeline}" if is_shared else kernel.pipeline,
        "Epilogue epilogue": f"Epilogue::{EPILOGUES[kernel.epilogue][1]}",
        "auto scheduler": f"ck_tile::GemmPipelineScheduler::{str(kernel.scheduler).capitalize()}",
    }
    if headers.is_current:
        constants["bool pads_added_rows"] = str(headers.pads_added_rows).lower()
    lines = [
        f'inline constexpr char label[{LABEL_BYTES}] = "{LABEL}{kernel_name(kernel)}";',
        f"using Element = {ELEMENTS[kernel.dtype]};",
        f"using Accumulator = {'ck_tile::int32_t' if kernel.dtype == 'int8' else 'float'};",
        f"using Output = {_OUTPUTS[output_dtype(kernel.dtype)]};",
        f"using ALayout = {_LETTERS[kernel.layout[0]]};",
        f"using BLayout = {_LETTERS[kernel.layout[1]]};",
        *(f"inline constexpr ck_tile::index_t {name} = {getattr(kernel, name)};" for name in _INTEGERS),
        *(f"inline constexpr {what} = {value};" for what, value in constants.items()),
    ]
    return translation_unit(vocabulary, [*lines, *own], *includes)


_EPILOGUE = "cshuffle"  # writes whole vectors of C, which registers hold
_NATIVE_FLOATS = 4  # in which the remainders of rows are moved


def emit_for_host(kernel: GemmKernel, simd: HostSimd, abi: str = "gemm_abi.hpp") -> str:
    """Return the C++ source of one kernel, whose exported functions are in the header `abi`."""
    _check(kernel)
    constants = {
        "int vector_bytes": simd.vector_bytes,
        "int registers": simd.registers,
        "Scheduler scheduler": f"Scheduler::{kernel.scheduler}",
        **{f"int {name}": getattr(kernel, name) for name in SIZES},
        **{f"int {name}": _NATIVE_FLOATS for name in TRIPLES["vectors"]},
        **{f"bool {name}": _cpp(getattr(kernel, name)) for name in TRIPLES["pads"]},
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
