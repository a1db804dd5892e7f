"""The `hip` device: a convolution kernel as one CK Tile translation unit.

Features that CK Tile's headers, or ckh's templates in `templates/ck_tile`, lack are refused with the reason, never
replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import LABEL, LABEL_BYTES
from ckh.bench.codegen.unit import UnsupportedKernelError, translation_unit
from ckh.kernels.table import SIZES, TRIPLES
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.kernels.variants import FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0, FILTER3X3
from ckh.ops.grouped_conv.measuring.hip_rules import ELEMENTS, ConvHeaders, missing

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.ops.grouped_conv.kernel import ConvKernel


_SPECIALIZATIONS = {
    "default": "Default",
    FILTER1X1_PAD0: "Filter1x1Pad0",
    FILTER1X1_STRIDE1_PAD0: "Filter1x1Stride1Pad0",
    FILTER3X3: "Filter3x3",
}
_INTEGERS = (
    *(*SIZES, *TRIPLES["vectors"]),
    *("num_groups_to_merge", "num_wave_groups", "split_k", "block_per_cu"),
)
_BOOLEANS = ("double_smem_buffer", "split_image", "two_stage", "explicit_gemm")


def emit(kernel: ConvKernel, headers: ConvHeaders, arch: ArchSpec) -> str:
    """Return the C++ source of one kernel for an architecture."""
    reasons = missing(kernel, headers, arch)
    if reasons:
        raise UnsupportedKernelError("; ".join(reasons))
    specialization = _SPECIALIZATIONS[str(kernel.specialization)]
    lines = [
        f'inline constexpr char label[{LABEL_BYTES}] = "{LABEL}{kernel_name(kernel)}";',
        f"using Element = {ELEMENTS[kernel.dtype]};",
        f"inline constexpr int ndim_spatial = {kernel.ndim_spatial};",
        f"inline constexpr Variant variant = Variant::{kernel.variant};",
        f"inline constexpr Pipeline pipeline = Pipeline::{kernel.pipeline};",
        f"inline constexpr auto scheduler = ck_tile::GemmPipelineScheduler::{str(kernel.scheduler).capitalize()};",
        f"inline constexpr auto specialization = ck_tile::ConvolutionSpecialization::{specialization};",
        *(f"inline constexpr ck_tile::index_t {name} = {getattr(kernel, name)};" for name in _INTEGERS),
        *(f"inline constexpr bool {name} = {str(bool(getattr(kernel, name))).lower()};" for name in _BOOLEANS),
    ]
    return translation_unit("vocabulary.hpp", lines, f"{headers.common.interface}.hpp", "abi.hpp")
