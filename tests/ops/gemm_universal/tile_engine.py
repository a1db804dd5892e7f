"""AMD's GEMM benchmark JSON of 84 unpadded kernels on a few problems, with synthetic times."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_TILES = ((64, 64, 64), (64, 128, 64), (128, 64, 64), (128, 128, 64), (128, 256, 64), (256, 128, 64), (256, 256, 32))
_WAVES = (((2, 2, 1), (32, 32, 16)), ((2, 2, 1), (16, 16, 32)), ((1, 4, 1), (16, 16, 32)), ((4, 1, 1), (16, 16, 32)))
_PIPELINES = {"compv3": 1.0, "compv4": 0.9, "mem": 1.3}
# In no architecture's pool, since AMD's search space has no tile of 224.
OUTSIDE = (224, 256, 64)
PROBLEMS = tuple(product((256, 1792, 4096), (512, 3584), (1024, 7168)))


def names(layout: str = "rcr", dtype: str = "fp16") -> list[str]:
    """Return the names of the 84 kernels: 7 tiles, one of them in no pool, 4 wave arrangements and 3 pipelines."""
    tiles = (*_TILES[:-1], OUTSIDE)
    return [
        f"gemm_universal_{dtype}_{layout}_{pipeline}_cshuffle_intrawave_False_False_False_False"
        f"_{_by(tile)}_{_by(wave)}_{_by(warp_tile)}"
        for tile, (wave, warp_tile), pipeline in product(tiles, _WAVES, _PIPELINES)
    ]


def time_ms(name: str, problem: tuple[int, int, int]) -> float:
    """Return a synthetic time: the padded work, less for large tiles, by pipeline and waves."""
    parts = name.split("_")
    tile, wave = ([int(size) for size in parts[place].split("x")] for place in (11, 12))
    m, n, k = (-(-size // step) * step for size, step in zip(problem, tile, strict=True))
    reuse = 0.2 + 16 / tile[0] + 16 / tile[1]
    return m * n * k * reuse * _PIPELINES[parts[4]] * (1 + 0.05 * wave[1]) * 1e-11 + 0.004


def write(path: Path, kernels: list[str]) -> Path:
    """Write the file of these kernels, in the format of `generate_benchmark_data.py`."""
    results = [
        {
            "kernel_config": {"name": name},
            "benchmarks": [
                {"kernel_name": name, "m": m, "n": n, "k": k, "avg_time_ms": ms, "is_valid": True, "error": None}
                | {"tflops": 2 * m * n * k / ms / 1e9}
                for m, n, k in PROBLEMS
                for ms in [time_ms(name, (m, n, k))]
            ],
        }
        for name in kernels
    ]
    metadata = {"dtype": "fp16", "layout": "rcr", "num_kernels": len(kernels), "num_problems": len(PROBLEMS)}
    document: dict[str, Any] = {"metadata": metadata, "problem_sizes": [], "results": results}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _by(sizes: tuple[int, int, int]) -> str:
    return "x".join(map(str, sizes))
