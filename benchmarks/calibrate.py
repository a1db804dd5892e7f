"""Makes the calibrations of shipped models (`calibration.json`): errors of speeds and order on held-out folds.

    python benchmarks/calibrate.py [MODEL ...] [--write | --seed N | --share S]

`ckh train` writes the same for models with folds; this is for models trained before it did, or without folds. For each
fold, models are trained as the shipped one was, with as many trees and on all other problems; the shipped trees are
unchanged. Prints which order is better on the folds, by the ranking's score or by TFLOPS, with the mean difference in
efficiency and its 95 % interval over problems; the median error of the times of the first five kernels, by TFLOPS only
and as calibrated on the other half of the problems; and the share of these times within the interval, with the standard
deviation of a problem's share, which determines the accuracy of the share for a number of problems. Also how many first
kernels to measure for one within 0, 2 and 5 % of the best in 95 of 100 problems, each number calibrated on some folds
and checked on the others. Takes minutes per model. With --share, models of folds are trained on a random part of the
other problems, to show the dependence of time errors on the amount of data.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import GroupKFold

from ckh.assess.metrics import choices
from ckh.data.dataset import read_dataset
from ckh.files.jsonfields import read_json
from ckh.learn.answers.answer import SET_COVERED, interval_at
from ckh.learn.judging.calibrate import SHOWN, WITHIN, calibrate, covering, covering_sets, first_places, in_order
from ckh.learn.models.calibration import CALIBRATION_NAME, Calibration
from ckh.learn.models.spec import read_spec
from ckh.learn.training.boosting import Boosting, make_fit
from ckh.learn.training.prepared import prepare
from ckh.training import RANK, TFLOPS, RankObjective, TrainOptions, TreeParams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.learn.training.prepared import Prepared

    Floats = NDArray[np.float64]

ROOT = Path(__file__).parents[1]
DATA = {
    "grouped_conv_forward_bf16_gfx950": tuple(f"amd-gfx950-conv-{count}kernels.parquet" for count in (20, 30)),
    "aiter_moe_gfx950": ("aiter-moe-gfx950.parquet",),
}
FOLDS = 5
_DRAWS = 1000


def main() -> None:
    """Calibrate each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(DATA), help="names of shipped models; all by default")
    parser.add_argument("--write", action="store_true", help=f"write {CALIBRATION_NAME} into their directories")
    parser.add_argument("--seed", type=int, help="draw other folds, and train with another seed")
    parser.add_argument("--share", type=float, default=1.0, help="learn from this part of the other problems")
    options = parser.parse_args()
    if options.write and (options.seed is not None or options.share != 1):
        parser.error("calibrations are made with the models' own seed, from all problems")
    for name in options.models:
        prepared, score, told = _held_out(name, options.seed, options.share)
        tflops = prepared.dataset.frame["tflops"].to_numpy(dtype=np.float64)
        speeds_order = read_spec(ROOT / "models" / name).rank_by == TFLOPS
        _show(name, prepared, score, told, tflops, speeds_order=speeds_order)
        rows, by = prepared.dataset, told if speeds_order else score
        _show_sets(first_places(rows, rows, by), rows.split_ids[rows.first_rows])
        made = calibrate(None if speeds_order else score, told, tflops, rows.problem_ids)
        if made is not None and options.write:
            made = replace(made, sets=covering_sets(rows, rows, by))
            (ROOT / "models" / name / CALIBRATION_NAME).write_text(made.to_json())


def _held_out(name: str, seed: int | None, share: float) -> tuple[Prepared, Floats, Floats]:
    """The rows, and their scores and TFLOPS by the models of the other folds."""
    folder = ROOT / "models" / name
    given, manifest = read_json(folder / "feature_spec.json")["params"], read_json(folder / "train_manifest.json")
    ours: dict[str, Any] = manifest["ckh"]
    params = TreeParams(**{key: given[key] for key in TreeParams.__slots__ if key in given})
    options = TrainOptions(
        targets=(TFLOPS,),
        rank=RankObjective(ours["rank_objective"]),
        seed=ours["seed"] if seed is None else seed,
        folds=0,
        prior=ours.get("prior", 0.0),
        params=params,
    )
    paths = [ROOT / "data" / file for file in DATA[name]]
    prepared = prepare(read_dataset(*paths, columns=lambda op: op.column_names()), options)
    trees = {TFLOPS: ours["trees"][TFLOPS], RANK: params.n_estimators if options.prior else ours["trees"][RANK]}
    boosting, groups = Boosting(prepared, options, lambda _steps, _text: None), prepared.dataset.split_ids
    score, told = (np.full(len(groups), np.nan) for _ in range(2))
    folds = GroupKFold(FOLDS, shuffle=seed is not None, random_state=seed)
    drawn = np.random.default_rng(0).random(int(groups.max()) + 1) < share
    for others, held in folds.split(groups, groups=groups):
        learned = others[drawn[groups[others]]]
        score[held] = _scores(boosting, learned, held, trees[RANK])
        model = boosting.fit(make_fit(TFLOPS, prepared.dataset, options.rank), learned, None, name, trees[TFLOPS])
        told[held] = np.expm1(prepared.matrix.predict(model, held))
    return prepared, score, told


def _scores(boosting: Boosting, learned: NDArray[np.int64], held: NDArray[np.int64], trees: int) -> Floats:
    """Scores of rows by a model trained on others."""
    options, prepared = boosting.options, boosting.prepared
    fit = make_fit(RANK, prepared.dataset, options.rank)
    return boosting.prepared.matrix.predict(boosting.fit(fit, learned, None, RANK, trees), held)


def _show(name: str, prepared: Prepared, score: Floats, told: Floats, tflops: Floats, *, speeds_order: bool) -> None:
    """Print which order and which times are better, and how many times are within the interval."""
    rows = np.flatnonzero(np.isfinite(score) & np.isfinite(told) & (told > 0) & (tflops > 0))
    problem = np.unique(prepared.dataset.problem_ids[rows], return_inverse=True)[1]
    count, draw = int(problem.max()) + 1, np.random.default_rng(0)
    efficiency = prepared.efficiency[rows]
    ranked, by_speed = (efficiency[choices(by[rows], problem, count)] for by in (score, told))
    difference = ranked - by_speed
    means = [difference[draw.integers(0, count, count)].mean() for _ in range(_DRAWS)]
    low, high = np.percentile(means, [2.5, 97.5])
    half = draw.integers(0, 2, count)[problem]
    errors: dict[str, list[Floats]] = {"TFLOPS alone": [], "calibrated": []}
    covered: list[float] = []
    for part in (0, 1):
        known, others = rows[half != part], rows[half == part]
        by = None if speeds_order else score[known]
        made = calibrate(by, told[known], tflops[known], prepared.dataset.problem_ids[known])
        assert made is not None
        plain = replace(made, gap=(), share=(), scale=1.0)
        ordered = told[others] if speeds_order else score[others]
        for what, table in (("calibrated", made), ("TFLOPS alone", plain)):
            times = list(_times(table, ordered, told[others], tflops[others], problem[half == part]))
            errors[what] += [np.abs(1.0 / time - 1.0) for _, time in times]
            if table is made:
                covered += [_share_within(made, speed, time) for speed, time in times]
    figures = ", ".join(f"{what} {np.median(np.concatenate(error)):.1%}" for what, error in errors.items())
    print(
        f"{name:34} {count} problems: by score {ranked.mean():.4f}, by TFLOPS {by_speed.mean():.4f}, "
        f"difference {difference.mean():+.4f} [{low:+.4f}, {high:+.4f}]; error of times: {figures}; "
        f"within the interval: {np.mean(covered):.1%}, of a problem's times ± {np.std(covered):.1%}",
        flush=True,
    )


def _show_sets(places: Floats, layers: NDArray[np.int64]) -> None:
    """Print how many first kernels are enough in 95 of 100 problems, and in how many they are on other layers."""
    folds = list(GroupKFold(FOLDS, shuffle=True, random_state=0).split(layers, groups=layers))
    for within, place in zip(WITHIN, places.T, strict=True):
        count = covering(place, layers)
        found = [place[held] <= known for others, held in folds if (known := covering(place[others], layers[others]))]
        is_judged = [~np.isnan(place[held]) for _, held in folds]
        said = f"none: {len(np.unique(layers))} layers, or not all candidates were measured"
        if count and len(found) == FOLDS:
            is_enough, has_kernels = np.concatenate(found), np.concatenate(is_judged)
            share, problems = is_enough[has_kernels].mean(), int(has_kernels.sum())
            said = f"{count}; nominal {SET_COVERED:.0%}, on other folds {share:.1%} of {problems} problems"
        print(f"    first kernels to measure for one within {within:.0%} of the best: {said}")


def _times(
    table: Calibration, score: Floats, told: Floats, tflops: Floats, problem: NDArray[np.int64]
) -> Iterator[tuple[float, Floats]]:
    """Predicted speed of each problem's first kernel, and ratios of measured to predicted times."""
    for rows in in_order(score, problem):
        speeds = table.speeds(score[rows], told[rows])[:SHOWN]
        yield float(speeds[0]), speeds / tflops[rows[:SHOWN]]


def _share_within(table: Calibration, speed: float, time: Floats) -> float:
    low, high = interval_at(table.bands, speed)
    return float(np.mean((time >= low) & (time <= high)))


if __name__ == "__main__":
    main()
