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
from ckh.kernels.config import Scheduler
from ckh.kernels.names import kernel_name
from ckh.kernels.pipelines import PIPELINES, wave_group_reason
from ckh.kernels.tiles import wave_of
from ckh.kernels.variants import FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0, FILTER3X3
from ckh.problems import CONV_LAYOUTS, Direction
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Iterator

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
PIPELINE_HEADERS = {row.name: _PIPELINES / row.header for row in PIPELINES.values() if row.header}
_KERNEL_HEADERS = {
    Direction.FORWARD: "grouped_convolution_forward_kernel.hpp",
    Direction.BWD_DATA: "grouped_convolution_backward_data_kernel.hpp",
    Direction.BWD_WEIGHT: "grouped_convolution_backward_weight_kernel.hpp",
}
# The parameters that our header for the current interface states of CK Tile's templates, by template and header.
# Trees between mid-2025 and now differ in them: pipelines that are told of their main loop (HasHotLoop), epilogues with
# TiledMMAPermuteN_ or MemoryOperation_, launches that state a block's threads.
_CURRENT_TEMPLATES = {
    ("GroupedConvTraits", _UTILS): (
        *("NDimSpatial_", "ConvSpecialization_", "InLayout_", "WeiLayout_", "DsLayout_", "OutLayout_", "VectorSizeA_"),
        *("VectorSizeB_", "VectorSizeC_", "NumGroupsToMerge_", "EnableSplitImage_", "ExplicitGemm_"),
    ),
    ("TileGemmUniversalTraits", _PIPELINES / "tile_gemm_traits.hpp"): (
        *("kPadM_", "kPadN_", "kPadK_", "DoubleSmemBuffer_", "AsLayout_", "BsLayout_", "CLayout_", "TransposeC_"),
        *("UseStructuredSparsity_", "UsePersistentKernel_", "NumWaveGroups_"),
    ),
    ("UniversalGemmPipelineProblem", _PIPELINES / "gemm_pipeline_problem.hpp"): (
        *("AsDataType_", "BsDataType_", "EDataType_", "BlockGemmShape_", "Traits_", "Scheduler_", "AElementWise_"),
        *(
            "BElementWise_",
            "AComputeDataType_",
            "BComputeDataType_",
            "FixedVectorSize_",
            "VectorSizeA_",
            "VectorSizeB_",
        ),
    ),
    ("CShuffleEpilogueProblem", Path("ck_tile/ops/epilogue/cshuffle_epilogue.hpp")): (
        *("AsDataType_", "BsDataType_", "DsDataType_", "AccDataType_", "ODataType_", "DsLayout_", "ELayout_"),
        *("CDElementwise_", "kM_", "kN_", "MWave_", "NWave_", "MPerXdl_", "NPerXdl_", "KPerXdl_", "isCTransposed_"),
        *("kNumWaveGroups_", "FixedVectorSize_", "VectorSizeC_", "BlockedXDLN_PerWarp_", "DoubleSmemBuffer_"),
    ),
    ("make_kernel", Path("ck_tile/host/kernel_launch.hpp")): ("MinBlockPerCu",),
}
# What the current convolutions may ask a pipeline for; not every pipeline of their own tree has it.
_ASKED = re.compile(r"Pipeline_?::(Async|LargeTensors)\b")
_INTERWAVE = "PipelineImpl<GemmPipelineScheduler::Interwave>"
_NEEDS_TWO_BUFFERS = "DoubleSmemBuffer == true"
_FIRST_PIECE = "pieces[0].block_start"  # set where a split image is one piece unless the launch says otherwise
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

    `double_buffered` are the pipelines that take two buffers in LDS. The rest is told of current headers only:
    `incomplete` are the pipelines that lack what the convolutions ask them for, `intrawave_only` those that have no
    other scheduler, and `split_images` says whether forward kernels set the pieces of a split image themselves.
    """

    include: Path
    interface: Interface
    pipelines: frozenset[str]
    double_buffered: frozenset[str]
    directions: frozenset[Direction]
    incomplete: frozenset[str] = frozenset()
    intrawave_only: frozenset[str] = frozenset()
    split_images: bool = True


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
        return _current_headers(include)
    if re.search(r"\bVectorSizeA", utils):
        raise _unknown_interface(include, "GroupedConvTraits has vector sizes but no FixedGemmParams")
    texts = _pipeline_texts(include)
    return Headers(
        include=include,
        interface=Interface.MID_2025,
        pipelines=frozenset(texts),
        double_buffered=_having(texts, _SECOND_BUFFER),
        directions=_directions(include),
    )


def _current_headers(include: Path) -> Headers:
    """What headers with FixedGemmParams have.

    Raises:
        DeviceError: their templates are not those of the current interface.
    """
    for (name, file), wanted in _CURRENT_TEMPLATES.items():
        found = template_parameters(_text_of(include / file), name)
        if found[: len(wanted)] != wanted:
            has = f"has the parameters {', '.join(found)}" if found else "cannot be found"
            raise _unknown_interface(include, f"{name} of {file} {has}, not {', '.join(wanted)}")
    texts = _pipeline_texts(include)
    directions = _directions(include)
    kernels = {direction: _text_of(include / _KERNELS / _KERNEL_HEADERS[direction]) for direction in directions}
    asked = {member for text in kernels.values() for member in _ASKED.findall(text)}
    return Headers(
        include=include,
        interface=Interface.CURRENT,
        pipelines=frozenset(texts),
        double_buffered=_having(texts, _NEEDS_TWO_BUFFERS),
        directions=directions,
        incomplete=frozenset(
            name for name, text in texts.items() if not all(re.search(rf"\b{member}\s*=", text) for member in asked)
        ),
        intrawave_only=frozenset(texts) - _having(texts, _INTERWAVE),
        split_images=_FIRST_PIECE in kernels.get(Direction.FORWARD, ""),
    )


def _unknown_interface(include: Path, why: str) -> DeviceError:
    return DeviceError(
        f"the CK Tile headers in {include} are of an interface between mid-2025 and the current one: {why}",
        "use those of a release of mid-2025, or current ones",
    )


def template_parameters(text: str, name: str) -> tuple[str, ...]:
    """The names of a template's parameters, empty if the text does not define it."""
    text = re.sub(r"//[^\n]*", "", text)
    head = re.search(rf"template\s*<([^;{{}}]*)>\s*(?:struct|CK_TILE_HOST\s+auto)\s+{name}\b", text)
    if head is None:
        return ()
    return tuple(parameter.split("=")[0].split()[-1] for parameter in head.group(1).split(","))


def _pipeline_texts(include: Path) -> dict[str, str]:
    """The headers of the pipelines that there are."""
    texts = {name: _text_of(include / file) for name, file in PIPELINE_HEADERS.items()}
    return {name: text for name, text in texts.items() if text}


def _having(texts: dict[str, str], part: str) -> frozenset[str]:
    return frozenset(name for name, text in texts.items() if part in text)


def _directions(include: Path) -> frozenset[Direction]:
    return frozenset(one for one, file in _KERNEL_HEADERS.items() if (include / _KERNELS / file).exists())


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
    if not all((kernel.pad_m, kernel.pad_n, kernel.pad_k)):
        reasons.append("CK Tile's convolutions are always padded in m, n and k")
    if kernel.epilogue not in {None, "cshuffle"}:
        reasons.append(f"{which} have no epilogue {kernel.epilogue}")
    if kernel.layout not in {None, *CONV_LAYOUTS.values()}:
        reasons.append(f"{which} have no layout {kernel.layout}")
    if kernel.streamk is not None:
        reasons.append("stream-K kernels are not emitted")
    reasons += _missing_wave_groups(kernel)
    if headers.interface is Interface.MID_2025:
        return [*reasons, *_missing_in_mid_2025(kernel, headers, which)]
    return [*reasons, *(reason for reason, is_missing in _missing_in_current(kernel, headers, which) if is_missing)]


def _missing_wave_groups(kernel: ConvKernel) -> Iterator[str]:
    if kernel.is_complete and (reason := wave_group_reason(kernel.pipeline, wave_of(kernel), kernel.num_wave_groups)):
        yield reason


def _missing_in_mid_2025(kernel: ConvKernel, headers: Headers, which: str) -> Iterator[str]:
    is_double = kernel.pipeline in headers.double_buffered
    if kernel.pipeline in headers.pipelines and kernel.double_smem_buffer != is_double:
        yield f"{kernel.pipeline} of {which} takes {'two LDS buffers' if is_double else 'one LDS buffer'}"
    if kernel.scheduler is Scheduler.INTERWAVE and kernel.pipeline != "mem":
        yield f"{kernel.pipeline} of {which} is not interwave"
    options = {
        "merged groups": kernel.num_groups_to_merge != 1,
        "split images": kernel.split_image,
        "explicit GEMMs": bool(kernel.explicit_gemm),
        "second stages": kernel.two_stage,
    }
    yield from (f"{which} have no {what}" for what, is_used in options.items() if is_used)


def _missing_in_current(kernel: ConvKernel, headers: Headers, which: str) -> Iterator[tuple[str, bool]]:
    """Reasons, each with whether it holds."""
    pipeline, variant = kernel.pipeline, kernel.variant
    is_explicit, merges = bool(kernel.explicit_gemm), kernel.num_groups_to_merge != 1
    needs_double = pipeline in headers.double_buffered
    is_interwave = kernel.scheduler is Scheduler.INTERWAVE
    yield f"{pipeline} of {which} lacks what their convolutions ask it for", pipeline in headers.incomplete
    yield f"{pipeline} of {which} is not interwave", is_interwave and pipeline in headers.intrawave_only
    # Elsewhere the flag is the epilogue's, which then shuffles one tile of a wave at a time.
    yield f"{pipeline} of {which} takes two LDS buffers", needs_double and not kernel.double_smem_buffer
    has_split = headers.split_images and variant is Direction.FORWARD
    yield f"{variant} kernels of {which} have no split images", kernel.split_image and not has_split
    yield f"{variant} kernels of {which} have no merged groups", merges and variant is Direction.BWD_DATA
    yield f"{variant} kernels of {which} have no explicit GEMM", is_explicit and variant is Direction.BWD_DATA
    yield f"explicit GEMMs of {which} have no merged groups", is_explicit and merges
    yield f"explicit GEMMs of {which} have no split images", is_explicit and kernel.split_image
    yield f"{variant} kernels of {which} have no second stage", kernel.two_stage and variant is not Direction.BWD_WEIGHT
    yield f"{variant} kernels of {which} cannot split K", kernel.split_k != 1 and variant is Direction.FORWARD
