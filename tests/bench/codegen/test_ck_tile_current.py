"""CK Tile's current interface: detection, and type-checking of emitted sources against stubs.

The stubs in `current_stub` declare the part of CK Tile's interface used by the templates; they compute nothing.
"""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.codegen import ck_tile
from ckh.bench.codegen.ck_tile import Interface, detect_interface
from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.kernels.pipelines import Scheduler
from ckh.ops.grouped_conv.kernel import ConvKernel
from ckh.ops.grouped_conv.kernels.variants import FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0, FILTER3X3, SPECIALIZATIONS
from ckh.ops.grouped_conv.measuring.hip_rules import ELEMENTS, ConvHeaders, detect_conv, emit, missing
from ckh.ops.grouped_conv.measuring.measured import CConvProblem, c_problem
from ckh.ops.grouped_conv.problem import parse_conv_problem
from ckh.problems import Direction
from tests.bench.codegen.stubs import STUB, built, needs_hipcc, syntax_errors
from tests.bench.codegen.templates import OPERATIONS, SHARED, copy_templates
from tests.real import sampled
from tests.refusals import expect_values

if TYPE_CHECKING:
    from pathlib import Path

GFX942 = load_arch("gfx942")
TEMPLATES = (SHARED, OPERATIONS["grouped_conv"])
PIPELINES = STUB / "ck_tile" / "ops" / "gemm" / "pipeline"

FORWARD = ConvKernel(
    variant=Direction.FORWARD,
    dtype="fp16",
    ndim_spatial=2,
    tile_m=64,
    tile_n=64,
    tile_k=64,
    pipeline="compv3",
    scheduler=Scheduler.INTRAWAVE,
    wave_m=2,
    wave_n=1,
    wave_k=1,
    warp_tile_m=32,
    warp_tile_n=32,
    warp_tile_k=8,
    vector_a=2,
    vector_b=4,
    vector_c=8,
    layout="nhwgc",
    epilogue="cshuffle",
    explicit_gemm=False,
    specialization="default",
    pad_m=True,
    pad_n=True,
    pad_k=True,
    block_per_cu=2,
)
BWD_DATA = replace(FORWARD, variant=Direction.BWD_DATA)
BWD_WEIGHT = replace(FORWARD, variant=Direction.BWD_WEIGHT)
IN_3D: dict[str, Any] = {"ndim_spatial": 3, "layout": "ndhwgc"}
EXPLICIT: dict[str, Any] = {"explicit_gemm": True, "specialization": FILTER1X1_STRIDE1_PAD0}
GROUPS: dict[str, Any] = {"wave_m": 1, "wave_n": 1, "wave_k": 2, "num_wave_groups": 2}  # as compv5 requires
INTERWAVE: dict[str, Any] = {"scheduler": Scheduler.INTERWAVE}
DOUBLE: dict[str, Any] = {"double_smem_buffer": True}

# Every pipeline, direction and option.
KERNELS = {
    "forward": FORWARD,
    "forward, fp32, interwave, 3D": replace(
        FORWARD, dtype="fp32", pipeline="basic_v1", **INTERWAVE, tile_m=128, **IN_3D
    ),
    "forward, split image": replace(FORWARD, split_image=True, pipeline="mem", specialization=FILTER1X1_PAD0, **DOUBLE),
    "forward, merged groups": replace(FORWARD, num_groups_to_merge=8, specialization=FILTER3X3, vector_b=1),
    "forward, explicit": replace(FORWARD, dtype="bf16", pipeline="compv4", **DOUBLE, **EXPLICIT),
    "forward, async": replace(FORWARD, pipeline="comp_async", **DOUBLE),
    "backward data": replace(BWD_DATA, pipeline="basic_async_v1", **IN_3D),
    "backward data, split": replace(BWD_DATA, pipeline="compv6", split_k=2, dtype="bf16"),
    "backward weight, interwave": replace(BWD_WEIGHT, dtype="fp32", pipeline="mem", **INTERWAVE, **IN_3D),
    "backward weight, split": replace(BWD_WEIGHT, split_k=4, pipeline="compv6"),
    "backward weight, two stages": replace(
        BWD_WEIGHT, two_stage=True, split_k=4, num_groups_to_merge=2, pipeline="compv4", **DOUBLE
    ),
    "backward weight, two stages, explicit": replace(BWD_WEIGHT, two_stage=True, dtype="bf16", **EXPLICIT),
}


@pytest.fixture(scope="module")
def headers() -> ConvHeaders:
    """The stubs as headers."""
    return detect_conv(detect_interface(STUB))


def errors_of(kernel: ConvKernel, headers: ConvHeaders, folder: Path, templates: tuple[Path, ...]) -> str:
    """Compiler errors of a kernel's source."""
    return syntax_errors(emit(kernel, headers, GFX942), folder, (headers.common.include, *templates))


@pytest.mark.slow
@needs_hipcc
@pytest.mark.parametrize("name", sampled(KERNELS))
def test_kernels_fit_the_published_templates(name: str, headers: ConvHeaders, tmp_path: Path) -> None:
    """A kernel's source passes the arguments that CK Tile's templates take, in their order."""
    assert errors_of(KERNELS[name], headers, tmp_path, TEMPLATES) == ""


@needs_hipcc
def test_a_complete_compv5_fits(tmp_path: Path) -> None:
    """Once its pipeline has the members that convolutions require, a compv5 kernel is emitted and compiles."""
    tree = tmp_path / "include"
    shutil.copytree(STUB, tree)
    file = PIPELINES.relative_to(STUB) / "gemm_pipeline_ag_bg_cr_comp_v5.hpp"
    members = "static constexpr bool Async = false, LargeTensors = false;\n    template <GemmPipelineScheduler>"
    text = (tree / file).read_text().replace("template <GemmPipelineScheduler>", members, 1)
    (tree / file).write_text(text)
    kernel = replace(FORWARD, pipeline="compv5", **GROUPS)
    assert errors_of(kernel, detect_conv(detect_interface(tree)), tmp_path, TEMPLATES) == ""


# Mistakes that the check must detect: text of a ckh template, and its replacement.
MISTAKES = {
    "vectors": (
        "forward",
        "kernel::vector_a, kernel::vector_b, kernel::vector_c,",
        "kernel::vector_b, kernel::vector_a, 8,",
    ),
    "epilogue's last": ("forward", "kernel::vector_c, 1, kernel::double", "kernel::vector_c, kernel::double"),
    "compute types": (
        "forward",
        "PassThrough, PassThrough, Element, Element",
        "Element, Element, PassThrough, PassThrough",
    ),
    "pointers": ("backward data", "(param, operands.out, operands.b, {}", "(param, operands.b, operands.out, {}"),
    "layouts": ("backward weight, split", "Traits::AsLayoutBwdWeight", "Traits::BsLayoutBwdWeight"),
    "instructions side by side": ("forward", "kernel::vector_c, 1,", "kernel::vector_c, 2,"),
}


def is_of_current(header: Path) -> bool:
    """True if a ckh header is for the current interface, alone or with others."""
    return not header.name.startswith(("late2025", "mid2025", "looped"))


@pytest.mark.slow
@needs_hipcc
@pytest.mark.parametrize("mistake", sampled(MISTAKES))
def test_the_check_detects_wrong_arguments(mistake: str, headers: ConvHeaders, tmp_path: Path) -> None:
    """Arguments in another order, or of another kind, are rejected."""
    name, right, wrong = MISTAKES[mistake]
    templates = copy_templates("grouped_conv", tmp_path / "templates")
    having = [header for header in templates.glob("*.hpp") if right in header.read_text() and is_of_current(header)]
    assert len(having) == 1
    having[0].write_text(having[0].read_text().replace(right, wrong))
    assert "error" in errors_of(KERNELS[name], headers, tmp_path, (templates,))


def library(kernel: ConvKernel, headers: ConvHeaders, folder: Path) -> ctypes.CDLL:
    """A kernel built with the stubs, host part only."""
    path = built(emit(kernel, headers, GFX942), folder, (headers.common.include, *TEMPLATES))
    loaded = ctypes.CDLL(path)
    loaded.ckh_unsupported.restype = ctypes.c_char_p
    loaded.ckh_unsupported.argtypes = [ctypes.POINTER(CConvProblem)]
    loaded.ckh_workspace_bytes.restype = ctypes.c_int64
    loaded.ckh_workspace_bytes.argtypes = [ctypes.POINTER(CConvProblem)]
    return loaded


@needs_hipcc
def test_short_reductions_of_compv6_are_refused(headers: ConvHeaders, tmp_path: Path) -> None:
    """In backward data with stride 2, the shortest GEMM has one tap of a 3x3 filter: it reduces only K of a group."""
    loaded = library(replace(BWD_DATA, pipeline="compv6"), headers, tmp_path)

    def refusal(k: int, stride: int) -> bytes | None:
        text = f"conv_bwd_data_fp16_nhwgc_2d_n1_c64_k{k}_g2_i16x16_f3x3_s{stride}x{stride}_p1x1_d1x1"
        refused: bytes | None = loaded.ckh_unsupported(ctypes.byref(c_problem(parse_conv_problem(text))))
        return refused

    assert refusal(k=2 * 64, stride=2) == b"compv6 gives wrong results when its main loop takes a single step"
    assert refusal(k=2 * 72, stride=2) is None
    assert refusal(k=2 * 8, stride=1) is None


@needs_hipcc
def test_two_stages_take_a_workspace_and_no_large_tensors(headers: ConvHeaders, tmp_path: Path) -> None:
    """The workspace holds the filter in fp32; an uncut tensor of 2^31 bytes or more is refused."""
    loaded = library(replace(BWD_WEIGHT, two_stage=True), headers, tmp_path)
    problem = "conv_bwd_weight_fp16_nhwgc_2d_n{}_c64_k32_g2_i256x256_f3x3_s1x1_p1x1_d1x1"
    small, large = (c_problem(parse_conv_problem(problem.format(n))) for n in (255, 256))
    assert loaded.ckh_workspace_bytes(ctypes.byref(small)) == 32 * 32 * 9 * 4
    assert loaded.ckh_unsupported(ctypes.byref(small)) is None
    assert b"2^31 - 1 bytes" in loaded.ckh_unsupported(ctypes.byref(large))


def test_the_checked_kernels_cover_every_option() -> None:
    """Each supported pipeline, direction, type, dimension and option is in one of the checked kernels."""
    kernels = KERNELS.values()
    assert {kernel.pipeline for kernel in kernels} == set(ck_tile.PIPELINE_HEADERS) - {"compv5"}
    assert {kernel.variant for kernel in kernels} == set(Direction)
    assert {kernel.dtype for kernel in kernels} == set(ELEMENTS)
    assert {kernel.ndim_spatial for kernel in kernels} == {2, 3}
    assert {kernel.specialization for kernel in kernels} == set(SPECIALIZATIONS)
    for option in ("double_smem_buffer", "split_image", "two_stage", "explicit_gemm"):
        assert {getattr(kernel, option) for kernel in kernels} == {False, True}, option
    for option in ("num_groups_to_merge", "split_k"):
        assert len({getattr(kernel, option) for kernel in kernels}) > 1, option


def test_the_stubs_are_of_the_current_interface(headers: ConvHeaders) -> None:
    """All pipelines exist, two of them double buffered, two of them interwave, and compv5 lacks required members."""
    common = headers.common
    assert common.interface is Interface.CURRENT
    assert (common.unlike, headers.unlike) == ((), "")
    assert common.pipelines == frozenset(ck_tile.PIPELINE_HEADERS)
    assert common.double_buffered == {"compv4", "comp_async"}
    assert common.interwave == {"basic_v1", "mem"}
    assert headers.incomplete.keys() == {"compv5"}
    assert headers.directions == frozenset(Direction)
    assert headers.split_images == {Direction.FORWARD}


# Differences of trees between mid-2025 and now: a header, its current text, and the earlier text.
OTHER_TREES = {
    "epilogue that permutes": (
        "ops/epilogue/cshuffle_epilogue.hpp",
        "index_t VectorSizeC_ = 1,",
        "index_t VectorSizeC_ = 1,\n          bool TiledMMAPermuteN_ = false,",
    ),
    "epilogue that is told to add": (
        "ops/epilogue/cshuffle_epilogue.hpp",
        "bool isCTransposed_,",
        "bool isCTransposed_,\n          memory_operation_enum MemoryOperation_,",
    ),
    "pipeline that is told of its loop": (
        "ops/gemm/pipeline/gemm_pipeline_problem.hpp",
        "typename AElementWise_ = element_wise",
        "bool HasHotLoop_ = true,\n          typename AElementWise_ = element_wise",
    ),
    "launch that is told its threads": (
        "host/kernel_launch.hpp",
        "template <int MinBlockPerCu = CK",
        "template <int MaxThreadPerBlock = 256,\n          int MinBlockPerCu = CK",
    ),
    "no explicit GEMM": (
        "ops/grouped_convolution/utils/grouped_convolution_utils.hpp",
        "bool ExplicitGemm_ = false,",
        "",
    ),
}


@pytest.mark.parametrize("tree", OTHER_TREES)
def test_other_trees_are_distinguished(tree: str, tmp_path: Path) -> None:
    """Headers with other template parameters are assigned to the nearest interface, and the template is named."""
    file, now, then = OTHER_TREES[tree]
    include = tmp_path / "include"
    shutil.copytree(STUB, include)
    text = (include / "ck_tile" / file).read_text()
    assert now in text
    (include / "ck_tile" / file).write_text(text.replace(now, then))
    headers = detect_conv(detect_interface(include))
    assert headers.common.interface is Interface.CURRENT
    (differs,) = filter(None, (*headers.common.unlike, headers.unlike))
    expect_values(differs, f"ck_tile/{file}")


def test_an_absent_header_is_named(tmp_path: Path) -> None:
    """A missing template is distinguished from one with other parameters."""
    include = tmp_path / "include"
    shutil.copytree(STUB, include)
    (include / "ck_tile/ops/epilogue/cshuffle_epilogue.hpp").unlink()
    (differs,) = detect_interface(include).unlike
    expect_values(differs, "CShuffleEpilogueProblem", "ck_tile/ops/epilogue/cshuffle_epilogue.hpp")


IMPOSSIBLE = {
    "compv5 of .* lacks members": replace(FORWARD, pipeline="compv5", **GROUPS),
    "compv3 does not step through wave groups": replace(FORWARD, pipeline="compv3", num_wave_groups=2),
    "compv3 of .* is not interwave": replace(FORWARD, **INTERWAVE),
    "compv4 of .* takes two LDS buffers": replace(FORWARD, pipeline="compv4"),
    "bwd_data kernels .* no split images": replace(BWD_DATA, split_image=True),
    "bwd_weight kernels .* no split images": replace(BWD_WEIGHT, split_image=True),
    "bwd_data kernels .* no merged groups": replace(BWD_DATA, num_groups_to_merge=2),
    "bwd_data kernels .* no explicit GEMM": replace(BWD_DATA, **EXPLICIT),
    "explicit GEMMs .* no merged groups": replace(BWD_WEIGHT, num_groups_to_merge=2, **EXPLICIT),
    "explicit GEMMs .* no split images": replace(FORWARD, split_image=True, **EXPLICIT),
    "forward kernels .* no second stage": replace(FORWARD, two_stage=True),
    "forward kernels .* have no split of K": replace(FORWARD, split_k=2),
    "no epilogue default": replace(FORWARD, epilogue="default"),
    "no layout ngchw": replace(FORWARD, layout="ngchw"),
    "stream-K kernels are not emitted": replace(BWD_WEIGHT, streamk="tree"),
}


@pytest.mark.parametrize("reason", IMPOSSIBLE)
def test_features_missing_in_the_interface_are_reported(reason: str, headers: ConvHeaders) -> None:
    """A kernel that the interface cannot build is refused for exactly one reason."""
    assert len(missing(IMPOSSIBLE[reason], headers, GFX942)) == 1
    with pytest.raises(UnsupportedKernelError, match=reason):
        emit(IMPOSSIBLE[reason], headers, GFX942)


def test_split_images_need_kernels_that_set_their_first_piece(headers: ConvHeaders) -> None:
    """If a kernel left the pieces of an image uninitialised, it would compute garbage."""
    older = replace(headers, split_images=frozenset())
    assert missing(FORWARD, older, GFX942) == []
    assert "no split images" in missing(replace(FORWARD, split_image=True), older, GFX942)[0]
