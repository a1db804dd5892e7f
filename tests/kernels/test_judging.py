"""Rules over columns compared with the same rules for one kernel at a time, and reasons with those of the past."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from dataclasses import fields, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import arch_names, load_arch
from ckh.kernels.judging import ProblemRules, RuleBook, judge_table
from ckh.kernels.pipelines import Scheduler
from ckh.kernels.table import KernelTable
from ckh.ops import operation
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.pool import AMD_SEARCH, gemm_pool, space_of
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, GemmProblem
from ckh.ops.grouped_conv.kernel import ConvKernel, amd_short_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool, table_of, tile_axis, variant_axis
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.kernels.variants import CONV_TILES
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.ops.grouped_conv.requested import padded
from ckh.ops.grouped_conv.rules.full import full_candidates
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import ArchSpec

NOWHERE = Path("nowhere")
# Values that break rules, for every field of a kernel.
WRONG: dict[str, tuple[Any, ...]] = {
    "dtype": ("fp16", "fp32", "int8", "fp64"),
    "layout": ("nhwgc", "ngchw", "rcr", "ccc", None),
    "ndim_spatial": (1, 2, 3),
    "variant": tuple(Direction),
    "pipeline": ("basic_v1", "mem", "compv4", "compv5", "compv6", "comp_async", "wavelet", "basic_v2", "preshufflev2"),
    "scheduler": tuple(Scheduler),
    "epilogue": ("default", "cshuffle", "tdm", None),
    "specialization": ("filter1x1_pad0", "filter1x1_stride1_pad0", "filter3x3", "filter9x9"),
    "streamk": (None, "tree", "atomic"),
    "suffix": ("", "_odd"),
    **dict.fromkeys(("tile_m", "tile_n", "tile_k"), (8, 24, 32, 96, 512)),
    **dict.fromkeys(("wave_m", "wave_n", "wave_k"), (0, 1, 2, 8, None)),
    **dict.fromkeys(("warp_tile_m", "warp_tile_n", "warp_tile_k"), (0, 4, 8, 32, 64)),
    **dict.fromkeys(("vector_a", "vector_b", "vector_c"), (0, 1, 2, 3, 8, 16, None)),
    **dict.fromkeys(("pad_m", "pad_n", "pad_k", "persistent", "explicit_gemm"), (True, False, None)),
    **dict.fromkeys(("double_smem_buffer", "split_image", "two_stage", "streamk_persistent"), (True, False)),
    **dict.fromkeys(("num_groups_to_merge", "num_wave_groups", "split_k", "block_per_cu"), (0, 1, 2, 129)),
}


def rules_of(kernel: Any) -> Any:
    """The rules of a kernel's operation."""
    return CONV_RULES if isinstance(kernel, ConvKernel) else GEMM_RULES


def by_arch(kernel: ConvKernel | GemmKernel, arch: ArchSpec) -> tuple[str, ...]:
    """Every violated rule of an architecture, checked on this kernel alone."""
    reasons: tuple[str, ...] = rules_of(kernel).of_arch(kernel, arch)
    return reasons


def by_problem(kernel: Any, arch: ArchSpec, problem: Any) -> list[str]:
    """Every violated rule of a problem, checked on this kernel alone."""
    reasons: list[str] = rules_of(kernel).of_problem(kernel, arch, problem)
    return reasons


def outcome(ask: Any, *args: Any) -> Any:
    """The result of a function; None for a kernel that cannot be checked because its waves or warp tile are 0."""
    try:
        return ask(*args)
    except (ZeroDivisionError, ValueError, TypeError):
        return None


def convolution(draw: random.Random, arch: ArchSpec) -> ConvProblem:
    """Any direction, with and without groups, with aligned or odd channels; 1x1, 3x3 and other filters."""
    groups, taps, ndim = draw.choice((1, 1, 2, 8, 16)), draw.choice((1, 3, 5)), draw.choice((2, 3))
    channels = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 100)
    depth: dict[str, Any] = {"di": 4, "z": taps, "pad_d": taps // 2} if ndim == 3 else {}
    return ConvProblem(
        draw.choice(tuple(Direction)),
        draw.choice((1, 2, 16)),
        groups * draw.choice(channels),
        groups * draw.choice(channels),
        groups,
        *(draw.randint(5, 20), draw.randint(5, 20), taps, taps),
        stride_h=draw.choice((1, 2)),
        pad_h=draw.choice((0, taps // 2)),
        ndim=ndim,
        dtype=draw.choice(arch.dtypes[:3]),
        **depth,
    )


def product(draw: random.Random, arch: ArchSpec) -> GemmProblem:
    """Sizes with many and with few divisors, every layout, with and without split-K."""
    size = (4, 6, 8, 16, 64, 96, 100, 192, 384, 500, 768, 1000, 1536, 4096)
    sizes = (draw.choice(size), draw.choice(size), draw.choice(size))
    return GemmProblem(*sizes, draw.choice(arch.dtypes[:3]), draw.choice(GEMM_LAYOUTS), draw.choice((1, 1, 2, 4)))


def damaged(draw: random.Random, kernel: Any) -> Any:
    """A kernel with up to four wrong fields."""
    names = [field.name for field in fields(kernel) if field.name in WRONG]
    return replace(kernel, **{name: draw.choice(WRONG[name]) for name in draw.sample(names, draw.randint(1, 4))})


@cache
def conv_kernels(variant: Direction, ndim: int, dtype: str) -> KernelTable[ConvKernel]:
    """The ten tiles and thirty variants."""
    return table_of(variant, ndim, dtype, tile_axis(CONV_TILES), variant_axis())


@pytest.mark.parametrize("name", arch_names())
def test_convolution_pools_are_checked_like_single_kernels(name: str) -> None:
    """All 300 kernels of every direction, dimension and dtype: refused kernels, reasons and counts agree."""
    arch = load_arch(name)
    for variant in Direction:
        for ndim, dtype in ((2, "fp16"), (3, "bf16"), (2, "fp32")):
            table = conv_kernels(variant, ndim, dtype)
            expected = [by_arch(kernel, arch) for kernel in table]
            verdicts = CONV_RULES.judge(table, arch)
            words = [verdicts.sentences[n] if n >= 0 else None for n in verdicts.number]
            assert words == [reasons[0] if reasons else None for reasons in expected]
            assert list(verdicts.counts().items()) == list(Counter(item[0] for item in expected if item).items())
            refused = [(kernel.kernel, kernel.reasons) for kernel in CONV_RULES.refused(table, arch)]
            assert refused == [(kernel, item) for kernel, item in zip(table, expected, strict=True) if item]


@pytest.mark.parametrize("name", arch_names())
def test_gemm_spaces_are_checked_like_single_kernels(name: str) -> None:
    """A few thousand random kernels of the architecture's space and AMD's: refused kernels and reasons agree."""
    arch, draw = load_arch(name), random.Random(5)
    for space, dtype, layout in ((space_of(arch), arch.dtypes[0], "rcr"), (AMD_SEARCH, arch.dtypes[-1], "crr")):
        whole = space.narrowed(arch, dtype).table(dtype, layout)
        table = whole.take(sorted(draw.sample(range(len(whole)), min(1500, len(whole)))))  # type: ignore[arg-type]
        expected = [by_arch(kernel, arch) for kernel in table]
        verdicts = GEMM_RULES.judge(table, arch)
        words = [verdicts.sentences[n] if n >= 0 else None for n in verdicts.number]
        assert words == [reasons[0] if reasons else None for reasons in expected]
        assert verdicts.counts() == Counter(item[0] for item in expected if item)


# Number of kernels with reasons, and digest of all reasons.
REASONS = {
    ("conv", "host"): (830, "bd3f92edf720cce2"),
    ("conv", "gfx908"): (830, "b94eb9b93aba6dd4"),
    ("conv", "gfx942"): (830, "51370d0534ee2310"),
    ("conv", "gfx950"): (830, "29f568a72cc8e7e3"),
    ("conv", "gfx1201"): (830, "12c77ee2e7142dba"),
    ("gemm", "host"): (795, "aa2593bc02687eae"),
    ("gemm", "gfx908"): (799, "77751c571b3c7c27"),
    ("gemm", "gfx942"): (800, "ce9360d0cd9e22e9"),
    ("gemm", "gfx950"): (798, "af0ed7cf5547caff"),
    ("gemm", "gfx1201"): (800, "a933199535fa35f2"),
}


@pytest.mark.parametrize(("op", "name"), REASONS)
def test_damaged_kernels_break_the_same_rules_with_the_same_reasons(op: str, name: str) -> None:
    """Kernels with wrong or missing fields, on an architecture and for a problem: every reason in order."""
    arch, draw = load_arch(name), random.Random(7)
    pool: tuple[Any, ...] = conv_pool(Direction.FORWARD, load_arch("gfx942"))
    if op == "gemm":
        pool = gemm_pool(load_arch("host"))
    kernels = [damaged(draw, draw.choice(pool)) for _ in range(800)]
    if op == "conv":
        kernels += [parse_kernel_name(amd_short_name(kernel)) for kernel in pool[::7]]
    reasons = []
    for kernel in kernels:
        problem = convolution(draw, arch) if op == "conv" else product(draw, arch)
        reasons.append((by_arch(kernel, arch), outcome(by_problem, kernel, arch, problem)))
    digest = hashlib.sha256(repr(reasons).encode()).hexdigest()[:16]
    assert (sum(bool(of_arch or of_problem) for of_arch, of_problem in reasons), digest) == REASONS[op, name]
    complete = [kernel for kernel in kernels if kernel.is_complete]
    table: Any = KernelTable.of(type(complete[0]), complete)
    verdicts = rules_of(complete[0]).judge(table, arch)
    words = [verdicts.sentences[n] if n >= 0 else None for n in verdicts.number]
    assert words == [next(iter(by_arch(kernel, arch)), None) for kernel in complete]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["host", "gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("op", ["grouped_conv", "gemm_universal"])
def test_candidates_of_random_problems_equal_single_checks(op: str, name: str) -> None:
    """Pool, selected kernels and refusals with texts, counts and order, for 20 problems.

    Convolutions that padding of their channels gives over half as much work more choose among the full rule set.
    """
    arch, draw = load_arch(name), random.Random(11)
    for _ in range(20 if op == "grouped_conv" or name == "host" else 2):
        problem: Any = convolution(draw, arch) if op == "grouped_conv" else product(draw, arch)
        candidates = operation(op).kernels.candidates(problem, arch, NOWHERE)
        counts: Counter[str] = Counter()
        if op == "grouped_conv":
            group = problem.variant, problem.ndim, problem.dtype
            is_few = arch.vector_divisibility and padded(problem).flops > 1.5 * problem.flops
            table = full_candidates(*group, arch) if is_few else conv_kernels(*group)
            counts.update(reasons[0] for kernel in table if (reasons := by_arch(kernel, arch)))
        elif name == "host":
            table = space_of(arch).table(problem.dtype, problem.layout)
            counts.update(reasons[0] for kernel in table if (reasons := by_arch(kernel, arch)))
        broken = [next(iter(by_problem(kernel, arch, problem)), None) for kernel in candidates.pool]
        counts.update(reason for reason in broken if reason)
        assert candidates.chosen.tolist() == [index for index, reason in enumerate(broken) if not reason]
        assert list(candidates.refused.items()) == counts.most_common()


def rules_of_parity() -> tuple[list[tuple[Any, ...]], tuple[Any, ...]]:
    """Two rules on tiles, one with a derived quantity; each records its arguments."""
    book = RuleBook()
    calls: list[tuple[Any, ...]] = []

    @book.quantity
    def half(tile_m: int) -> int:
        calls.append(("half", tile_m))
        return tile_m // 2

    @book.rule
    def odd(half: int) -> Iterator[str]:
        calls.append(("odd", half))
        if half % 2:
            yield f"half is {half}"

    @book.rule
    def deep(tile_k: int, tile_n: int) -> Iterator[str]:
        calls.append(("deep", tile_k, tile_n))
        if tile_k > tile_n:
            yield "too deep"
            yield "never asked for"

    return calls, (odd, deep)


def test_a_rule_is_called_once_per_distinct_input() -> None:
    """Each distinct combination of axes is checked once, and only for remaining kernels."""
    calls, rules = rules_of_parity()
    axes = [(("tile_m",), [(2,), (4,), (3,), (2,)]), (("tile_n",), [(1,), (9,)]), (("tile_k",), [(5,), (5,)])]
    table = KernelTable.product(GemmKernel, axes, dtype="fp32", layout="rcr", pipeline="mem", scheduler="x")
    assert len(table) == 16
    verdicts = judge_table(rules, table, load_arch("host"))
    # Only tile_m 4 has an even half; of these kernels one in two has tile_n 1.
    assert Counter(calls) == dict.fromkeys(
        [("half", 2), ("half", 4), ("half", 3), ("odd", 1), ("odd", 2), ("deep", 5, 1), ("deep", 5, 9)], 1
    )
    assert verdicts.counts() == {"half is 1": 12, "too deep": 2}
    assert [(table[n].tile_m, table[n].tile_n) for n in verdicts.passed.tolist()] == [(4, 9), (4, 9)]


def test_a_table_is_the_product_of_its_axes() -> None:
    """Kernels are in the order of nested loops; kernels, columns and slices equal those of the objects."""
    table = conv_kernels(Direction.FORWARD, 2, "fp16")
    objects = list(table)
    assert objects[31] == table[31] == table[-269]
    assert [kernel.tile_m for kernel in objects] == table.column("tile_m").tolist()
    assert {kernel.layout for kernel in objects} == set(table.column("layout").tolist()) == {"nhwgc"}
    part = table[5:100:7]
    assert list(part) == objects[5:100:7]
    assert part.coded("tile")[0][part.coded("tile")[1][2]] == (16, 64, 64)  # type: ignore[index]
    again = KernelTable.of(ConvKernel, objects)
    assert list(again) == objects
    assert again.column("pipeline").tolist() == table.column("pipeline").tolist()
    with pytest.raises(IndexError):
        table[300]


def test_an_empty_table_has_no_kernels_and_no_verdicts() -> None:
    """An axis without values leaves nothing to check."""
    table = table_of(Direction.FORWARD, 2, "fp16", tile_axis(()), variant_axis())
    assert len(table) == 0
    assert list(islice(table, 1)) == []
    verdicts = CONV_RULES.judge(table, load_arch("gfx942"))
    assert verdicts.passed.tolist() == []
    assert verdicts.counts() == {}
    chosen, refused = ProblemRules(CONV_RULES.problem, table, load_arch("gfx942")).judge(None)
    assert (chosen.tolist(), refused) == ([], {})


def test_a_kernel_counts_for_the_first_rule_that_refuses_it() -> None:
    """Of two broken rules of a problem the first is named."""
    book, kernels = RuleBook(), conv_pool(Direction.FORWARD, load_arch("host"))[:5]

    @book.rule
    def first(tile_m: int) -> Iterator[str]:
        yield "first"

    @book.rule
    def second(tile_n: int) -> Iterator[str]:
        yield "second"

    rules = ProblemRules((first, second), KernelTable.of(type(kernels[0]), kernels), load_arch("host"))
    assert rules.judge("any problem")[1] == {"first": 5}
