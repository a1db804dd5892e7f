"""Report of a model on measured problems: its answers beside the measurements, and their figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess import baselines
from ckh.assess.metrics import best_of_first, choices
from ckh.assess.noise import repeat_noise
from ckh.assess.ranked_rows import Coverage, RankedRows, coverage, coverage_of
from ckh.assess.report import FIXED, NEAREST, choices_made
from ckh.assess.times import times_of
from ckh.errors import DataError
from ckh.learn.judging.judged_answers import judged_rows
from ckh.learn.judging.judged_data import measure_again
from ckh.report.drawing import Drawing, Heat, Line, Lines, PageTable, Report, Spread, Spreads
from ckh.report.roofline import problem_table, roofline, speeds_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.assess.metrics import Times
    from ckh.data.dataset import Dataset
    from ckh.learn.models.artifact import Model

_SPREADS_NOTE = (
    "Efficiency is the shortest measured time over the chosen kernel's. Thin lines go from the 5th to the 95th "
    "percentile of the problems, thick lines from the 25th to the 75th; the ring is the median, the bar the mean."
)
_FIRST, _AT = 20, 5  # choices of the curve of regret, and those that its title names
_WORST = 20  # problems
_CELLS = 7  # of a heat map, along each axis
_LEAST_PROBLEMS = 3  # minimum per cell to be named in a title
_PARTS, _LEAST_ROWS = 16, 40  # of the measured times, for calibration, and minimum per part


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A model evaluated on a dataset."""

    model: Model
    dataset: Dataset  # problems that have an oracle
    times: Times  # times of all rows
    ranked: RankedRows  # the rows in the model's order
    coverage: Coverage  # overlap of the model's answers and the measurements

    @property
    def all_efficiency(self) -> NDArray[np.float64]:
        """Efficiency of the choices, NaN for unmeasured ones, shape (problems,)."""
        return self.ranked.efficiency(self.times)

    @property
    def chosen(self) -> NDArray[np.int64]:
        """Row of each choice, -1 for unmeasured ones, shape (problems,)."""
        problem = self.times.problem
        return np.where(self.ranked.is_measured(problem), self.ranked.best_ranked(problem), -1)

    @property
    def efficiency(self) -> NDArray[np.float64]:
        """Efficiency of the measured choices, shape (measured choices,)."""
        all_efficiency = self.all_efficiency
        return all_efficiency[np.isfinite(all_efficiency)]

    @property
    def coverage_facts(self) -> list[tuple[str, str]]:
        """Facts on choices that could not be evaluated; empty if there are none."""
        coverage = self.coverage
        if coverage.coverage == 1.0:
            return []
        return [
            ("choices that were measured", f"{coverage.judged:,} of {coverage.problems:,}"),
            ("refused problems", f"{coverage.refused:,}"),
            ("best kernel is not a candidate", f"{coverage.best_no_candidate:,}"),
        ]


def judge(model: Model, dataset: Dataset, *, measured_alone: bool = False) -> Judged:
    """Answers of a model for measured problems with an oracle; or its order of only the measured kernels."""
    times, noise = times_of(dataset), repeat_noise(dataset)
    times = times if noise is None else replace(times, tolerance=noise.tolerance)
    ranked, _ratios = judged_rows(model, dataset, measured_alone=measured_alone)
    judged = Judged(model, dataset, times, ranked, coverage([coverage_of(ranked, times)]))
    if not len(judged.efficiency):
        raise DataError(
            f"none of the {times.count} choices of {model.path} was measured in these data",
            "rank the measured kernels alone with --among measured",
            code="not-measured",
        )
    return judged


def baseline_efficiencies(judged: Judged, learned_from: Dataset | None) -> dict[str, NDArray[np.float64]]:
    """Efficiency of baselines without a model, by name, on the problems of `Judged.efficiency`."""
    times, dataset = judged.times, judged.dataset
    scores: dict[str, NDArray[np.float64]] = {}
    if learned_from is not None:
        learned = baselines.Learned([learned_from])
        scores = {NEAREST: learned.nearest_problem_scores(dataset), FIXED: learned.single_kernel_scores(dataset)}
    efficiencies = {
        name: times.efficiency()[choices(score, times.problem, times.count)] for name, score in scores.items()
    }
    efficiencies["random kernel"] = baselines.random_efficiency(times)
    is_judged = np.isfinite(judged.all_efficiency)
    return {name: values[is_judged] for name, values in efficiencies.items()}


def report_model(judged: Judged, learned_from: Dataset | None) -> Report:
    """All figures that a model and measured problems allow."""
    spec, efficiency = judged.model.spec, judged.efficiency
    speeds = speeds_of(judged.dataset, judged.times, judged.chosen)
    p50, p10 = np.quantile(efficiency, [0.5, 0.1]).tolist()
    figures = [
        _distribution(judged, learned_from),
        _regret(judged),
        _heat(judged),
        roofline(speeds),
        _calibration(judged),
    ]
    return Report(
        title=f"Model: {judged.model.path.resolve().name}",
        subtitle=f"{spec.purpose}, evaluated on {len(efficiency):,} measured problems",
        facts=[
            ("mean efficiency", f"{efficiency.mean():.1%}"),
            ("median", f"{p50:.1%}"),
            ("P10", f"{p10:.1%}"),
            ("least", f"{efficiency.min():.1%}"),
            *judged.coverage_facts,
        ],
        figures=[figure for figure in figures if figure is not None],
        tables=[*_worst(judged), problem_table(speeds)],
    )


def _spread(label: str, values: NDArray[np.float64]) -> Spread:
    return Spread(label, float(values.mean()), *np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)).tolist())


def _distribution(judged: Judged, learned_from: Dataset | None) -> Drawing:
    efficiencies = {"the model": judged.efficiency, **baseline_efficiencies(judged, learned_from)}
    rows = [_spread(name, values) for name, values in efficiencies.items()]
    best = max(rows[1:], key=lambda row: row.mean)
    return Drawing(
        "efficiency",
        f"The model's choices reach {rows[0].mean:.1%} of the best measured speed on average, "
        f"{best.label} {best.mean:.1%}",
        _SPREADS_NOTE,
        Spreads(rows, "efficiency"),
    )


def _regret(judged: Judged) -> Drawing:
    k = range(1, min(_FIRST, int(np.bincount(judged.times.problem).max())) + 1)
    best = best_of_first(judged.times, judged.ranked.place, k)
    regret = 1.0 - best[:, np.isfinite(best[0])]  # of problems whose first choice was measured
    mean, worst_tenth = regret.mean(axis=1).tolist(), np.quantile(regret, 0.9, axis=1).tolist()
    at = min(_AT, len(k))
    return Drawing(
        "regret",
        f"Measuring the first {at} choices has a regret of {mean[at - 1]:.1%}, the first alone {mean[0]:.1%}",
        "Regret is 1 - efficiency of the best of the first k choices: the loss if these are measured and the "
        "fastest is used.",
        Lines(
            [Line("mean", k, mean), Line("worst tenth", k, worst_tenth)],
            "first k choices",
            "regret",
            percent_y=True,
            y_range=(0.0, worst_tenth[0] * 1.08 or 0.01),
        ),
    )


def _heat(judged: Judged) -> Drawing | None:
    is_judged = np.isfinite(judged.all_efficiency)
    efficiency = judged.efficiency
    first = judged.dataset.frame.iloc[judged.dataset.first_rows[is_judged]]
    sizes = {name: first[name].to_numpy(dtype=np.float64) for name in judged.dataset.op.problems.sizes}
    x, y = sorted(sizes, key=lambda name: -_variety(sizes[name]))[:2]
    if _variety(sizes[y]) <= 1:
        return None
    x_bins, x_names = _bins(sizes[x])
    y_bins, y_names = _bins(sizes[y])
    means: list[list[float | None]] = [[None] * len(x_names) for _ in y_names]
    counts = [[0] * len(x_names) for _ in y_names]
    cells = []
    for row in range(len(y_names)):
        for column in range(len(x_names)):
            inside = (y_bins == row) & (x_bins == column)
            if inside.any():
                counts[row][column] = int(inside.sum())
                mean = means[row][column] = float(efficiency[inside].mean())
                cells.append((counts[row][column] < _LEAST_PROBLEMS, mean, row, column))
    _, least, row, column = min(cells)
    return Drawing(
        "heat",
        f"The choices are least efficient, {least:.0%}, at {x} {x_names[column]} and {y} {y_names[row]}",
        f"Mean efficiency of the first choices by {x} and {y}; the small number is the number of problems.",
        Heat(y_names, x_names, means, counts, x, y),
    )


def _variety(values: NDArray[np.float64]) -> float:
    """Effective number of values (the exponential of the entropy)."""
    counts = np.unique(values, return_counts=True)[1] / len(values)
    return float(np.exp(-(counts * np.log(counts)).sum()))


def _bins(values: NDArray[np.float64]) -> tuple[NDArray[np.intp], list[str]]:
    """Bin of each value, and the names of the bins: the values if there are few, else ranges."""
    distinct = np.unique(values)
    if len(distinct) <= _CELLS:
        return np.searchsorted(distinct, values), [f"{value:g}" for value in distinct]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _CELLS + 1), method="nearest"))
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    inside = [values[bins == i] for i in range(len(edges) - 1)]
    names = [f"{part.min():g}" if part.min() == part.max() else f"{part.min():g}-{part.max():g}" for part in inside]
    return bins, names


def _calibration(judged: Judged) -> Drawing | None:
    """Ratio of predicted to measured times, by measured time."""
    speed = judged.dataset.frame["tflops"].to_numpy(dtype=np.float64)
    rows = np.flatnonzero((speed > 0) & np.isfinite(judged.ranked.tflops))
    if len(rows) < 2:  # noqa: PLR2004 - one point is not a curve
        return None
    measured, off = judged.times.latency_ms[rows], speed[rows] / judged.ranked.tflops[rows] - 1.0
    parts = np.array_split(np.argsort(measured, kind="stable"), max(2, min(_PARTS, len(measured) // _LEAST_ROWS)))
    quantiles = np.array([np.quantile(off[part], (0.05, 0.25, 0.5, 0.75, 0.95)) for part in parts])
    x = [float(np.median(measured[part])) for part in parts]
    low, quarter, middle, three, high = quantiles.T.tolist()
    return Drawing(
        "calibration",
        f"Half of the predicted times are within {np.median(np.abs(off)):.1%} of the measured ones, "
        f"nine of ten within {np.quantile(np.abs(off), 0.9):.0%}",
        "Predicted over measured time of all measured candidates, by measured time: the line is the median, the bands "
        "cover 50 % and 90 %. Above zero, the model predicts too long a time.",
        Lines(
            [Line("median", x, middle, low=low, high=high), Line("", x, middle, low=quarter, high=three)],
            "measured ms",
            "predicted over measured time",
            log_x=True,
            percent_y=True,
            zero=True,
        ),
    )


def _worst(judged: Judged) -> list[PageTable]:
    """Choices that are slower than the best by more than repeatability, the worst first; empty without any."""
    made = choices_made(judged.dataset, judged.times, judged.ranked)
    below = [(choice.efficiency, choice) for choice in made if choice.efficiency is not None and not choice.is_best]
    if not below:
        return []
    below.sort(key=lambda pair: pair[0])
    rows = []
    for value, choice in below[:_WORST]:
        again = measure_again([choice.problem], judged.model.spec)
        rows.append([f"{value:.1%}", choice.problem, choice.kernel or "", choice.best_kernel, again])
    count = len(judged.efficiency)
    table = PageTable(
        f"The {len(rows)} worst choices" + (f" of {len(below)} below the best" if len(below) > len(rows) else ""),
        ["efficiency", "problem", "chosen", "best", "command to remeasure"],
        rows,
        code=frozenset({1, 2, 3, 4}),
        note=f"{count - len(below)} of {count} choices are as fast as the best kernel within the "
        "repeat noise. Each command measures a problem again with all kernels, in a separate folder.",
    )
    return [table]
