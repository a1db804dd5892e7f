"""Ranks of AMD's measured winners of fp8 GEMMs on the MI350 in the answers of `ckh predict`.

    python benchmarks/gemm_winners.py WINNERS.parquet [32KERNELS.parquet] [--model FOLDER] [--data OUT.parquet]
    python benchmarks/gemm_winners.py WINNERS.parquet --folds 5 [--prior FBGEMM.parquet]

The first file has AMD's best measured kernel of each problem (`m`, `n`, `k`, `dtype`, `layout`, `arch`, `best_kernel`;
for --folds also data/amd-gfx950-gemm-fp8-winners.parquet), the second all kernels of a sweep (`run`, `m`, `n`, `k`,
`kernel`, `latency_us`, ...). Without a model the analytic estimate answers. A geometry is tile, waves and matrix
instruction; its rank is that of its first kernel in the answer, counted in geometries. AMD's winners have no tile below
64 x 64, so ranks among such tiles are printed too. --data
writes the winners as a dataset. --folds splits layers (N, K) into folds, trains on the others as `ckh train --labels
winners` does, and prints the rank of the winner by the model, by the kernels that win most often, and by those that won
on the nearest problems of other layers. --prior adds to the model's order how often FBGEMM's row-wise fp8 GEMMs of a
similar M have a kernel's tile (m, n, `op`, `tile_m`, `tile_n`, ...): the log of that share, by several weights, is
subtracted from the log of the kernel's rank.
"""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pyarrow.parquet import read_schema

from ckh.archs import load_arch
from ckh.assess.winners import MISSING
from ckh.data.conversion import convert
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.kernels.table import column_of
from ckh.learn.analytic.transfer import as_of, estimate_model, with_estimate
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.judging.judged_answers import ranked_winners
from ckh.learn.models.artifact import ModelRef, load_model, wanted_for
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops import operation
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.training import RANK, winner_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.models.artifact import Model

OP = operation("gemm_universal")
SMALLEST = 64
DRAWS = 2000
PLACES = (1, 5, 50)
AMD_NAME = "p1_oracle_best_results.csv"
AMONG = ("5", "10", "50")
PRIOR_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)


def geometries(pool: Sequence[Any]) -> NDArray[np.intp]:
    """Index of the tile, waves and matrix instruction of each kernel of a pool."""
    names = [f"{what}_{axis}" for what in ("tile", "wave", "warp_tile") for axis in "mnk"]
    columns = np.stack([column_of(pool, name) for name in names], axis=1)
    return np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)


def place(order: NDArray[np.intp], winner: int) -> int | None:
    """Number of different indices before the winner's; None if it is missing."""
    at = np.flatnonzero(order == winner)
    return len(np.unique(order[: at[0]])) if len(at) else None


def shares(places: list[int | None]) -> str:
    """Shares of the winners among the first."""
    known = np.array([np.inf if item is None else item for item in places])
    return " / ".join(f"{(known < most).mean():6.1%}" for most in PLACES)


def _is(pool: Sequence[Any], kernel: Any) -> NDArray[np.bool_]:
    """Mask of this kernel in a pool."""
    same = np.ones(len(pool), np.bool_)
    for field in fields(kernel):
        same &= column_of(pool, field.name) == getattr(kernel, field.name)
    return same


def _problem(row: Any) -> GemmProblem:
    return GemmProblem(int(row.m), int(row.n), int(row.k), row.dtype, row.layout)


def winners(path: Path, folder: Path | None) -> None:
    """Print the ranks of the winners in the answers."""
    rows = pd.read_parquet(path)
    places: dict[str, list[int | None]] = {"kernel": [], "geometry": [], "geometry, tiles of 64 x 64 and more": []}
    models: dict[str, Model] = {}
    kinds: dict[int, tuple[Any, NDArray[np.intp], NDArray[np.bool_]]] = {}
    for row in rows.itertuples():
        problem, arch = _problem(row), str(row.arch)
        if arch not in models:
            models[arch] = estimate_model(wanted_for(problem, arch)) if folder is None else load_model(folder)
        ranking = ranking_of(problem, models[arch])
        if id(ranking.pool) not in kinds:
            large = np.minimum(column_of(ranking.pool, "tile_m"), column_of(ranking.pool, "tile_n")) >= SMALLEST
            kinds[id(ranking.pool)] = ranking.pool, geometries(ranking.pool), large
        _, geometry, large = kinds[id(ranking.pool)]
        winner = next(iter(np.flatnonzero(_is(ranking.pool, OP.kernels.parse(str(row.best_kernel))))), -1)
        own = int(geometry[winner]) if winner >= 0 else -1
        places["kernel"].append(place(ranking.order, int(winner)))
        places["geometry"].append(place(geometry[ranking.order], own))
        places["geometry, tiles of 64 x 64 and more"].append(place(geometry[ranking.order[large[ranking.order]]], own))
    candidates = sum(item is not None for item in places["kernel"])
    print(f"{candidates} of {len(rows)} winners are candidates; in the first {', '.join(map(str, PLACES))}:")
    for what, at in places.items():
        print(f"{what:40s} {shares(at)}")


def make_data(path: Path, out: Path) -> None:
    """Write the winners in the columns of AMD's sweeps as CSV and convert them."""
    frame = pd.read_parquet(path).rename(columns={"best_kernel": "kernel", "best_tflops": "tflops"})
    with TemporaryDirectory() as work:
        table = Path(work) / AMD_NAME
        frame[["kernel", "m", "n", "k", "tflops"]].to_csv(table, index=False)
        convert([table], out, ReadOptions(arch=str(frame["arch"].iloc[0])), format_name="tile-engine-csv")


def _folds(path: Path, count: int, seed: int) -> Iterator[tuple[Dataset, Dataset, Model]]:
    """Yield the winners of the other layers, those of a fold, and a model of the former; `path` may be a dataset."""
    with TemporaryDirectory() as work:
        if "best_kernel" in read_schema(path).names:
            make_data(path, Path(work) / "data.parquet")
            path = Path(work) / "data.parquet"
        data = read_dataset(path)
    layers = data.frame[["n", "k"]].to_numpy()
    numbers = (((layers[:, 0] * 2654435761 + layers[:, 1] * 40503) % (2**32)) >> 7) % count
    for fold in range(count):
        learned, held = data.select(numbers != fold), data.select(numbers == fold)
        with TemporaryDirectory() as folder:
            save(train(learned, replace(winner_options(), seed=seed), lambda *_: None), Path(folder) / "model")
            yield learned, held, load_model(Path(folder) / "model")


def _shares_among(places: Sequence[int]) -> str:
    return " / ".join(f"{np.mean(np.array(places) < int(most)):6.1%}" for most in ("1", *AMONG))


def with_prior(path: Path, count: int, seed: int, prior: Path) -> None:
    """Print the same shares where the tiles of FBGEMM's winners change the order of the model."""
    known = pd.read_parquet(prior)
    known = known[known["op"] == "fp8_rowwise"]
    places: dict[float, list[int]] = {weight: [] for weight in PRIOR_WEIGHTS}
    for _, held, model in _folds(path, count, seed):
        for problem, row in zip(held.problems(), held.first_rows.tolist(), strict=True):
            ranking = ranking_of(problem, model)
            near = np.exp(-np.abs(np.log2(known["m"] / problem.m)))
            won = near.groupby([known["tile_m"], known["tile_n"]]).sum().to_dict()
            tiles = zip(
                *(column_of(ranking.pool, name)[ranking.order].tolist() for name in ("tile_m", "tile_n")), strict=True
            )
            share = np.log([(won.get(tile, 0.0) + 0.5) / (near.sum() + 1) for tile in tiles])
            winner = _is(ranking.pool, OP.kernels.parse(str(held.frame["kernel"].iloc[row])))[ranking.order]
            rank = np.log(np.arange(len(share)) + 1.0)
            for weight, at in places.items():
                score = rank - weight * share
                at.append(int((score < score[winner][0]).sum()) if winner.any() else MISSING)
    print(f"the model and FBGEMM's tiles: the winner is first, in the first {', '.join(AMONG)}")
    for weight, at in places.items():
        print(f"weight {weight:<21} {_shares_among(at)}", flush=True)


def held_out(path: Path, count: int, seed: int) -> dict[str, list[int]]:
    """Return the winners' ranks by a model of other layers, and by the baselines."""
    places: dict[str, list[int]] = {"model": [], "wins most": [], "nearest problems' winners": []}
    for learned, held, model in _folds(path, count, seed):
        places["model"] += ranked_winners(held, model).place.tolist()
        won = learned.frame["kernel"].to_numpy()
        most = list(learned.frame["kernel"].value_counts().index)
        at, own = (np.log2(part.frame[["m", "n", "k"]].to_numpy(np.float64)) for part in (learned, held))
        for name, place in zip(held.frame["kernel"], own, strict=True):
            near = list(dict.fromkeys(won[np.argsort(np.abs(at - place).sum(axis=1), kind="stable")]))
            for what, order in (("wins most", most), ("nearest problems' winners", near)):
                places[what].append(order.index(name) if name in order else MISSING)
    return places


def folds(path: Path, count: int, seed: int) -> None:
    """Print how often the winner is first, and among the first."""
    places = held_out(path, count, seed)
    problems = len(places["model"])
    print(f"{problems} problems, {count} folds by layers: the winner is first, in the first {', '.join(AMONG)}")
    for what, at_place in places.items():
        print(f"{what:28s} {_shares_among(at_place)}", flush=True)


def sweep(path: Path, folder: Path | None) -> None:
    """Print the efficiency of the choice among the kernels of a sweep, averaged over its runs."""
    rows = pd.read_parquet(path)
    chosen = []
    for key, part in rows.groupby(["m", "n", "k"]):
        times = part.groupby("kernel", sort=False)["latency_us"].mean()
        row: Any = next(part.itertuples())
        problem, arch = _problem(row), load_arch(row.arch)
        kernels = [OP.kernels.parse(name) for name in times.index]
        wanted = wanted_for(problem, arch.name)
        model: Model = estimate_model(wanted)
        if folder is not None:
            ref = ModelRef(folder, load_model(folder).spec)
            model = with_estimate(as_of(ref, wanted), ref, wanted)
        pool = set(OP.kernels.candidates(problem, arch, model.path).kernels)
        scores = model.predict(problem, kernels, RANK)
        alike = times.to_numpy()[scores == scores.max()]
        efficiency, random = times.min() / alike, times.min() / times
        chosen.append((efficiency.mean(), random.mean()))
        shape, known = " x ".join(map(str, key)), sum(kernel in pool for kernel in kernels)
        print(
            f"{shape:22s} {known} of {len(kernels)} are candidates; the choice "
            f"{efficiency.mean():.1%} ({len(alike)} alike), random {random.mean():.1%}"
        )
    best, chance = np.array(chosen).T
    draws = best[np.random.default_rng(0).integers(0, len(best), (DRAWS, len(best)))].mean(axis=1)
    low, high = np.percentile(draws, (2.5, 97.5))
    print(
        f"mean {best.mean():.1%} ({low:.1%} to {high:.1%}), P10 {np.percentile(best, 10):.1%}"
        f", random {chance.mean():.1%}"
    )


def main() -> None:
    """Evaluate the given data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("winners", type=Path)
    parser.add_argument("sweep", type=Path, nargs="?")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--folds", type=int)
    parser.add_argument("--prior", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.data is not None:
        make_data(given.winners, given.data)
    if given.folds is not None:
        folds(given.winners, given.folds, given.seed)
        if given.prior is not None:
            with_prior(given.winners, given.folds, given.seed, given.prior)
        return
    winners(given.winners, given.model)
    if given.sweep is not None:
        sweep(given.sweep, given.model)


if __name__ == "__main__":
    main()
