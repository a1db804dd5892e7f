"""Efficiency of models of few measured pairs that correct the analytic estimate, on AMD's convolutions of gfx950.

    python benchmarks/estimate_prior.py [--pairs 100 300 1000] [--draws 20] [--wait 2500] [--mixtures]

Models are trained on random pairs of one file (20 kernels on 158 problems, or on 186 others) with the defaults of `ckh
train`; the first kernel of the answers for the other file's problems is evaluated. From 1,000 pairs on there are half
as many draws. Prints mean / P10 efficiency over all draws and its difference to the estimate without training, in
points, also of the worst draw. `--wait` takes other clocks for an iteration's wait, so that the estimate is wrong as a
whole, as it may be of another GPU. The largest weight of corrections was chosen with knowledge of these data: within a
file, folds choose weights up to 1, which lose up to 2.5 points on the other file.

With `--mixtures`, models of AITER's mixtures of experts on an MI350 are judged in the same way, each draw on two layers
of nine, trained on pairs of the other seven.
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
from ckh.learn.analytic import estimate as analytic
from ckh.learn.analytic.transfer import estimate_model
from ckh.learn.judging.judged_answers import ranked_rows
from ckh.learn.models.artifact import Model, load_model, wanted_for
from ckh.learn.models.spec import ANY, Wanted
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops.grouped_conv.requested import has_few_channels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.training import TrainOptions

ROOT = Path(__file__).parents[1]
MANY = 1000
FILES = {number: ROOT / "data" / f"amd-gfx950-conv-{number}kernels.parquet" for number in (20, 30)}


def random_pairs(dataset: Dataset, pairs: int, seed: int) -> Dataset:
    """Some rows of a dataset, or all."""
    count = min(pairs, len(dataset))
    return dataset.select(np.sort(np.random.default_rng(seed).choice(len(dataset), count, replace=False)))


def with_wide_channels(dataset: Dataset) -> Dataset:
    """Rows of problems whose channels kernels load in whole vectors, or pad to these."""
    is_wide = [not has_few_channels(problem.c, problem.k, problem.g) for problem in dataset.problems()]
    return dataset.select(np.array(is_wide)[dataset.problem_ids])


def options_of(learned: Dataset, prior: float) -> TrainOptions:
    """The defaults of `ckh train` for a dataset, with a prior of this weight, or none."""
    defaults = learned.op.training.defaults(len(learned))
    return replace(defaults, targets=(), folds=0, jobs=1, prior=prior if defaults.prior else 0.0)


def chosen(learned: Dataset, held_out: Dataset, options: TrainOptions) -> NDArray[np.float64]:
    """Efficiency of the first measured kernel of a model's answer to each problem."""
    with tempfile.TemporaryDirectory() as work:
        save(train(learned, options, lambda *_: None), Path(work) / "model")
        return efficiency(load_model(Path(work) / "model"), held_out)


def efficiency(model: Model, held_out: Dataset) -> NDArray[np.float64]:
    """Efficiency of the first measured kernel of answers, NaN where none is a candidate, shape (problems,)."""
    times, ranked = times_of(held_out), ranked_rows(model, held_out)
    chosen = times.efficiency()[ranked.best_ranked(times.problem)]
    return np.where(ranked.ranks_any(times.problem), chosen, np.nan)


def shown(result: list[NDArray[np.float64]]) -> str:
    """Mean and P10 over draws and problems."""
    item = np.concatenate(result)
    return f"{np.nanmean(item):.2%} / {np.nanpercentile(item, 10):.2%}"


def mixtures(pairs: int, draws: int) -> None:
    """Print a line for models of mixtures of experts."""
    data = read_dataset(ROOT / "data" / "aiter-moe-gfx950.parquet").valid()
    layers, result, gain = int(data.split_ids.max()) + 1, [], []
    for seed in range(draws):
        held = seed % layers, (seed % layers + 1 + seed // layers) % layers
        is_held = np.isin(data.split_ids, held) & (np.bincount(data.problem_ids)[data.problem_ids] > 1)
        held_out, learned = data.select(is_held), data.select(~np.isin(data.split_ids, held))
        alone = efficiency(estimate_model(Wanted(data.op.name, None, ANY, data.arch)), held_out)
        rows = random_pairs(learned, pairs, seed)
        result.append(chosen(rows, held_out, options_of(rows, 1.0)))
        gain.append(100 * np.nanmean(result[-1] - alone))
    said = f"{shown(result)}, {np.mean(gain):+.2f} to the estimate, at worst {min(gain):+.2f}"
    print(f"{pairs:5d} pairs of mixtures: {said}", flush=True)


def main() -> None:
    """Print a line for each number of pairs and direction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[5, 30, 100, 300, 1000, 2900])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--wait", type=float, default=analytic._WAIT_CLOCKS)  # noqa: SLF001 - of an experiment
    parser.add_argument("--mixtures", action="store_true")
    arguments = parser.parse_args()
    for pairs in arguments.pairs if arguments.mixtures else ():
        mixtures(pairs, arguments.draws // (1 + (pairs >= MANY)))
    if arguments.mixtures:
        return
    analytic._WAIT_CLOCKS = arguments.wait  # noqa: SLF001
    data = {number: read_dataset(path).valid() for number, path in FILES.items()}
    for learned, judged in ((20, 30), (30, 20)):
        held_out = with_wide_channels(data[judged])
        estimate = estimate_model(wanted_for(held_out.problems()[0], held_out.arch))
        before = efficiency(estimate, held_out)
        print(f"{judged}-kernel file by the estimate alone: {shown([before])}", flush=True)
        for pairs in arguments.pairs:
            draws = 1 if pairs >= len(data[learned]) else arguments.draws // (1 + (pairs >= MANY))
            rows = [random_pairs(data[learned], pairs, seed) for seed in range(draws)]
            result = [chosen(row, held_out, options_of(row, 1.0)) for row in rows]
            gain = 100 * np.array([np.nanmean(item - before) for item in result])
            said = f"{shown(result)}, {gain.mean():+.2f} to the estimate, at worst {gain.min():+.2f}"
            print(f"{len(rows[0]):5d} pairs of the {learned}-kernel file: {said}", flush=True)


if __name__ == "__main__":
    main()
