"""Efficiency of learned ranking of MIOpen's convolution solvers, on unseen layers.

    nice python -m benchmarks.miopen_models [--data ../shared/data] [--jobs 1] [--keep FOLDER]

A fifth of all sizes is held out, for all directions, dtypes and layouts, of AMD's find databases of the MI200 (104 CU)
and the MI300X (304 CU). Problems with two or more solvers that have a time are evaluated. The databases list the four
fastest solvers of a problem, so this is a choice among finalists; their identity is not a feature. Then the same with
each fifth held out in turn, which gives the results on all problems.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.miopen_learn import FOLDS, efficiency_of, held_out, predict, times_of, train_order, train_regression
from ckh.assess.metrics import summarize
from ckh.learn.models.model_text import join_trees
from ckh.learn.training.targets import blended
from ckh.ops.miopen_conv.kernels.pool import candidates, make_table
from ckh.ops.miopen_conv.readers.fdb import FdbDevice
from ckh.ops.miopen_conv.readers.solver_table import SIZES, SolverTable, read_parquet
from ckh.ops.miopen_conv.recipe import RECIPE, SEEDS, SMALL_RECIPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ckh.training import TrainOptions

MI200 = ("miopen_finddb_gfx90a_104cu.parquet", FdbDevice("gfx90a", 104))
MI300X = ("miopen_finddb_gfx942_304cu.parquet", FdbDevice("gfx942", 304))
SEED_OF_RANDOM = 0
TWO = 2


def load(folder: Path, source: tuple[str, FdbDevice]) -> SolverTable:
    """Rows of problems with several solvers."""
    table = read_parquet(folder / source[0], source[1], skip_bad=True)
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in table.bad.items()) or "none"
    print(f"{source[0]}: {len(table.frame):,} rows; left out: {table.without_time:,} without time, {left_out}")
    return table.of_choice()


def head(title: str) -> None:
    """Print the heading of a table."""
    print(f"\n{title:46s}{'mean':>8s}{'95 %':>16s}{'P10':>8s}{'top-1':>7s}{'2D mean':>9s}{'2D P10':>8s}")


def line(name: str, table: SolverTable, efficiency: NDArray[np.float64]) -> None:
    """Print the efficiency of a method's choices, shape (problems,)."""
    all_of = summarize(efficiency)
    first = np.unique(table.problem_ids(), return_index=True)[1]
    flat = efficiency[table.frame["ndim_spatial"].to_numpy()[first] == TWO]
    interval = f"{all_of.mean.low:.4f}-{all_of.mean.high:.4f}"
    print(
        f"{name:46s}{all_of.mean.value:8.4f}{interval:>16s}{all_of.p10.value:8.4f}{np.mean(efficiency >= 1):7.3f}"
        f"{flat.mean():9.4f}{np.percentile(flat, 10):8.4f}",
        flush=True,
    )


def baselines(known: SolverTable, asked: SolverTable) -> None:
    """Print the baselines without a model."""
    noise = np.random.default_rng(SEED_OF_RANDOM).random(len(asked.frame))
    line("random", asked, efficiency_of(asked, noise))
    line("most wins per direction", asked, efficiency_of(asked, _wins(known, asked)))
    line("best average per direction, dtype, dimensions", asked, efficiency_of(asked, _averages(known, asked)))


def _by_key(
    known: SolverTable, asked: SolverTable, names: list[str], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean of a value over the training rows of the same key and solver; below all of them if there are none."""
    names = [*names, "kernel"]
    means = known.frame[names].assign(value=values).groupby(names)["value"].mean()
    result = means.reindex(list(asked.frame[names].itertuples(index=False, name=None)))
    return np.asarray(result.fillna(-1.0), dtype=np.float64)


def _wins(known: SolverTable, asked: SolverTable) -> NDArray[np.float64]:
    is_best = times_of(known).efficiency() >= 1
    names = ["variant", "kernel"]
    wins = known.frame[names].assign(value=is_best).groupby(names)["value"].sum()
    result = wins.reindex(list(asked.frame[names].itertuples(index=False, name=None)))
    return np.asarray(result.fillna(-1.0), dtype=np.float64)


def _averages(known: SolverTable, asked: SolverTable) -> NDArray[np.float64]:
    return _by_key(known, asked, ["variant", "dtype", "ndim_spatial"], times_of(known).efficiency())


class Models:
    """Model texts by name, trained on first use, and kept in a folder if given."""

    def __init__(self, keep: Path | None, jobs: int) -> None:
        self._keep = keep
        self._jobs = jobs

    def get(self, name: str, train: Callable[[], str]) -> str:
        """The model of this name."""
        path = None if self._keep is None else self._keep / f"{name}.txt"
        if path is not None and path.is_file():
            return path.read_text(encoding="utf-8")
        text = train()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return text

    def members(self, name: str, table: SolverTable, options: TrainOptions) -> list[str]:
        """One model per seed."""
        options = replace(options, jobs=self._jobs)
        return [
            self.get(f"{name}-seed{seed}", lambda seed=seed: train_order(table, replace(options, seed=seed)))  # type: ignore[misc]
            for seed in SEEDS
        ]

    def regression(self, name: str, table: SolverTable, options: TrainOptions) -> str:
        """The regression for the blend."""
        options = replace(options, jobs=self._jobs)
        return self.get(f"{name}-regression", lambda: train_regression(table, options))

    def blend(self, name: str, table: SolverTable, options: TrainOptions) -> str:
        """The model of a recipe."""
        return blended(self.members(name, table, options), self.regression(name, table, options))


def size_of(text: str) -> str:
    """Size of a shipped model."""
    return f"{len(gzip.compress(text.encode(), mtime=0)) / 1e6:.2f} MB packed, {text.count('Tree=')} trees"


def parts(models: Models, name: str, table: SolverTable, options: TrainOptions, asked: SolverTable) -> str:
    """Return a recipe's model; prints a line for it and each of its parts."""
    made = models.members(name, table, options)
    for seed, text in zip(SEEDS, made, strict=True):
        line(f"LambdaRank, seed {seed}", asked, efficiency_of(asked, predict(text, asked)))
    line("LambdaRanks, all seeds", asked, efficiency_of(asked, predict(join_trees(made), asked)))
    regression = models.regression(name, table, options)
    line("regression of relative time", asked, efficiency_of(asked, predict(regression, asked)))
    joined = blended(made, regression)
    line("all together (shipped recipe)", asked, efficiency_of(asked, predict(joined, asked)))
    return joined


def every_fifth(models: Models, name: str, table: SolverTable, options: TrainOptions) -> None:
    """The recipe on each fifth of the sizes in turn, and on all."""
    head(f"{name}, each fifth held out in turn")
    result = []
    for fold in range(FOLDS):
        is_held = held_out(table, fold)
        kept = f"{name}-fold{fold}" if fold else name
        asked = table.select(is_held)
        result.append(efficiency_of(asked, predict(models.blend(kept, table.select(~is_held), options), asked)))
        line(f"fifth {fold + 1}", asked, result[-1])
    everything = summarize(np.concatenate(result))
    mean = everything.mean
    print(f"all problems: {mean.value:.4f}, 95 % {mean.low:.4f}-{mean.high:.4f}, P10 {everything.p10.value:.4f}")


def mi200(folder: Path, models: Models) -> str:
    """Evaluate on the MI200; returns the model trained on four fifths of it."""
    table = load(folder, MI200)
    is_held = held_out(table)
    known, asked = table.select(~is_held), table.select(is_held)
    head("MI200, 104 CU, a fifth of the sizes held out")
    baselines(known, asked)
    joined = parts(models, "mi200", known, RECIPE, asked)
    print(size_of(joined))
    among_candidates(known, asked, joined)
    every_fifth(models, "mi200", table, RECIPE)
    return joined


def among_candidates(known: SolverTable, asked: SolverTable, model: str) -> None:
    """Evaluate choices among all candidates, as in predicting, not among the four finalists listed by the database."""
    table = make_table(known.frame)
    problems = asked.problems()
    result = [candidates(problem, table).solvers for problem in problems]
    ids, names = asked.problem_ids(), asked.frame["kernel"].to_numpy()
    is_candidate = [name in result[i] for i, name in zip(ids, names, strict=True)]
    counts = [len(solvers) for solvers in result]
    first = np.unique(ids, return_index=True)[1]
    pairs = asked.select(np.repeat(first, counts))
    pairs.frame["kernel"] = [name for solvers in result for name in solvers]
    scores = predict(model, pairs)
    times = dict(zip(zip(ids.tolist(), names, strict=True), times_of(asked).efficiency().tolist(), strict=True))
    start = np.concatenate([[0], np.cumsum(counts)])
    best = [int(np.argmax(scores[a:b])) if b > a else -1 for a, b in itertools.pairwise(start)]
    chosen = [times.get((i, result[i][best[i]])) if result[i] else None for i in range(len(problems))]
    listed = np.array([value for value in chosen if value is not None])
    print(
        f"candidates by rule: {np.mean(counts):.1f} a problem against {len(names) / len(problems):.1f} listed; "
        f"{np.mean(is_candidate):.2%} of the listed are candidates; the first of all candidates is listed for "
        f"{len(listed) / len(problems):.2%} of the problems, and has efficiency {listed.mean():.4f} there"
    )


def mi300x(folder: Path, models: Models, other: str) -> None:
    """Evaluate on the MI300X, in three ways. `other` is the model of the MI200."""
    there, table = load(folder, MI200), load(folder, MI300X)
    is_held = held_out(table)
    known, asked = table.select(~is_held), table.select(is_held)
    head("MI300X, 304 CU, a fifth of the sizes held out")
    baselines(known, asked)
    line("trained on the MI200 alone", asked, efficiency_of(asked, predict(other, asked)))
    own = parts(models, "mi300x", known, SMALL_RECIPE, asked)
    both = models.get("mi300x-both", lambda: train_order(known, SMALL_RECIPE, base=other))
    line("trained on both: MI200's trees, then its own", asked, efficiency_of(asked, predict(both, asked)))
    print(size_of(own), "alone;", size_of(both), "with those of the MI200")
    seen = {
        tuple(row) for row in there.select(~held_out(there)).frame[list(SIZES)].drop_duplicates().to_numpy().tolist()
    }
    is_new = np.array([tuple(row) not in seen for row in asked.frame[list(SIZES)].to_numpy().tolist()])
    print(f"{is_new.mean():.0%} of the rows are of sizes that the MI200's training had not either")
    if is_new.any():
        new = asked.select(is_new)
        for name, text in (("on the MI200 alone", other), ("on its own data", own), ("on both", both)):
            line(f"sizes new to both: trained {name}", new, efficiency_of(new, predict(text, new)))
    every_fifth(models, "mi300x", table, SMALL_RECIPE)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--jobs", type=int, default=1, help="threads for training")
    parser.add_argument("--keep", type=Path, help="folder that trained models are kept in and taken from")
    options = parser.parse_args()
    models = Models(options.keep, options.jobs)
    mi300x(options.data, models, mi200(options.data, models))


if __name__ == "__main__":
    main()
