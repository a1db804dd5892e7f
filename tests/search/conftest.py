"""Search spaces for tests: synthetic ones with a known optimum, and recorded ones if available."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.search_replay import Recording
from ckh.search.space import Space
from tests.shared import DATA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


TILES = (16, 32, 48, 64, 96, 128, 192, 256)
WAVES = (1, 2, 4, 8)
VECTORS = (1, 2, 4, 8)
PIPELINES = ("basic", "compute", "memory")


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], Path]:
    """The path of a recorded space by name; skips the test if it is missing."""

    def path(name: str) -> Path:
        file = DATA / f"kernel_tuner_{name}.parquet"
        if not file.is_file():
            pytest.skip(f"{file} is not there; CKH_SHARED can say where the folder is that has data/")
        return file

    return path


@pytest.fixture(scope="session")
def synthetic() -> Recording:
    """Kernels with interactions, categories, illegal combinations and 10 % that fail; most are far from the best."""
    rows = [row for row in product(TILES, TILES, WAVES, VECTORS, PIPELINES) if row[0] * row[1] >= 64 * row[2] * row[3]]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    tile_m, tile_n, waves, vector, pipeline = columns
    log_time = (
        0.5 * np.abs(np.log2(tile_m) - 7)
        + 0.4 * np.abs(np.log2(tile_n) - 6.5)
        + 0.3 * np.abs(np.log2(tile_m * tile_n / waves) - 11)
        + 0.2 * (3 - np.log2(vector)) * (pipeline == "memory")
        + 0.5 * (pipeline == "basic")
        + 0.3 * (pipeline == "compute")
        + 0.3 * (tile_n % 64 != 0)
    )
    noise = np.random.default_rng(0).normal(0, 0.02, len(rows))
    times = np.exp(log_time + noise)
    times[(tile_m * tile_n > 16384) & (waves < 4)] = np.nan
    return Recording(Space(("tile_m", "tile_n", "waves", "vector", "pipeline"), columns), times)
