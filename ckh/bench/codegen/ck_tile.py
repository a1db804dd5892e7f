"""The `hip` device: a kernel of the table as one CK Tile translation unit.

CK Tile's templates changed over time. `detect_interface` looks at the headers to tell which interface they have; each
has a header of ours in `templates/ck_tile`. What an interface lacks is refused with the reason, never replaced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.unsupported import UnsupportedKernelError
from ckh.errors import DeviceError
from ckh.kernels.names import kernel_name
from ckh.kernels.variants import FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0, FILTER3X3
from ckh.problems import Direction
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from ckh.kernels.config import ConvKernel

_UTILS = Path("ck_tile/ops/grouped_convolution/utils/grouped_convolution_utils.hpp")
_KERNELS = Path("ck_tile/ops/grouped_convolution/kernel")
_PIPELINES = Path("ck_tile/ops/gemm/pipeline")

ELEMENTS = {"fp16": "ck_tile::half_t", "bf16": "ck_tile::bf16_t", "fp32": "float"}
_SPECIALIZATIONS = {
    "default": "Default",
    FILTER1X1_PAD0: "Filter1x1Pad0",
    FILTER1X1_STRIDE1_PAD0: "Filter1x1Stride1Pad0",
    FILTER3X3: "Filter3x3",
}
# Pipeline -> the header that must be there.
_PIPELINE_HEADERS = {
    "basic_v1": "gemm_pipeline_agmem_bgmem_creg_v1.hpp",
    "mem": "gemm_pipeline_ag_bg_cr_mem.hpp",
    "compv3": "gemm_pipeline_ag_bg_cr_comp_v3.hpp",
    "compv4": "gemm_pipeline_ag_bg_cr_comp_v4.hpp",
    "compv5": "gemm_pipeline_ag_bg_cr_comp_v5.hpp",
    "compv6": "gemm_pipeline_ag_bg_cr_comp_v6.hpp",
    "comp_async": "gemm_pipeline_ag_bg_cr_comp_async.hpp",
    "basic_async_v1": "gemm_pipeline_agmem_bgmem_creg_async_v1.hpp",
}
_KERNEL_HEADERS = {
    Direction.FORWARD: "grouped_convolution_forward_kernel.hpp",
    Direction.BWD_DATA: "grouped_convolution_backward_data_kernel.hpp",
    Direction.BWD_WEIGHT: "grouped_convolution_backward_weight_kernel.hpp",
}
# In front of a kernel's name in its library; in a field of fixed size, so that the name moves nothing else.
LABEL = "ckh-kernel:"
_LABEL_BYTES = 512
_SECOND_BUFFER = "p_smem_1"  # what a pipeline calls it
_INTEGERS = (
    *("tile_m", "tile_n", "tile_k", "wave_m", "wave_n", "wave_k", "warp_tile_m", "warp_tile_n", "warp_tile_k"),
    *("vector_a", "vector_b", "vector_c", "num_groups_to_merge", "num_wave_groups", "split_k", "block_per_cu"),
)
_BOOLEANS = ("double_smem_buffer", "split_image", "two_stage", "explicit_gemm")


class Interface(StrEnum):
    """Which interface of CK Tile's grouped convolutions headers have; the value names our header for it."""

    MID_2025 = "mid2025"
    CURRENT = "current"


@dataclass(frozen=True, slots=True)
class Headers:
    """CK Tile's headers: the include folder, their interface, and what they have.

    `double_buffered` are the pipelines that take two buffers in LDS.
    """

    include: Path
    interface: Interface
    pipelines: frozenset[str]
    double_buffered: frozenset[str]
    directions: frozenset[Direction]


def template_dir() -> Path:
    """The directory of our headers that emitted sources include."""
    return Path(__file__).parent / "templates" / "ck_tile"


def source_hash_inputs() -> bytes:
    """Names and contents of all our headers: what a compiled kernel depends on besides its own source."""
    headers = sorted(template_dir().glob("*.hpp"))
    return b"".join(header.name.encode() + b"\0" + header.read_bytes() + b"\0" for header in headers)


def has_headers(include: Path) -> bool:
    """Whether an include folder has CK Tile's grouped convolutions."""
    return (include / _UTILS).is_file()


def detect_interface(include: Path) -> Headers:
    """What the headers in an include folder are.

    Raises:
        DeviceError: they are no CK Tile headers with grouped convolutions, or of an interface that ckh has no
            templates for.
    """
    try:
        utils = (include / _UTILS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceError(
            f"{include} has no CK Tile headers with grouped convolutions: {_UTILS} cannot be read",
            "name the include folder of Composable Kernel with --ck-include or CK_TILE_INCLUDE",
        ) from error
    # FixedGemmParams came with the pipelines that find out about their main loop when they run.
    if "FixedGemmParams" in utils:
        interface = Interface.CURRENT
    elif not re.search(r"\bVectorSizeA", utils):
        interface = Interface.MID_2025
    else:
        raise DeviceError(
            f"the CK Tile headers in {include} are of an interface between mid-2025 and the current one",
            "use those of a release: mid-2025, or one whose GroupedConvTraits has FixedGemmParams",
        )
    texts = {name: _text_of(include / _PIPELINES / file) for name, file in _PIPELINE_HEADERS.items()}
    return Headers(
        include=include,
        interface=interface,
        pipelines=frozenset(name for name, text in texts.items() if text),
        double_buffered=frozenset(name for name, text in texts.items() if _SECOND_BUFFER in text),
        directions=frozenset(one for one, file in _KERNEL_HEADERS.items() if (include / _KERNELS / file).exists()),
    )


def _text_of(path: Path) -> str:
    """The content of a header, empty if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def emit(kernel: ConvKernel, headers: Headers) -> str:
    """The C++ source of one kernel.

    Raises:
        UnsupportedKernelError: these headers cannot build it; says why.
    """
    reasons = missing(kernel, headers)
    if reasons:
        raise UnsupportedKernelError("; ".join(reasons))
    specialization = _SPECIALIZATIONS[str(kernel.specialization)]
    lines = [
        f'inline constexpr char label[{_LABEL_BYTES}] = "{LABEL}{kernel_name(kernel)}";',
        f"using Element = {ELEMENTS[kernel.dtype]};",
        f"inline constexpr int ndim_spatial = {kernel.ndim_spatial};",
        f"inline constexpr Variant variant = Variant::{kernel.variant};",
        f"inline constexpr Pipeline pipeline = Pipeline::{kernel.pipeline};",
        f"inline constexpr auto scheduler = ck_tile::GemmPipelineScheduler::{str(kernel.scheduler).capitalize()};",
        f"inline constexpr auto specialization = ck_tile::ConvolutionSpecialization::{specialization};",
        *(f"inline constexpr ck_tile::index_t {name} = {getattr(kernel, name)};" for name in _INTEGERS),
        *(f"inline constexpr bool {name} = {str(bool(getattr(kernel, name))).lower()};" for name in _BOOLEANS),
    ]
    head = '#include "vocabulary.hpp"\n\nnamespace ckh::kernel {\n'
    tail = f'\n}}  // namespace ckh::kernel\n\n#include "{headers.interface}.hpp"\n#include "abi.hpp"\n'
    return "\n".join((head, *lines, tail))


def missing(kernel: ConvKernel, headers: Headers) -> list[str]:
    """Everything that the headers, or our templates for them, lack for a kernel; empty if they can build it."""
    which = f"the CK Tile headers ({headers.interface})"
    reasons = []
    if not kernel.is_complete:
        reasons.append("the kernel leaves parameters out: only complete kernels can be built")
    if kernel.dtype not in ELEMENTS:
        reasons.append(f"dtype {kernel.dtype} is not one of {', '.join(ELEMENTS)}")
    if kernel.variant not in headers.directions:
        reasons.append(f"{which} have no {kernel.variant} kernel")
    if kernel.pipeline not in headers.pipelines:
        reasons.append(f"{which} have no pipeline {kernel.pipeline}")
    elif kernel.double_smem_buffer != (kernel.pipeline in headers.double_buffered):
        count = "two LDS buffers" if kernel.pipeline in headers.double_buffered else "one LDS buffer"
        reasons.append(f"{kernel.pipeline} of {which} takes {count}")
    if not all((kernel.pad_m, kernel.pad_n, kernel.pad_k)):
        reasons.append("CK Tile's convolutions are always padded in m, n and k")
    if kernel.streamk is not None:
        reasons.append("stream-K kernels are not emitted")
    if headers.interface is Interface.MID_2025:
        options = {
            "merged groups": kernel.num_groups_to_merge != 1,
            "split images": kernel.split_image,
            "explicit GEMMs": bool(kernel.explicit_gemm),
            "second stages": kernel.two_stage,
        }
        reasons += [f"{which} have no {what}" for what, is_used in options.items() if is_used]
    return reasons
