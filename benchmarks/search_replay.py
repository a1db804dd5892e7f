"""How near to the optimum a search strategy comes, replayed on five spaces that others measured exhaustively.

    OMP_NUM_THREADS=1 python benchmarks/search_replay.py --data DIR [--strategy surrogate] [--seeds 50] [--jobs 1]

The numbers are optimum / best found after 50, 100, 220 and 500 distinct measurements, median over the seeds; a failed
configuration costs one. DIR holds kernel_tuner_*.parquet (FAIR Benchmark Hub of the autotuning community).
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from ckh.search.replay import read_recording, replay
from ckh.search.strategies import DEFAULT_STRATEGY, STRATEGIES

SPACES = ("convolution_MI250X", "convolution_W7800", "convolution_A100", "gemm_RTX3090", "dedispersion_MI250X")
CHECKPOINTS = (50, 100, 220, 500)
DATA = Path(os.environ.get("CKH_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data"


def main() -> None:
    """Replay and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=tuple(STRATEGIES), default=DEFAULT_STRATEGY)
    parser.add_argument("--seeds", type=int, default=50, help="how many searches of each space (50)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--data", type=Path, default=DATA, help="directory of kernel_tuner_*.parquet")
    parser.add_argument("--spaces", nargs="+", default=SPACES, help="names after kernel_tuner_ (the five)")
    options = parser.parse_args()

    print(f"| {options.strategy}, {options.seeds} seeds | {' | '.join(map(str, CHECKPOINTS))} | s / search |")
    print("|---" * (len(CHECKPOINTS) + 2) + "|")
    rows = []
    for name in options.spaces:
        recording = read_recording(options.data / f"kernel_tuner_{name}.parquet")
        start = time.perf_counter()
        found = replay(recording, max(CHECKPOINTS), range(options.seeds), options.strategy, jobs=options.jobs)
        rows.append(found.summary(CHECKPOINTS))
        _print(name, rows[-1], (time.perf_counter() - start) / options.seeds)
    _print("average", tuple(np.mean(rows, axis=0)))


def _print(name: str, numbers: tuple[float, ...], seconds: float | None = None) -> None:
    text = "" if seconds is None else f"{seconds:.2f}"
    print(f"| {name} | {' | '.join(f'{number:.3f}' for number in numbers)} | {text} |", flush=True)


if __name__ == "__main__":
    main()
