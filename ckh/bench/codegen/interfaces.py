"""The interfaces of CK Tile's templates, i.e. the template parameters used by ckh, which differ between releases.

No header states its version, so headers are assigned to the interface with the fewest differing parameters.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Caution shown to users for kernels built with headers of an unverified interface.
NOT_VERIFIED = "kernels for these CK Tile headers are not verified: ckh's tests have compiled none with such headers"
PIPELINES = Path("ck_tile/ops/gemm/pipeline")


class Interface(StrEnum):
    """Interface of the headers, oldest first; the value names ckh's headers for it.

    Pipelines of the first two take at compile time whether the main loop runs and how it ends, and epilogues whether
    they store or add; in the current one both are decided at run time.
    """

    MID_2025 = "mid2025"
    LATE_2025 = "late2025"
    CURRENT = "current"

    @property
    def is_verified(self) -> bool:
        """True if ckh's kernels have been compiled with real headers of this interface."""
        return self is not Interface.CURRENT


_PADDING = "kPadM_ kPadN_ kPadK_"
_UNIVERSAL = "CLayout_ TransposeC_ UseStructuredSparsity_ UsePersistentKernel_ NumWaveGroups_"
_WIDTHS = "FixedVectorSize_ VectorSizeA_ VectorSizeB_"
_LOOP = "HasHotLoop_ TailNum_"
_ELEMENT_WISE = "AElementWise_ BElementWise_"
_TILES = "kM_ kN_ MWave_ NWave_ MPerXdl_ NPerXdl_ KPerXdl_ isCTransposed_"
_STORED = "kNumWaveGroups_ FixedVectorSize_ VectorSizeC_"
_GEMM = "AsDataType_ BsDataType_ EDataType_ BlockGemmShape_ Traits_ Scheduler_"
_OLD_GEMM = "ADataType_ BDataType_ CDataType_ BlockGemmShape_ Traits_ Scheduler_"
_OLD_EPILOGUE = "ADataType_ BDataType_ DsDataType_ AccDataType_ ODataType_ DsLayout_ ELayout_ CDElementwise_"
_EPILOGUE = "AsDataType_ BsDataType_ DsDataType_ AccDataType_ ODataType_ DsLayout_ ELayout_ CDElementwise_"

# Template -> its header, and its parameters in each interface.
_SHARED = {
    "TileGemmUniversalTraits": (
        PIPELINES / "tile_gemm_traits.hpp",
        f"{_PADDING} DoubleSmemBuffer_ ALayout_ BLayout_ {_UNIVERSAL}",
        f"{_PADDING} DoubleSmemBuffer_ AsLayout_ BsLayout_ {_UNIVERSAL}",
        f"{_PADDING} DoubleSmemBuffer_ AsLayout_ BsLayout_ {_UNIVERSAL}",
    ),
    "UniversalGemmPipelineProblem": (
        PIPELINES / "gemm_pipeline_problem.hpp",
        f"{_OLD_GEMM} {_LOOP} ComputeDataType_ {_WIDTHS}",
        f"{_GEMM} {_LOOP} {_ELEMENT_WISE} ComputeDataType_ {_WIDTHS}",
        f"{_GEMM} {_ELEMENT_WISE} AComputeDataType_ BComputeDataType_ {_WIDTHS}",
    ),
    "CShuffleEpilogueProblem": (
        Path("ck_tile/ops/epilogue/cshuffle_epilogue.hpp"),
        f"{_OLD_EPILOGUE} kBlockSize_ {_TILES} MemoryOperation_ {_STORED}",
        f"{_EPILOGUE} {_TILES} MemoryOperation_ {_STORED} TiledMMAPermuteN_ BlockedXDLN_PerWarp_",
        f"{_EPILOGUE} {_TILES} {_STORED} BlockedXDLN_PerWarp_ DoubleSmemBuffer_",
    ),
    "make_kernel": (
        Path("ck_tile/host/kernel_launch.hpp"),
        "MaxThreadPerBlock MinBlockPerCu",
        "MinBlockPerCu Arch",
        "MinBlockPerCu",
    ),
}
TEMPLATES: dict[str, tuple[Path, dict[Interface, tuple[str, ...]]]] = {
    name: (file, {item: tuple(text.split()) for item, text in zip(Interface, texts, strict=True)})
    for name, (file, *texts) in _SHARED.items()
}


def nearest(result: Mapping[str, tuple[str, ...]]) -> Interface:
    """Interface whose templates differ least from those of the headers, by name; the oldest in case of a tie."""

    def distance(interface: Interface) -> int:
        known = ((set(result[name]), set(wanted[interface])) for name, (_, wanted) in TEMPLATES.items() if result[name])
        return sum(len(has ^ states) for has, states in known)

    return min(Interface, key=distance)


def unlike(name: str, file: Path, result: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    """Difference of a template from the wanted parameters, which may be followed by others; empty if there is none."""
    if result[: len(wanted)] == wanted:
        return ""
    has = f"has the parameters {', '.join(result)}" if result else "cannot be found"
    return f"{name} of {file} {has}, not {', '.join(wanted)}"


def template_parameters(text: str, name: str) -> tuple[str, ...]:
    """Names of a template's parameters; empty if the text does not define it."""
    text = re.sub(r"//[^\n]*", "", text)
    head = re.search(rf"template\s*<([^;{{}}]*)>\s*(?:struct|CK_TILE_HOST\s+auto)\s+{name}\b", text)
    if head is None:
        return ()
    return tuple(parameter.split("=")[0].split()[-1] for parameter in head.group(1).split(","))


def found_templates(text_of: Callable[[Path], str]) -> dict[str, tuple[str, ...]]:
    """Template parameters used by all kernels as defined by the headers, by template name."""
    return {name: template_parameters(text_of(file), name) for name, (file, _) in TEMPLATES.items()}
