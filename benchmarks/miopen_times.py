"""Errors of the times predicted by MIOpen's models on unseen sizes; makes their calibrations.

    nice python -m benchmarks.miopen_times [--data ../shared/data] [--keep FOLDER] [--jobs 1] [--write]

Models of the shipped recipes are trained on four fifths of the sizes, for all directions, dtypes and layouts, and
predict the times of the listed solvers for the others. The interval is determined on half of the held-out sizes and
evaluated on the other, and vice versa. A single fifth of the MI200 is held out, which takes a quarter of an hour; of
the MI300X each fifth in turn. --write puts the calibration of all held-out sizes into the shipped model's directory.
"""

from __future__ import annotations

import argparse
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.miopen_learn import held_out, predict, tflops_of, train_speeds
from benchmarks.miopen_models import MI200, MI300X, Models, load
from ckh.learn.answers.answer import interval_at
from ckh.learn.judging.calibrate import calibrate, in_order
from ckh.learn.models.calibration import CALIBRATION_NAME
from ckh.ops.miopen_conv.kernels.pool import candidates, make_table
from ckh.ops.miopen_conv.operation import OPERATION
from ckh.ops.miopen_conv.recipe import RECIPE, SMALL_RECIPE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.learn.models.calibration import Calibration
    from ckh.ops.miopen_conv.readers.solver_table import SolverTable

    Floats = NDArray[np.float64]

ROOT = Path(__file__).parents[1]
# Model -> its data, recipe, name of kept models, and folds.
SOURCES: dict[str, Any] = {
    "miopen_conv_gfx942": (MI300X, SMALL_RECIPE, "mi300x", 5),
    "miopen_conv_gfx90a": (MI200, RECIPE, "mi200", 1),
}
SEED = 0
PLACES = 4
MOST = 2000  # problems whose candidates are ranked


class HeldOut(NamedTuple):
    """Rows of unseen sizes: scores, predicted and measured TFLOPS, their problem and sizes."""

    score: Floats
    told: Floats
    tflops: Floats
    problem: NDArray[np.int64]
    size: NDArray[np.int64]


def main() -> None:
    """Evaluate both models."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--jobs", type=int, default=1, help="threads for training")
    parser.add_argument("--keep", type=Path, help="folder that trained models are kept in and taken from")
    parser.add_argument("--write", action="store_true", help=f"write {CALIBRATION_NAME} into the models' directories")
    options = parser.parse_args()
    models = Models(options.keep, options.jobs)
    for name, (source, recipe, kept, folds) in SOURCES.items():
        table = load(options.data, source)
        parts = [fold_of(models, table, recipe, kept, fold) for fold in range(folds)]
        held = HeldOut(*map(np.concatenate, zip(*numbered(parts), strict=True)))
        judge(name, held)
        made = calibrate(held.score, held.told, held.tflops, held.problem, OPERATION.training.timed)
        if made is not None and options.write:
            (ROOT / "models" / name / CALIBRATION_NAME).write_text(made.to_json())


def fold_of(models: Models, table: SolverTable, recipe: Any, kept: str, fold: int) -> HeldOut:
    """Predictions for a fifth by models of the other sizes."""
    is_held = held_out(table, fold)
    known, asked = table.select(~is_held), table.select(is_held)
    order = models.blend(f"{kept}-fold{fold}" if fold else kept, known, recipe)
    speeds = models.get(f"{kept}-fold{fold}-speeds", lambda: train_speeds(known, recipe))
    if not fold:
        places(known, asked, order)
    told = np.expm1(predict(speeds, asked))
    return HeldOut(predict(order, asked), told, tflops_of(asked), asked.problem_ids(), asked.size_ids())


def numbered(parts: list[HeldOut]) -> list[HeldOut]:
    """The same with indices of problems and sizes that are unique over the folds."""
    problems = [0, *accumulate(int(part.problem.max()) + 1 for part in parts)]
    sizes = [0, *accumulate(int(part.size.max()) + 1 for part in parts)]
    return [
        part._replace(problem=part.problem + problems[i], size=part.size + sizes[i]) for i, part in enumerate(parts)
    ]


def judge(name: str, held: HeldOut) -> None:
    """Print the errors of times, and the share within the interval determined on the other half of the sizes."""
    half = np.random.default_rng(SEED).integers(0, 2, int(held.size.max()) + 1)[held.size]
    result: dict[str, list[tuple[Floats, float]]] = {"shares of the best by score": [], "as predicted": []}
    for part in (0, 1):
        known, others = half != part, half == part
        for way, timed in zip(result, (0, OPERATION.training.timed), strict=True):
            given = (held.score[known], held.told[known], held.tflops[known], held.problem[known])
            table = calibrate(*given, timed)
            assert table is not None
            result[way] += errors(table, HeldOut(*(column[others] for column in held)))
    for way, problems in result.items():
        every = np.concatenate([item for item, _ in problems])
        first = [item[0] for item, _ in problems]
        print(
            f"{name}, {way}: {len(problems)} problems, error of times {np.median(every):.1%}, of the first's "
            f"{np.median(first):.1%}; within the interval {np.mean([within for _, within in problems]):.1%}",
            flush=True,
        )


def errors(table: Calibration, held: HeldOut) -> list[tuple[Floats, float]]:
    """For each problem, the errors of its solvers' times, and whether the first is within the interval."""
    result = []
    for rows in in_order(held.score, held.problem):
        speeds = table.speeds(held.score[rows], held.told[rows])
        times = speeds / held.tflops[rows]
        low, high = interval_at(table.bands, float(speeds[0]))
        result.append((np.abs(1.0 / times - 1.0), float(low <= times[0] <= high)))
    return result


def places(known: SolverTable, asked: SolverTable, order: str) -> None:
    """Print how often the candidates of the first ranks are listed, so that their times are known."""
    rules, problems = make_table(known.frame), asked.problems()
    ids, names = asked.problem_ids(), asked.frame["kernel"].to_numpy()
    listed: dict[int, set[str]] = {}
    for number, name in zip(ids.tolist(), names, strict=True):
        listed.setdefault(number, set()).add(name)
    some = np.random.default_rng(SEED).permutation(len(problems))[:MOST].tolist()
    result = {number: candidates(problems[number], rules).solvers for number in some}
    some = [number for number in some if result[number]]
    first = np.unique(ids, return_index=True)[1]
    pairs = asked.select(np.repeat(first[some], [len(result[number]) for number in some]))
    pairs.frame["kernel"] = [name for number in some for name in result[number]]
    score = predict(order, pairs)
    starts = [0, *accumulate(len(result[number]) for number in some)]
    hits = np.zeros((PLACES, 2))
    for number, (start, end) in zip(some, pairwise(starts), strict=True):
        for place, index in enumerate(np.argsort(-score[start:end], kind="stable")[:PLACES].tolist()):
            hits[place] += (result[number][index] in listed[number], 1)
    shares = ", ".join(f"{share:.1%}" for share in hits[:, 0] / np.maximum(hits[:, 1], 1))
    print(f"of {len(some)} problems the candidate in place 1 to {PLACES} is listed: {shares}", flush=True)


if __name__ == "__main__":
    main()
