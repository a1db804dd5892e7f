"""The `hip` device: a GEMM kernel as one CK Tile translation unit, for each interface of CK Tile's templates.

Features that the headers lack, or compute wrongly, are refused with the reason, never replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import LABEL, LABEL_BYTES
from ckh.bench.codegen.unit_source import UnsupportedKernelError, translation_unit
from ckh.ops.gemm_universal.kernels.names import kernel_name
from ckh.ops.gemm_universal.measuring.hip_headers import EPILOGUES
from ckh.ops.gemm_universal.measuring.hip_rules import ELEMENTS, EMITTED, missing
from ckh.ops.gemm_universal.problem import output_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.archs import ArchSpec
    from ckh.ops.gemm_universal.kernel import GemmKernel
    from ckh.ops.gemm_universal.measuring.hip_headers import GemmHeaders

_OUTPUTS = {**ELEMENTS, "int32": "ck_tile::int32_t"}
_LETTERS = {"r": "RowMajor", "c": "ColumnMajor"}

_INTEGERS = (
    *("tile_m", "tile_n", "tile_k", "wave_m", "wave_n", "wave_k", "warp_tile_m", "warp_tile_n", "warp_tile_k"),
    *("vector_a", "vector_b", "vector_c"),
)
_BOOLEANS = ("pad_m", "pad_n", "pad_k", "persistent")


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
    values = {
        **{f"bool {name}": str(bool(getattr(kernel, name))).lower() for name in _BOOLEANS},
        "bool double_smem_buffer": str(kernel.pipeline in headers.common.double_buffered).lower(),
        "Pipeline pipeline": f"Pipeline::{kernel.pipeline}" if is_shared else kernel.pipeline,
        "Epilogue epilogue": f"Epilogue::{EPILOGUES[kernel.epilogue][1]}",
        "auto scheduler": f"ck_tile::GemmPipelineScheduler::{str(kernel.scheduler).capitalize()}",
    }
    if headers.is_current:
        values["bool pads_added_rows"] = str(headers.pads_added_rows).lower()
    lines = [
        f'inline constexpr char label[{LABEL_BYTES}] = "{LABEL}{kernel_name(kernel)}";',
        f"using Element = {ELEMENTS[kernel.dtype]};",
        f"using Accumulator = {'ck_tile::int32_t' if kernel.dtype == 'int8' else 'float'};",
        f"using Output = {_OUTPUTS[output_dtype(kernel.dtype)]};",
        f"using ALayout = {_LETTERS[kernel.layout[0]]};",
        f"using BLayout = {_LETTERS[kernel.layout[1]]};",
        *(f"inline constexpr ck_tile::index_t {name} = {getattr(kernel, name)};" for name in _INTEGERS),
        *(f"inline constexpr {name} = {value};" for name, value in values.items()),
    ]
    return translation_unit(vocabulary, [*lines, *own], *includes)
