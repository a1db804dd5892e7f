"""Numbers of tiles along K that reach every tail of a main loop."""

from __future__ import annotations

import pytest

from ckh.kernels.pipelines import most_steps


@pytest.mark.parametrize(
    ("tile", "waves", "dtype", "stages"),
    [
        ((32, 32, 32), 4, "fp16", 8),  # 32 KiB / (64 rows of 64 bytes)
        ((64, 64, 32), 4, "fp16", 4),
        ((16, 64, 64), 4, "fp16", 4),  # 3.2 rounded up
        ((64, 64, 64), 4, "fp32", 2),  # one tile is as much
        ((32, 32, 32), 4, "fp8", 8),  # 16, of which 8 are the most
        ((32, 32, 32), 1, "fp16", 2),  # of four blocks that share a compute unit each has a quarter
        ((64, 64, 32), 2, "fp16", 2),
    ],
)
def test_mem_is_executed_for_every_loop_tail(tile: tuple[int, int, int], waves: int, dtype: str, stages: int) -> None:
    """Every remainder of its stages with and without the loop, and at least the tiles of the other pipelines."""
    assert most_steps("mem", tile, waves, dtype) == max(6, 2 * stages)


@pytest.mark.parametrize("pipeline", ["basic_v1", "compv3", "compv4", "compv5", "compv6", "comp_async"])
def test_other_pipelines_have_few_stages(pipeline: str) -> None:
    """They have at most three, for any tile."""
    assert most_steps(pipeline, (32, 32, 32), 4, "fp16") == 6
