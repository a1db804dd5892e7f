"""Emitted CK Tile kernels: golden files, missing features of headers, and real compilation where possible."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.codegen import ck_tile
from ckh.bench.codegen.ck_tile import (
    TEMPLATES,
    Headers,
    Interface,
    detect_interface,
    framework_flags,
    has_headers,
    share_of_thread,
)
from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.errors import DeviceError
from ckh.kernels.pipelines import Scheduler
from ckh.ops.grouped_conv.kernel import ConvKernel, kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.kernels.variants import FILTER3X3
from ckh.ops.grouped_conv.measuring.hip_rules import ConvHeaders, detect_conv, emit, missing
from ckh.problems import Direction
from tests.bench.codegen.conv_headers import CURRENT, HEADERS, LATE_2025, MID_2025, write_templates
from tests.bench.codegen.real_kernels import REAL_KERNELS
from tests.bench.codegen.templates import OPERATIONS, SHARED
from tests.bench.fake_hipcc import write_headers
from tests.real import Real, check_names_and_code, check_resources, compiles, interface_here, sampled
from tests.refusals import expect_refusal, expect_values, has_values

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.kernel import ConvKernel

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "CKH_UPDATE_GOLDEN"
HOW_TO_UPDATE = f"if that is meant, run this test with {UPDATE}=1 and look at the difference"
GFX942 = load_arch("gfx942")

# File -> headers and the kernel's name without the common prefix.
EMITTED: dict[str, tuple[ConvHeaders, str]] = {
    "fwd_basic_v1": (MID_2025, "fwd_fp16_nhwgc_2d_basic_v1_cshuffle_intrawave_64x64x32_2x2x1_32x32x8_vec8_8_8_bpc2"),
    "fwd_mem_3d": (MID_2025, "fwd_bf16_ndhwgc_3d_mem_cshuffle_interwave_64x64x32_2x2x1_32x32x8_vec8_8_4_filter3x3"),
    "fwd_compv3_1x1": (
        MID_2025,
        "fwd_fp32_nhwgc_2d_compv3_cshuffle_intrawave_64x64x16_2x2x1_32x32x8_vec4_4_4_filter1x1_pad0",
    ),
    "fwd_compv4_dsb": (
        MID_2025,
        "fwd_fp16_nhwgc_2d_compv4_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec8_8_8_dsb_filter1x1_stride1_pad0",
    ),
    "fwd_compv5_wave_groups": (
        MID_2025,
        "fwd_fp16_nhwgc_2d_compv5_cshuffle_intrawave_64x64x64_1x1x2_32x32x16_vec8_8_8_wg2",
    ),
    "bwd_weight_split": (
        MID_2025,
        "bwd_weight_fp16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec2_4_8_splitk4",
    ),
    "fwd_split_image_late": (
        LATE_2025,
        "fwd_fp16_nhwgc_2d_basic_v1_cshuffle_interwave_64x64x32_1x1x1_32x32x16_vec8_8_8_bpc2_large_tensor",
    ),
    "bwd_data_late": (LATE_2025, "bwd_data_fp16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x32_2x2x1_32x32x8_vec8_2_4"),
    "bwd_weight_current": (
        CURRENT,
        "bwd_weight_bf16_ndhwgc_3d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x32_gm8_2stage",
    ),
    "bwd_data_current": (CURRENT, "bwd_data_bf16_nhwgc_2d_compv6_cshuffle_intrawave_128x128x64_2x2x1_32x32x16_bpc2"),
    "fwd_explicit_gemm": (
        CURRENT,
        "fwd_bf16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_filter1x1_stride1_pad0_explicit_gemm",
    ),
}
GROUPS: dict[str, Any] = {"wave_m": 1, "wave_n": 1, "wave_k": 2, "num_wave_groups": 2}  # as compv5 requires
TOO_WIDE = "too few for vectors of 8 elements of B"
PLAIN = parse_kernel_name("grouped_conv_fwd_fp16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_2x2x1_32x32x16")


def kernel_of(name: str) -> ConvKernel:
    """The kernel of a name without prefix."""
    return parse_kernel_name(f"grouped_conv_{name}")


def check_golden(path: Path, text: str, what: str) -> None:
    """Compare with a golden file, or write it on request."""
    if os.environ.get(UPDATE) == "1":
        path.write_text(text, encoding="utf-8")
    golden = path.read_text(encoding="utf-8") if path.exists() else ""
    assert text == golden, f"{what} is not what {path.name} says; {HOW_TO_UPDATE}"


@pytest.mark.parametrize("name", EMITTED)
def test_emitted_text_does_not_drift(name: str) -> None:
    """A kernel's source is byte for byte that of the reviewed golden file."""
    headers, kernel = EMITTED[name]
    check_golden(GOLDEN / f"{name}.cpp", emit(kernel_of(kernel), headers, GFX942), "the emitted source")


def test_templates_do_not_drift() -> None:
    """A changed header changes every kernel: it must be intended, and real kernels compiled again."""
    folders = (SHARED, *OPERATIONS.values())
    headers = sorted((header for folder in folders for header in folder.glob("*.hpp")), key=lambda header: header.name)
    text = "".join(f"{hashlib.sha256(header.read_bytes()).hexdigest()}  {header.name}\n" for header in headers)
    check_golden(GOLDEN / "templates.sha256", text, "a template header")


def test_golden_files_match_the_table() -> None:
    """There are no left-over golden files."""
    assert {path.name for path in GOLDEN.iterdir()} == {"templates.sha256", *(f"{name}.cpp" for name in EMITTED)}


def test_every_parameter_is_in_the_source() -> None:
    """Kernels that differ in a single field have different sources, not only in their label."""
    changes: dict[str, Any] = {
        **dict.fromkeys(("tile_m", "tile_n", "tile_k", "wave_m", "wave_n", "wave_k"), 7),
        **dict.fromkeys(("warp_tile_m", "warp_tile_n", "warp_tile_k", "vector_a", "vector_b", "vector_c"), 7),
        "block_per_cu": 7,
        "variant": Direction.BWD_WEIGHT,
        "dtype": "fp32",
        "pipeline": "compv3",
        "scheduler": Scheduler.INTERWAVE,
        "specialization": "filter3x3",
        "ndim_spatial": 3,
    }
    texts = [text_of(PLAIN), *(text_of(replace(PLAIN, **{name: value})) for name, value in changes.items())]
    assert len(set(texts)) == len(texts) == 20
    assert "split_k = 7" in text_of(replace(PLAIN, variant=Direction.BWD_WEIGHT, split_k=7))
    assert "num_wave_groups = 2" in text_of(replace(PLAIN, pipeline="compv5", **GROUPS), MID_2025)
    assert "double_smem_buffer = true" in text_of(replace(PLAIN, pipeline="compv4", double_smem_buffer=True))


def text_of(kernel: ConvKernel, headers: ConvHeaders = CURRENT) -> str:
    """Source without the line of the label, for headers that allow any distribution of tiles."""
    return "\n".join(line for line in emit(kernel, headers, GFX942).splitlines() if "label" not in line)


def test_the_label_leaves_room_for_the_longest_name() -> None:
    """The label has a fixed size, and a name that does not fit would not compile."""
    long = replace(
        kernel_of(EMITTED["fwd_explicit_gemm"][1]), num_wave_groups=16, vector_a=16, vector_b=16, split_k=128
    )
    assert len(ck_tile.LABEL + kernel_name(long)) < ck_tile.LABEL_BYTES


@pytest.mark.parametrize(
    ("headers", "changes", "reason"),
    [
        (MID_2025, {"vector_a": None}, "the kernel has missing parameters: only complete kernels can be built"),
        (MID_2025, {"dtype": "fp8"}, "dtype fp8 is not one of fp16, bf16, fp32"),
        (MID_2025, {"variant": Direction.BWD_DATA}, "the CK Tile headers (mid2025) have no bwd_data kernel"),
        (MID_2025, {"pipeline": "compv6"}, "the CK Tile headers (mid2025) have no pipeline compv6"),
        (CURRENT, {"pipeline": "compv5", **GROUPS}, "the CK Tile headers (current) have no pipeline compv5"),
        (MID_2025, {"pipeline": "compv5"}, "compv5 computes nothing unless it has waves 1x1x2 in 2 wave groups"),
        (
            MID_2025,
            {"num_wave_groups": 2},
            "mem does not step through wave groups, so it is wrong in several",
        ),
        (MID_2025, {"double_smem_buffer": True}, "mem of the CK Tile headers (mid2025) takes one LDS buffer"),
        (MID_2025, {"pipeline": "compv4"}, "compv4 of the CK Tile headers (mid2025) takes two LDS buffers"),
        (MID_2025, {"pad_m": False}, "CK Tile's convolutions are always padded in m, n and k"),
        (MID_2025, {"pad_n": False}, "CK Tile's convolutions are always padded in m, n and k"),
        (CURRENT, {"pad_k": False}, "CK Tile's convolutions are always padded in m, n and k"),
        (CURRENT, {"streamk": "tree"}, "stream-K kernels are not emitted"),
        (MID_2025, {"epilogue": "default"}, "the CK Tile headers (mid2025) have no epilogue default"),
        (MID_2025, {"layout": "nchw"}, "the CK Tile headers (mid2025) have no layout nchw"),
        (
            MID_2025,
            {"pipeline": "compv3", "scheduler": Scheduler.INTERWAVE},
            "compv3 of the CK Tile headers (mid2025) is not interwave",
        ),
        (MID_2025, {"num_groups_to_merge": 2}, "the CK Tile headers (mid2025) have no merged groups"),
        (MID_2025, {"split_image": True}, "the CK Tile headers (mid2025) have no split images"),
        (MID_2025, {"explicit_gemm": True}, "the CK Tile headers (mid2025) have no explicit GEMM"),
        (MID_2025, {"split_k": 2}, "forward kernels of the CK Tile headers (mid2025) have no split of K"),
        (LATE_2025, {"pipeline": "compv6"}, "compv6 of the CK Tile headers (late2025) does not fit"),
        (LATE_2025, {"explicit_gemm": True}, "the CK Tile headers (late2025) have no explicit GEMM"),
        (
            LATE_2025,
            {"num_groups_to_merge": 2},
            "forward kernels of the CK Tile headers (late2025) have no merged groups",
        ),
        (
            LATE_2025,
            {"variant": Direction.BWD_DATA, "pipeline": "compv4", "double_smem_buffer": True},
            "bwd_data kernels of the CK Tile headers (late2025) do not compile with two LDS buffers",
        ),
        (
            LATE_2025,
            {"warp_tile_m": 4, "warp_tile_n": 64},
            "the CK Tile headers (late2025) have no 4x64x16 matrix instruction for fp16",
        ),
        (
            LATE_2025,
            {"dtype": "fp32", "warp_tile_k": 3},
            "the CK Tile headers (late2025) have no 32x32x3 matrix instruction for fp32",
        ),
        (
            LATE_2025,
            {"variant": Direction.BWD_WEIGHT, "tile_n": 96},
            "the CK Tile headers (late2025) cannot spread 64 lines of 96 elements of B over a block's threads",
        ),
        (MID_2025, {"two_stage": True}, "the CK Tile headers (mid2025) have no second stage"),
        (
            LATE_2025,
            {"specialization": FILTER3X3, "vector_a": 1},
            f"forward kernels of {LATE_2025.common} for 3x3 filters take one channel per group, {TOO_WIDE}",
        ),
    ],
)
def test_features_missing_in_headers_are_reported(headers: ConvHeaders, changes: dict[str, Any], reason: str) -> None:
    """Each reason alone prevents emission; missing features are never replaced."""
    kernel = replace(PLAIN, **changes)
    assert missing(PLAIN, headers, GFX942) == []
    assert missing(kernel, headers, GFX942) == [reason]
    with pytest.raises(UnsupportedKernelError) as caught:
        emit(kernel, headers, GFX942)
    assert str(caught.value) == reason


def test_operands_are_transposed_by_architecture() -> None:
    """gfx950 transposes them in LDS, for some instructions; elsewhere registers do, and forward transposes nothing."""
    gfx950 = load_arch("gfx950")
    weight = replace(PLAIN, variant=Direction.BWD_WEIGHT)
    other = replace(weight, warp_tile_m=16, warp_tile_n=16, warp_tile_k=32)
    assert missing(weight, LATE_2025, gfx950) == missing(other, LATE_2025, GFX942) == []
    (reason,) = missing(other, LATE_2025, gfx950)
    expect_values(reason, "16x16x32", "fp16", "gfx950")
    assert missing(replace(other, variant=Direction.FORWARD), LATE_2025, gfx950) == []


def test_tiles_are_distributed_over_the_waves_of_an_architecture() -> None:
    """Waves of 32 lanes load half as many vectors at once: tiles that fit one wave size may not fit the other."""
    narrow = replace(PLAIN, tile_k=8, wave_m=1, wave_n=1, vector_a=8, vector_b=8)
    assert share_of_thread(GFX942, (2, 2, 1), 64, 64, 8) == (2, 8)
    assert share_of_thread(GFX942, (1, 1, 2), 64, 64, 8, wave_groups=2) == (8, 8)
    assert share_of_thread(GFX942, (1, 1, 2), 64, 64, 8) == (4, 8)
    assert share_of_thread(load_arch("gfx1100"), (2, 2, 1), 64, 64, 8) == (4, 8)
    assert share_of_thread(load_arch("gfx1100"), (2, 2, 1), 64, 64, 1) is None
    assert missing(replace(narrow, tile_m=32), LATE_2025, load_arch("gfx1100")) == []
    assert len(missing(replace(narrow, tile_m=48), LATE_2025, GFX942)) == 1


def test_all_reasons_are_reported_at_once() -> None:
    """A kernel with several missing features reports all of them."""
    kernel = replace(PLAIN, dtype="int8", pipeline="compv6", two_stage=True, split_image=True)
    with pytest.raises(UnsupportedKernelError) as caught:
        emit(kernel, MID_2025, GFX942)
    assert str(caught.value).count("; ") == 3


def test_headers_of_mid_2025_are_recognised(tmp_path: Path) -> None:
    """Pipelines, buffers and directions are those whose files exist."""
    headers = detect_interface(write_headers(tmp_path))
    assert headers == Headers(
        tmp_path,
        Interface.MID_2025,
        frozenset({"basic_v1", "mem", "compv3", "compv4"}),
        frozenset({"compv4"}),
        unlike=headers.unlike,
    )
    assert len(headers.unlike) == len(TEMPLATES)
    directions = frozenset({Direction.FORWARD, Direction.BWD_WEIGHT})
    assert detect_conv(headers) == ConvHeaders(headers, directions, detect_conv(headers).unlike, two_buffers=directions)


def test_restrictions_of_3x3_kernels_are_parsed(tmp_path: Path) -> None:
    """Operands whose vector widths must divide the channels are parsed from kernels with one channel per group."""
    folder = write_headers(tmp_path) / "ck_tile/ops/grouped_convolution/kernel"
    forward = folder / "grouped_convolution_forward_kernel.hpp"
    checks = """
        else if constexpr(ConvSpecialization == ConvolutionSpecialization::Filter3x3)
        {{
            if(ConvC != {channels})
            {{
                return false;
            }}
        }}
        if(ConvC % Traits::VectorSizeA != 0) return false;
        if(ConvK % Traits::VectorSizeC != 0) return false;
    """
    forward.write_text(checks.format(channels=1), encoding="utf-8")
    assert detect_conv(detect_interface(tmp_path)).one_channel == {Direction.FORWARD: "A"}
    forward.write_text(checks.format(channels=4), encoding="utf-8")
    assert detect_conv(detect_interface(tmp_path)).one_channel == {}


@pytest.mark.parametrize("interface", Interface)
def test_an_interface_is_recognised_by_its_templates(tmp_path: Path, interface: Interface) -> None:
    """No template differs from the detected interface."""
    headers = detect_interface(write_templates(tmp_path, interface))
    assert (headers.interface, headers.unlike) == (interface, ())


@pytest.mark.parametrize(
    ("switch", "is_unified"),
    [
        ("#ifndef USE_NEW_UNIFIED_FRAMEWORK\n#define USE_NEW_UNIFIED_FRAMEWORK 1\n#endif", True),
        ("#if !defined(USE_NEW_UNIFIED_FRAMEWORK)\n#define USE_NEW_UNIFIED_FRAMEWORK 1\n#endif", True),
        ("#define USE_NEW_UNIFIED_FRAMEWORK 1", False),
        ("", False),
    ],
)
def test_the_unified_framework_is_switched_off(tmp_path: Path, switch: str, is_unified: bool) -> None:
    """Where headers have its switch, the compiler gets that and the target's number; nothing else of them changes."""
    include = write_templates(tmp_path, Interface.CURRENT)
    path = include / "ck_tile/core/arch/arch.hpp"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#pragma once\n{switch}\n", encoding="utf-8")
    headers = detect_interface(include)
    assert (headers.is_unified, headers.interface, headers.unlike) == (is_unified, Interface.CURRENT, ())
    numbers = {"gfx942": "0x0942", "gfx90a:xnack-": "0x090a", "gfx1250": "0x1250"}
    for target, number in numbers.items():
        off = ("-DUSE_NEW_UNIFIED_FRAMEWORK=0", f"-DCK_CMAKE_GPU_TARGET_IDS={number}")
        assert framework_flags(headers, target) == (off if is_unified else ())


@pytest.mark.parametrize(
    ("there", "instead", "nearest"),
    [
        (Interface.CURRENT, "MinBlockPerCu, int Arch, int More", Interface.CURRENT),
        (Interface.CURRENT, "MaxThreadPerBlock, int MinBlockPerCu", Interface.CURRENT),
        (Interface.LATE_2025, "MaxThreadPerBlock, int MinBlockPerCu", Interface.LATE_2025),
        (Interface.MID_2025, "MinBlockPerCu, int Arch", Interface.MID_2025),
    ],
)
def test_unknown_headers_are_assigned_to_the_nearest_interface(
    tmp_path: Path, there: Interface, instead: str, nearest: Interface
) -> None:
    """They are not refused; a template that differs is named, unless it only has additional parameters."""
    launch = write_templates(tmp_path, there) / TEMPLATES["make_kernel"][0]
    launch.write_text(f"template <int {instead}> CK_TILE_HOST auto make_kernel", encoding="utf-8")
    headers = detect_interface(tmp_path)
    assert headers.interface is nearest
    assert [text.split()[0] for text in headers.unlike] == ([] if "More" in instead else ["make_kernel"])


VERSIONS = {
    "include/ck/version.h": "#define CK_VERSION 1.2.0\n",
    "lib/cmake/composable_kernel/composable_kernelConfigVersion.cmake": 'set(PACKAGE_VERSION "1.1.0")\n',
    "CMakeLists.txt": "set(version 1.2.0)\nproject(composable_kernel VERSION ${version} LANGUAGES CXX HIP)\n",
}


@pytest.mark.parametrize("file", VERSIONS)
def test_the_version_is_found_in_each_place(tmp_path: Path, file: str) -> None:
    """It is in a header, in CMake's files of an installation, or in those of the sources; otherwise there is none."""
    write_headers(tmp_path / "include")
    assert detect_interface(tmp_path / "include").version == ""
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(VERSIONS[file], encoding="utf-8")
    assert detect_interface(tmp_path / "include").version in {"1.1.0", "1.2.0"}


def test_a_folder_without_the_headers_is_refused(tmp_path: Path) -> None:
    """An empty folder, CK Tile without GEMMs, and a file instead of the folder are refused."""
    folder = tmp_path / "ck_tile/ops/gemm"
    for step in ("nothing", "no pipelines", "file"):
        if step == "no pipelines":
            folder.mkdir(parents=True)
        elif step == "file":
            (folder / "pipeline").write_text("")
        assert not has_headers(tmp_path)
        with expect_refusal(DeviceError, "no-headers") as caught:
            detect_interface(tmp_path)
        assert "CK_TILE_INCLUDE" in caught.value.hint


def test_headers_without_convolutions_have_no_direction(tmp_path: Path) -> None:
    """They may still support other operations."""
    (tmp_path / "ck_tile/ops/gemm/pipeline").mkdir(parents=True)
    headers = detect_conv(detect_interface(tmp_path))
    assert headers.directions == frozenset()
    assert any(has_values(reason, "mid2025", PLAIN.variant) for reason in missing(PLAIN, headers, GFX942))


def test_a_pipeline_with_a_broken_header_is_unsupported(tmp_path: Path) -> None:
    """Such a file means a broken checkout: its kernels are unsupported, the others work."""
    write_headers(tmp_path)
    (tmp_path / ck_tile.PIPELINE_HEADERS["mem"]).write_bytes(b"\xff")
    assert detect_interface(tmp_path).pipelines == {"basic_v1", "compv3", "compv4"}


REAL_HERE = REAL_KERNELS[interface_here()]
ALL_REAL = sampled((arch, kernel) for arch, kernels in REAL_HERE.items() for kernel in kernels)
compiled = compiles(*((arch, "grouped_conv", kernel_name(kernel)) for arch, kernel in ALL_REAL))


KINDS: dict[Interface, dict[str, set[Any]]] = {
    Interface.MID_2025: {
        "variant": {Direction.FORWARD, Direction.BWD_WEIGHT},
        "pipeline": {"basic_v1", "mem", "compv3", "compv4", "compv5"},
        "split_k": {1, 2, 4},
    },
    Interface.LATE_2025: {
        "variant": set(Direction),
        "pipeline": {"basic_v1", "mem", "compv3", "compv4"},
        "split_k": {1, 4},
        "num_groups_to_merge": {1, 2},
        "split_image": {False, True},
        "two_stage": {False, True},
    },
}


@pytest.mark.parametrize("interface", KINDS)
def test_the_real_kernels_cover_every_kind(interface: Interface) -> None:
    """They cover every direction, pipeline and dtype without duplicates; only compv5's waves cannot be built."""
    everything = [(arch, kernel) for arch, kernels in REAL_KERNELS[interface].items() for kernel in kernels]
    kernels = [kernel for _, kernel in everything]
    assert len(set(everything)) == len(everything) >= 16
    for arch, kernel in everything:
        reasons = CONV_RULES.of_arch(kernel, load_arch(arch))
        assert reasons == () or (kernel.pipeline == "compv5" and len(reasons) == 1 and "waves 1x1x2" in reasons[0])
        assert missing(kernel, HEADERS[interface], load_arch(arch)) == []
    kinds = KINDS[interface] | {
        "scheduler": set(Scheduler),
        "ndim_spatial": {2, 3},
        "dtype": {"fp16", "bf16", "fp32"},
    }
    assert {name: {getattr(kernel, name) for kernel in kernels} for name in kinds} == kinds


@pytest.mark.slow
@compiled
@pytest.mark.parametrize(
    ("arch", "kernel"), ALL_REAL, ids=[f"{arch}-{kernel_name(kernel)}" for arch, kernel in ALL_REAL]
)
def test_a_real_kernel_compiles_and_loads(real_kernels: Real, arch: str, kernel: ConvKernel) -> None:
    """It becomes a library that loads without a GPU, and the compiler reports its resources."""
    check_resources(real_kernels[arch, kernel], load_arch(arch))


@pytest.mark.slow
@compiled
def test_real_kernels_have_their_names_and_distinct_code(real_kernels: Real) -> None:
    """The name in a library is that of its kernel, and no parameter is ignored by ckh's headers."""
    check_names_and_code({key: real_kernels[key] for key in ALL_REAL}, kernel_name)


# A pair of kernels of one tile that differ in the number of buffers.
ONE_BUFFER, TWO_BUFFERS = (
    next(kernel for kernel in REAL_HERE["gfx942"] if kernel.pipeline == pipeline and kernel.tile == (64, 64, 64))
    for pipeline in ("mem", "compv4")
)


@pytest.mark.slow
@compiles(*(("gfx942", "grouped_conv", kernel_name(kernel)) for kernel in (ONE_BUFFER, TWO_BUFFERS)))
def test_two_buffers_take_twice_the_lds(real_kernels: Real) -> None:
    """compv4 uses twice the LDS of mem for the same tile."""
    one, two = (real_kernels["gfx942", kernel].resources for kernel in (ONE_BUFFER, TWO_BUFFERS))
    assert one is not None
    assert two is not None
    assert two.lds_bytes == 2 * one.lds_bytes
