"""Where AMD's measured winners of fp8 GEMMs on the MI350 stand in the answer of `ckh predict`.

    python benchmarks/gemm_winners.py WINNERS.parquet [32KERNELS.parquet] [--model FOLDER]

The first file has AMD's best measured kernel of each problem (`m`, `n`, `k`, `dtype`, `layout`, `arch`, `best_kernel`),
the second all kernels of a sweep (`run`, `m`, `n`, `k`, `kernel`, `latency_us`, ...). Without a model the analytic
estimate answers. A geometry is tile, waves and matrix instruction; its place is that of its first kernel in the
answer, counted in geometries. AMD's winners have no tile below 64 x 64, so places among such tiles stand beside.
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ckh.archs import load_arch
from ckh.kernels.table import column_of
from ckh.learn.answer import answer
from ckh.learn.artifact import load_model, wanted_for
from ckh.learn.transfer import EstimateModel
from ckh.ops import operation
from ckh.ops.gemm_universal.problem import GemmProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.learn.artifact import Model

OP = operation("gemm_universal")
SMALLEST = 64
PLACES = (1, 5, 50)


def geometries(pool: Sequence[Any]) -> NDArray[np.intp]:
    """Which tile, waves and matrix instruction each kernel of a pool has, as numbers."""
    names = [f"{what}_{axis}" for what in ("tile", "wave", "warp_tile") for axis in "mnk"]
    columns = np.stack([column_of(pool, name) for name in names], axis=1)
    return np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)


def place(order: NDArray[np.intp], winner: int) -> int | None:
    """How many different numbers come before the winner's; None if it is not there."""
    at = np.flatnonzero(order == winner)
    return len(np.unique(order[: at[0]])) if len(at) else None


def shares(places: list[int | None]) -> str:
    """How many of the winners are among the first."""
    known = np.array([np.inf if one is None else one for one in places])
    return " / ".join(f"{(known < most).mean():6.1%}" for most in PLACES)


def _is(pool: Sequence[Any], kernel: Any) -> NDArray[np.bool_]:
    """Which kernel of a pool is this one."""
    same = np.ones(len(pool), np.bool_)
    for field in fields(kernel):
        same &= column_of(pool, field.name) == getattr(kernel, field.name)
    return same


def _problem(row: Any) -> GemmProblem:
    return GemmProblem(int(row.m), int(row.n), int(row.k), row.dtype, row.layout)


def winners(path: Path, folder: Path | None) -> None:
    """Print where the winners are in the answers."""
    rows = pd.read_parquet(path)
    places: dict[str, list[int | None]] = {"kernel": [], "geometry": [], "geometry, tiles of 64 x 64 and more": []}
    models: dict[str, Model] = {}
    kinds: dict[int, tuple[Any, NDArray[np.intp], NDArray[np.bool_]]] = {}
    for row in rows.itertuples():
        problem, arch = _problem(row), str(row.arch)
        if arch not in models:
            models[arch] = EstimateModel(wanted_for(problem, arch)) if folder is None else load_model(folder)
        found = answer(problem, models[arch])
        if id(found.pool) not in kinds:
            large = np.minimum(column_of(found.pool, "tile_m"), column_of(found.pool, "tile_n")) >= SMALLEST
            kinds[id(found.pool)] = found.pool, geometries(found.pool), large
        _, geometry, large = kinds[id(found.pool)]
        winner = next(iter(np.flatnonzero(_is(found.pool, OP.parse_kernel(str(row.best_kernel))))), -1)
        own = int(geometry[winner]) if winner >= 0 else -1
        places["kernel"].append(place(found.order, int(winner)))
        places["geometry"].append(place(geometry[found.order], own))
        places["geometry, tiles of 64 x 64 and more"].append(place(geometry[found.order[large[found.order]]], own))
    candidates = sum(one is not None for one in places["kernel"])
    print(f"{candidates} of {len(rows)} winners are candidates; in the first {', '.join(map(str, PLACES))}:")
    for what, some in places.items():
        print(f"{what:40s} {shares(some)}")


def sweep(path: Path) -> None:
    """Print the efficiency of the estimate's choice among the kernels of a sweep, whose runs are averaged."""
    rows = pd.read_parquet(path)
    for key, part in rows.groupby(["m", "n", "k"]):
        times = part.groupby("kernel", sort=False)["latency_us"].mean()
        row: Any = next(part.itertuples())
        problem, arch = _problem(row), load_arch(row.arch)
        kernels = [OP.parse_kernel(name) for name in times.index]
        model = EstimateModel(wanted_for(problem, arch.name))
        pool = set(OP.candidates(problem, arch, model.path).kernels)
        scores = model.predict(problem, kernels)
        alike = times.to_numpy()[scores == scores.max()]
        efficiency, random = times.min() / alike, times.min() / times
        shape, known = " x ".join(map(str, key)), sum(one in pool for one in kernels)
        print(
            f"{shape:22s} {known} of {len(kernels)} are candidates; the estimate's choice "
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
