"""Accuracy of models of AITER's MoE kernels on layers of unseen models.

    python benchmarks/aiter_moe_folds.py data/aiter-moe-gfx950.parquet data/aiter-moe-gfx942*.parquet

All problems of a model's layer (model_dim, inter_dim, experts) are held out together: all numbers of tokens and experts
per token, stages and element types. The answer of `ckh predict` is evaluated: the first of its candidates. If that was
not measured, it is counted, and the first measured candidate is evaluated instead; problems whose best measured kernel
is not a candidate are counted as well. The best average kernel is that of the other layers on each stage; for a problem
that lacks it, the next best that was measured. As errors on problems of a layer are correlated, intervals are by
resampling layers, not problems.

Models have the recipe of the shipped ones, which `--out` trains; with `--defaults` those of `ckh train`, which start
from the analytic estimate.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.baselines import Learned, random_efficiency
from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.data.dataset import Dataset, read_dataset
from ckh.learn.answers.ranking import rankings_of
from ckh.learn.models.artifact import Model, load_model
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.training import PLAIN_TREES, RankObjective, TrainOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DRAWS = 2000
_TREES = replace(PLAIN_TREES, n_estimators=300, learning_rate=0.05, num_leaves=15, min_child_samples=10)
RECIPE = TrainOptions(
    rank=RankObjective.LAMBDARANK, folds=0, seed=1, params=replace(_TREES, colsample_bytree=0.5)
)  # of the shipped models
_EACH = "each stage"


@dataclass(slots=True)
class Held:
    """Results on held-out problems of a stage: efficiency by method, layers, and gaps in coverage."""

    efficiency: dict[str, list[NDArray[np.float64]]] = field(default_factory=dict)
    layer: list[NDArray[np.int64]] = field(default_factory=list)
    unmeasured: int = 0
    no_candidate: int = 0
    refused: int = 0


def with_choice(dataset: Dataset) -> Dataset:
    """Rows of problems with several kernels."""
    return dataset.select(np.bincount(dataset.problem_ids)[dataset.problem_ids] > 1)


def answered(dataset: Dataset, model: Model) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Efficiency of each problem's first measured candidate, NaN without one, and gaps in coverage.

    Returns:
        Efficiencies, shape (problems,), and flags, shape (problems, 3): the first candidate was not measured, the best
        measured kernel is no candidate, there is no candidate.
    """
    efficiency, name = times_of(dataset).efficiency(), dataset.frame["kernel"].to_numpy(dtype=object)
    op = dataset.op
    result, flags = np.full(len(dataset.first_rows), np.nan), np.zeros((len(dataset.first_rows), 3), np.bool_)
    for number, answer in enumerate(rankings_of(dataset.problems(), model)):
        rows = np.flatnonzero(dataset.problem_ids == number)
        of_name = {str(name[row]): float(efficiency[row]) for row in rows.tolist()}
        ranked = [op.kernels.name(answer.pool[index]) for index in answer.order.tolist()]
        measured = [of_name[candidate] for candidate in ranked if candidate in of_name]
        if measured:
            result[number] = measured[0]
        best = max(of_name, key=lambda item: of_name[item])
        flags[number] = bool(ranked) and ranked[0] not in of_name, best not in ranked, not ranked
    return result, flags


def judged(dataset: Dataset, options: TrainOptions) -> dict[str, Held]:
    """Results on held-out layers, by stage."""
    result: dict[str, Held] = {}
    for arch in dataset.archs:
        part = dataset.select((dataset.frame["arch"] == arch).to_numpy())
        for layer in range(int(part.split_ids.max()) + 1):
            held, learned = with_choice(part.select(part.split_ids == layer)), part.select(part.split_ids != layer)
            if not len(held) or not len(learned):
                continue
            with TemporaryDirectory() as folder:
                save(train(learned, options, lambda *_: None), Path(folder) / "model")
                own, flags = answered(held, load_model(Path(folder) / "model"))
            times, stage = times_of(held), held.frame["stage"].to_numpy()[held.first_rows]
            known = Learned([learned])
            single, nearest = (
                times.efficiency()[choices(scores, times.problem, times.count)]
                for scores in (known.single_kernel_scores(held), known.nearest_problem_scores(held))
            )
            chosen = {
                "predict": own,
                "best average kernel": single,
                "nearest problem": nearest,
                "random": random_efficiency(times),
            }
            for name, is_in in ((item, stage == item) for item in np.unique(stage)):
                _add(result, str(name), chosen, flags, is_in)
            _add(result, _EACH, chosen, flags, stage != "both")
    return result


def _add(
    result: dict[str, Held],
    name: str,
    chosen: dict[str, NDArray[np.float64]],
    flags: NDArray[np.bool_],
    is_in: NDArray[np.bool_],
) -> None:
    held = result.setdefault(name, Held())
    for what, values in chosen.items():
        held.efficiency.setdefault(what, []).append(values[is_in])
    held.layer.append(np.full(int(is_in.sum()), len(held.layer)))
    unmeasured, no_candidate, refused = flags[is_in].sum(axis=0).tolist()
    held.unmeasured += unmeasured
    held.no_candidate += no_candidate
    held.refused += refused


def interval(values: NDArray[np.float64], layer: NDArray[np.int64]) -> tuple[float, float]:
    """95 % interval of a mean, by resampling whole layers; both of shape (problems,)."""
    number = np.unique(layer, return_inverse=True)[1]
    problems, total = np.bincount(number), np.bincount(number, values)
    drawn = np.random.default_rng(0).integers(0, len(problems), (_DRAWS, len(problems)))
    low, high = np.percentile(total[drawn].sum(axis=1) / problems[drawn].sum(axis=1), (2.5, 97.5))
    return float(low), float(high)


def _show(stage: str, held: Held) -> None:
    layer = np.concatenate(held.layer)
    efficiency = {name: np.concatenate(values) for name, values in held.efficiency.items()}
    is_judged = np.isfinite(efficiency["predict"])
    for name, all_values in efficiency.items():
        values = all_values[is_judged]
        low, high = interval(values, layer[is_judged])
        print(
            f"{stage:12} {name:20} {len(values):5} problems of {len(np.unique(layer[is_judged]))} layers"
            f"  mean {values.mean():.4f} [{low:.4f}, {high:.4f}]  P10 {np.percentile(values, 10):.4f}"
        )
    print(
        f"{stage:12} first candidate not measured: {held.unmeasured}, best measured kernel no candidate: "
        f"{held.no_candidate}, refused: {held.refused}"
    )


def main() -> None:
    """Evaluate and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, help="train on all data, and write the model")
    parser.add_argument("--defaults", action="store_true", help="those of ckh train, which start from the estimate")
    parser.add_argument("--trees", type=int)
    parser.add_argument("--leaves", type=int)
    parser.add_argument("--rank", type=RankObjective)
    arguments = parser.parse_args()
    dataset = read_dataset(*arguments.data)
    defaults = replace(dataset.op.training.defaults(len(dataset)), targets=(), folds=0, jobs=1)
    options = defaults if arguments.defaults else RECIPE
    if arguments.out:
        save(train(dataset, options, lambda *_: None), arguments.out)
        return
    changed = {"n_estimators": arguments.trees, "num_leaves": arguments.leaves}
    options = replace(options, params=replace(options.params, **{k: v for k, v in changed.items() if v}))
    options = replace(options, rank=arguments.rank or options.rank)
    for stage, held in judged(dataset, options).items():
        _show(stage, held)


if __name__ == "__main__":
    main()
