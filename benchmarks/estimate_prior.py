"""Efficiency of models of few measured pairs with the analytic estimate as prior, on AMD's convolutions of gfx950.

    python benchmarks/estimate_prior.py [--pairs 100 300 1000] [--draws 10]

Models are trained on random pairs of one file (20 kernels on 158 problems, or on 186 others) with the defaults of `ckh
train`, and without the prior; the first kernel of the answers for the other file's problems is evaluated. Prints mean /
P10 efficiency over all draws, compared with the estimate without training. The form of the estimate, and the deviations
and the weight of its correction, were chosen with knowledge of these data.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.times import times_of
from ckh.data.dataset import Dataset, read_dataset
from ckh.learn.analytic.transfer import estimate_model
from ckh.learn.judging.judged_answers import ranked_rows
from ckh.learn.models.artifact import Model, load_model, wanted_for
from ckh.learn.training.train import train
from ckh.learn.training.trained import save

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.training import TrainOptions

ROOT = Path(__file__).parents[1]
FILES = {number: ROOT / "data" / f"amd-gfx950-conv-{number}kernels.parquet" for number in (20, 30)}


def random_pairs(dataset: Dataset, pairs: int, seed: int) -> Dataset:
    """Some rows of a dataset, or all."""
    count = min(pairs, len(dataset))
    return dataset.select(np.sort(np.random.default_rng(seed).choice(len(dataset), count, replace=False)))


def options_of(learned: Dataset, prior: float) -> TrainOptions:
    """The defaults of `ckh train` for a dataset, with a prior of this weight, or none."""
    defaults = learned.op.training.defaults(len(learned))
    return replace(defaults, targets=(), folds=0, jobs=1, prior=prior, lambdarank=defaults.lambdarank * (prior > 0))


def chosen(learned: Dataset, held_out: Dataset, options: TrainOptions) -> NDArray[np.float64]:
    """Efficiency of the first measured kernel of a model's answer to each problem."""
    with tempfile.TemporaryDirectory() as work:
        save(train(learned, options, lambda *_: None), Path(work) / "model")
        return efficiency(load_model(Path(work) / "model"), held_out)


def efficiency(model: Model, held_out: Dataset) -> NDArray[np.float64]:
    """Efficiency of the first measured kernel of answers, shape (problems,)."""
    times, ranked = times_of(held_out), ranked_rows(model, held_out)
    assert ranked.ranks_any(times.problem).all()
    return np.asarray(times.efficiency()[ranked.best_ranked(times.problem)])


def shown(result: list[NDArray[np.float64]]) -> str:
    """Mean and P10 over draws and problems."""
    item = np.concatenate(result)
    return f"{item.mean():.2%} / {np.percentile(item, 10):.2%}"


def main() -> None:
    """Print a line for each number of pairs and direction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[100, 300, 1000, 10_000])
    parser.add_argument("--draws", type=int, default=10)
    arguments = parser.parse_args()
    data = {number: read_dataset(path).valid() for number, path in FILES.items()}
    for learned, judged in ((20, 30), (30, 20)):
        held_out = data[judged]
        estimate = estimate_model(wanted_for(held_out.problems()[0], held_out.arch))
        print(f"{judged}-kernel file by the estimate alone: {shown([efficiency(estimate, held_out)])}", flush=True)
        for pairs in arguments.pairs:
            draws = 1 if pairs >= len(data[learned]) else arguments.draws
            rows = [random_pairs(data[learned], pairs, seed) for seed in range(draws)]
            cells = [
                f"{what} {shown([chosen(row, held_out, options_of(row, prior)) for row in rows])}"
                for what, prior in (("with its prior", 1.0), ("trees alone", 0.0))
            ]
            print(f"{len(rows[0]):5d} pairs of the {learned}-kernel file: {', '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
