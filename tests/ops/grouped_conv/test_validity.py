"""Validity: every rule is broken once, on its own where possible, with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import ArchSpec, load_arch
from ckh.kernels.pipelines import Scheduler
from ckh.ops.grouped_conv.kernel import parse_kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.kernels.variants import FILTER1X1_PAD0, FILTER1X1_STRIDE1_PAD0, FILTER3X3
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.refusals import expect_reasons, expect_values, has_values

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.kernel import ConvKernel


def kernel_on(arch: ArchSpec, direction: Direction = Direction.FORWARD, **changes: Any) -> ConvKernel:
    """A basic_v1 kernel of tile 64x64x64 with waves 4,1,1, with the given changes."""
    plain = next(k for k in conv_pool(direction, arch) if (k.tile_m, k.tile_n, k.tile_k) == (64, 64, 64))
    return replace(plain, **changes)


def problem_on(arch: ArchSpec, direction: Direction = Direction.FORWARD, **sizes: Any) -> ConvProblem:
    """A 3x3 convolution of 64 channels, with the given changes."""
    plain: dict[str, Any] = {"n": 2, "c": 64, "k": 64, "g": 1, "hi": 28, "wi": 28, "y": 3, "x": 3}
    return ConvProblem(variant=direction, dtype=arch.default_dtype, **{**plain, "pad_h": 1, "pad_w": 1, **sizes})


def depthwise_on(arch: ArchSpec, direction: Direction) -> ConvProblem:
    return problem_on(arch, direction, c=64, k=64, g=64)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "fp64"}, "does not run fp64"),
        ({"layout": "ngchw"}, "need layout nhwgc, not ngchw"),
        ({"ndim_spatial": 1}, "1D convolutions are not supported"),
        ({"pipeline": "wavelet"}, "wavelet is not a pipeline of forward kernels"),
        ({"pipeline": "comp_async", "double_smem_buffer": True}, "gfx942 does not have the pipeline comp_async"),
        ({"pipeline": "compv3", "scheduler": Scheduler.INTERWAVE}, "compv3 cannot be interwave"),
        ({"pipeline": "compv3", "scheduler": Scheduler.INTERWAVE}, "cshuffle and interwave do not work together"),
        ({"pipeline": "compv4"}, "compv4 needs a double smem buffer"),
        ({"pipeline": "wavelet", "double_smem_buffer": True}, "wavelet has a single buffer in LDS"),
        ({"tile_m": 512, "tile_n": 512}, "take 131072 bytes of LDS, basic_v1 has 65536 on gfx942"),
        ({"tile_n": 8, "warp_tile_n": 8}, "tile_n 8 is less than the 16"),
        ({"tile_n": 72, "warp_tile_n": 8}, "tile_n 72 is not a multiple of the 16"),
        ({"tile_k": 24, "warp_tile_k": 8}, "tile_k 24 is not a multiple of the 16"),
        ({"wave_m": 8, "wave_n": 2}, "does not have the waves 8x2x1"),
        ({"warp_tile_k": 64}, "has no 16x16x64 warp tile for bf16"),
        ({"tile_m": 96}, "tile_m 96 is not a multiple of 4 waves x warp tile 16 = 64"),
        ({"wave_k": 0}, "must be positive along k"),
        ({"vector_b": 3}, "vector_b must be 1 or even, not 3"),
        ({"vector_c": 0}, "vector_c must be 1 or even, not 0"),
        ({"epilogue": "tdm"}, "does not have the epilogue tdm"),
        ({"specialization": "filter5x5"}, "unknown specialization filter5x5"),
        ({"explicit_gemm": True}, "explicit GEMM needs the specialization filter1x1_stride1_pad0, not default"),
        ({"two_stage": True}, "only bwd_weight kernels can have two stages"),
        ({"streamk": "tree"}, "only bwd_weight kernels can use stream-K"),
        ({"streamk": "atomic"}, "unknown stream-K strategy atomic"),
        ({"streamk": "tree", "two_stage": True}, "stream-K and two stages exclude each other"),
        ({"streamk_persistent": True}, "only stream-K kernels can be persistent"),
        ({"split_k": 2}, "only bwd_weight kernels can split K, not forward"),
        ({"split_k": 0}, "split_k must be 1 or more, not 0"),
        ({"split_k": 129}, "bf16 results can be added from 128 parts at most, not 129"),
        ({"split_k": 2, "vector_c": 1}, "atomic addition of bf16 needs an even vector_c, not 1"),
        ({"split_k": 2, "streamk": "tree"}, "split-K and stream-K exclude each other"),
        ({"num_groups_to_merge": 0}, "num_groups_to_merge must be 1 or more"),
        ({"num_wave_groups": 0}, "num_wave_groups must be 1 or more"),
        ({"pipeline": "compv5"}, "compv5 computes nothing unless it has waves 1x1x2 in 2 wave groups"),
        ({"block_per_cu": 0}, "block_per_cu must be 1 or more"),
        ({"pipeline": "compv6", "tile_n": 16, "vector_b": 16}, "compv6 needs a vector of B for each of 256 threads"),
    ],
)
def test_each_architecture_rule_has_a_reason(changes: dict[str, Any], words: str) -> None:
    """A kernel that breaks the rule is rejected with a reason that states the value and the limit."""
    arch = load_arch("gfx942")
    assert CONV_RULES.check(kernel_on(arch), arch) == []
    reasons = CONV_RULES.check(kernel_on(arch, **changes), arch)
    assert any(words in reason for reason in reasons), reasons


def test_all_broken_rules_are_given() -> None:
    """All reasons are returned, not only the first."""
    arch = load_arch("gfx942")
    kernel = kernel_on(arch, pipeline="compv4", scheduler=Scheduler.INTERWAVE, wave_m=8, vector_a=3, two_stage=True)
    text = "\n".join(CONV_RULES.check(kernel, arch, problem_on(arch, c=60)))
    for words in ("cannot be interwave", "needs a double smem", "waves 8x1x1", "vector_a", "two stages", "C/G = 60"):
        assert words in text


def test_backward_rejects_compv5_and_bwd_data_cannot_merge() -> None:
    """Forward allows what these directions reject."""
    arch, host = load_arch("gfx950"), load_arch("host")
    for direction in (Direction.BWD_DATA, Direction.BWD_WEIGHT):
        kernel = kernel_on(host, direction, pipeline="compv5")
        expect_reasons(CONV_RULES.check(kernel, host), (direction, "compv5"))
    assert CONV_RULES.check(kernel_on(host, pipeline="compv5"), host) == []
    assert CONV_RULES.check(kernel_on(arch, num_groups_to_merge=2), arch) == []
    merged = kernel_on(arch, Direction.BWD_DATA, num_groups_to_merge=2)
    expect_reasons(CONV_RULES.check(merged, arch), ("bwd_data", "merge"))


@pytest.mark.parametrize("arch", ["gfx908", "gfx942", "gfx950", "gfx1100"])
def test_compv5_needs_two_groups_of_waves_along_k_on_a_gpu(arch: str) -> None:
    """Executed with other waves or one group it writes nothing or NaN; the host stages differently."""
    spec = load_arch(arch)
    tile = parse_kernel_name("grouped_conv_fwd_fp16_nhwgc_2d_compv5_cshuffle_intrawave_64x64x64_1x1x2_32x32x16")
    reason = "compv5 computes nothing unless it has waves 1x1x2 in 2 wave groups"
    assert reason not in CONV_RULES.check(replace(tile, num_wave_groups=2), spec)
    wrongs: tuple[dict[str, Any], ...] = ({}, {"num_wave_groups": 2, "wave_k": 1}, {"num_wave_groups": 2, "wave_m": 2})
    for wrong in wrongs:
        assert reason in CONV_RULES.check(replace(tile, **wrong), spec)
    other = replace(tile, pipeline="compv3", wave_m=4, wave_k=1)
    more = "compv3 does not step through wave groups, so it is wrong in several"
    assert more in CONV_RULES.check(replace(other, num_wave_groups=2), spec)
    assert not any("wave groups" in reason for reason in CONV_RULES.check(other, spec))
    assert CONV_RULES.check(kernel_on(load_arch("host"), pipeline="compv5"), load_arch("host")) == []


def test_async_pipelines_run_on_gfx950() -> None:
    """comp_async with its double buffer is valid where the hardware has asynchronous loads."""
    arch = load_arch("gfx950")
    assert CONV_RULES.check(kernel_on(arch, pipeline="comp_async", double_smem_buffer=True), arch) == []
    assert CONV_RULES.check(kernel_on(arch, pipeline="basic_async_v1"), arch) == []
    expect_reasons(CONV_RULES.check(kernel_on(arch, pipeline="comp_async"), arch), ("comp_async", "double"))


def test_options_of_bwd_weight() -> None:
    """Two stages, stream-K and merging are for bwd_weight; gfx908 has no stream-K, the host none of them."""
    direction = Direction.BWD_WEIGHT
    options: tuple[dict[str, Any], ...] = ({"two_stage": True}, {"streamk": "linear"}, {"num_groups_to_merge": 2})
    for changes in options:
        gfx942, host = load_arch("gfx942"), load_arch("host")
        assert CONV_RULES.check(kernel_on(gfx942, direction, **changes), gfx942) == []
        (reason,) = CONV_RULES.check(kernel_on(host, direction, **changes), host)
        assert "host" in reason
    gfx908 = load_arch("gfx908")
    expect_reasons(CONV_RULES.check(kernel_on(gfx908, direction, streamk="tree"), gfx908), ("gfx908", "stream-K"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_wave_groups": 2}, "host does not offer more than one wave group"),
        ({"epilogue": "default"}, "host does not have the epilogue default"),
        ({"explicit_gemm": True, "specialization": FILTER1X1_STRIDE1_PAD0}, "host does not offer explicit GEMM"),
        ({"pipeline": "comp_async", "double_smem_buffer": True}, "host does not have the pipeline comp_async"),
        ({"dtype": "bf16"}, "host does not run bf16 (it runs fp32)"),
    ],
)
def test_features_missing_on_the_host(changes: dict[str, Any], words: str) -> None:
    """The host rejects by its own limits, for exactly that reason."""
    host = load_arch("host")
    assert CONV_RULES.check(kernel_on(host, **changes), host) == [words]


def test_rdna_has_no_waves_for_the_ten_tiles() -> None:
    """The table is CDNA's: on gfx1100 each kernel is rejected for its waves, and fp32 for its dtype."""
    gfx1100 = load_arch("gfx1100")
    kernel = kernel_on(load_arch("gfx942"))
    expect_reasons(CONV_RULES.check(kernel, gfx1100), ("gfx1100", "4x1x1", "2x4x1, 1x8x1, 8x1x1, 4x2x1"))
    reasons = CONV_RULES.check(replace(kernel, dtype="fp32"), gfx1100)
    assert any(has_values(reason, "gfx1100", "fp32", "fp16, bf16, int8") for reason in reasons)


def test_incomplete_kernel_is_refused_and_still_checked() -> None:
    """Parameters of a short name are checked; missing ones are named."""
    kernel = parse_kernel_name("grouped_conv_bwd_data_bf16_2d_64x64x64_compv5_interwave")
    reasons = CONV_RULES.check(kernel, load_arch("gfx950"))
    expect_values(reasons[0], "wave_m, ")
    assert "streamk" not in reasons[0]
    assert any(has_values(reason, "bwd_data", "compv5") for reason in reasons)


@pytest.mark.parametrize(
    ("direction", "sizes", "expected"),
    [
        (Direction.FORWARD, {"c": 64, "k": 64}, []),
        (Direction.FORWARD, {"c": 60, "k": 64}, ["C/G = 60 is not a multiple of vector_b = 8"]),
        (Direction.FORWARD, {"c": 64, "k": 60}, ["K/G = 60 is not a multiple of vector_c = 8"]),
        (Direction.FORWARD, {"c": 64, "k": 128, "g": 16}, [f"C/G = 4 is not a multiple of vector_b = {8}"]),
        (Direction.BWD_DATA, {"c": 64, "k": 60}, []),
        (Direction.BWD_DATA, {"c": 64, "k": 62}, ["K/G = 62 is not a multiple of vector_a = 4"]),
        (Direction.BWD_WEIGHT, {"c": 64, "k": 60}, []),
        (
            Direction.BWD_WEIGHT,
            {"c": 60, "k": 64},
            [f"C/G = 60 is not a multiple of vector_{operand} = 8" for operand in "bc"],
        ),
    ],
)
def test_vector_divisibility(direction: Direction, sizes: dict[str, int], expected: list[str]) -> None:
    """Forward requires C/G and K/G divisible by 8; backward C/G by 8 and K/G by 4."""
    arch = load_arch("gfx942")
    assert CONV_RULES.of_problem(kernel_on(arch, direction), arch, problem_on(arch, direction, **sizes)) == expected


@pytest.mark.parametrize("direction", list(Direction))
def test_depthwise_is_refused_by_all_on_gfx942_and_by_none_on_host(direction: Direction) -> None:
    """One channel per group fits no vector of a GPU kernel; the host's kernels mask the remainder."""
    gfx942, host = load_arch("gfx942"), load_arch("host")
    pool = conv_pool(direction, gfx942)
    assert (
        sum(bool(CONV_RULES.check(kernel, gfx942, depthwise_on(gfx942, direction))) for kernel in pool) == len(pool) > 0
    )
    pool = conv_pool(direction, host)
    assert sum(bool(CONV_RULES.check(kernel, host, depthwise_on(host, direction))) for kernel in pool) == 0


def test_kernel_and_problem_must_have_the_same_kind() -> None:
    """Direction, dtype, dimensions and layout are compared independently."""
    arch = load_arch("gfx942")
    problem = replace(problem_on(arch, Direction.BWD_DATA), ndim=3, layout="ndhwgc", dtype="fp16")
    expect_reasons(
        CONV_RULES.of_problem(kernel_on(arch), arch, problem),
        ("forward", "bwd_data"),
        ("bf16", "fp16"),
        ("2D", "3D"),
        ("layout nhwgc", "layout ndhwgc"),
    )


def test_forward_kernels_that_merge_groups_accept_nothing_with_vectors_of_eight() -> None:
    """Merging requires one channel per group and vector B eight: AMD's `_gm2` forward kernels support no problem."""
    arch = load_arch("gfx942")
    kernel = kernel_on(arch, num_groups_to_merge=2)
    reasons = CONV_RULES.of_problem(kernel, arch, depthwise_on(arch, Direction.FORWARD))
    expect_reasons(reasons, ("C/G = 1", "vector_b = 8"))
    reasons = CONV_RULES.of_problem(kernel, arch, problem_on(arch, c=64, k=64, g=8))
    expect_reasons(reasons, ("forward", "C/G = 1", 8))
    assert CONV_RULES.of_problem(replace(kernel, vector_b=1), arch, depthwise_on(arch, Direction.FORWARD)) == []
    odd = problem_on(arch, c=9, k=9, g=9)
    reasons = CONV_RULES.of_problem(replace(kernel, vector_b=1), arch, odd)
    expect_reasons(reasons, ("G = 9", "vector_c = 8"), ("G = 9", 2, "merge"))


def test_bwd_weight_merges_even_groups() -> None:
    """Two groups are merged if their number is even, whatever the channels."""
    arch, direction = load_arch("gfx942"), Direction.BWD_WEIGHT
    kernel = kernel_on(arch, direction, num_groups_to_merge=2)
    assert CONV_RULES.of_problem(kernel, arch, problem_on(arch, direction, c=64, k=64, g=4)) == []
    reasons = CONV_RULES.of_problem(kernel, arch, problem_on(arch, direction, c=72, k=72, g=3))
    expect_reasons(reasons, ("G = 3", 2, "merge"))


@pytest.mark.parametrize(
    ("specialization", "sizes", "missing"),
    [
        (FILTER1X1_PAD0, {}, ["a 1x1 filter", "no padding"]),
        (FILTER1X1_PAD0, {"y": 1, "x": 1, "pad_h": 0, "pad_w": 0, "stride_h": 2}, []),
        (FILTER1X1_STRIDE1_PAD0, {"y": 1, "x": 1, "pad_h": 0, "pad_w": 0, "stride_h": 2}, ["stride 1"]),
        (FILTER1X1_STRIDE1_PAD0, {"y": 1, "x": 1, "pad_h": 0, "pad_w": 0}, []),
        (FILTER3X3, {}, ["C/G = 1"]),
        (FILTER3X3, {"g": 64}, []),
        (FILTER3X3, {"g": 64, "x": 1}, ["a 3x3 filter"]),
    ],
)
def test_specializations(specialization: str, sizes: dict[str, Any], missing: list[str]) -> None:
    """A specialised kernel supports only its own kind of problems, on the host as on a GPU."""
    host = load_arch("host")
    kernel = kernel_on(host, specialization=specialization)
    reasons = CONV_RULES.of_problem(kernel, host, problem_on(host, **sizes))
    assert reasons == [f"the specialization {specialization} needs {words}" for words in missing]


def test_compv6_in_bwd_weight_needs_four_iterations_over_k() -> None:
    """N * Ho * Wo of less than four tiles of K is rejected on a GPU and not on the host."""
    direction = Direction.BWD_WEIGHT
    for name, expected in (("gfx942", ["compv6 in bwd_weight needs 4 iterations over K, 192 gives 3"]), ("host", [])):
        arch = load_arch(name)
        kernel = kernel_on(arch, direction, pipeline="compv6")
        assert CONV_RULES.of_problem(kernel, arch, problem_on(arch, direction, n=3, hi=8, wi=8)) == expected
        assert CONV_RULES.of_problem(kernel, arch, problem_on(arch, direction, n=4, hi=8, wi=8)) == []


@pytest.mark.parametrize(
    ("pipeline", "sizes", "values"),
    [
        # Taps 2 x 2, 2 x 1, 1 x 2 and 1 of 256 channels, 64 of which are a tile: 16 to 4 iterations.
        ("compv3", {"stride_h": 2, "stride_w": 2}, None),
        ("mem", {"stride_h": 2, "stride_w": 2}, (4, 16)),
        ("compv4", {"stride_h": 2, "stride_w": 2}, (4, 16)),
        ("basic_v1", {"stride_h": 2, "stride_w": 2}, None),
        ("mem", {"stride_h": 1, "stride_w": 1}, None),
        ("mem", {"stride_h": 2, "y": 4, "pad_h": 0}, None),  # two taps each
        ("compv3", {"k": 128, "stride_h": 2, "stride_w": 2}, (2, 8)),  # the shortest has no main loop
        ("mem", {"y": 1, "x": 1, "pad_h": 0, "pad_w": 0, "stride_h": 2, "stride_w": 2}, None),
        ("mem", {"stride_h": 3, "stride_w": 1, "dilation_h": 2, "k": 64, "pad_h": 2}, (3, 9)),
        ("basic_v1", {"y": 13, "x": 11, "stride_h": 12, "stride_w": 11, "pad_h": 6, "pad_w": 5}, (132, 128)),
        ("compv6", {"y": 1, "x": 1, "pad_h": 0, "pad_w": 0, "k": 64}, (64, 1, 64)),
    ],
)
def test_strided_backward_data_that_launches_refuse(
    pipeline: str, sizes: dict[str, Any], values: tuple[int, ...] | None
) -> None:
    """Its GEMMs must end alike and be countable, and compv6 needs a second iteration."""
    arch = load_arch("gfx942")
    problem = problem_on(arch, Direction.BWD_DATA, **{"k": 256, **sizes})
    reasons = CONV_RULES.of_problem(kernel_on(arch, Direction.BWD_DATA, pipeline=pipeline), arch, problem)
    assert len(reasons) == (values is not None), reasons
    if values is not None:
        expect_values(reasons[0], *values)


@pytest.mark.parametrize(
    ("arch_name", "parts", "images", "is_refused"),
    # An image has 64 pixels, as has a tile of K: images per part are iterations per part.
    [
        ("gfx942", 4, 8, False),
        ("gfx942", 4, 9, True),
        ("gfx942", 4, 12, True),
        ("gfx942", 4, 13, False),
        ("gfx942", 1, 3, False),
        ("host", 4, 12, False),
    ],
)
def test_compv4_in_bwd_weight_overruns_parts_of_three_iterations(
    arch_name: str, parts: int, images: int, is_refused: bool
) -> None:
    """On a GPU three iterations over a part of K become five; without split K the excess adds zeros."""
    arch = load_arch(arch_name)
    kernel = kernel_on(arch, Direction.BWD_WEIGHT, pipeline="compv4", double_smem_buffer=True, split_k=parts, tile_k=64)
    reasons = CONV_RULES.of_problem(kernel, arch, problem_on(arch, Direction.BWD_WEIGHT, n=images, hi=8, wi=8))
    assert bool(reasons) is is_refused


@pytest.mark.parametrize(
    ("direction", "sizes", "sized"),
    [
        # 64 channels of 4096 x 4096 in bf16 are 2^31 bytes.
        (Direction.FORWARD, {"n": 4, "hi": 4096, "wi": 4095, "k": 8}, {}),
        (Direction.FORWARD, {"n": 1, "hi": 4096, "wi": 4096, "k": 8}, {"image of the input": 2**31}),
        (Direction.FORWARD, {"n": 1, "hi": 4096, "wi": 4096, "c": 8}, {"image of the output": 2**31}),
        (Direction.BWD_DATA, {"n": 1, "hi": 4096, "wi": 4096, "k": 8}, {"image of the input": 2**31}),
        (Direction.BWD_WEIGHT, {"n": 4, "hi": 2048, "wi": 2048, "k": 8}, {"input": 2**31}),
        (Direction.BWD_WEIGHT, {"n": 3, "hi": 2048, "wi": 2048}, {}),
        (Direction.FORWARD, {"c": 2**15, "k": 2**15, "y": 1, "x": 1, "pad_h": 0, "pad_w": 0}, {"filter": 2**31}),
    ],
)
def test_tensors_beyond_32_bit_offsets(direction: Direction, sizes: dict[str, int], sized: dict[str, int]) -> None:
    """CK Tile splits the batch but no image; backward weight splits nothing; GPU kernels reject larger tensors."""
    arch, host = load_arch("gfx942"), load_arch("host")
    problem = problem_on(arch, direction, **sizes)
    reasons = [f"the {name} has {size} bytes; CK Tile's offsets reach {2**31 - 1}" for name, size in sized.items()]
    for kernel in (kernel_on(arch, direction), kernel_on(arch, direction, split_image=True)):
        assert CONV_RULES.of_problem(kernel, arch, problem) == reasons
    assert not CONV_RULES.of_problem(kernel_on(host, direction), host, problem_on(host, direction, **sizes))


def test_explicit_gemms_and_two_stages_address_less() -> None:
    """An explicit GEMM takes the batch as a whole, forward as if it were fp32; two stages have an fp32 filter."""
    arch = load_arch("gfx942")
    plain = {"y": 1, "x": 1, "pad_h": 0, "pad_w": 0, "k": 8}
    explicit = {"specialization": FILTER1X1_STRIDE1_PAD0, "explicit_gemm": True}
    for direction, n in ((Direction.FORWARD, 2), (Direction.BWD_DATA, 4)):
        problem = problem_on(arch, direction, n=n, hi=2048, wi=2048, **plain)  # 2^28 elements per image
        kernel = kernel_on(arch, direction, **explicit)
        assert CONV_RULES.of_problem(replace(kernel, explicit_gemm=False), arch, problem) == []
        (reason,) = CONV_RULES.of_problem(kernel, arch, problem)
        expect_values(reason, f"{2**31} bytes")
    two_stage = kernel_on(arch, Direction.BWD_WEIGHT, two_stage=True)
    problem = problem_on(arch, Direction.BWD_WEIGHT, **{**plain, "c": 2**15, "k": 2**14})
    assert CONV_RULES.of_problem(replace(two_stage, two_stage=False), arch, problem) == []
    assert len(CONV_RULES.of_problem(two_stage, arch, problem)) == 1


def test_check_without_a_problem_is_the_architectures_verdict() -> None:
    """The parts add up: no rule is applied twice or omitted."""
    arch = load_arch("gfx942")
    kernel, problem = kernel_on(arch, vector_a=3), problem_on(arch, c=62)
    assert CONV_RULES.check(kernel, arch) == list(CONV_RULES.of_arch(kernel, arch))
    assert CONV_RULES.check(kernel, arch, problem) == CONV_RULES.check(kernel, arch) + CONV_RULES.of_problem(
        kernel, arch, problem
    )
