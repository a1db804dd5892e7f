"""Where AMD's measured winners of fp8 GEMMs on the MI350 stand in the answer of `ckh predict`.

    python benchmarks/gemm_winners.py WINNERS.parquet [32KERNELS.parquet] [--model FOLDER]

The first file has AMD's best measured kernel of each problem (`m`, `n`, `k`, `dtype`, `layout`, `arch`, `best_kernel`),
the second all kernels of a sweep (`run`, `m`, `n`, `k`, `kernel`, `latency_us`, ...). Without a model the analytic
estimate answers. A geometry is tile, waves and matrix instruction; its place is that of its first kernel in the
answer, counted in geometries. AMD's winners have no tile below 64 x 64, so places among such tiles stand beside.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ckh.archs import load_arch
from ckh.learn.answer import answer
from ckh.learn.artifact import load_model, wanted_for
from ckh.learn.transfer import EstimateModel
from ckh.ops import operation
from ckh.ops.gemm_universal.problem import GemmProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.learn.artifact import Model
    from ckh.ops.gemm_universal.kernel import GemmKernel

OP = operation("gemm_universal")
SMALLEST = 64
PLACES = (1, 5, 50)


def geometry(kernel: GemmKernel) -> tuple[int, ...]:
    """Tile, waves and matrix instruction."""
    return *kernel.tile, *kernel.wave, *kernel.warp_tile


def place(found: list[Any], winner: Any, of: Callable[[Any], Any]) -> int | None:
    """How many others come before the winner in an answer; None if it is no candidate."""
    seen = dict.fromkeys(of(kernel) for kernel in found)
    return list(seen).index(of(winner)) if of(winner) in seen else None


def shares(places: list[int | None]) -> str:
    """How many of the winners are among the first."""
    known = np.array([np.inf if one is None else one for one in places])
    return " / ".join(f"{(known < most).mean():6.1%}" for most in PLACES)


def _problem(row: Any) -> GemmProblem:
    return GemmProblem(int(row.m), int(row.n), int(row.k), row.dtype, row.layout)


def winners(path: Path, folder: Path | None) -> None:
    """Print where the winners are in the answers."""
    rows = pd.read_parquet(path)
    places: dict[str, list[int | None]] = {"kernel": [], "geometry": [], "geometry, tiles of 64 x 64 and more": []}
    for row in rows.itertuples():
        problem, winner = _problem(row), OP.parse_kernel(str(row.best_kernel))
        model: Model = EstimateModel(wanted_for(problem, str(row.arch))) if folder is None else load_model(folder)
        kernels = [one.kernel for one in answer(problem, model).ranked]
        large = [one for one in kernels if min(one.tile_m, one.tile_n) >= SMALLEST]  # type: ignore[attr-defined]
        for what, found in zip(places, ([kernels, lambda k: k], [kernels, geometry], [large, geometry]), strict=True):
            places[what].append(place(found[0], winner, found[1]))  # type: ignore[arg-type]
    candidates = sum(one is not None for one in places["kernel"])
    print(f"{candidates} of {len(rows)} winners are candidates; in the first {', '.join(map(str, PLACES))}:")
    for what, at in places.items():
        print(f"{what:40s} {shares(at)}")


def sweep(path: Path) -> None:
    """Print the efficiency of the estimate's choice among the kernels of a sweep, whose runs are averaged."""
    rows = pd.read_parquet(path)
    for key, part in rows.groupby(["m", "n", "k"]):
        times = part.groupby("kernel", sort=False)["latency_us"].mean()
        row = part.iloc[0]
        problem, arch = _problem(row), load_arch(row.arch)
        kernels = [OP.parse_kernel(name) for name in times.index]
        model = EstimateModel(wanted_for(problem, arch.name))
        pool = set(OP.candidates(problem, arch, model.path).kernels)
        scores = model.predict(problem, kernels)
        alike = times.to_numpy()[scores == scores.max()]
        efficiency, random = times.min() / alike, times.min() / times
        shape = " x ".join(map(str, key))
        print(
            f"{shape:22s} {sum(one in pool for one in kernels)} of {len(kernels)} are candidates; the estimate's choice "
            f"{efficiency.mean():.1%} ({len(alike)} alike), random {random.mean():.1%}"
        )


def main() -> None:
    """Judge what there are data of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("winners", type=Path)
    parser.add_argument("sweep", type=Path, nargs="?")
    parser.add_argument("--model", type=Path)
    given = parser.parse_args()
    winners(given.winners, given.model)
    if given.sweep is not None:
        sweep(given.sweep)


if __name__ == "__main__":
    main()
