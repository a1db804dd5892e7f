"""How good models of AITER's GEMM kernels are on layers that they have not seen, pool by pool.

    python benchmarks/aiter_folds.py data/aiter-gemm.parquet --judge all.parquet --arch gfx950

Layers (N, K) are dealt into folds, in all their row counts, families and devices at once. A model is trained on the
layers of the other folds in the first file, and judged on the fold's layers in the second, of which none was left out.
Beside it stands the kernel that wins most at the number of rows among the same training layers.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess import winners
from ckh.data.dataset import Dataset, read_dataset
from ckh.learn.artifact import load_model
from ckh.learn.save import save
from ckh.learn.train import train
from ckh.learn.winners import ranked_winners

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.training import TrainOptions

_FEW = 5  # first choices
_KIND = ("arch", "num_cus", "family", "library")


def folds_of(dataset: Dataset, folds: int) -> NDArray[np.int64]:
    """The fold of each row, by its layer: the same in every file, and layers of a size are spread evenly."""
    layers = dataset.frame[list(dataset.op.split_by)].to_numpy()
    mixed = (layers[:, 0] * 2654435761 + layers[:, 1] * 40503) % (2**32)
    return np.asarray((mixed >> 7) % folds, np.int64)


def judged(
    train_data: Dataset, judge: Dataset, folds: int, options: TrainOptions
) -> Iterator[tuple[Dataset, winners.WinnerPlaces, NDArray[np.int64]]]:
    """Each fold: the problems judged, how a model of the other folds ranks their winners, and the baseline's places."""
    of_train, of_judge = folds_of(train_data, folds), folds_of(judge, folds)
    for fold in range(folds):
        learned, held = train_data.select(of_train != fold), judge.select(of_judge == fold)
        with TemporaryDirectory() as folder:
            save(train(learned, options, lambda *_: None), Path(folder) / "model")
            ranked = ranked_winners(held, load_model(Path(folder) / "model"))
        yield held, ranked, winners.most_frequent(held, learned)


def _part(dataset: Dataset, arguments: argparse.Namespace) -> Dataset:
    mask = dataset.frame["arch"] == arguments.arch
    if arguments.family:
        mask &= (dataset.frame["family"] == arguments.family) & (dataset.frame["library"] == "ck")
    return dataset.select(mask.to_numpy())


def main() -> None:
    """Judge and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--judge", type=Path, required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--family", help="Train and judge on one family's kernels of CK alone.")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trees", type=int)
    parser.add_argument("--leaves", type=int)
    arguments = parser.parse_args()
    data, judge = (_part(read_dataset(path), arguments) for path in (arguments.data, arguments.judge))
    options = replace(data.op.train_defaults(len(data)), jobs=arguments.jobs)
    changed = {"n_estimators": arguments.trees, "num_leaves": arguments.leaves}
    options = replace(options, params=replace(options.params, **{k: v for k, v in changed.items() if v}))
    rows: dict[tuple[object, ...], list[tuple[int, int, float]]] = {}
    for held, ranked, baseline in judged(data, judge, arguments.folds, options):
        kinds = held.frame.iloc[held.first_rows][list(_KIND)].itertuples(index=False, name=None)
        leasts = winners.bounds(held, ranked.first)
        for kind, place, other, least in zip(kinds, ranked.place, baseline, leasts, strict=True):
            rows.setdefault(kind, []).append((int(place), int(other), float(least)))
    print(f"{'pool':58} problems  first  first 5 | wins most at this M: first  first 5 | bounded  mean  P10")
    for kind, found in sorted(rows.items()):
        place, other, least = (np.array(column) for column in zip(*found, strict=True))
        shares = [float(np.mean(one < few)) for one in (place, other) for few in (1, _FEW)]
        known = least[np.isfinite(least)]
        bound = f"{known.mean():5.3f} {np.percentile(known, 10):.3f}" if len(known) else "    -     -"
        name = " ".join(map(str, kind))
        print(
            f"{name:58} {len(place):8} {shares[0]:6.3f} {shares[1]:8.3f} | {shares[2]:26.3f} {shares[3]:8.3f}"
            f" | {len(known):7} {bound}",
            flush=True,
        )


if __name__ == "__main__":
    main()
