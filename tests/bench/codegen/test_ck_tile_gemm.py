"""Emitted CK Tile GEMM kernels: golden files, missing features of headers, and real compilation."""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.codegen import ck_tile
from ckh.bench.codegen.ck_tile import Interface
from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.compilation.kernel_cache import loadable
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.hip_device import HipDevice
from ckh.bench.isolated.kernel_library import KernelLibrary
from ckh.kernels.pipelines import Scheduler
from ckh.ops.gemm_universal.kernel import kernel_name, parse_kernel_name
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.gemm_universal.measuring.hip import emit
from ckh.ops.gemm_universal.measuring.hip_rules import ELEMENTS, GemmHeaders, detect_gemm, missing
from ckh.ops.gemm_universal.measuring.measured import c_problem as c_gemm_problem
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction
from ckh.schema import Status
from tests.bench.codegen.gemm_headers import CURRENT, LATE_2025, MID_2025
from tests.bench.codegen.real_gemm_kernels import REAL_GEMM_KERNELS
from tests.bench.fake_hipcc import REMARKS, write_headers
from tests.real import Real, built_with, check_names_and_code, check_resources, compiles, interface_here, sampled
from tests.refusals import expect_reasons, has_values

if TYPE_CHECKING:
    from ckh.ops.gemm_universal.kernel import GemmKernel

GOLDEN = Path(__file__).parent / "golden_gemm"
UPDATE = "CKH_UPDATE_GOLDEN"
WHICH = "the CK Tile headers (mid2025)"
GFX942, GFX950 = load_arch("gfx942"), load_arch("gfx950")

# File -> the kernel's name without the common prefix, for headers of mid-2025.
EMITTED = {
    "basic_v1": "fp16_rcr_basic_v1_cshuffle_intrawave_True_True_True_False_64x64x32_2x2x1_32x32x8",
    "mem_interwave_default": "fp16_ccr_mem_default_interwave_True_False_True_False_128x128x64_2x2x1_32x32x16",
    "compv3_rrr": "bf16_rrr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16",
    "compv4_crr": "bf16_crr_compv4_cshuffle_intrawave_True_True_True_False_64x64x32_2x2x1_32x32x8",
    "compv5_fp8": "fp8_rcr_compv5_cshuffle_intrawave_False_False_False_False_64x64x64_1x1x2_32x32x16_vec16_8_4",
    "int8": "int8_rcr_compv3_default_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16",
}
# The same for current headers.
EMITTED_CURRENT = {
    "current_basic_v1_interwave": (
        "fp16_rcr_basic_v1_cshuffle_interwave_True_True_True_False_64x64x32_2x2x1_32x32x8_vec8_4_2"
    ),
    "current_compv4_persistent": "bf16_crr_compv4_cshuffle_intrawave_True_False_True_True_64x64x64_2x2x1_32x32x16",
    "current_compv6": "fp32_rcr_compv6_default_intrawave_False_False_False_False_64x64x32_2x2x1_32x32x8",
    "current_mem_int8": "int8_rcr_mem_default_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16",
}
# The same for headers of late 2025.
EMITTED_LATE = {
    "late_comp_async": "fp16_rcr_comp_async_cshuffle_intrawave_True_True_True_False_128x128x64_2x2x1_32x32x16",
    "late_compv3_persistent": "fp8_ccr_compv3_cshuffle_intrawave_True_True_True_True_64x64x64_2x2x1_32x32x16",
    "late_compv6_widths": "bf16_crr_compv6_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16_vec4_0_4",
}
HEADERS = {**dict.fromkeys(EMITTED, MID_2025), **dict.fromkeys(EMITTED_LATE, LATE_2025)}
HEADERS |= dict.fromkeys(EMITTED_CURRENT, CURRENT)
ALL_EMITTED = EMITTED | EMITTED_LATE | EMITTED_CURRENT


def kernel_of(name: str) -> GemmKernel:
    """The kernel of a name without prefix."""
    return parse_kernel_name(f"gemm_universal_{name}")


PLAIN = kernel_of("fp16_rcr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16")


@pytest.mark.parametrize("name", ALL_EMITTED)
def test_emitted_text_does_not_drift(name: str) -> None:
    """A kernel's source is byte for byte that of the reviewed golden file."""
    path, text = GOLDEN / f"{name}.cpp", emit(kernel_of(ALL_EMITTED[name]), HEADERS[name], GFX942)
    if os.environ.get(UPDATE) == "1":
        path.write_text(text, encoding="utf-8")
    golden = path.read_text(encoding="utf-8") if path.exists() else ""
    assert text == golden, f"{path.name} says otherwise; if that is meant, run this test with {UPDATE}=1"


def test_golden_files_match_the_table() -> None:
    """There are no left-over golden files."""
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.cpp" for name in ALL_EMITTED}


def test_the_name_is_in_the_label() -> None:
    """The label is the common prefix and the full name, in a field of fixed size with room for any name."""
    longest = replace(
        PLAIN, persistent=False, pad_m=False, pad_n=False, pad_k=False, vector_a=8, vector_b=8, vector_c=8
    )
    label = f'label[512] = "{ck_tile.LABEL}{kernel_name(longest)}";'
    assert label in emit(longest, MID_2025, GFX942)
    assert len(label) < 512


def text_of(kernel: GemmKernel) -> str:
    """Source without the line of the label."""
    return "\n".join(line for line in emit(kernel, MID_2025, GFX942).splitlines() if "label" not in line)


def test_every_parameter_is_in_the_source() -> None:
    """Kernels that differ in a single field have different sources, not only in their label."""
    plain = replace(PLAIN, pipeline="mem")
    changes: dict[str, Any] = {
        **dict.fromkeys(("tile_m", "tile_n", "tile_k", "wave_m", "wave_n"), 8),
        **dict.fromkeys(("vector_a", "vector_b", "vector_c"), 4),
        **dict.fromkeys(("pad_m", "pad_n", "pad_k"), False),
        "warp_tile_k": 8,
        "dtype": "bf16",
        "layout": "rrr",
        "pipeline": "compv3",
        "scheduler": Scheduler.INTERWAVE,
        "epilogue": "default",
    }
    texts = [text_of(plain), *(text_of(replace(plain, **{name: value})) for name, value in changes.items())]
    assert len(set(texts)) == len(texts) == 18


@pytest.mark.parametrize(
    ("dtype", "warp_tile", "types"),
    [
        ("fp16", (32, 32, 16), ("ck_tile::half_t", "float", "ck_tile::half_t")),
        ("bf16", (32, 32, 16), ("ck_tile::bf16_t", "float", "ck_tile::bf16_t")),
        ("fp32", (32, 32, 8), ("float", "float", "float")),
        ("fp8", (32, 32, 16), ("ck_tile::fp8_t", "float", "ck_tile::half_t")),
        ("bf8", (32, 32, 16), ("ck_tile::bf8_t", "float", "ck_tile::half_t")),
        ("int8", (32, 32, 16), ("ck_tile::int8_t", "ck_tile::int32_t", "ck_tile::int32_t")),
    ],
)
def test_types_of_operands_sums_and_results(
    dtype: str, warp_tile: tuple[int, int, int], types: tuple[str, str, str]
) -> None:
    """Results have the result dtype of their problems, and integers are summed as integers."""
    m, n, k = warp_tile
    text = emit(replace(PLAIN, dtype=dtype, warp_tile_m=m, warp_tile_n=n, warp_tile_k=k), MID_2025, GFX942)
    for name, spelled in zip(("Element", "Accumulator", "Output"), types, strict=True):
        assert f"using {name} = {spelled};" in text


@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
def test_layouts_have_one_letter_per_operand(layout: str) -> None:
    """The first letter is A's, the second B's: r is row-major, c is column-major."""
    words = {"r": "RowMajor", "c": "ColumnMajor"}
    text = emit(replace(PLAIN, layout=layout), MID_2025, GFX942)
    assert f"using ALayout = {words[layout[0]]};\nusing BLayout = {words[layout[1]]};" in text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vector_a": None}, "the kernel has missing parameters: only complete kernels can be built"),
        ({"suffix": "_odd"}, "the suffix _odd of the name has no known meaning"),
        ({"layout": "rcc"}, "layout rcc is not one of rcr, rrr, crr, ccr"),
        ({"dtype": "fp64"}, "dtype fp64 is not one of fp16, bf16, fp32, fp8, bf8, int8"),
        ({"pipeline": "compv6"}, f"{WHICH} have no pipeline compv6"),
        ({"pipeline": "preshufflev2"}, f"{WHICH} have no pipeline preshufflev2"),
        ({"epilogue": "tdm"}, f"{WHICH} have no epilogue tdm"),
        ({"warp_tile_k": 32}, f"{WHICH} have no 32x32x32 matrix instruction for fp16"),
        ({"dtype": "fp32", "warp_tile_k": 3}, f"{WHICH} have no 32x32x3 matrix instruction for fp32"),
        ({"dtype": "fp32", "warp_tile_m": 16}, f"{WHICH} have no 16x32x16 matrix instruction for fp32"),
        ({"scheduler": Scheduler.INTERWAVE}, f"compv3 of {WHICH} is not interwave"),
        (
            {"persistent": True},
            f"persistent kernels of {WHICH} race: they load a tile into LDS while waves still read the one before",
        ),
        ({"pipeline": "compv4", "persistent": True}, f"compv4 of {WHICH} has no persistent kernels"),
        ({"pipeline": "basic_v1", "persistent": True}, f"basic_v1 of {WHICH} has no persistent kernels"),
        (
            {"pipeline": "basic_v1", "layout": "rrr"},
            f"basic_v1 of {WHICH} reads wrong tiles of operands in which K is not contiguous",
        ),
        (
            {"pipeline": "compv5", "wave_m": 1, "wave_n": 1, "wave_k": 2, "layout": "ccr"},
            f"compv5 of {WHICH} reads wrong tiles of operands in which K is not contiguous",
        ),
        ({"pipeline": "compv5"}, "compv5 computes nothing unless it has waves 1x1x2 in 2 wave groups"),
        ({"wave_k": 2}, f"compv3 of {WHICH} has no waves along K"),
        (
            {"vector_a": 1, "tile_k": 128},
            f"{WHICH} cannot spread 64 lines of 128 elements of A over a block's threads",
        ),
        (
            {"layout": "crr", "tile_m": 192},
            f"{WHICH} cannot spread 64 lines of 192 elements of A over a block's threads",
        ),
        (
            {"layout": "rrr", "tile_n": 192},
            f"{WHICH} cannot spread 64 lines of 192 elements of B over a block's threads",
        ),
        ({"layout": "ccr", "vector_a": 4}, f"{WHICH} transpose A with its native vector width 8 only, not 4"),
        ({"layout": "rrr", "vector_b": 4}, f"{WHICH} transpose B with its native vector width 8 only, not 4"),
        ({"layout": "rrr", "dtype": "fp32"}, f"{WHICH} cannot transpose 4 x 4 elements of B in fp32"),
        ({"layout": "rrr", "dtype": "fp8", "tile_k": 128}, f"{WHICH} cannot transpose 2 x 16 elements of B in fp8"),
        ({"epilogue": "default", "vector_c": 8}, f"the default epilogue of {WHICH} stores single elements"),
    ],
)
def test_features_missing_in_headers_are_reported(changes: dict[str, Any], reason: str) -> None:
    """Each reason alone prevents emission; missing features are never replaced."""
    kernel = replace(PLAIN, **changes)
    assert missing(PLAIN, MID_2025, GFX942) == []
    assert missing(kernel, MID_2025, GFX942) == [reason]
    with pytest.raises(UnsupportedKernelError) as caught:
        emit(kernel, MID_2025, GFX942)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"layout": "ccr", "vector_a": 4, "vector_b": 2}, ""),
        ({"persistent": True}, ""),
        ({"dtype": "fp32", "warp_tile_k": 4, "layout": "rrr"}, ""),
        ({"pipeline": "comp_async"}, ""),
        ({"scheduler": Scheduler.INTERWAVE}, "compv3 of {} is not interwave"),
        ({"pipeline": "comp_async", "persistent": True}, "comp_async of {} has no persistent kernels"),
        (
            {"pipeline": "preshufflev2"},
            "preshufflev2 of {} requires a preshuffled B",
        ),
        ({"pipeline": "basic_v1", "layout": "ccr"}, ""),
        (
            {"pipeline": "compv5", "layout": "ccr", "wave_m": 1, "wave_n": 1, "wave_k": 2},
            "compv5 of {} reads wrong tiles of operands in which K is not contiguous",
        ),
    ],
)
def test_features_missing_in_late_2025_headers_are_reported(changes: dict[str, Any], reason: str) -> None:
    """Headers of late 2025 transpose with any width and run persistent kernels correctly."""
    expected = [reason.format("the CK Tile headers (late2025)")] if reason else []
    assert missing(replace(PLAIN, **changes), LATE_2025, GFX942) == expected


@pytest.mark.parametrize(
    ("changes", "is_built"),
    [
        ({"dtype": "fp16"}, True),
        ({"dtype": "fp16", "warp_tile_k": 8}, True),
        ({"dtype": "bf16"}, False),
        ({"dtype": "fp8"}, True),
        ({"dtype": "fp32", "warp_tile_k": 8}, False),
        ({"dtype": "fp32", "warp_tile_k": 8, "layout": "rcr"}, True),
    ],
)
def test_gfx950_transposes_in_lds_for_some_instructions(changes: dict[str, Any], is_built: bool) -> None:
    """A lane reads 8 bytes at a time, and the headers must have the instruction for that many accesses."""
    kernel = replace(PLAIN, **{"layout": "ccr", **changes})
    m, n, k = kernel.warp_tile
    reason = (
        f"the CK Tile headers (late2025) have no {m}x{n}x{k} matrix instruction for {kernel.dtype} "
        "whose operands gfx950 transposes in LDS"
    )
    assert missing(kernel, LATE_2025, GFX950) == ([] if is_built else [reason])
    assert missing(kernel, LATE_2025, GFX942) == []


@pytest.mark.parametrize("headers", [MID_2025, LATE_2025])
@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({}, ("2", "3")),
        ({"tile_m": 320}, ("2", "5")),
        ({"tile_m": 256}, ()),
        ({"tile_m": 64}, ()),
        ({"epilogue": "default"}, ()),
        ({"vector_c": 4}, ()),
        ({"dtype": "fp32", "warp_tile_k": 16}, ()),
        ({"warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16, "tile_m": 384}, ()),
    ],
)
def test_odd_numbers_of_instructions_along_m_are_not_stored_in_pairs(
    headers: GemmHeaders, changes: dict[str, Any], values: tuple[str, ...]
) -> None:
    """A lane has 4 results of a 16x16 instruction and stores 8 of 16 bits, so that two instructions are stored at once.

    CK Tile's kernel of three computes half of C wrongly, as its execution on the emulated GPU shows.
    """
    kernel = replace(PLAIN, tile_m=192, wave_m=4, wave_n=1, warp_tile_m=16, warp_tile_n=16, warp_tile_k=32)
    reasons = [item for item in missing(replace(kernel, **changes), headers, GFX942) if "at once" in item]
    assert [has_values(reason, *values) for reason in reasons] == [True] * bool(values)


def test_basic_v1_does_not_support_lds_transposition() -> None:
    """On gfx950 it is refused in all layouts except the one without transposition."""
    kernel = replace(PLAIN, pipeline="basic_v1")
    assert missing(kernel, LATE_2025, GFX950) == []
    reasons = missing(replace(kernel, layout="rrr"), LATE_2025, GFX950)
    expect_reasons(reasons, ("basic_v1", "late2025", "gfx950"))


def test_all_reasons_are_reported_at_once() -> None:
    """A kernel with several missing features reports all of them."""
    kernel = replace(PLAIN, dtype="fp64", pipeline="basic_v1", layout="crr", persistent=True, epilogue="tdm")
    with pytest.raises(UnsupportedKernelError) as caught:
        emit(kernel, MID_2025, GFX942)
    assert str(caught.value).count("; ") == 3


def test_headers_without_the_kernel_are_refused() -> None:
    """Older headers have another GEMM kernel template."""
    expect_reasons(missing(PLAIN, replace(MID_2025, has_kernel=False), GFX942), (WHICH, "GEMM"))


@pytest.mark.parametrize("pipeline", ["basic_v1", "mem", "compv3", "compv4"])
def test_a_missing_pipeline_is_refused(pipeline: str) -> None:
    """It is refused although ckh's templates support it."""
    bare = replace(MID_2025, common=replace(MID_2025.common, pipelines=frozenset()))
    assert missing(replace(PLAIN, pipeline=pipeline), bare, GFX942) == [f"{WHICH} have no pipeline {pipeline}"]


def test_features_are_read_from_headers(tmp_path: Path) -> None:
    """Missing or unreadable files provide nothing; matrix instructions are those of the dispatcher."""
    common = ck_tile.detect_interface(write_headers(tmp_path))
    empty: frozenset[Any] = frozenset()
    nothing = GemmHeaders(
        common,
        has_kernel=False,
        epilogues=empty,
        interwave=empty,
        persistent=empty,
        warp_gemms=empty,
        races_between_tiles=True,
    )
    assert detect_gemm(common) == nothing
    contents = {
        "ops/gemm/kernel/universal_gemm_kernel.hpp": b"struct UniversalGemmKernel;",
        "ops/epilogue/cshuffle_epilogue.hpp": b"struct CShuffleEpilogue;",
        "ops/epilogue/default_2d_epilogue.hpp": b"\xff\xfe",
        "ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_mem.hpp": b"struct PipelineImpl<GemmPipelineScheduler::Interwave>",
        "ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v3.hpp": b"static constexpr bool UsePersistentKernel = true;",
        "ops/gemm/warp/warp_gemm_dispatcher.hpp": (
            b"WarpGemmMfmaDispatcher<ck_tile::half_t, ck_tile::half_t, float, 32, 32,  8, false>\n"
            b"WarpGemmMfmaDispatcher<ck_tile::half_t, ck_tile::half_t, float, 16, 16, 16, true>\n"
            b"WarpGemmMfmaDispatcher<ck_tile::fp8_t, ck_tile::bf8_t, float, 32, 32, 16, false>\n"
            b"WarpGemmMfmaDispatcher<ck_tile::int8_t, ck_tile::int8_t, ck_tile::int32_t, 32, 32,  16, false>\n"
        ),
    }
    for name, content in contents.items():
        path = tmp_path / "ck_tile" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert detect_gemm(common) == GemmHeaders(
        common=common,
        has_kernel=True,
        epilogues=frozenset({"cshuffle"}),
        interwave=frozenset({"mem"}),
        persistent=frozenset({"compv3"}),
        warp_gemms=frozenset({("ck_tile::half_t", (32, 32, 8)), ("ck_tile::int8_t", (32, 32, 16))}),
        races_between_tiles=True,
    )


def test_the_device_emits_gemm_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`HipDevice.emit` emits them for its headers, which support nothing here."""
    monkeypatch.setenv("HIPCC", "true")
    device = HipDevice(DeviceOptions("gfx942", ck_include=str(write_headers(tmp_path))))
    with pytest.raises(UnsupportedKernelError, match="GEMM"):
        device.emit(PLAIN)


def test_resources_of_gemm_kernels_are_parsed(tmp_path: Path) -> None:
    """Their functions are named after CK Tile's class; other messages are ignored."""
    messages = REMARKS.replace("@scratch@", "0")
    gemm = messages.replace("33GroupedConvolutionForwardKernel", "19UniversalGemmKernel")
    device = HipDevice(DeviceOptions("gfx942"))
    convolution = conv_pool(Direction.FORWARD, load_arch("gfx942"), dtype="fp16")[0]
    pairs = [
        (convolution, messages),
        (PLAIN, gemm),
        (PLAIN, messages),
        (convolution, gemm),
        (PLAIN, gemm.replace("19Universal", "11Other")),
    ]
    binaries = [device.inspect(kernel, "", text, b"") for kernel, text in pairs]  # type: ignore[arg-type] # of two operations
    result = [None if binary is None else binary.resources for binary in binaries]
    assert result[0] == result[1] is not None
    assert result[2:] == [None] * 3


ALL_REAL = sampled(
    (arch, kernel) for arch, kernels in REAL_GEMM_KERNELS[interface_here()].items() for kernel in kernels
)
compiled = compiles(*((arch, "gemm_universal", kernel_name(kernel)) for arch, kernel in ALL_REAL))
KINDS: dict[Interface, dict[str, set[Any]]] = {
    Interface.MID_2025: {
        "pipeline": {"basic_v1", "mem", "compv3", "compv4", "compv5"},
        "scheduler": set(Scheduler),
        "layout": {"rcr", "rrr", "crr", "ccr"},
        "dtype": set(ELEMENTS),
        "epilogue": {"cshuffle", "default"},
        "persistent": {False},
        "pad_k": {True, False},
        "vector_a": {0, 8},
    },
    Interface.LATE_2025: {
        "pipeline": {"basic_v1", "mem", "compv3", "compv4", "compv5", "compv6", "comp_async"},
        "scheduler": set(Scheduler),
        "layout": {"rcr", "rrr", "crr", "ccr"},
        "dtype": set(ELEMENTS),
        "epilogue": {"cshuffle", "default"},
        "persistent": {True, False},
        "pad_k": {True, False},
        "vector_a": {0, 4},
    },
}


@pytest.mark.parametrize("interface", KINDS)
def test_the_real_kernels_cover_every_kind(interface: Interface) -> None:
    """They cover every pipeline, layout, dtype and option without duplicates; only compv5's waves cannot be built."""
    everything = [(arch, kernel) for arch, kernels in REAL_GEMM_KERNELS[interface].items() for kernel in kernels]
    kernels = [kernel for _, kernel in everything]
    assert len(set(kernels)) == len(kernels) >= 10
    kinds = KINDS[interface]
    assert {name: {getattr(kernel, name) for kernel in kernels} for name in kinds} == kinds
    for arch, kernel in everything:
        reasons = GEMM_RULES.of_arch(kernel, load_arch(arch))
        assert reasons == () or (kernel.pipeline == "compv5" and len(reasons) == 1 and "waves 1x1x2" in reasons[0])


@pytest.mark.slow
@compiled
@pytest.mark.parametrize(
    ("arch", "kernel"), ALL_REAL, ids=[f"{arch}-{kernel_name(kernel)}" for arch, kernel in ALL_REAL]
)
def test_a_real_kernel_compiles_and_loads(real_kernels: Real, arch: str, kernel: GemmKernel) -> None:
    """It becomes a library that loads without a GPU, and the compiler reports its resources."""
    check_resources(real_kernels[arch, kernel], load_arch(arch))


@pytest.mark.slow
@compiles()
def test_gfx950_adds_to_the_compilers_own_bf16() -> None:
    """Split K compiles with CK Tile's element type since HIP 7, whichever HIP headers are installed."""
    if interface_here() is not Interface.LATE_2025:
        pytest.skip("the headers are not of late 2025")
    kernel = kernel_of("bf16_rcr_compv3_cshuffle_intrawave_True_True_True_False_32x32x32_1x2x1_16x16x16")
    hipcc = f"{os.environ['HIPCC']} -DCK_TILE_USE_LLVM_BUILTIN_BF16=1"
    report = built_with(DeviceOptions("gfx950", hipcc=hipcc), [kernel])[kernel]
    assert (report.status, report.message) == (Status.OK, "")


@pytest.mark.slow
@compiled
def test_real_kernels_have_their_names_and_distinct_code(real_kernels: Real) -> None:
    """The name in a library is that of its kernel, and no two have the same code."""
    check_names_and_code({key: real_kernels[key] for key in ALL_REAL}, kernel_name)


BASIC = "fp16_rcr_basic_v1_cshuffle_intrawave_True_True_True_False_64x64x32_2x2x1_32x32x8"
DEEP = "bf16_rrr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_32x32x16"
DIRECT = "fp32_rcr_compv3_default_intrawave_True_True_True_False_64x64x32_2x2x1_32x32x8"
UNPADDED = "bf16_rcr_compv4_default_intrawave_False_False_False_False_64x64x32_2x2x1_16x16x16"
# Reason for which a compv4 kernel without padding of K is refused.
HERE = interface_here()
ONE_TILE = {Interface.MID_2025: "compv4 without padding of K reads beyond it if it has 1 or 3 tiles"}.get(
    interface_here()
)
THREE_TILES = {
    Interface.MID_2025: ONE_TILE,
    Interface.LATE_2025: "a pipeline with two buffers reads beyond a K that is not padded if it has 3 tiles",
}.get(HERE)


REFUSED = (
    # M, N, K, parts of K; tile and warp tile along K are 32 and 8, 64 and 16, 32 and 8, 32 and 16.
    (BASIC, (100, 72, 136, 1), None),
    (BASIC, (100, 72, 136, 3), None),
    (BASIC, (100, 72, 132, 1), "CK Tile's IsSupportedArgument refuses it"),
    (BASIC, (1 << 15, 1 << 15, 64, 1), "a matrix is too large for 32-bit offsets"),
    (BASIC, (64, 1 << 26, 32, 1), "a matrix is too large for 32-bit offsets"),
    (DEEP, (100, 72, 320, 1), None),
    (DEEP, (100, 72, 320, 2), "parts of K would be added to bf16 rows beyond the end of C"),
    (DEEP, (128, 72, 320, 2), None),
    (
        DEEP,
        (128, 72, 144, 2),
        "split-K needs a last part whose main loop runs and ends as that of the others",
    ),
    (DEEP, (128, 72, 16, 2), "split-K leaves nothing for the last part"),
    (DEEP, (64, 72, 1 << 21, 1 << 16), "K is split into more than 2^16 - 1 parts"),
    (DIRECT, (99, 71, 128, 2), None),
    (UNPADDED, (128, 64, 64, 1), None),
    (UNPADDED, (128, 64, 160, 1), None),
    (UNPADDED, (128, 64, 32, 1), ONE_TILE),
    (UNPADDED, (128, 64, 96, 1), THREE_TILES),
    (UNPADDED, (128, 60, 64, 1), "CK Tile's IsSupportedArgument refuses it"),
    (UNPADDED, (128, 64, 128, 2), "parts of K cannot be added to 16-bit results that are stored one by one"),
)
REFUSING = [
    (arch, kernel)
    for arch, kernels in REAL_GEMM_KERNELS[HERE].items()
    for kernel in kernels
    if kernel in set(sampled(map(kernel_of, dict.fromkeys(name for name, *_ in REFUSED))))
]


@pytest.mark.slow
@compiles(*((arch, "gemm_universal", kernel_name(kernel)) for arch, kernel in REFUSING))
@pytest.mark.parametrize(
    ("arch", "kernel", "sizes", "reason"),
    [
        (arch, kernel, sizes, reason)
        for name, sizes, reason in REFUSED
        for arch, kernel in REFUSING
        if kernel == kernel_of(name)
    ],
)
def test_real_kernels_refuse_problems_with_wrong_results(
    real_kernels: Real, arch: str, kernel: GemmKernel, sizes: tuple[int, int, int, int], reason: str | None
) -> None:
    """A problem with a wrong result is refused before the launch, which can be tested without a GPU."""
    m, n, k, split_k = sizes
    problem = c_gemm_problem(GemmProblem(m, n, k, split_k=split_k))
    result = KernelLibrary(loadable(real_kernels[arch, kernel].library)).unsupported(ctypes.byref(problem))
    assert (None if result is None else result.decode()) == reason
