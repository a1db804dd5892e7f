"""GEMM kernels for CK Tile's current interface: detection, and type-checking against stubs.

The stubs in `current_stub` declare the part of CK Tile's interface used by the templates; they compute nothing.
"""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.codegen import ck_tile
from ckh.bench.isolated.kernel_library import KernelLibrary
from ckh.kernels.pipelines import Scheduler
from ckh.ops.gemm_universal.kernel import parse_kernel_name
from ckh.ops.gemm_universal.kernels.pool import GPU
from ckh.ops.gemm_universal.measuring.hip import emit
from ckh.ops.gemm_universal.measuring.hip_rules import ELEMENTS, GemmHeaders, detect_gemm, missing
from ckh.ops.gemm_universal.measuring.measured import CGemmProblem
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from tests.bench.codegen.stubs import STUB, built, needs_hipcc, syntax_errors
from tests.bench.codegen.templates import OPERATIONS, SHARED, copy_templates
from tests.real import sampled
from tests.refusals import expect_reasons

if TYPE_CHECKING:
    from ckh.ops.gemm_universal.kernel import GemmKernel

TEMPLATES = (SHARED, OPERATIONS["gemm_universal"])
WHICH = "the CK Tile headers (current)"
GFX942 = load_arch("gfx942")
GEMM = "ck_tile/ops/gemm"
COMPV3 = f"{GEMM}/pipeline/gemm_pipeline_ag_bg_cr_comp_v3.hpp"


def kernel_of(name: str) -> GemmKernel:
    """The kernel of a name without prefix."""
    return parse_kernel_name(f"gemm_universal_{name}")


BYTES_16X16X128 = {"warp_tile_m": 16, "warp_tile_n": 16, "warp_tile_k": 128}
PLAIN = kernel_of("fp16_rcr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16")
# Every pipeline, layout, type and option.
KERNELS = {
    "plain": PLAIN,
    "interwave": kernel_of("fp16_rcr_basic_v1_cshuffle_interwave_True_True_True_False_64x64x64_2x2x1_32x32x16"),
    "persistent": kernel_of("bf16_rrr_compv3_cshuffle_intrawave_True_True_True_True_64x64x64_2x2x1_32x32x16"),
    "own widths": kernel_of("fp16_crr_compv4_cshuffle_intrawave_True_True_True_True_64x64x64_2x2x1_32x32x16_vec4_8_2"),
    "one width": kernel_of("bf8_rcr_basic_v1_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_16x16x32_vec0_4_0"),
    "default": kernel_of("fp16_ccr_mem_default_interwave_True_True_True_False_128x128x64_2x2x1_32x32x8"),
    "default, fp32": kernel_of("fp32_rcr_compv6_default_intrawave_False_False_False_False_64x64x32_2x2x1_32x32x8"),
    "compv6": kernel_of("bf16_rcr_compv6_cshuffle_intrawave_False_False_True_False_64x64x64_2x2x1_32x32x16"),
    "fp8": kernel_of("fp8_rcr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16"),
    "int8": kernel_of("int8_rcr_mem_default_intrawave_True_True_True_True_64x64x64_2x2x1_32x32x16"),
}


def tree_in(folder: Path) -> Path:
    """A fresh copy of the stubs."""
    return Path(shutil.copytree(STUB, folder / "include"))


def detect(tree: Path) -> GemmHeaders:
    """Headers detected in an include folder."""
    return detect_gemm(ck_tile.detect_interface(tree))


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> GemmHeaders:
    """The stubs as headers."""
    return detect(tree_in(tmp_path_factory.mktemp("stubs")))


def errors_of(kernel: GemmKernel, headers: GemmHeaders, folder: Path, templates: tuple[Path, ...]) -> str:
    """Compiler errors of a kernel's source."""
    return syntax_errors(emit(kernel, headers, GFX942), folder, (headers.common.include, *templates))


@pytest.mark.slow
@needs_hipcc
@pytest.mark.parametrize("name", sampled(KERNELS))
def test_kernels_fit_the_published_templates(name: str, headers: GemmHeaders, tmp_path: Path) -> None:
    """A kernel's source passes the arguments that CK Tile's templates take, in their order."""
    assert errors_of(KERNELS[name], headers, tmp_path, TEMPLATES) == ""


def test_the_checked_kernels_cover_every_option() -> None:
    """Each emitted pipeline, layout, type and option is in one of the checked kernels."""
    kernels = KERNELS.values()
    assert {kernel.pipeline for kernel in kernels} == {"basic_v1", "mem", "compv3", "compv4", "compv6"}
    assert {kernel.layout for kernel in kernels} == set(GEMM_LAYOUTS)
    assert {kernel.dtype for kernel in kernels} == set(ELEMENTS)
    assert {kernel.scheduler for kernel in kernels} == set(Scheduler)
    assert {kernel.epilogue for kernel in kernels} == {"cshuffle", "default"}
    for option in ("persistent", "pad_m", "pad_n", "pad_k"):
        assert {getattr(kernel, option) for kernel in kernels} == {False, True}, option


# Mistakes that the check must detect: the kernel, a ckh template, its text, and the replacement.
MISTAKES = {
    "tile and waves": ("plain", "kernel::tile_n, kernel::wave_m", "kernel::wave_m, kernel::tile_n"),
    "results and sums": ("plain", "Ds, Accumulator, Output", "Ds, Output, Accumulator"),
    "no wave groups": ("plain", "false, 1, kernel::vector_c != 0", "false, kernel::vector_c != 0"),
    "raw additions": ("default, fp32", "is_raw = sizeof(Output) == 2", "is_raw = true"),
    "default's paddings": ("default", "kernel::pad_m, kernel::pad_n, kernel::warp_tile_m", "kernel::warp_tile_m"),
    "compute types": ("plain", "PassThrough, Element, Element, has", "Element, PassThrough, Element, has"),
    "never persistent": ("persistent", "RowMajor, false, false, kernel::persistent", "RowMajor, false, false, false"),
    "one buffer": ("own widths", "kernel::pad_k, kernel::double_smem_buffer", "kernel::pad_k, false"),
}


@pytest.mark.slow
@needs_hipcc
@pytest.mark.parametrize("mistake", sampled(MISTAKES))
def test_the_check_detects_wrong_arguments(mistake: str, headers: GemmHeaders, tmp_path: Path) -> None:
    """Arguments in another order, or of another kind, are rejected."""
    name, right, wrong = MISTAKES[mistake]
    templates = copy_templates("gemm_universal", tmp_path / "templates")
    text = (templates / "gemm_current_kernel.hpp").read_text()
    assert right in text
    (templates / "gemm_current_kernel.hpp").write_text(text.replace(right, wrong))
    assert "error" in errors_of(KERNELS[name], headers, tmp_path, (templates,))


def library(kernel: GemmKernel, headers: GemmHeaders, folder: Path) -> KernelLibrary:
    """A kernel built with the stubs, host part only."""
    path = built(emit(kernel, headers, GFX942), folder, (headers.common.include, *TEMPLATES))
    return KernelLibrary(path)


INCOMPLETE = "a line of A or B ends within a vector, or within a tile that is not padded"
NOTHING_LEFT = "split-K leaves nothing for the last part"
BEYOND_END = "parts of K would be added to bf16 rows beyond the end of C"
# Kernel -> M, N, K, parts of K, and the reason. Loads are of 16 bytes except for a kernel's own widths.
REFUSED: dict[str, list[tuple[tuple[int, int, int, int], str | None]]] = {
    # rcr, fp16, padded: K must be whole vectors of 8; warp tiles are 16 deep.
    "plain": [
        ((100, 72, 136, 1), None),
        ((100, 72, 132, 1), INCOMPLETE),
        ((100, 72, 136, 9), None),
        ((100, 72, 136, 10), NOTHING_LEFT),
        ((100, 72, 1 << 20, 1 << 16), "K is split into more than 2^16 - 1 parts"),
        ((1 << 15, 1 << 15, 64, 1), "a matrix is too large for 32-bit offsets"),
        ((0, 72, 64, 1), "a size is not positive"),
    ],
    # rrr, bf16, padded: K and N must be whole vectors of 8.
    "persistent": [
        ((100, 72, 136, 1), None),
        ((100, 68, 136, 1), INCOMPLETE),
        ((128, 72, 136, 2), None),
        ((100, 72, 136, 2), BEYOND_END),
    ],
    # crr, fp16, with vectors of 4 for A along M and of 8 for B along N: K may be anything.
    "own widths": [((100, 72, 33, 1), None), ((98, 72, 33, 1), INCOMPLETE), ((100, 76, 33, 1), INCOMPLETE)],
    # rcr, bf8: vectors of 16 for A and of 4 for B, both along K.
    "one width": [((100, 72, 48, 1), None), ((100, 72, 40, 1), INCOMPLETE)],
    # rcr, fp32, not padded; K after the tile is not zero.
    "default, fp32": [
        ((100, 64, 64, 1), None),
        ((100, 64, 48, 1), INCOMPLETE),
        ((100, 64, 32, 1), "compv6 without padding of K reads beyond it if it has 1 tile"),
        ((100, 64, 128, 2), None),
        ((100, 64, 96, 2), INCOMPLETE),
        ((100, 64, 64, 2), "compv6 without padding of K reads beyond it if it has 1 tile"),
    ],
    # rcr, bf16, K padded.
    "compv6": [((64, 64, 64, 1), None), ((64, 64, 8, 1), None)],
    # ccr, fp16, results stored one by one: M and K must be whole vectors of 8.
    "default": [
        ((104, 71, 64, 1), None),
        ((104, 71, 64, 2), "parts of K cannot be added to 16-bit results that are stored one by one"),
        ((100, 71, 64, 1), INCOMPLETE),
    ],
}


@pytest.mark.slow
@needs_hipcc
@pytest.mark.parametrize("name", sampled(REFUSED))
def test_problems_with_wrong_results_are_refused(name: str, headers: GemmHeaders, tmp_path: Path) -> None:
    """For accepted problems, the leading dimensions passed to the stub are those of dense operands."""
    loaded = library(KERNELS[name], headers, tmp_path)
    result = []
    for sizes, _ in REFUSED[name]:
        reason = loaded.unsupported(ctypes.byref(CGemmProblem(*sizes)))
        result.append((sizes, None if reason is None else reason.decode()))
    assert result == REFUSED[name]


@pytest.mark.slow
@needs_hipcc
def test_trees_that_pad_added_rows_may_split_any_m(tmp_path: Path) -> None:
    """Their kernels stop at the last row, so nothing is refused."""
    tree = tree_in(tmp_path)
    file = tree / GEMM / "kernel/universal_gemm_kernel.hpp"
    file.write_text(file.read_text() + "// pad_not_contiguous_dim\n")
    loaded = library(KERNELS["persistent"], detect(tree), tmp_path)
    assert loaded.unsupported(ctypes.byref(CGemmProblem(100, 72, 136, 2))) is None


def test_features_are_read_from_the_stubs(headers: GemmHeaders) -> None:
    """Pipelines, schedulers, epilogues and matrix instructions."""
    assert headers.is_current
    assert headers.has_kernel
    assert headers.epilogues == {"cshuffle", "default"}
    assert headers.interwave == {"basic_v1", "mem"}
    assert headers.persistent == {"mem", "compv3", "compv4"}
    assert headers.incomplete == frozenset()
    assert headers.along_k == {("basic_v1", Scheduler.INTERWAVE)}
    assert not headers.transposes_all
    assert not headers.pads_added_rows
    assert headers.warp_gemms == {
        *(("float", tile) for tile in ((16, 16, 16), (32, 32, 8))),
        *(("ck_tile::half_t", tile) for tile in ((32, 32, 8), (32, 32, 16))),
        *(("ck_tile::bf16_t", tile) for tile in ((32, 32, 8), (32, 32, 16))),
        *(("ck_tile::fp8_t", tile) for tile in ((32, 32, 16), (16, 16, 128))),
        *(("ck_tile::bf8_t", tile) for tile in ((16, 16, 32), (16, 16, 128))),
        ("ck_tile::int8_t", (32, 32, 16)),
    }


# Differences of other trees: a header, its text, the replacement, and the reason for which a kernel is then refused.
OTHER_TREES = {
    "pipeline that is told of its loop": (
        COMPV3,
        "static constexpr bool Preshuffle",
        "static constexpr bool HasHotLoop = Problem::HasHotLoop;\n    static constexpr bool Preshuffle",
        f"compv3 of {WHICH} lacks members that their GEMM kernel requires",
    ),
    "pipeline without waves of 32": (
        COMPV3,
        "IsWave32Host",
        "IsOther",
        f"compv3 of {WHICH} lacks members that their GEMM kernel requires",
    ),
    "pipeline without shuffled operands": (
        COMPV3,
        "static constexpr bool Preshuffle = Problem::Traits::Preshuffle;",
        "",
        f"compv3 of {WHICH} lacks members that their GEMM kernel requires",
    ),
    "kernel of other parts": (
        f"{GEMM}/kernel/universal_gemm_kernel.hpp",
        "typename TilePartitioner_, typename GemmPipeline_",
        "typename Problem_, typename GemmPipeline_",
        f"{WHICH} have no universal GEMM kernel",
    ),
    "epilogue that is told to add": (
        "ck_tile/ops/epilogue/default_2d_epilogue.hpp",
        "index_t kN_,",
        "index_t kN_,\n          index_t MWave_,",
        f"{WHICH} have no epilogue default",
    ),
    "other instructions": (
        f"{GEMM}/warp/warp_gemm_dispatcher.hpp",
        "Dispatcher<half_t, half_t, float, 32, 32, 16, false>",
        "Dispatcher<half_t, half_t, float, 32, 32, 16,  true>",
        f"{WHICH} have no 32x32x16 matrix instruction for fp16",
    ),
}


@pytest.mark.parametrize("name", OTHER_TREES)
def test_other_trees_are_distinguished(name: str, tmp_path: Path) -> None:
    """A kernel is refused only for the difference of its headers."""
    file, now, then, reason = OTHER_TREES[name]
    tree = tree_in(tmp_path)
    text = (tree / file).read_text()
    assert now in text
    (tree / file).write_text(text.replace(now, then))
    kernel = replace(PLAIN, epilogue="default") if "epilogue" in name else PLAIN
    assert missing(kernel, detect(tree), GFX942) == [reason]


def test_trees_with_general_transposition_are_detected(headers: GemmHeaders, tmp_path: Path) -> None:
    """A row-major B of fp32 can be transposed with them, and not without."""
    tree = tree_in(tmp_path)
    file = tree / "ck_tile/core/utility/transpose_vectors.hpp"
    file.parent.mkdir(parents=True)
    file.write_text("struct generic_tag {};")
    kernel = replace(PLAIN, dtype="fp32", layout="rrr", warp_tile_k=8)
    expect_reasons(missing(kernel, headers, GFX942), (WHICH, "4 x 4", "B", "fp32"))
    assert missing(kernel, detect(tree), GFX942) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pipeline": "compv5"}, f"the epilogues of {WHICH} have no second wave group, which compv5 requires"),
        (
            {"pipeline": "preshufflev2"},
            f"preshufflev2 of {WHICH} requires a preshuffled B",
        ),
        ({"pipeline": "comp_async"}, f"GEMM kernels with comp_async of {WHICH} are not emitted"),
        ({"pipeline": "wavelet"}, f"{WHICH} have no pipeline wavelet"),
        ({"epilogue": "tdm"}, f"{WHICH} have no epilogue tdm"),
        ({"scheduler": Scheduler.INTERWAVE}, f"compv3 of {WHICH} is not interwave"),
        ({"pipeline": "compv6", "persistent": True}, f"compv6 of {WHICH} has no persistent kernels"),
        ({"pipeline": "basic_v1", "persistent": True}, f"basic_v1 of {WHICH} has no persistent kernels"),
        (
            {"pipeline": "basic_v1", "scheduler": Scheduler.INTERWAVE, "layout": "rrr"},
            f"interwave basic_v1 of {WHICH} reads wrong tiles of operands in which K is not contiguous",
        ),
        (
            {"pipeline": "compv6", "dtype": "fp8", "tile_k": 128, **BYTES_16X16X128},
            f"compv6 of {WHICH} multiplies a tile more than once if a thread has over 16 bytes of a row",
        ),
        ({"wave_k": 2}, f"compv3 of {WHICH} has no waves along K"),
        ({"dtype": "fp32"}, f"{WHICH} have no 32x32x16 matrix instruction for fp32"),
        ({"epilogue": "default", "vector_c": 8}, f"the default epilogue of {WHICH} stores single elements"),
    ],
)
def test_features_missing_in_headers_are_reported(changes: dict[str, Any], reason: str, headers: GemmHeaders) -> None:
    """Each reason alone prevents emission."""
    assert missing(replace(PLAIN, **changes), headers, GFX942) == [reason]


def test_other_widths_than_native_can_be_transposed(headers: GemmHeaders) -> None:
    """The current policy loads and transposes with the same width, unlike that of mid-2025."""
    assert missing(replace(PLAIN, layout="ccr", vector_a=4), headers, GFX942) == []
    assert missing(replace(PLAIN, pipeline="basic_v1", layout="rrr"), headers, GFX942) == []


@pytest.mark.parametrize("pipeline", GPU.pipelines)
def test_every_pipeline_of_the_pool_is_emitted_or_refused_by_name(pipeline: str, headers: GemmHeaders) -> None:
    """The source names the kernel's pipeline; if it is refused, the reason does."""
    kernel = replace(PLAIN, pipeline=pipeline)
    reasons = missing(kernel, headers, GFX942)
    assert bool(reasons) == (pipeline in {"compv5", "preshufflev2"})
    text = reasons[0] if reasons else emit(kernel, headers, GFX942)
    assert pipeline in text
    assert reasons or f"pipeline = Pipeline::{pipeline};" in text
