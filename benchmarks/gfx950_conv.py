"""The model of CK Tile's forward convolutions on gfx950: data, training, and efficiency on held-out problems.

    python benchmarks/gfx950_conv.py [FOLDER]

With the folder of AMD's measurements as Parquet (tile, pipeline and latency_us of the two benchmark files) the datasets
in data/ are made anew first; otherwise the shipped ones are used. Prints the efficiency of choosing by a repeated
measurement of compv3's kernels in the 30-kernel file, mean and P10 efficiency of the defaults of `ckh train` on that
file and on five folds of both, compared with a recipe without the regression of times on the same folds, then trains
models/grouped_conv_forward_bf16_gfx950.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ckh.assess.metrics import choices
from ckh.assess.noise import scored_again
from ckh.assess.times import times_of
from ckh.data.conversion import convert
from ckh.data.dataset import Dataset, read_dataset
from ckh.data.formats import ReadOptions
from ckh.learn.judging.judged_answers import ranked_rows
from ckh.learn.models.artifact import load_model
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops.grouped_conv.amd_csv import AMD_COLUMNS
from ckh.training import RankObjective, TrainOptions, sized_options

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
FILES = {20: "amd-gfx950-conv-20kernels.parquet", 30: "amd-gfx950-conv-30kernels.parquet"}
AMD_NAMES = {20: "training_data_forward_bf16_20.csv", 30: "benchmark_forward_300_bf16_gfx950.csv"}
MODEL = ROOT / "models" / "grouped_conv_forward_bf16_gfx950"
FOLDS = 5
DRAWS = 200
RESAMPLES = 5000
NEAR, FEWEST = 1.5, 2  # ratio to the best up to which kernels are compared, and the minimum number of them
BANDS_US = ((0, 5), (5, 10), (10, np.inf))  # best times of problems


def make_data(folder: Path) -> None:
    """Write AMD's columns as CSV and convert them."""
    with tempfile.TemporaryDirectory() as work:
        for kernels, name in FILES.items():
            frame = pd.read_parquet(folder / f"cktile_conv_fwd_bf16_gfx950_{kernels}kernels.parquet")
            kernel = "grouped_conv_forward_bf16_2d_" + frame["tile"] + "_" + frame["pipeline"]
            frame = frame.assign(kernel=kernel, latency_ms=frame["latency_us"] / 1000)
            path = Path(work) / AMD_NAMES[kernels]
            frame[[column for column in AMD_COLUMNS if column in frame.columns]].to_csv(path, index=False)
            for warning in convert([path], ROOT / "data" / name, ReadOptions(arch="gfx950")).warnings:
                print(f"  {warning}")


def defaults(learned: Dataset) -> TrainOptions:
    """The options of `ckh train` for the order of this many rows, with all trees."""
    return replace(sized_options(len(learned)), targets=(), folds=0)


def without_law(learned: Dataset) -> TrainOptions:
    """A recipe of 600 trees of 31 leaves trained on logarithms of efficiency, for which a target was stated."""
    options = defaults(learned)
    params = replace(options.params, n_estimators=600, num_leaves=31, path_smooth=0.0)
    return replace(options, rank=RankObjective.RELATIVE, prior=0.0, params=params)


def chosen(learned: Dataset, held_out: Dataset, options: TrainOptions) -> NDArray[np.float64]:
    """Efficiency of the first measured kernel of a model's answer to each problem."""
    times = times_of(held_out)
    with tempfile.TemporaryDirectory() as work:
        save(train(learned, options, lambda _steps, _text: None), Path(work) / "model")
        ranked = ranked_rows(load_model(Path(work) / "model"), held_out)
    assert ranked.ranks_any(times.problem).all()
    return np.asarray(times.efficiency()[ranked.best_ranked(times.problem)])


def show(what: str, efficiency: NDArray[np.float64]) -> None:
    """Print a line of results."""
    mean, p10 = efficiency.mean(), np.percentile(efficiency, 10)
    print(f"{what:52s} {len(efficiency):4d} problems  {mean:.2%} / {p10:.2%}", flush=True)


def show_difference(item: NDArray[np.float64], other: NDArray[np.float64]) -> None:
    """Print the differences on the same problems, with 95 % intervals."""
    drawn = np.random.default_rng(0).integers(0, len(item), (RESAMPLES, len(item)))
    tenths = [np.percentile(efficiency, 10) for efficiency in (item, other)]
    drawn_tenths = [np.percentile(efficiency[drawn], 10, axis=1) for efficiency in (item, other)]
    for what, result, resampled in (
        ("mean", (item - other).mean(), (item - other)[drawn].mean(axis=1)),
        ("P10", tenths[0] - tenths[1], drawn_tenths[0] - drawn_tenths[1]),
    ):
        low, high = np.percentile(resampled, (2.5, 97.5))
        print(f"  the former's {what} less the latter's: {result:+.2%} ({low:+.2%} to {high:+.2%})", flush=True)


def show_ceiling(measured: Dataset) -> None:
    """Print the efficiency of choosing by one measurement of compv3's kernels, evaluated in the other, by best time."""
    best_us = times_of(measured).oracle_ms() * 1000
    twice = measured.select((measured.frame["pipeline"] == "compv3").to_numpy())
    times = times_of(twice)
    repeated = scored_again(twice, choices(times.efficiency(), times.problem, times.count), None).repeated
    show("a repeated measurement of compv3's kernels", repeated)
    for low, high in BANDS_US:
        show(f"- of problems from {low} to {high} us", repeated[(best_us >= low) & (best_us < high)])
    show_noise(twice, best_us[measured.problem_ids[(measured.frame["pipeline"] == "compv3").to_numpy()]])


def show_noise(twice: Dataset, best_us: NDArray[np.float64]) -> None:
    """Print the differences between two times of a kernel, by the best time of its problem, shape (rows,)."""
    earlier, later = (twice.frame[name].to_numpy(np.float64) for name in ("earlier_ms", "later_ms"))
    apart = np.abs(np.log(later / earlier))
    for least, most in ((0, np.inf), *BANDS_US):
        pairs = apart[(best_us >= least) & (best_us < most)]
        middle, tenth = np.percentile(pairs, (50, 90))
        print(
            f"two times of a kernel, {least} to {most} us: {len(pairs)} pairs, {middle:.1%} apart, a tenth {tenth:.1%}"
        )


def show_best(measured: Dataset) -> None:
    """Print the efficiency of always choosing the best kernel, in times resampled around the measured ones.

    The deviation of each time is that between compv3's two times of the problem, with half the variance for kernels
    that were measured twice; also prints the efficiency of choosing by one sample, evaluated in another.
    """
    draw, frame = np.random.default_rng(0), measured.frame
    times, later = frame["latency_ms"].to_numpy(np.float64), frame["later_ms"].to_numpy(np.float64)
    best, repeated = [], []
    for problem in range(len(measured.first_rows)):
        rows = np.flatnonzero(measured.problem_ids == problem)
        time, is_twice = times[rows], np.isfinite(later[rows])
        apart = 2 * np.log(later[rows] / time)[is_twice & (time < NEAR * time.min())]
        if len(apart) <= FEWEST:
            continue
        spread = (apart - np.median(apart)).std() / np.sqrt(2)
        item, other = time[is_twice] * np.exp(draw.normal(0, spread, (2, DRAWS, int(is_twice.sum()))))
        of_both = time * np.exp(draw.normal(0, spread, (DRAWS, len(rows))) / np.where(is_twice, np.sqrt(2), 1))
        best.append((of_both.min(axis=1) / of_both[:, time.argmin()]).mean())
        chosen_by_one = np.take_along_axis(other, item.argmin(axis=1)[:, None], axis=1)[:, 0]
        repeated.append((other.min(axis=1) / chosen_by_one).mean())
    show("drawn: choosing compv3's kernels by one, scored in another", np.array(repeated))
    show("drawn: choosing the best of all always", np.array(best))


def main() -> None:
    """Make the datasets if possible, evaluate, train."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if folder is None or not folder.is_dir():
        print("no folder of AMD's measurements: the datasets that ship are used")
    else:
        make_data(folder)
    paths = {kernels: ROOT / "data" / name for kernels, name in FILES.items()}
    first, second = (read_dataset(path) for path in paths.values())
    show_ceiling(second)
    show_best(second)
    show("learned from the 20-kernel file, judged on the other", chosen(first, second, defaults(first)))
    both = read_dataset(*paths.values())
    fold = np.random.default_rng(0).permutation(int(both.problem_ids.max()) + 1)[both.problem_ids] % FOLDS
    ours, other = (
        np.concatenate(
            [
                chosen(rows, both.select(fold == number), recipe(rows))
                for number in range(FOLDS)
                for rows in [both.select(fold != number)]
            ]
        )
        for recipe in (defaults, without_law)
    )
    show(f"{FOLDS} folds of both files", ours)
    show("- by 600 trees of 31 leaves, relative", other)
    show_difference(ours, other)
    shutil.rmtree(MODEL)  # not to be compared with its own former version
    data = [word for path in paths.values() for word in ("--data", str(path))]
    subprocess.run([sys.executable, "-m", "ckh", "train", *data, "--jobs", "1", "--out", str(MODEL)], check=True)


if __name__ == "__main__":
    main()
