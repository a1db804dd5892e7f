"""The tables of variants and tiles, compared with the figures of AMD's rules."""

from __future__ import annotations

from collections import Counter

import pytest

from ckh.errors import UsageError
from ckh.ops.grouped_conv.kernel import parse_kernel_name
from ckh.ops.grouped_conv.kernels.variants import CONV_TILES, PIPELINE_VARIANTS, REJECTED_PIPELINES, VARIANT_PIPELINES
from ckh.problems import Direction
from tests.refusals import expect_refusal


def test_thirty_variants_by_pipeline() -> None:
    """There are 30 distinct variants, 8 for each interwave pipeline, 2 for compv4 and 4 for the others."""
    assert len(set(PIPELINE_VARIANTS)) == len(PIPELINE_VARIANTS) == 30
    assert Counter(row.pipeline for row in PIPELINE_VARIANTS) == {
        "basic_v1": 8,
        "compv3": 4,
        "compv4": 2,
        "compv5": 4,
        "compv6": 4,
        "mem": 8,
    }


def test_variants_are_in_amds_order() -> None:
    """Pipelines in AMD's order, intrawave first, then (dsb, si) 00 10 01 11."""
    rows = [(row.pipeline, str(row.scheduler), row.double_smem_buffer, row.split_image) for row in PIPELINE_VARIANTS]
    assert rows[:5] == [
        ("basic_v1", "intrawave", False, False),
        ("basic_v1", "intrawave", True, False),
        ("basic_v1", "intrawave", False, True),
        ("basic_v1", "intrawave", True, True),
        ("basic_v1", "interwave", False, False),
    ]
    assert rows[12:14] == [("compv4", "intrawave", True, False), ("compv4", "intrawave", True, True)]
    assert rows[-1] == ("mem", "interwave", True, True)


def test_pipelines_of_the_directions() -> None:
    """Each direction has the same eight; the backward ones reject compv5 only."""
    for direction in Direction:
        assert len(set(VARIANT_PIPELINES[direction])) == 8
    assert REJECTED_PIPELINES[Direction.FORWARD] == frozenset()
    assert REJECTED_PIPELINES[Direction.BWD_DATA] == REJECTED_PIPELINES[Direction.BWD_WEIGHT] == {"compv5"}


def test_tiles_are_covered_by_their_waves() -> None:
    """Along M the waves cover the tile exactly, along N and K a whole number of times: AMD's stated invariant."""
    for row in CONV_TILES:
        assert row.tile[0] == row.wave[0] * row.warp_tile[0]
        assert all(size % (w * t) == 0 for size, w, t in zip(row.tile, row.wave, row.warp_tile, strict=True))


@pytest.mark.parametrize("triple", ["wave", "warp_tile", "vectors"])
def test_ambiguous_short_names_are_an_error(triple: str) -> None:
    """Unknown waves, warp tile or vectors are not substituted."""
    kernel = parse_kernel_name("grouped_conv_forward_bf16_2d_16x64x64_mem_intrawave")
    with expect_refusal(UsageError, "incomplete-kernel"):
        getattr(kernel, triple)
