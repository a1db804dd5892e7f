"""Kernel and split of K on layers that no model has seen, on AITER's tables whose tuners tried splits.

    python benchmarks/collected.py aiter_gemm_tuned.parquet all.parquet --arch gfx950
    python benchmarks/splits.py data/aiter-gemm-gfx950.parquet --judge all.parquet [--untold]

Layers (N, K) are split into folds. A model is trained on the other layers of the families that are judged, as `ckh
train --labels winners` does, and answers as `ckh predict` does: over both libraries and all splits. Judged are tables
whose source states more than two splits (splits.md says why), by ranges of M. The baselines choose among the winners of
the same tables on the other layers: those that win most often at the nearest M, and those of the nearest problems.
`--untold` trains on the same rows without what their tuners tried: every kernel without a split beat all splits.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import aiter_libraries
from ckh.assess import winners
from ckh.data.dataset import Dataset, read_dataset
from ckh.learn.answers.ranking import rankings_of
from ckh.learn.models.artifact import load_model
from ckh.learn.training.train import train
from ckh.learn.training.trained import save

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
TIMES = ROOT / "data" / "aiter-gemm-libraries-gfx950.parquet"
RANGES = ((1, 64), (65, 512), (513, 2048), (2049, 10**9))
FOLDS, FEW = 5, 5
MORE = 2  # splits; a later version of the tuner tries fewer


def splits_tried(dataset: Dataset) -> NDArray[np.int64]:
    """Largest split that the tuner of each row's table tried; 0 for ASM's family, in which CK's kernels have none."""
    most = {
        f"{source['name']}:{source['sha256'][:12]}": max(source["tried"]["split_k"])
        for source in dataset.metadata["sources"]
    }
    has_splits = (dataset.frame["family"] != aiter_libraries.TIMED).to_numpy()
    return np.where(has_splits, dataset.frame["run_id"].map(most).to_numpy(np.int64), 0)


def nearest(held: Dataset, learned: Dataset) -> NDArray[np.int64]:
    """Rank of each winner among the winners of the nearest learned problems."""
    names, place = learned.frame["kernel"].tolist(), held.op.problems.place
    known = np.array([place(learned.problem(row)) for row in range(len(learned))])
    ranks = []
    for row in range(len(held)):
        order = np.abs(known - place(held.problem(row))).sum(axis=1).argsort(kind="stable")
        near = list(dict.fromkeys(names[at] for at in order))
        name = held.frame["kernel"].iloc[row]
        ranks.append(near.index(name) if name in near else winners.MISSING)
    return np.array(ranks, np.int64)


def answered(held: Dataset, folder: Path) -> NDArray[np.int64]:
    """Rank of each winner in the answer of a model."""
    name_of, ranks = held.op.kernels.name, []
    rankings = rankings_of(held.problems(), load_model(folder))
    for number, row in zip(held.problem_ids, range(len(held)), strict=True):
        ranking, name = rankings[number], held.frame["kernel"].iloc[row]
        names = (name_of(ranking.pool[at]) for at in ranking.order)
        ranks.append(next((at for at, known in enumerate(names) if known == name), winners.MISSING))
    return np.array(ranks, np.int64)


def judged(data: Dataset, judge: Dataset, *, told: bool) -> dict[str, NDArray[np.int64]]:
    """Ranks of the winners, and their M, over all folds."""
    data = data.select(data.frame["family"].isin(judge.frame["family"].unique()).to_numpy())
    tables, times = data.select(splits_tried(data) >= MORE), aiter_libraries.times_in(TIMES)
    if not told:
        data = replace(data, metadata={**data.metadata, "sources": []})
    options = data.op.training.defaults(len(data))
    of_data, of_tables, of_judge = (aiter_libraries.folds_of(part, FOLDS) for part in (data, tables, judge))
    ranks: dict[str, list[NDArray[np.int64]]] = defaultdict(list)
    for fold in range(FOLDS):
        held, learned = judge.select(of_judge == fold), tables.select(of_tables != fold)
        if not len(held):
            continue
        with TemporaryDirectory() as work:
            rest = data.select(of_data != fold)
            save(train(rest, options, lambda *_: None), Path(work) / "model")
            aiter_libraries.with_trees_of_others(Path(work) / "model", Path(work) / "both", held, rest, times)
            ranks["model"].append(answered(held, Path(work) / "both"))
        ranks["wins most at this M"].append(winners.most_frequent(held, learned))
        ranks["nearest problems' winners"].append(nearest(held, learned))
        ranks["m"].append(held.frame["m"].to_numpy(np.int64))
    return {name: np.concatenate(parts) for name, parts in ranks.items()}


def main() -> None:
    """Print the shares of winners that are first, and among the first five, by range of M."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--judge", type=Path, required=True)
    parser.add_argument("--untold", action="store_true")
    given = parser.parse_args()
    judge = read_dataset(given.judge).valid()
    judge = judge.select(splits_tried(judge) >= MORE)
    ranks = judged(read_dataset(given.data).valid(), judge, told=not given.untold)
    m = ranks.pop("m")
    for low, high in RANGES:
        inside = (m >= low) & (m <= high)
        shares = [f"{name} {(at[inside] < 1).mean():.3f} {(at[inside] < FEW).mean():.3f}" for name, at in ranks.items()]
        print(f"M {low} to {min(high, m.max())}, {inside.sum()} winners: first, in five: {'; '.join(shares)}")


if __name__ == "__main__":
    main()
