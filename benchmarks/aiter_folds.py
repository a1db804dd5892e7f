"""Accuracy of models of AITER's GEMM kernels on unseen layers, by pool.

    python benchmarks/aiter_folds.py data/aiter-gemm.parquet --judge all.parquet --arch gfx950

Layers (N, K), with all row counts, families and devices, are split into folds. A model is trained on the layers of the
other folds in the first file, with the trees of aiter_libraries.py of other layers, and evaluated on the fold's layers
in the second, which is complete. The baseline is the kernel that wins most often at the number of rows among the same
training layers. As errors on problems of a layer are correlated, intervals are by resampling layers, not problems.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import aiter_libraries
from ckh.assess import winners
from ckh.data.dataset import Dataset, read_dataset
from ckh.learn.judging.judged_answers import ranked_winners
from ckh.learn.models.artifact import load_model
from ckh.learn.training.train import train
from ckh.learn.training.trained import save

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.training import TrainOptions

_FEW = 5  # first choices
_KIND = ("arch", "num_cus", "family", "library")
_DRAWS = 2000


def judged(
    train_data: Dataset, judge: Dataset, folds: int, options: TrainOptions
) -> Iterator[tuple[Dataset, winners.WinnerPlaces, NDArray[np.int64]]]:
    """For each fold: the evaluated problems, the model's ranks of their winners, and the baseline's ranks."""
    times = aiter_libraries.times_in(aiter_libraries.TIMES)
    of_train, of_judge = (aiter_libraries.folds_of(part, folds) for part in (train_data, judge))
    for fold in range(folds):
        learned, held = train_data.select(of_train != fold), judge.select(of_judge == fold)
        with TemporaryDirectory() as folder:
            save(train(learned, options, lambda *_: None), Path(folder) / "model")
            aiter_libraries.with_trees_of_others(Path(folder) / "model", Path(folder) / "both", held, learned, times)
            ranked = ranked_winners(held, load_model(Path(folder) / "both"))
        yield held, ranked, winners.most_frequent(held, learned)


def interval(is_hit: NDArray[np.bool_], layer: NDArray[np.int64]) -> tuple[float, float]:
    """95 % interval of a share of problems, by resampling whole layers.

    Args:
        is_hit: of each problem, shape (problems,).
        layer: its N and K, shape (problems, 2).
    """
    number = np.unique(layer, axis=0, return_inverse=True)[1].reshape(-1)
    problems, hits = np.bincount(number), np.bincount(number, is_hit)
    drawn = np.random.default_rng(0).integers(0, len(problems), (_DRAWS, len(problems)))
    low, high = np.percentile(hits[drawn].sum(axis=1) / problems[drawn].sum(axis=1), (2.5, 97.5))
    return float(low), float(high)


def _part(dataset: Dataset, arguments: argparse.Namespace) -> Dataset:
    mask = dataset.frame["arch"] == arguments.arch
    if arguments.family:
        mask &= (dataset.frame["family"] == arguments.family) & (dataset.frame["library"] == "ck")
    return dataset.select(mask.to_numpy())


def main() -> None:
    """Evaluate and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--judge", type=Path, required=True, action="append")
    parser.add_argument("--arch", required=True)
    parser.add_argument("--family", help="Train and judge on one family's kernels of CK alone.")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, help="Of the drawn rivals and of the trees, that of the recipe by default.")
    parser.add_argument("--trees", type=int)
    parser.add_argument("--leaves", type=int)
    arguments = parser.parse_args()
    data = _part(read_dataset(*arguments.data), arguments)
    judge = _part(read_dataset(*arguments.judge), arguments)
    options = replace(data.op.training.defaults(len(data)), jobs=arguments.jobs)
    options = options if arguments.seed is None else replace(options, seed=arguments.seed)
    changed = {"n_estimators": arguments.trees, "num_leaves": arguments.leaves}
    options = replace(options, params=replace(options.params, **{k: v for k, v in changed.items() if v}))
    rows: dict[tuple[object, ...], list[tuple[int, int, int, int]]] = {}
    for held, ranked, baseline in judged(data, judge, arguments.folds, options):
        first = held.frame.iloc[held.first_rows]
        kinds = first[list(_KIND)].itertuples(index=False, name=None)
        layers = first[list(held.op.problems.split_by)].itertuples(index=False, name=None)
        for kind, layer, place, other in zip(kinds, layers, ranked.place, baseline, strict=True):
            rows.setdefault(kind, []).append((int(place), int(other), *layer))
    print(f"{'pool':58} problems  first  first 5        95 % | wins most at this M: first  first 5")
    for kind, result in sorted(rows.items()):
        place, other, *layer = (np.array(column) for column in zip(*result, strict=True))
        low, high = interval(place < _FEW, np.column_stack(layer))
        shares = [float(np.mean(item < few)) for item in (place, other) for few in (1, _FEW)]
        name = " ".join(map(str, kind))
        print(
            f"{name:58} {len(place):8} {shares[0]:6.3f} {shares[1]:8.3f} {low:5.3f}-{high:5.3f}"
            f" | {shares[2]:26.3f} {shares[3]:8.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
