"""Drawing of few kernels that represent all kinds, in order."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.kernels.pipelines import Scheduler
from ckh.ops.grouped_conv.kernel import parse_kernel_name
from ckh.ops.grouped_conv.rules.full import full_candidates
from ckh.ops.grouped_conv.rules.sets import Kernels, category, every_fifth, first_of_each, smallest
from ckh.problems import Direction

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.kernel import ConvKernel

PLAIN = parse_kernel_name("grouped_conv_bwd_weight_bf16_nhwgc_2d_mem_cshuffle_intrawave_16x16x64_1x1x1_16x16x32")


def numbered(count: int, start: int = 0, kernel: ConvKernel = PLAIN) -> Kernels:
    """Kernels that differ only in tile_m: start + 1, start + 2 and so on."""
    return tuple(replace(kernel, tile_m=start + number) for number in range(1, count + 1))


def numbers(kernels: Kernels) -> list[int]:
    return [kernel.tile_m for kernel in kernels]


def whole() -> Kernels:
    """All of AMD's full set except its depthwise kernels."""
    arch = load_arch("gfx942")
    return tuple(
        kernel
        for variant in Direction
        for ndim in (2, 3)
        for dtype in ("fp16", "bf16", "fp32")
        for kernel in full_candidates(variant, ndim, dtype, arch)
    )


def test_category_is_that_of_the_first_option() -> None:
    """Precedence of options: stream-K, split image, merged groups, two stages, explicit GEMM."""
    assert category(PLAIN) == "regular"
    kernel = replace(PLAIN, explicit_gemm=True)
    assert category(kernel) == "explicit_gemm"
    kernel = replace(kernel, two_stage=True)
    assert category(kernel) == "two_stage"
    kernel = replace(kernel, num_groups_to_merge=2)
    assert category(kernel) == "merged_groups"
    kernel = replace(kernel, split_image=True)
    assert category(kernel) == "split_image"
    assert category(replace(kernel, streamk="tree")) == "streamk"


def test_every_fifth_takes_ranks_five_ten_and_so_on() -> None:
    """Of twelve kernels of one kind the fifth and the tenth are drawn."""
    assert numbers(every_fifth(numbered(12))) == [5, 10]


def test_every_fifth_ranks_each_category_and_dtype_separately() -> None:
    """Kernels with two stages or another dtype do not shift ranks; of fewer than five the first is drawn."""
    staged = numbered(3, 100, replace(PLAIN, two_stage=True))
    other = numbered(6, 200, replace(PLAIN, dtype="fp16"))
    mixed = (*numbered(4), *staged, *other, *numbered(4, 4))
    assert numbers(every_fifth(mixed)) == [101, 205, 5]


def test_every_fifth_adds_missing_pipelines() -> None:
    """The second and third pipelines, not at rank five, are represented by their first kernels."""
    compv3 = numbered(2, 100, replace(PLAIN, pipeline="compv3"))
    interwave = numbered(2, 200, replace(PLAIN, scheduler=Scheduler.INTERWAVE))
    assert numbers(every_fifth((*compv3, *interwave, *numbered(5)))) == [101, 201, 1]
    # Rank five is now the first plain kernel, which represents mem intrawave.
    assert numbers(every_fifth(numbered(5) + compv3)) == [5, 101]


def test_smallest_has_one_of_each_kind_and_fills_up_in_turn() -> None:
    """Of two kinds of twenty and three kernels, seven and three are drawn: the second is exhausted."""
    staged = numbered(3, 100, replace(PLAIN, two_stage=True))
    assert numbers(smallest(numbered(20) + staged)) == [1, 2, 3, 4, 5, 6, 7, 101, 102, 103]
    assert numbers(smallest(numbered(4))) == [1, 2, 3, 4]


def test_smallest_is_more_than_ten_when_there_are_more_kinds() -> None:
    """With more than ten categories, dtypes and dimensions, one kernel of each is drawn."""
    kinds = [
        replace(PLAIN, dtype=dtype, ndim_spatial=ndim, two_stage=two_stage)
        for dtype in ("fp16", "bf16", "fp32")
        for ndim in (2, 3)
        for two_stage in (False, True)
    ]
    many = tuple(kernel for kind in kinds for kernel in numbered(3, 0, kind))
    assert numbers(smallest(many)) == [1] * 12


def test_first_of_each_covers_every_key() -> None:
    """A kernel is drawn if its value is new for any key, even if a kernel drawn for another key precedes it."""
    kernels = tuple(replace(PLAIN, tile_m=m, tile_n=n) for m, n in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 3)))
    drawn = first_of_each(kernels, attrgetter("tile_m"), attrgetter("tile_n"))
    assert [(kernel.tile_m, kernel.tile_n) for kernel in drawn] == [(1, 1), (1, 2), (2, 1), (3, 3)]
    assert first_of_each(kernels) == ()


def test_sizes_over_the_whole_set_match_amd() -> None:
    """AMD's samples of the whole have about 2,800 and 35 kernels, including three depthwise kinds that ckh lacks."""
    fifth = every_fifth(whole())
    assert 2_750 <= len(fifth) <= 2_850
    assert len(smallest(fifth)) == 35 - 3
