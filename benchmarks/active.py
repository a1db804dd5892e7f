"""Savings of `ckh bench --active`: pairs until a model is as good as one trained on random pairs.

    python -m benchmarks.active [--workers 1 64] [--seeds N] [SET ...]

Replays runs on data with every kernel's time, with a third of the problems held out. Simulated workers measure in
parallel: selected pairs are pending, and their times unknown, until their worker has measured them (a second per
problem and 60 ms per pair, simulated; kernel times are from the data). Prior knowledge is the same as in
`benchmarks/few_shots.py`. Models are trained on the pairs with the defaults of `ckh train`, and choose on the held-out
problems.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.few_shots import (
    PAIR_S,
    PROBLEM_S,
    THIRDS,
    TRAIN_SETS,
    Replay,
    difference,
    judged,
    random_pairs,
    random_problems,
)
from benchmarks.few_shots import SETS as EXHAUSTIVE
from ckh.learn.judging.outlook import learning_curve
from ckh.learn.models.artifact import load_model
from ckh.learn.selection import FEWEST_LEARNED, Chosen, PairChooser, by_worth, is_due, quick_options
from ckh.learn.training.save import save
from ckh.learn.training.train import train

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Found = dict[tuple[str, int], list[NDArray[np.float64]]]

SETS = EXHAUSTIVE | TRAIN_SETS


class _Known:
    """Scores by prior knowledge, or by a model of the results so far."""

    def __init__(self, data: Replay, problems: NDArray[np.int64]) -> None:
        self._data, self._problems = data, problems
        self._row = [dict(zip(data.kernel[rows].tolist(), rows.tolist(), strict=True)) for rows in data.rows]
        self.values = data.before
        self.learned: range = range(0)

    def rows(self, problem: int, kernels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of a problem's kernels."""
        of_kernel = self._row[self._problems[problem]]
        return np.array([of_kernel[kernel] for kernel in kernels.tolist()])

    def __call__(self, problem: int, kernels: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(self.values[self.rows(problem, kernels)])

    def learn(self, rows: NDArray[np.int64]) -> None:
        """Use a model of these rows, if it is better than prior knowledge."""
        learned = self._data.dataset.select(rows)
        options = quick_options(learned.op.training.defaults(len(learned)))
        if int(learned.problem_ids.max()) + 1 < FEWEST_LEARNED:
            return
        curve = learning_curve(learned, options)
        self.values, self.learned = self._data.before, range(0)
        if curve.against(learned, self._data.before[rows]) <= 0:
            return
        with tempfile.TemporaryDirectory() as work:
            save(train(learned, options, lambda *_: None), Path(work) / "model")
            self.values = load_model(Path(work) / "model").scores(self._data.dataset)
        self.learned = range(len(self._problems))


def measured(data: Replay, problems: NDArray[np.int64], workers: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Rows measured by a run, in the order of their results."""
    known = _Known(data, problems)
    kernels = [data.kernel[data.rows[problem]] for problem in problems]
    chooser = PairChooser(by_worth(data.places[problems], seed), kernels, known, seed=seed)
    rows: list[int] = []
    learned = 1
    pending: list[tuple[float, int, Chosen | None]] = [(0.0, worker, None) for worker in range(workers)]
    while pending:
        now, worker, chosen = heapq.heappop(pending)
        if chosen is not None:
            chooser.done(chosen, str(worker))
            new = known.rows(chosen.problem, chosen.kernels)
            rows += new.tolist()
            yield new
            if is_due(len(rows), learned):
                known.learn(np.array(rows))
                chooser.learn(known, chooser.useful_by(known), known.learned)
                learned = len(rows)
        chosen = chooser.next(str(worker))
        if chosen is not None:
            heapq.heappush(pending, (now + PROBLEM_S + PAIR_S * len(chosen.kernels), worker, chosen))


def chosen(
    data: Replay, problems: NDArray[np.int64], counts: list[int], workers: int, seed: int
) -> list[NDArray[np.int64]]:
    """First rows of a run, for each count."""
    rows: list[int] = []
    for new in measured(data, problems, workers, seed):
        rows += new.tolist()
        if len(rows) >= max(counts):
            break
    return [np.array(rows[:count]) for count in counts]


def compare(
    data: Replay, held: NDArray[np.bool_], budgets: list[int], workers: list[int], seed: int, result: Found
) -> None:
    """Add the efficiency on held-out problems of models of selected pairs, and of three times as many random pairs."""
    is_held, problems = held[data.dataset.problem_ids], np.flatnonzero(~held)

    def add(label: str, pairs: int, rows: NDArray[np.int64]) -> None:
        result.setdefault((label, pairs), []).append(judged(data, rows, is_held))

    for count in workers:
        for pairs, rows in zip(budgets, chosen(data, problems, budgets, count, seed), strict=True):
            add(f"{count} workers", pairs, rows)
    for pairs in budgets:
        for label, way in {"random": random_pairs, "random problems": random_problems}.items():
            rows = way(data, problems, THIRDS * pairs, np.random.default_rng((seed, int(held.argmax()))))
            add(f"{label}, {THIRDS} times", pairs, rows)


def main() -> None:
    """Print a table for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", choices=[[], *SETS], default=[])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 64])
    arguments = parser.parse_args()
    for name in arguments.sets or EXHAUSTIVE:
        make, budgets = SETS[name]
        data = make()
        print(f"{name}: {len(data.rows)} problems, {len(data.dataset)} pairs; mean / P10 efficiency")
        result: Found = {}
        for seed in range(arguments.seeds):
            third = np.random.default_rng(seed).permutation(len(data.rows)) % THIRDS
            for held in range(THIRDS):
                compare(data, third == held, list(budgets), arguments.workers, seed, result)
        for pairs in budgets:
            cells = []
            for (label, count), values in result.items():
                if count == pairs:
                    joined = np.concatenate(values)
                    at_random = np.concatenate(result[f"random, {THIRDS} times", count])
                    gained = "" if "random" in label else f" ({difference(joined, at_random)})"
                    cells.append(f"{label} {joined.mean():.1%} / {np.percentile(joined, 10):.1%}{gained}")
            print(f"{pairs:6d} pairs  " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()
