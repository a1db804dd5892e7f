"""How good models of AITER's MoE kernels are on layers that they have not seen.

    python benchmarks/aiter_moe_folds.py data/aiter-moe-gfx950.parquet data/aiter-moe-gfx942.parquet

A layer (model_dim, inter_dim, experts, topk) is held out at a time, in all its numbers of tokens, stages and types. The
best average kernel is that of the other layers on each stage; of a problem that lacks it, the next best that it has.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ckh.assess.baselines import Learned, random_efficiency
from ckh.assess.measured import times_of
from ckh.assess.metrics import choices
from ckh.data.dataset import Dataset, read_dataset
from ckh.learn.artifact import load_model
from ckh.learn.save import save
from ckh.learn.train import train
from ckh.training import RankObjective, TrainOptions


def with_choice(dataset: Dataset) -> Dataset:
    """The rows of problems that leave a choice."""
    return dataset.select(np.bincount(dataset.problem_ids)[dataset.problem_ids] > 1)


def efficiencies(dataset: Dataset, options: TrainOptions) -> dict[str, dict[str, np.ndarray]]:
    """Stage -> what chooses -> the efficiency of its choices on held-out layers."""
    found: dict[str, dict[str, list[np.ndarray]]] = {}
    for arch in dataset.archs:
        part = dataset.select((dataset.frame["arch"] == arch).to_numpy())
        for layer in range(int(part.split_ids.max()) + 1):
            held, learned = part.select(part.split_ids == layer), part.select(part.split_ids != layer)
            held = with_choice(held)
            if not len(held) or not len(learned):
                continue
            with TemporaryDirectory() as folder:
                save(train(learned, options, lambda *_: None), Path(folder) / "model")
                scores = load_model(Path(folder) / "model").scores(held)
            times, stage = times_of(held), held.frame["stage"].to_numpy()[held.first_rows]
            chosen = {
                "model": times.efficiency()[choices(scores, times.problem, times.count)],
                "best average kernel": times.efficiency()[
                    choices(Learned([learned]).single_kernel_scores(held), times.problem, times.count)
                ],
                "random": random_efficiency(times),
            }
            for name, values in chosen.items():
                for one in np.unique(stage):
                    found.setdefault(one, {}).setdefault(name, []).append(values[stage == one])
                stages = values[stage != "both"]
                found.setdefault("each stage", {}).setdefault(name, []).append(stages)
    return {one: {name: np.concatenate(values) for name, values in some.items()} for one, some in found.items()}


def main() -> None:
    """Judge and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--trees", type=int)
    parser.add_argument("--leaves", type=int)
    parser.add_argument("--rank", type=RankObjective)
    arguments = parser.parse_args()
    dataset = read_dataset(*arguments.data)
    options = replace(dataset.op.train_defaults(len(dataset)), jobs=1)
    changed = {"n_estimators": arguments.trees, "num_leaves": arguments.leaves}
    options = replace(options, params=replace(options.params, **{k: v for k, v in changed.items() if v}))
    options = replace(options, rank=arguments.rank or options.rank)
    for stage, some in efficiencies(dataset, options).items():
        for name, values in some.items():
            print(f"{stage:12} {name:20} {len(values):5} mean {values.mean():.4f} P10 {np.percentile(values, 10):.4f}")


if __name__ == "__main__":
    main()
