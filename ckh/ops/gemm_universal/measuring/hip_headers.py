"""Features of CK Tile's headers for GEMM kernels, detected from their content: no header states its version."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import PIPELINE_HEADERS, transposing_warp_gemms, warp_gemms
from ckh.bench.codegen.interfaces import Interface, template_parameters
from ckh.kernels.pipelines import TABLE_PIPELINES, Scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import Triple
    from ckh.bench.codegen.ck_tile import Headers

_GEMM = Path("ck_tile/ops/gemm")
_KERNEL = _GEMM / "kernel/universal_gemm_kernel.hpp"
_POLICY = _GEMM / "pipeline/gemm_universal_pipeline_ag_bg_cr_policy.hpp"
_TRANSPOSE = Path("ck_tile/core/utility/transpose_vectors.hpp")
# Epilogue -> its header, and its name in ckh's headers.
EPILOGUES = {
    "cshuffle": (Path("ck_tile/ops/epilogue/cshuffle_epilogue.hpp"), "cshuffle"),
    "default": (Path("ck_tile/ops/epilogue/default_2d_epilogue.hpp"), "direct"),
}
# Template parameters that ckh's headers for the current interface pass, besides those that `detect_interface` checks.
_KERNEL_PARAMETERS = ("TilePartitioner_", "GemmPipeline_", "EpiloguePipeline_")
_DEFAULT_EPILOGUE_PARAMETERS = (
    *("AsDataType_", "BsDataType_", "DsDataType_", "AccDataType_", "ODataType_", "DsLayout_", "CLayout_"),
    *("CDElementwise_", "kM_", "kN_", "kPadM_", "kPadN_", "kMPerXdl_", "kNPerXdl_", "kKPerXdl_", "isCTransposed_"),
    "UseRawStore_",
)
# Text by which a pipeline's header declares a feature.
_INTERWAVE = "PipelineImpl<GemmPipelineScheduler::Interwave>"
_PERSISTENT = re.compile(r"UsePersistentKernel\s*=(?!\s*false)")
# Windows that move along K as if it were the second axis, whatever the layout.
_STEPS_ALONG_K = ("{0, kKPerBlock}", "make_array(0, 0) : make_array(0, KPerBlock)")
_LOOP_FROM_PROBLEM = "Problem::HasHotLoop"  # absent from problems of the current interface
# Members that the kernel's header requires of pipelines, and their declaration in a pipeline's header.
_NEEDED = {"GetVectorSizeA<true>": re.compile(r"\bIsWave32Host\b"), "::Preshuffle": re.compile(r"\bPreshuffle\s*=")}
_PADS_ADDED_ROWS = "pad_not_contiguous_dim"
_TRANSPOSES_ALL = "generic_tag"
_LOADS_TRANSPOSED = "is_a_load_tr"
_BARRIER_BETWEEN_TILES = "s_waitcnt_barrier"


@dataclass(frozen=True, slots=True)
class GemmHeaders:
    """Features of CK Tile's headers for GEMM kernels.

    Attributes:
        common: features shared by all kernels.
        has_kernel: whether the universal GEMM kernel is present.
        epilogues: available epilogues.
        interwave: the pipelines that have this scheduler.
        persistent: the pipelines that have persistent kernels.
        warp_gemms: CK Tile's element type of A and B, and the tile, of every matrix instruction.
        incomplete: for current headers, the pipelines that lack members that the kernel requires.
        along_k: pipelines and schedulers that step along the rows of A and the columns of B whatever the layout.
        transposes_all: whether operands of any element type and any shape can be transposed.
        transposing: for headers whose pipelines use gfx950's LDS transpose, the matrix instructions that support it:
            element type, tile, and number of LDS accesses of a lane; None for other headers.
        races_between_tiles: whether a persistent kernel loads a tile while waves still read the previous tile.
        pads_added_rows: for current headers, whether a kernel that adds bf16 atomically stops at the last row.
    """

    common: Headers
    has_kernel: bool
    epilogues: frozenset[str]
    interwave: frozenset[str]
    persistent: frozenset[str]
    warp_gemms: frozenset[tuple[str, Triple]]
    incomplete: frozenset[str] = frozenset()
    along_k: frozenset[tuple[str, Scheduler]] = frozenset()
    transposes_all: bool = False
    transposing: frozenset[tuple[str, Triple, int]] | None = None
    races_between_tiles: bool = False
    pads_added_rows: bool = False

    @property
    def is_current(self) -> bool:
        """True for headers of the current interface."""
        return self.common.interface is Interface.CURRENT


def detect_gemm(headers: Headers) -> GemmHeaders:
    """Detect the features of headers for GEMM kernels; an unreadable header counts as absent."""
    is_current = headers.interface is Interface.CURRENT
    pipelines = {name: headers.text(path) for name, path in PIPELINE_HEADERS.items()}
    kernel = headers.text(_KERNEL)
    has_kernel = bool(kernel)
    epilogues = {name: text for name, (path, _) in EPILOGUES.items() if (text := headers.text(path))}
    if is_current:
        has_kernel = _has_parameters(kernel, "UniversalGemmKernel", _KERNEL_PARAMETERS)
        default = epilogues.pop("default", "")
        if _has_parameters(default, "DefaultGemm2DEpilogueProblem", _DEFAULT_EPILOGUE_PARAMETERS):
            epilogues["default"] = default
    return GemmHeaders(
        common=headers,
        has_kernel=has_kernel,
        epilogues=frozenset(epilogues),
        interwave=frozenset(name for name, text in pipelines.items() if _INTERWAVE in text),
        persistent=frozenset(name for name, text in pipelines.items() if _PERSISTENT.search(text)),
        warp_gemms=warp_gemms(headers),
        incomplete=frozenset(
            name for name in TABLE_PIPELINES if is_current and _is_incomplete(pipelines[name], kernel)
        ),
        along_k=frozenset(item for name, text in pipelines.items() for item in _along_k(name, text)),
        transposes_all=_TRANSPOSES_ALL in headers.text(_TRANSPOSE),
        transposing=transposing_warp_gemms(headers) if _LOADS_TRANSPOSED in headers.text(_POLICY) else None,
        races_between_tiles=not is_current and _BARRIER_BETWEEN_TILES not in kernel,
        pads_added_rows=_PADS_ADDED_ROWS in kernel,
    )


def _has_parameters(text: str, name: str, wanted: tuple[str, ...]) -> bool:
    return template_parameters(text, name)[: len(wanted)] == wanted


def _is_incomplete(pipeline: str, kernel: str) -> bool:
    lacks = (needed in kernel and not has.search(pipeline) for needed, has in _NEEDED.items())
    return bool(pipeline) and (_LOOP_FROM_PROBLEM in pipeline or any(lacks))


def _along_k(name: str, text: str) -> Iterator[tuple[str, Scheduler]]:
    intrawave, _, interwave = text.partition(_INTERWAVE)
    for scheduler, part in ((Scheduler.INTRAWAVE, intrawave), (Scheduler.INTERWAVE, interwave)):
        if any(step in part for step in _STEPS_ALONG_K):
            yield name, scheduler
