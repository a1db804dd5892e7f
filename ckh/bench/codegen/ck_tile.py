"""CK Tile's headers, and what the translation units of all kernels for the `hip` device share.

CK Tile's templates changed over time. `detect_interface` looks at the headers to tell which interface they have; each
operation has a header of ours for each. What an interface lacks is refused with the reason, never replaced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ckh.errors import DeviceError
from ckh.kernels.pipelines import PIPELINES
from ckh.problems import Direction
from ckh.strenum import StrEnum

_UTILS = Path("ck_tile/ops/grouped_convolution/utils/grouped_convolution_utils.hpp")
_KERNELS = Path("ck_tile/ops/grouped_convolution/kernel")
_PIPELINES = Path("ck_tile/ops/gemm/pipeline")

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
LABEL_BYTES = 512
_SECOND_BUFFER = "p_smem_1"  # what a pipeline calls it


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
    """The directory of our headers that kernels of several operations include."""
    return Path(__file__).parent / "templates" / "ck_tile"


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
