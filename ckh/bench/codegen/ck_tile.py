"""CK Tile's headers, and the common parts of all translation units for the `hip` device.

CK Tile's templates change between releases. `detect_interface` determines the interface of the headers; features that
they lack are refused with the reason, never replaced. Requirements of a single operation are in its folder.

Distribution of an operand's tile over a block's threads, which load it in vectors. Source: CK Tile's thread-raked
encoding pattern of 2D tiles as of 2025; later trees spread more.

The matrix instructions that CK Tile's headers provide for warp tiles, parsed from their dispatcher.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.errors import DeviceError
from ckh.kernels.pipelines import PIPELINES
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ckh.archs import ArchSpec, Triple


# Caution shown to users for kernels built with headers of an unverified interface.
NOT_VERIFIED = "kernels for these CK Tile headers are not verified: ckh's tests have compiled none with such headers"
_FOLDER = Path("ck_tile/ops/gemm/pipeline")


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
        _FOLDER / "tile_gemm_traits.hpp",
        f"{_PADDING} DoubleSmemBuffer_ ALayout_ BLayout_ {_UNIVERSAL}",
        f"{_PADDING} DoubleSmemBuffer_ AsLayout_ BsLayout_ {_UNIVERSAL}",
        f"{_PADDING} DoubleSmemBuffer_ AsLayout_ BsLayout_ {_UNIVERSAL}",
    ),
    "UniversalGemmPipelineProblem": (
        _FOLDER / "gemm_pipeline_problem.hpp",
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
    name: (file, {interface: tuple(text.split()) for interface, text in zip(Interface, texts, strict=True)})
    for name, (file, *texts) in _SHARED.items()
}


def nearest(templates: Mapping[str, tuple[str, ...]]) -> Interface:
    """Interface whose templates differ least from those of the headers, by name; the oldest in case of a tie."""

    def distance(interface: Interface) -> int:
        known = (
            (set(templates[name]), set(wanted[interface])) for name, (_, wanted) in TEMPLATES.items() if templates[name]
        )
        return sum(len(has ^ states) for has, states in known)

    return min(Interface, key=distance)


def unlike(name: str, file: Path, parameters: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    """Difference of a template from the wanted parameters, which may be followed by others; empty if there is none."""
    if parameters[: len(wanted)] == wanted:
        return ""
    has = f"has the parameters {', '.join(parameters)}" if parameters else "cannot be found"
    return f"{name} of {file} {has}, not {', '.join(wanted)}"


def template_parameters(text: str, name: str) -> tuple[str, ...]:
    """Names of a template's parameters; empty if the text does not define it."""
    text = re.sub(r"//[^\n]*", "", text)
    head = re.search(rf"template\s*<([^;{{}}]*)>\s*(?:struct|CK_TILE_HOST\s+auto)\s+{name}\b", text)
    if head is None:
        return ()
    return tuple(parameter.split("=")[0].split()[-1] for parameter in head.group(1).split(","))


# Pipeline -> required header.
PIPELINE_HEADERS = {row.name: _FOLDER / row.header for row in PIPELINES.values() if row.header}
# Evidence of double buffering in a pipeline's header: its parameters, or its static assertions.
_SECOND_BUFFER = "p_smem_1"
_TWO_BUFFERS = {
    Interface.MID_2025: _SECOND_BUFFER,
    Interface.LATE_2025: _SECOND_BUFFER,
    Interface.CURRENT: "DoubleSmemBuffer == true",
}
_INTERWAVE = "PipelineImpl<GemmPipelineScheduler::Interwave>"
# Places of the version: a header of an installation, CMake's package files, or a file of a source tree.
_VERSIONS = (
    ("ck/version.h", re.compile(r"#define\s+CK_VERSION\s+\"?([0-9][\w.]*)")),
    (
        "../lib/cmake/composable_kernel/composable_kernelConfigVersion.cmake",
        re.compile(r"set\(PACKAGE_VERSION\s+\"([0-9][\w.]*)\""),
    ),
    ("../CMakeLists.txt", re.compile(r"project\(\s*composable_kernel\s+VERSION\s+([0-9][\w.]*)")),
    ("../CMakeLists.txt", re.compile(r"set\(\s*version\s+([0-9][\w.]*)\s*\)")),
)
# Where headers since the middle of 2026 say whether matrix instructions are those of the unified framework.
_ARCH = Path("ck_tile/core/arch/arch.hpp")
_SWITCH = re.compile(r"#\s*if(?:ndef\s+|\s+!\s*defined\s*\(?\s*)USE_NEW_UNIFIED_FRAMEWORK\b")
# In front of a kernel's name in its library; in a field of fixed size, so that the name moves nothing else.
LABEL = "ckh-kernel:"
LABEL_BYTES = 512


@dataclass(frozen=True, slots=True)
class Headers:
    """CK Tile's headers and the features that they provide for kernels of all operations."""

    include: Path  # the include folder
    interface: Interface  # the interface that they have, or that is nearest to theirs
    pipelines: frozenset[str]  # those that there are
    double_buffered: frozenset[str]  # of these, the ones that take two buffers in LDS
    interwave: frozenset[str] = frozenset()  # of these, the ones that have this scheduler
    unlike: tuple[str, ...] = ()  # the templates that are not as in the interface, each as a sentence
    version: str = ""  # Composable Kernel's, empty where it is not written beside the headers
    is_unified: bool = False  # whether they have the framework that unifies MFMA and WMMA, which can be switched off

    def text(self, path: Path) -> str:
        """Content of a header; empty if it does not exist."""
        return _text_of(self.include / path)

    def __str__(self) -> str:
        """Name used in messages."""
        return f"the CK Tile headers ({self.interface})"


def template_dir() -> Path:
    """Directory of ckh's headers that are included by kernels of several operations."""
    return Path(__file__).parent / "templates" / "ck_tile"


def has_headers(include: Path) -> bool:
    """True if an include folder has CK Tile's GEMM pipelines, which all kernels need."""
    return (include / _FOLDER).is_dir()


def detect_interface(include: Path) -> Headers:
    """Detect the version and features of the headers in an include folder.

    Headers of an unknown interface are treated as the nearest known one; remaining mismatches surface as compiler
    errors.
    """
    if not has_headers(include):
        raise DeviceError(
            f"{include} has no CK Tile headers: there is no folder {_FOLDER}",
            "name the include folder of Composable Kernel with --ck-include or CK_TILE_INCLUDE",
            code="no-headers",
        )
    templates = {name: template_parameters(_text_of(include / file), name) for name, (file, _) in TEMPLATES.items()}
    interface = nearest(templates)
    texts = {name: text for name, file in PIPELINE_HEADERS.items() if (text := _text_of(include / file))}
    differs = (unlike(name, file, templates[name], wanted[interface]) for name, (file, wanted) in TEMPLATES.items())
    return Headers(
        include=include,
        interface=interface,
        pipelines=frozenset(texts),
        double_buffered=_having(texts, _TWO_BUFFERS[interface]),
        interwave=_having(texts, _INTERWAVE),
        unlike=tuple(filter(None, differs)),
        version=_version(include),
        is_unified=_SWITCH.search(_text_of(include / _ARCH)) is not None,
    )


def _version(include: Path) -> str:
    matches = (pattern.search(_text_of(include / name)) for name, pattern in _VERSIONS)
    return next((match[1] for match in matches if match), "")


def _having(texts: dict[str, str], part: str) -> frozenset[str]:
    return frozenset(name for name, text in texts.items() if part in text)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


# Architectures that transpose operands with non-contiguous K while reading LDS, with bytes per lane and access.
LDS_TRANSPOSES = "gfx950"
TRANSPOSED_ACCESS_BYTES = 8


def share_of_thread(
    arch: ArchSpec, wave: Triple, lines: int, extent: int, width: int, wave_groups: int = 1
) -> tuple[int, int] | None:
    """Number of vectors that a thread loads of a tile, and their width; None if the waves cannot share them evenly."""
    waves, lanes = prod(wave), arch.wavefront_size
    width = min(width, extent * lines // (waves * lanes))
    if width == 0 or extent % width or lanes % (extent // width):
        return None
    lines_at_once = lanes // (extent // width) * (waves // wave_groups)
    return None if lines_at_once == 0 or lines % lines_at_once else (lines // lines_at_once, width)


_DISPATCHER = Path("ck_tile/ops/gemm/warp/warp_gemm_dispatcher.hpp")
_NAMESPACE = "warp_gemm_dispatcher"
_TILE = r"\s*(\d+),\s*(\d+),\s*(\d+),\s*"
_WARP_GEMM = re.compile(
    rf"Dispatcher<(?:ck_tile::)?(\w+), (?:ck_tile::)?\1, (?:ck_tile::)?\w+,{_TILE}"
    r"(?:false|TransposeC)\b(?:, false)*(?:, I)?>"
)
# For any two 8-bit types.
_WARP_GEMM_OF_BYTES = re.compile(rf"Dispatcher<A,\s*B,\s*float,{_TILE}false,\s*false,\s*false,\s*I(?:>|,\s*I,)")
_FLOAT_BYTES = ("fp8_t", "bf8_t")
# With operands transposed while reading LDS, which takes a lane several accesses.
_ACCESSES = {"Double": (2,), "Quad": (4,), "I": (2, 4)}
_TRANSPOSING = re.compile(
    rf"Dispatcher<(?:ck_tile::)?(\w+), (?:ck_tile::)?\1, (?:ck_tile::)?\w+,{_TILE}false, false, false, "
    r"(?:WGAttrNumAccessEnum::|E)?(Double|Quad|I)>"
)


def dispatcher_macro(headers: Headers) -> str:
    """Compiler definition (-D) that maps the dispatcher's name in these headers to the namespace `ck_tile::impl`."""
    has_namespace = f"namespace {_NAMESPACE}" in headers.text(_DISPATCHER)
    return f"CKH_WARP_GEMM_DISPATCHER={f'{_NAMESPACE}::Dispatcher' if has_namespace else 'WarpGemmDispatcher'}"


def framework_flags(headers: Headers, target: str) -> tuple[str, ...]:
    """Compiler flags that disable CK's unified framework, for a target such as gfx942; empty if the headers lack it.

    It is switched off: the instructions that ckh reads in the headers are those of the dispatcher without it, and CK
    itself switches it off for gfx1250. Host code must be told the target.
    """
    if not headers.is_unified:
        return ()
    number = target.partition(":")[0].removeprefix("gfx").rjust(4, "0")
    return "-DUSE_NEW_UNIFIED_FRAMEWORK=0", f"-DCK_CMAKE_GPU_TARGET_IDS=0x{number}"


def warp_gemms(headers: Headers) -> frozenset[tuple[str, Triple]]:
    """Element type of A and B, and tile, of every matrix instruction of CK Tile that does not transpose C."""
    return frozenset(_parsed(headers.text(_DISPATCHER)))


def transposing_warp_gemms(headers: Headers) -> frozenset[tuple[str, Triple, int]]:
    """Instructions for operands transposed while reading LDS (gfx950), with the number of accesses per lane."""
    single = frozenset((element, tile, 1) for element, tile in warp_gemms(headers))
    groups = (match.groups() for match in _TRANSPOSING.finditer(headers.text(_DISPATCHER)))
    return single | {
        (f"ck_tile::{e}", (int(m), int(n), int(k)), accesses)
        for e, m, n, k, words in groups
        for accesses in _ACCESSES[words]
    }


def _parsed(dispatcher: str) -> Iterator[tuple[str, Triple]]:
    for match in _WARP_GEMM.finditer(dispatcher):
        element, m, n, k = match.groups()
        yield element if element == "float" else f"ck_tile::{element}", (int(m), int(n), int(k))
    for match in _WARP_GEMM_OF_BYTES.finditer(dispatcher):
        m, n, k = match.groups()
        yield from ((f"ck_tile::{element}", (int(m), int(n), int(k))) for element in _FLOAT_BYTES)
