"""Validity of GEMM kernels: every rule is broken once, on its own where possible, with its reason."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.kernels.pipelines import Scheduler
from ckh.ops.gemm_universal.kernel import parse_kernel_name
from ckh.ops.gemm_universal.kernels.pool import gemm_pool
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES, effective_widths, native_widths, rule_key
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.refusals import expect_reasons, expect_values, has_values

if TYPE_CHECKING:
    from ckh.ops.gemm_universal.kernel import GemmKernel

PADS = "True_True_True_False"
NO_PADS = "False_False_False_False"
PLAIN = f"gemm_universal_fp16_rcr_compv3_cshuffle_intrawave_{PADS}_128x128x64_2x2x1_32x32x16"
HOST = f"gemm_universal_fp32_rcr_compv3_cshuffle_intrawave_{PADS}_64x128x128_1x4x1_16x16x16"


def kernel(name: str = PLAIN, **changes: Any) -> GemmKernel:
    return replace(parse_kernel_name(name), **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "fp64"}, "gfx942 does not run fp64 (it runs fp16, bf16"),
        ({"layout": "rrc"}, "unknown layout rrc"),
        ({"pipeline": "comp_async"}, "gfx942 does not have the pipeline comp_async"),
        ({"pipeline": "preshufflev2"}, "gfx942 does not have the pipeline preshufflev2"),
        ({"scheduler": Scheduler.INTERWAVE}, "compv3, cshuffle and interwave do not work together"),
        ({"tile_m": 512}, "take 81920 bytes of LDS, compv3 has 65536 on gfx942"),
        ({"pipeline": "compv4", "tile_m": 256}, "take 49152 bytes of LDS, compv4 has 32768 on gfx942"),
        ({"pipeline": "compv6", "tile_m": 256}, "compv6 has 32768 on gfx942"),
        ({"tile_n": 8, "warp_tile_n": 4}, "tile_n 8 is less than the 16 that gemm needs"),
        ({"tile_k": 4, "warp_tile_k": 4}, "tile_k 4 is less than the 8 that gemm needs"),
        ({"tile_n": 72}, "tile_n 72 is not a multiple of the 16 that gemm needs"),
        ({"epilogue": "tdm"}, "gfx942 does not have the epilogue tdm"),
        ({"wave_m": 8}, "gfx942 does not have the waves 8x2x1 (it has 1x1x1"),
        ({"warp_tile_k": 64}, "gfx942 has no 32x32x64 warp tile for fp16 (it has 32x32x8"),
        ({"tile_m": 96}, "tile_m 96 is not a multiple of 2 waves x warp tile 32 = 64"),
        ({"tile_k": 72}, "tile_k 72 is not a multiple of 1 waves x warp tile 16 = 16"),
        ({"wave_k": 0}, "must be positive along k, not 64, 0, 16"),
        ({"vector_a": 3}, "vector_a must be 0 (native) or a divisor of 8, not 3"),
        ({"vector_b": 16}, "vector_b must be 0 (native) or a divisor of 8, not 16"),
        ({"vector_c": -1}, "vector_c must be 0 (native)"),
        ({"suffix": "_more"}, "the suffix _more of the name has no known meaning"),
    ],
)
def test_each_architecture_rule_has_a_reason(changes: dict[str, Any], words: str) -> None:
    """A kernel that breaks the rule is rejected with a reason that states the value and the limit."""
    arch = load_arch("gfx942")
    assert GEMM_RULES.check(kernel(), arch) == []
    reasons = GEMM_RULES.check(kernel(**changes), arch)
    assert any(words in reason for reason in reasons), reasons


def test_all_broken_rules_are_given() -> None:
    """All reasons are returned, not only the first, and a check without a problem returns the same."""
    arch = load_arch("gfx942")
    bad = kernel(dtype="fp64", scheduler=Scheduler.INTERWAVE, tile_m=96, wave_n=8)
    reasons = GEMM_RULES.of_arch(bad, arch)
    starts = ("gfx942 does not run fp64", "compv3, ", "the tiles of A and B take", "gfx942 does not have the waves")
    assert len(reasons) == 6
    assert all(reason.startswith(start) for reason, start in zip(reasons, starts, strict=False))
    assert [reason.split(" ")[0] for reason in reasons[4:]] == ["tile_m", "tile_n"]
    assert list(reasons) == GEMM_RULES.check(bad, arch)


def test_preshuffled_kernels_have_their_own_rules() -> None:
    """A preshuffle pipeline has a larger minimum tile, and warp tiles that plain kernels lack."""
    arch = load_arch("gfx950")
    small = kernel(pipeline="preshufflev2", tile_m=32, wave_m=1)
    assert any(has_values(r, "tile_m 32", 64, "gemm_preshuffle") for r in GEMM_RULES.of_arch(small, arch))
    # 16x16x64 in fp16 is only in gfx950's table of preshuffle warp tiles.
    special: dict[str, Any] = {"warp_tile_m": 16, "warp_tile_n": 16, "warp_tile_k": 64}
    assert not any("warp tile for" in r for r in GEMM_RULES.of_arch(kernel(pipeline="preshufflev2", **special), arch))
    assert any("16x16x64 warp tile for" in r for r in GEMM_RULES.of_arch(kernel(**special), arch))


def test_incomplete_kernels_are_checked_by_known_fields() -> None:
    """A short name is checked by the rules on its parameters, and rejected as incomplete; nothing is assumed."""
    arch = load_arch("gfx942")
    short = parse_kernel_name("gemm_universal_fp16_rcr_512x128x64_compv3_interwave")
    incomplete, traits, lds = GEMM_RULES.of_arch(short, arch)
    assert "has no wave_m" in incomplete
    expect_values(traits, "compv3", "cshuffle", "default", "interwave")
    assert "81920 bytes" in lds
    assert GEMM_RULES.of_problem(short, arch, GemmProblem(1, 1, 1, "fp16")) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"persistent": True}, "host has no persistent kernels"),
        ({"vector_a": 4}, "host has no fixed vector widths, vector_a must be 0, not 4"),
        ({"epilogue": "default"}, "host does not have the epilogue default"),
        ({"tile_n": 96}, "tile_n 96 is not a multiple of 4 waves x warp tile 16 = 64"),
        ({"pipeline": "compv4", "tile_k": 256}, "take 196608 bytes of LDS, compv4 has 131072 on host"),
    ],
)
def test_rules_of_the_host(changes: dict[str, Any], words: str) -> None:
    """The host's limits come from its spec, as for a GPU."""
    arch = load_arch("host")
    assert GEMM_RULES.check(kernel(HOST), arch) == []
    reasons = GEMM_RULES.check(kernel(HOST, **changes), arch)
    assert any(words in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    ("changes", "sizes", "words"),
    [
        ({}, {"dtype": "bf16"}, ["a kernel of fp16 cannot run a problem of bf16"]),
        ({"layout": "rrr"}, {}, ["a kernel of layout rrr cannot run a problem of layout rcr"]),
        ({}, {"k": 132}, ["K = 132 is not a multiple of vector_a = 8", "K = 132 is not a multiple of vector_b = 8"]),
        ({}, {"n": 100}, ["N = 100 is not a multiple of vector_c = 8"]),
        ({"vector_c": 4}, {"n": 100}, []),
        ({"pad_n": False}, {"n": 136}, ["N = 136 is not a multiple of tile_n 128, nor padded"]),
        ({"pad_m": False}, {"m": 1}, []),
        ({"pad_k": False}, {"split_k": 4}, ["K = 128 is not a multiple of tile_k 64 x split_k 4, nor padded"]),
        ({"pipeline": "mem", "pad_n": False}, {"n": 136}, ["N = 136 is not a multiple of tile_n 128, nor padded"]),
        ({"epilogue": "default"}, {"split_k": 2}, ["split_k 2 needs an even vector_c for fp16 results"]),
        ({}, {"k": 40, "split_k": 3}, []),
        ({}, {"k": 40, "split_k": 4}, ["K = 40 in 4 parts of 16 leaves nothing for the last"]),
    ],
)
def test_each_problem_rule_has_a_reason(changes: dict[str, Any], sizes: dict[str, Any], words: list[str]) -> None:
    """On a GPU padding and whole vectors matter along the contiguous axes, whatever the pipeline."""
    problem = GemmProblem(**{"m": 128, "n": 128, "k": 128, "dtype": "fp16", **sizes})
    assert GEMM_RULES.of_problem(kernel(**changes), load_arch("gfx942"), problem) == words


def test_unpadded_axes_follow_the_layout() -> None:
    """If A is contiguous along M, M must be a multiple of the tile, and K need not be."""
    problem = GemmProblem(136, 128, 72, "fp16", "crr")
    (reason,) = GEMM_RULES.of_problem(
        kernel(PLAIN.replace("rcr", "crr").replace(PADS, NO_PADS)), load_arch("gfx942"), problem
    )
    expect_values(reason, "M = 136", "tile_m 128")


def test_the_host_needs_whole_or_padded_axes_and_no_split() -> None:
    """An unpadded host kernel has no code for the remainder of any axis; vectors do not matter on the host."""
    arch, odd = load_arch("host"), GemmProblem(63, 127, 129)
    assert GEMM_RULES.of_problem(kernel(HOST), arch, odd) == []
    reasons = GEMM_RULES.of_problem(kernel(HOST.replace(PADS, NO_PADS)), arch, odd)
    assert [reason.split(" ")[0] for reason in reasons] == ["M", "N", "K"]
    expect_reasons(GEMM_RULES.of_problem(kernel(HOST), arch, GemmProblem(64, 64, 64, split_k=2)), ("host", "split"))


@pytest.mark.slow
def test_no_gpu_kernel_runs_with_n_or_k_of_one() -> None:
    """AMD measured no valid kernel for N = 1 or K = 1, but valid ones for M = 1; the rules agree.

    Padded kernels that store single elements pass the rules for N = 1.
    """
    arch = load_arch("gfx1100")
    pool = gemm_pool(arch, "fp16")

    def runs(m: int, n: int, k: int, epilogue: str, padded: bool) -> bool:
        kernels = [item for item in pool if (item.epilogue, item.pad_n) == (epilogue, padded)]
        return any(not GEMM_RULES.of_problem(item, arch, GemmProblem(m, n, k, "fp16")) for item in kernels)

    for epilogue, padded in product(("default", "cshuffle"), (False, True)):
        assert runs(64, 1, 64, epilogue, padded) == (epilogue == "default" and padded)
        assert not runs(64, 64, 1, epilogue, padded)
        assert runs(1, 64, 64, epilogue, padded)


@pytest.mark.parametrize(
    ("changes", "widths"),
    [
        # 128 x 64 elements over 256 threads are 32 each: 16 bytes of fp16 divide that and the 64 along K.
        ({}, (8, 8, 8)),
        ({"dtype": "fp8"}, (16, 16, 8)),
        ({"dtype": "int8"}, (16, 16, 4)),
        ({"dtype": "fp32"}, (4, 4, 4)),
        ({"epilogue": "default"}, (8, 8, 1)),
        # 32 x 32 elements over 256 threads are 4 each: 8 bytes of fp16; 4 bytes of fp8 are not tried.
        ({"tile_m": 32, "tile_k": 32}, (4, 8, 8)),
        ({"tile_m": 32, "tile_k": 32, "dtype": "fp8"}, (1, 16, 8)),
        # 16 x 32 over 256 threads are 2 each: one fp16 at a time, two fp32.
        ({"tile_m": 16, "tile_k": 32}, (1, 8, 8)),
        ({"tile_m": 16, "tile_k": 32, "dtype": "fp32"}, (2, 4, 4)),
        # Along M 8 does not divide 20, 4 does, and each thread's 20 too; 12 x 64 over 256 threads are 3 each.
        ({"layout": "crr", "tile_m": 20, "tile_k": 256}, (4, 8, 8)),
        ({"layout": "crr", "tile_m": 12}, (1, 8, 8)),
        # B of 128 x 64 along N, and of 20 x 256 along N.
        ({"layout": "rrr"}, (8, 8, 8)),
        ({"layout": "rrr", "tile_n": 20, "tile_k": 256}, (8, 4, 8)),
        ({"warp_tile_n": 1}, (8, 8, 2)),
    ],
)
def test_native_widths_by_hand(changes: dict[str, Any], widths: tuple[int, int, int]) -> None:
    """The widest load that divides the contiguous extent and the elements per thread, and the epilogue's store."""
    arch = load_arch("gfx942")
    assert native_widths(kernel(**changes), arch) == widths
    fixed = kernel(**changes, vector_b=2)
    assert effective_widths(fixed, arch) == (widths[0], 2, widths[2])


@pytest.mark.parametrize(
    ("sizes", "refused"),
    [
        ({"m": 2**16, "n": 2**13, "k": 2**14}, None),  # C of 2^29 elements
        ({"m": 2**16 - 128, "n": 2**14 - 8, "k": 2**13}, None),
        ({"m": 2**16 - 127, "n": 2**14, "k": 2**13}, ("C", 2**30 - 127 * 2**14, 2**30 + 2**14, 2**30 - 1)),
        ({"m": 2**16 - 385, "n": 2**13, "k": 2**15}, None),
        ({"m": 2**16 - 384, "n": 2**13, "k": 2**15}, ("A", 2**31 - 384 * 2**15, 2**31, 2**31 - 1)),
        ({"m": 2**13, "n": 2**16, "k": 2**15}, ("B", 2**31, 2**31 + 384 * 2**15, 2**31 - 1)),
        ({"m": 2**15, "n": 2**10, "k": 2**15, "dtype": "fp32"}, ("A", 2**30, 2**30 + 384 * 2**15, 2**30 - 1)),
    ],
)
def test_matrices_beyond_32_bit_offsets(sizes: dict[str, Any], refused: tuple[Any, ...] | None) -> None:
    """Offsets of loads count elements and bytes, offsets of stores bytes, up to the tiles beyond the last line."""
    arch = load_arch("gfx942")
    problem = GemmProblem(**{"dtype": "fp16", **sizes})
    reasons = GEMM_RULES.of_problem(kernel(dtype=problem.dtype), arch, problem)
    assert len(reasons) == (refused is not None)
    if refused is not None:
        expect_values(reasons[0], *refused)


@pytest.mark.parametrize(
    ("changes", "sizes", "values"),
    [
        # 40 parts of 16 in 3: 224, 224 and 192, 4 tiles, 4 and 3.
        ({"pipeline": "compv3"}, {"k": 640, "split_k": 3}, None),
        ({"pipeline": "compv4"}, {"k": 640, "split_k": 3}, (224, 192, 64)),
        ({"pipeline": "basic_v1"}, {"k": 640, "split_k": 3}, None),
        ({"pipeline": "compv3"}, {"k": 256, "split_k": 3}, (96, 64, 64)),  # 2 and 1 tiles without the loop
        ({"pipeline": "compv6"}, {"k": 640, "split_k": 3}, (224, 192, 64)),
        ({"pipeline": "mem"}, {"k": 640, "split_k": 3}, (224, 192, 64)),
        ({"pipeline": "compv3"}, {"k": 65535 * 32, "split_k": 65535}, None),
        ({"pipeline": "compv3"}, {"k": 65536 * 32, "split_k": 65536}, (65536, 65535)),
        ({"dtype": "bf16", "m": 136}, {"split_k": 2}, ("M = 136", "tile_m 128")),
        ({"dtype": "bf16", "m": 136}, {"split_k": 1}, None),
        ({"dtype": "fp16", "m": 136}, {"split_k": 2}, None),
        ({"pad_k": False, "pipeline": "compv4"}, {"k": 192}, ("K = 192", "3 x tile_k 64")),
        ({"pad_k": False, "pipeline": "compv4"}, {"k": 64}, ("K = 64", "1 x tile_k 64")),
        ({"pad_k": False, "pipeline": "compv4"}, {"k": 384, "split_k": 2}, ("K = 384", "3 x tile_k 64")),
        ({"pad_k": False, "pipeline": "compv4"}, {"k": 256}, None),
        ({"pad_k": True, "pipeline": "compv4"}, {"k": 192}, None),
        ({"pad_k": False, "pipeline": "compv6"}, {"k": 64}, ("K = 64", "1 x tile_k 64")),
        ({"pad_k": False, "pipeline": "compv3"}, {"k": 192}, None),
        ({"pad_k": False, "pipeline": "compv4", "layout": "rrr"}, {"k": 192}, None),  # B has zeros beyond K
    ],
)
def test_launches_that_would_be_refused_are_not_candidates(
    changes: dict[str, Any], sizes: dict[str, Any], values: tuple[Any, ...] | None
) -> None:
    """The rules refuse what ckh's sources refuse before a launch: uneven parts of K, rows added and K read beyond."""
    own = {"m": changes.pop("m", 128), "dtype": changes.get("dtype", "fp16"), "layout": changes.get("layout", "rcr")}
    problem = GemmProblem(n=128, **{"k": 128, **own, **sizes})
    reasons = GEMM_RULES.of_problem(kernel(**changes), load_arch("gfx942"), problem)
    assert len(reasons) == (values is not None), reasons
    if values is not None:
        expect_values(reasons[0], *values)


def test_problems_that_split_a_long_k_differ_by_all_of_it() -> None:
    """Unsplit, only its common divisors with tiles matter beyond some length."""
    for split_k, count in ((1, 1), (2, 2)):
        assert len({rule_key(GemmProblem(64, 64, k, split_k=split_k)) for k in (10007, 10009)}) == count
