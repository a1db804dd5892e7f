"""Savings of experimental design: efficiency of models by the number of pairs they were trained on.

    python benchmarks/few_shots.py [SET ...] [--seeds N] [--designs BEST+OTHERS ...]

Replays `ckh bench --plan` on data with every kernel's time. Problems are held out by thirds; of the rest, pairs are
selected in three ways: at random; all kernels of random problems; as the plan selects them. Models are trained on each
with the defaults of `ckh train`, and choose on the held-out problems among the kernels that the model knows. Prior
knowledge is not from the set's data: on gfx950 the analytic estimate, for mixtures of experts the other GPU's model.
The difference to three times as many random pairs is shown with its 95 %
interval over these problems, and the measuring time, assuming a second for a problem's inputs and reference, and 60 ms
for a pair. Settings were chosen on layers measured on a CPU and on the 20-kernel file of gfx950 (`train-gfx950`).
Given designs (numbers of first and of other kernels per problem) replace the plan's, and are compared with as many
random pairs.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import load_arch
from ckh.assess.times import times_of
from ckh.bench.planning.planner import Shots, few_kernels, representative
from ckh.data.dataset import Dataset, read_dataset
from ckh.learn.analytic.estimate import estimated_us
from ckh.learn.judging.judged_answers import ranked_rows
from ckh.learn.models.artifact import load_model
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops.grouped_conv.kernel import amd_short_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Way = Callable[["Replay", NDArray[np.int64], int, np.random.Generator], NDArray[np.int64]]

ROOT = Path(__file__).parents[1]
THIRDS = 3
PROBLEM_S, PAIR_S = 1.0, 0.06
_Z = 1.96


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """A dataset, prior scores of its rows (higher: faster), and the rows of each problem."""

    dataset: Dataset
    before: NDArray[np.float64]
    rows: list[NDArray[np.int64]]
    places: NDArray[np.float64]
    kernel: NDArray[np.int64]


def replay(dataset: Dataset, before: Callable[[Dataset], NDArray[np.float64]]) -> Replay:
    """Replay of problems with several kernels."""
    valid = dataset.valid()
    valid = valid.select(np.bincount(valid.problem_ids)[valid.problem_ids] > 1)
    order = np.argsort(valid.problem_ids, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(valid.problem_ids))[:-1])
    kernel = np.unique(valid.frame["kernel"].to_numpy(dtype=str), return_inverse=True)[1]
    places = np.array([valid.op.problems.place(problem) for problem in valid.problems()])
    return Replay(valid, before(valid), rows, places, kernel)


def estimate(dataset: Dataset) -> NDArray[np.float64]:
    """Negative estimated times of all rows."""
    arch = load_arch(dataset.arch)
    known = {amd_short_name(kernel): kernel for kernel in conv_pool(Direction.FORWARD, arch, 2, "bf16")}
    kernels = [known[name] for name in dataset.frame["kernel"]]
    scores = np.empty(len(kernels))
    assert dataset.op.problems.tiled is not None
    for number, problem in enumerate(dataset.problems()):
        rows = np.flatnonzero(dataset.problem_ids == number)
        scores[rows] = -estimated_us(problem, dataset.op.problems.tiled(problem), [kernels[row] for row in rows], arch)
    return scores


def of_model(name: str) -> Callable[[Dataset], NDArray[np.float64]]:
    """Scores by a shipped model."""
    return lambda dataset: load_model(ROOT / "models" / name).scores(dataset)


def gfx950(file: str = "*") -> Callable[[], Replay]:
    """CK Tile's convolutions, 20 kernels each."""
    return lambda: replay(read_dataset(*sorted((ROOT / "data").glob(f"amd-gfx950-conv-{file}.parquet"))), estimate)


def moe() -> Replay:
    """Each product of AITER's mixtures of experts on gfx950."""
    dataset = read_dataset(ROOT / "data" / "aiter-moe-gfx950.parquet")
    item = dataset.select((dataset.frame["stage"] != "both").to_numpy())
    return replay(item, of_model("aiter_moe_gfx942"))


SETS: dict[str, tuple[Callable[[], Replay], tuple[int, ...]]] = {
    "gfx950": (gfx950(), (100, 200, 300)),
    "moe": (moe, (50, 150, 300)),
}
# Used to choose the settings.
TRAIN_SETS: dict[str, tuple[Callable[[], Replay], tuple[int, ...]]] = {
    "train-gfx950": (gfx950("20kernels"), (100, 200))
}


def random_pairs(
    replay: Replay, problems: NDArray[np.int64], pairs: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Random rows of these problems."""
    rows = np.concatenate([replay.rows[problem] for problem in problems])
    return random.choice(rows, min(pairs, len(rows)), replace=False)


def random_problems(
    replay: Replay, problems: NDArray[np.int64], pairs: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """All rows of random problems."""
    return np.concatenate([replay.rows[problem] for problem in random.permutation(problems)])[:pairs]


def chosen(
    replay: Replay,
    problems: NDArray[np.int64],
    pairs: int,
    random: np.random.Generator,
    shots: Shots = Shots(),  # noqa: B008 - frozen
) -> NDArray[np.int64]:
    """Pairs selected by a plan."""
    order = problems[list(representative(replay.places[problems]))]
    best_first = [rows[np.argsort(-replay.before[rows], kind="stable")] for rows in (replay.rows[i] for i in order)]
    counts = np.cumsum([min(len(rows), sum(shots.of_problem(len(rows)))) for rows in best_first])
    best_first = best_first[: int(np.searchsorted(counts, pairs)) + 1]
    kernels = few_kernels([replay.kernel[rows] for rows in best_first], shots, int(random.integers(1 << 30)))
    taken = [rows[np.isin(replay.kernel[rows], few)] for rows, few in zip(best_first, kernels, strict=True)]
    return np.concatenate(taken)[:pairs]


def ways(designs: Sequence[str]) -> Iterator[tuple[str, Way, int]]:
    """The compared selections: a label, the selection, and the multiple of pairs."""
    yield "random pairs", random_pairs, THIRDS
    if designs:
        yield "as many random pairs", random_pairs, 1
        for text in designs:
            best, others = map(int, text.split("+"))
            yield text, partial(chosen, shots=Shots(best=best, others=others)), 1
    else:
        yield "random problems", random_problems, THIRDS
        yield "chosen", chosen, 1


def judged(replay: Replay, learned: NDArray[np.int64], is_held: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Efficiency of the choices of a model trained on rows, on each held-out problem."""
    known, held = replay.dataset.select(np.sort(learned)), replay.dataset.select(is_held)
    options = replace(known.op.training.defaults(len(known)), targets=(), folds=0, jobs=1)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "model"
        save(train(known, options, lambda *_: None), folder)
        ranked = ranked_rows(load_model(folder), held)
    times = times_of(held)
    assert ranked.ranks_any(times.problem).all()
    return np.asarray(times.efficiency()[ranked.best_ranked(times.problem)])


def curve(replay: Replay, way: Way, pairs: int, seeds: int) -> tuple[NDArray[np.float64], float]:
    """Efficiency on all problems, each third of them held out in turn, mean of the seeds; shape (problems,).

    Also returns the average measuring time in seconds.
    """
    result, seconds = np.zeros(len(replay.rows)), 0.0
    for seed in range(seeds):
        third = np.random.default_rng(seed).permutation(len(replay.rows)) % THIRDS
        for held in range(THIRDS):
            random = np.random.default_rng((seed, held))
            learned = way(replay, np.flatnonzero(third != held), pairs, random)
            result[third == held] += judged(replay, learned, third[replay.dataset.problem_ids] == held) / seeds
            problems = len(np.unique(replay.dataset.problem_ids[learned]))
            seconds += (PROBLEM_S * problems + PAIR_S * len(learned)) / (THIRDS * seeds)
    return result, seconds


def difference(item: NDArray[np.float64], other: NDArray[np.float64]) -> str:
    """Mean difference on the same problems, in points, with its interval."""
    points = 100 * (item - other)
    return f"{points.mean():+.1f} ± {_Z * points.std(ddof=1) / len(points) ** 0.5:.1f}"


def main() -> None:
    """Print a table for each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", choices=[[], *SETS, *TRAIN_SETS], default=[])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--designs", type=str, nargs="*", default=[], metavar="BEST+OTHERS")
    arguments = parser.parse_args()
    for name in arguments.sets or SETS:
        make, budgets = (SETS | TRAIN_SETS)[name]
        data = make()
        print(f"{name}: {len(data.rows)} problems, {len(data.dataset)} pairs; mean / P10 efficiency")
        for pairs in budgets:
            cells, at_random = [], None
            for label, way, times in ways(arguments.designs):
                result, seconds = curve(data, way, times * pairs, arguments.seeds)
                at_random = result if at_random is None else at_random
                cell = f"{label} {result.mean():.1%} / {np.percentile(result, 10):.1%}, {seconds:.0f} s"
                cells.append(cell if times == THIRDS else f"{cell}, to random pairs {difference(result, at_random)}")
            print(f"{pairs:6d} pairs, at random {THIRDS * pairs}:  " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()
