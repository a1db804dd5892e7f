"""Rule sets: their kernels by architecture, and their subset relations."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product

import pytest

from ckh.archs import ArchSpec, load_arch
from ckh.errors import UsageError
from ckh.ops.grouped_conv.kernels.pool import POOLS, conv_pool
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.rules.full import full_candidates
from ckh.ops.grouped_conv.rules.sets import RULE_SETS, Kernels, category, refused_of_rule_set, rule_set
from ckh.problems import Direction
from tests.refusals import expect_reasons, expect_refusal, expect_values, has_values

ARCHS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "host")
DRAWN = ("tiny", "tests", "full-tests", "profiler")
SLICES = tuple(product(Direction, (2, 3), ("fp16", "bf16", "fp32")))

# Buildable kernels of "full" in 2D: (direction, dtype) -> on gfx942 and on gfx950.
BUILT = {
    (Direction.FORWARD, "bf16"): (619, 619),
    (Direction.FORWARD, "fp32"): (314, 320),
    (Direction.BWD_DATA, "bf16"): (92, 92),
    (Direction.BWD_DATA, "fp32"): (80, 80),
    (Direction.BWD_WEIGHT, "bf16"): (1540, 1952),
    (Direction.BWD_WEIGHT, "fp32"): (194, 258),
}

# Sizes of AMD's lists in 2D, which ckh's sets approximate: (set, direction, dtype) -> instances.
AMD_LISTS = {
    ("profiler", Direction.FORWARD, "bf16"): 257,
    ("profiler", Direction.FORWARD, "fp32"): 176,
    ("profiler", Direction.BWD_DATA, "bf16"): 70,
    ("profiler", Direction.BWD_DATA, "fp32"): 58,
    ("profiler", Direction.BWD_WEIGHT, "bf16"): 174,
    ("profiler", Direction.BWD_WEIGHT, "fp32"): 60,
    ("tests", Direction.FORWARD, "bf16"): 56,
    ("tests", Direction.BWD_DATA, "bf16"): 15,
    ("tests", Direction.BWD_WEIGHT, "bf16"): 42,
}


def of_arch(name: str, arch: ArchSpec) -> dict[tuple[Direction, int, str], Kernels]:
    """Return a rule set on an architecture by direction, number of dimensions and dtype."""
    return {(variant, ndim, dtype): rule_set(name, variant, ndim, dtype, arch) for variant, ndim, dtype in SLICES}


def test_names() -> None:
    """There are six sets, each with a one-line purpose."""
    assert set(RULE_SETS) == {"default", "tiny", "tests", "full-tests", "profiler", "full"}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_a_dtype_has_kernels_where_the_architecture_runs_it(arch: str) -> None:
    """Every supported dtype has kernels unless the tables lack it; unsupported dtypes have none."""
    spec = load_arch(arch)
    for (_, _, dtype), kernels in of_arch("full", spec).items():
        assert bool(kernels) is (dtype in spec.dtypes)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "host"])
def test_sets_are_drawn_in_order_from_what_can_be_built(arch: str) -> None:
    """Each candidate of the tables is in the full set or rejected with reasons; the other sets are drawn from it."""
    spec = load_arch(arch)
    for variant in Direction:
        key = (variant, 3, spec.default_dtype)
        built, refused = rule_set("full", *key, spec), refused_of_rule_set("full", *key, spec)
        assert Counter([*built, *(row.kernel for row in refused)]) == Counter(full_candidates(*key, spec))
        assert not any(CONV_RULES.of_arch(kernel, spec) for kernel in built[::5])
        assert all(row.reasons == CONV_RULES.of_arch(row.kernel, spec) != () for row in refused[::5])
        order = {kernel: number for number, kernel in enumerate(built)}
        drawn = {name: [order[kernel] for kernel in rule_set(name, *key, spec)] for name in DRAWN}
        assert all(places == sorted(set(places)) != [] for places in drawn.values())
        assert {*drawn["tiny"]} <= {*drawn["full-tests"]}
        assert all(refused_of_rule_set(name, *key, spec) == refused for name in DRAWN)


def test_numbers_of_kernels_that_can_be_built() -> None:
    """Number of kernels of AMD's full set that pass the rules on two architectures."""
    for (variant, dtype), sizes in BUILT.items():
        result = tuple(len(rule_set("full", variant, 2, dtype, load_arch(arch))) for arch in ("gfx942", "gfx950"))
        assert result == sizes, (variant, dtype)


def reasons_of(variant: Direction, dtype: str, arch: str, pipeline: str | None = None) -> set[str]:
    """Return the reasons, without numbers, for which kernels of the full set are rejected."""
    refused = refused_of_rule_set("full", variant, 2, dtype, load_arch(arch))
    rows = [row for row in refused if pipeline in (None, row.kernel.pipeline)]
    return {re.sub(r"\d+", "#", reason) for row in rows for reason in row.reasons}


def test_why_kernels_of_the_full_set_are_refused() -> None:
    """Explicit GEMM except for 1x1 filters, asynchronous loads before gfx950, and too little LDS, as in CK Tile."""
    assert reasons_of(Direction.FORWARD, "fp32", "gfx950") == set()
    expect_reasons(reasons_of(Direction.FORWARD, "fp32", "gfx942"), ("A and B", "LDS", "compv#", "gfx#"))
    expect_reasons(reasons_of(Direction.FORWARD, "bf16", "gfx950", "basic_v1"), ("tile_k #", "forward"))
    explicit = ("explicit GEMM", "filter#x#_stride#_pad#", "default")
    expect_reasons(reasons_of(Direction.BWD_WEIGHT, "fp16", "gfx950", "mem"), explicit)
    expect_reasons(reasons_of(Direction.BWD_WEIGHT, "fp16", "gfx950", "basic_async_v1"), explicit)
    expect_reasons(reasons_of(Direction.BWD_WEIGHT, "fp32", "gfx942"), ("gfx#", "basic_async_v#"))
    for arch, has_none in (("gfx908", True), ("gfx90a", False)):
        reasons = reasons_of(Direction.BWD_WEIGHT, "fp16", arch, "mem")
        assert any(has_values(reason, "gfx#", "stream-K") for reason in reasons) is has_none


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942", "gfx950"])
def test_tests_and_profiler_include_every_kind_of_kernel(arch: str) -> None:
    """Both have every tile, specialization, and pipeline with its options; the profiler each tile's vectors too."""
    spec = load_arch(arch)
    for key, full in of_arch("full", spec).items():
        for name in ("tests", "profiler"):
            drawn = rule_set(name, *key, spec)
            assert {k.tile for k in drawn} == {k.tile for k in full}
            assert {k.specialization for k in drawn} == {k.specialization for k in full}
            assert {(k.pipeline, k.scheduler, category(k)) for k in drawn} == {
                (k.pipeline, k.scheduler, category(k)) for k in full
            }
        assert {(k.tile, k.vectors, k.specialization) for k in drawn} == {
            (k.tile, k.vectors, k.specialization) for k in full
        }
        assert {(k.tile, k.pipeline, k.scheduler) for k in drawn} == {(k.tile, k.pipeline, k.scheduler) for k in full}


def test_tests_and_profiler_match_the_size_of_amds_lists() -> None:
    """No list differs from AMD's by more than 60 percent, and all together by less than 15."""
    sizes = {key: len(rule_set(key[0], key[1], 2, key[2], load_arch("gfx950"))) for key in AMD_LISTS}
    for key, size in sizes.items():
        assert abs(size - AMD_LISTS[key]) <= 0.6 * AMD_LISTS[key], key
    assert abs(sum(sizes.values()) - sum(AMD_LISTS.values())) < 0.15 * sum(AMD_LISTS.values())


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_full_tests_is_a_fifth_and_tiny_is_ten(arch: str) -> None:
    """Per direction, about every fifth kernel and at least every category; tiny has ten of them."""
    spec = load_arch(arch)
    for key, full in of_arch("full", spec).items():
        fifth, tiny = rule_set("full-tests", *key, spec), rule_set("tiny", *key, spec)
        assert len(full) // 5 - 5 <= len(fifth) <= len(full) // 5 + 5
        assert len(tiny) == 10
        for drawn in (fifth, tiny):
            assert {category(kernel) for kernel in drawn} == {category(kernel) for kernel in full}
        assert {(k.pipeline, k.scheduler) for k in fifth} == {(k.pipeline, k.scheduler) for k in full}


def test_default_is_the_ranked_pool() -> None:
    """The default set and its rejected kernels equal those of the pool."""
    arch = load_arch("gfx942")
    assert rule_set("default", Direction.BWD_DATA, 3, "bf16", arch) == conv_pool(Direction.BWD_DATA, arch, 3, "bf16")
    assert refused_of_rule_set("default", Direction.BWD_DATA, 2, "fp16", arch) == tuple(
        POOLS.refused(arch, Direction.BWD_DATA, 2, "fp16")
    )


def test_unknown_names_and_dimensions_are_refused() -> None:
    """A misspelt set and an unsupported number of dimensions are usage errors in both functions."""
    arch = load_arch("gfx942")
    for ask in (rule_set, refused_of_rule_set):
        with expect_refusal(UsageError, "unknown-name", "ful") as error:
            ask("ful", Direction.FORWARD, 2, "bf16", arch)
        expect_values(error.value.hint, "default, tiny, tests, full-tests, profiler, full")
        for name in RULE_SETS:
            with expect_refusal(UsageError, "unsupported", "1D"):
                ask(name, Direction.FORWARD, 1, "bf16", arch)


def test_the_tables_have_no_fp8() -> None:
    """A dtype that the architecture supports and the tables lack has no kernels and no rejected ones."""
    arch = load_arch("gfx942")
    assert rule_set("full", Direction.FORWARD, 2, "fp8", arch) == ()
    assert refused_of_rule_set("full", Direction.FORWARD, 2, "fp8", arch) == ()
