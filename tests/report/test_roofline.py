"""Speeds of measured kernels, and weights of problems, compared with plain loops and repeated values in NumPy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ckh.assess.times import times_of
from ckh.data.dataset import Dataset, read_dataset
from ckh.errors import DataError, UsageError
from ckh.learn.models.artifact import load_model
from ckh.report.draw import page_svg
from ckh.report.drawing import Bars, Lines
from ckh.report.judged import judge, listed, weighted_mean, weighted_quantiles
from ckh.report.of_measurements import report_dataset
from ckh.report.of_models import report_model
from ckh.report.roofline import problem_table, roofline, speeds_of, times_over_problems
from ckh.shapes.layers import WeightedProblem
from ckh.shapes.tables import table_text
from tests.learn.conftest import measured, saved
from tests.refusals import expect_refusal

GFX950_CONV = Path(__file__).parents[2] / "data" / "amd-gfx950-conv-30kernels.parquet"
PEAK_TFLOPS, PEAK_TB_S = 4096 * 256 * 2.4e9 / 1e12, 8.0  # bf16 of an MI355X: 256 CUs at 2.4 GHz


def first_problems(dataset: Dataset, count: int) -> Dataset:
    """The rows of its first problems."""
    return dataset.select(dataset.problem_ids < count)


def as_repeated(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Values repeated by their counts."""
    return np.repeat(values, counts.astype(int))


def test_the_table_of_problems_has_times_and_speeds() -> None:
    """Best time, TFLOPS and share of the peak of each problem equal those of a loop over the rows."""
    data = first_problems(read_dataset(GFX950_CONV), 12)
    table = problem_table(speeds_of(data, times_of(data), np.ones(12)))
    assert table.is_data
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert len(rows) == 12
    for number, problem in enumerate(data.problems()):
        of = data.frame[data.problem_ids == number]
        ms = float(of["latency_ms"].min())
        tflops = problem.flops / (ms * 1e9)
        limit = min(PEAK_TFLOPS, PEAK_TB_S * problem.flops / problem.bytes)
        row = rows[problem.canonical()]
        assert row["best ms"] == f"{ms:.4g}"
        assert row["best TFLOPS"] == f"{tflops:.4g}"
        assert row["of the peak"] == f"{tflops / limit:.1%}"
        assert row["best kernel"] == of.loc[of["latency_ms"].idxmin(), "kernel"]
        assert row["kernels"] == str(len(of))
    best_ms = [float(row[table.columns.index("best ms")]) for row in table.rows]
    assert best_ms == sorted(best_ms, reverse=True)


def test_every_problem_has_its_best_kernel_and_others_on_the_roofline() -> None:
    """All points are drawn, none above the roof, whose corner is where both peaks meet."""
    data = first_problems(read_dataset(GFX950_CONV), 12)
    figure = roofline(speeds_of(data, times_of(data), np.ones(12)))
    assert isinstance(figure.body, Lines)
    lines = {line.label: line for line in figure.body.lines}
    assert len(lines["best"].x) == 12
    assert len(lines["other kernels"].x) == 12 * 6
    (roof,) = (line for name, line in lines.items() if name.startswith("peak"))
    for x, y in zip(lines["best"].x, lines["best"].y, strict=True):
        assert y < min(PEAK_TFLOPS, PEAK_TB_S * x)
    assert max(roof.y) == pytest.approx(min(PEAK_TFLOPS, PEAK_TB_S * roof.x[-1]))
    assert roof.y[0] == pytest.approx(PEAK_TB_S * roof.x[0])
    svg = page_svg(figure)
    assert len(re.findall(r"<use [^>]*><title>", svg)) == 12 * 7
    assert len(re.findall(r"<title>best: ", svg)) == 12


def test_the_host_has_no_peaks() -> None:
    """Times of the CPU are labelled as such, without a share of a peak."""
    data = measured()
    speeds = speeds_of(data, times_of(data), np.ones(14))
    assert "of the peak" not in problem_table(speeds).columns
    assert " host" in problem_table(speeds).note
    drawn = roofline(speeds)
    assert isinstance(drawn.body, Lines)
    assert [line.label for line in drawn.body.lines] == ["best", "other kernels"]
    assert " host" in drawn.title
    assert " host" in times_over_problems(speeds).title


def test_a_failed_kernel_is_not_drawn() -> None:
    """Rows without a usable time are neither kernels of a problem nor points."""
    data = measured()
    speeds = speeds_of(data, times_of(data), np.ones(14))
    table = problem_table(speeds)
    counts = {row[0]: int(row[table.columns.index("kernels")]) for row in table.rows}
    for number, problem in enumerate(data.problems()):
        assert counts[problem.canonical()] == int(data.frame["is_valid"][data.problem_ids == number].sum())
    body = roofline(speeds).body
    assert isinstance(body, Lines)
    assert all(y > 0 for line in body.lines for y in line.y)


def test_problem_weights_are_counts() -> None:
    """Mean and quantiles equal those of values repeated by their counts."""
    random = np.random.default_rng(3)
    values, counts = random.uniform(size=50), random.integers(1, 9, 50).astype(float)
    repeated = as_repeated(values, counts)
    assert weighted_mean(values, counts) == pytest.approx(repeated.mean())
    shares = [0.05, 0.25, 0.5, 0.9]
    assert weighted_quantiles(values, shares, counts) == pytest.approx(
        np.quantile(repeated, shares, method="inverted_cdf")
    )
    assert weighted_quantiles(values, shares, np.ones(50)) == pytest.approx(np.quantile(values, shares))


def test_dataset_figures_weigh_problems_by_count() -> None:
    """Wins of a kernel are the sum of the counts of its problems."""
    data, counts = measured(), np.arange(1, 15, dtype=float)
    made = report_dataset(data, [Path("a.parquet")], counts)
    bars = next(figure for figure in made.figures if figure.name == "winners").body
    assert isinstance(bars, Bars)
    assert sum(bars.values) == counts.sum()
    frame, wins = data.frame, dict.fromkeys(bars.labels, 0.0)
    for number in range(14):
        rows = frame[(data.problem_ids == number) & frame["is_valid"]]
        wins[str(rows.loc[rows["latency_ms"].idxmin(), "kernel"])] += counts[number]
    assert dict(zip(bars.labels, bars.values, strict=True)) == wins


def test_model_figures_weigh_problems_by_count(tmp_path: Path) -> None:
    """The mean efficiency is weighted, and the table has each problem's count beside its kernel."""
    data, counts = measured(), np.arange(1, 15, dtype=float)
    judged = judge(load_model(saved(tmp_path / "model")), data, counts, measured_alone=True)
    made = report_model(judged, data)
    expected = as_repeated(judged.efficiency, counts)
    assert dict(made.facts)["mean efficiency"] == f"{expected.mean():.1%}"
    table = next(table for table in made.tables if table.is_data)
    place = {problem.canonical(): number for number, problem in enumerate(data.problems())}
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        assert cells["count"] == f"{counts[place[row[0]]]:.0f}"
        assert cells["efficiency"] == f"{judged.all_efficiency[place[row[0]]]:.1%}"


def test_counts_come_from_a_list_of_shapes(tmp_path: Path) -> None:
    """Only listed problems remain, with the list's counts; a list without counts or matches is refused."""
    data = measured()
    problems = data.problems()[3:6]
    path = tmp_path / "shapes.csv"
    rows = [
        WeightedProblem("grouped_conv", item, count, ("a",), "")
        for count, item in zip((5, 1, 40), problems, strict=True)
    ]
    path.write_text(table_text(rows), encoding="utf-8")
    selected, counts = listed(data, str(path))
    assert selected.problems() == problems
    assert counts.tolist() == [5, 1, 40]
    with expect_refusal(DataError, "no-match", 3):
        listed(data.select(data.problem_ids < 3), str(path))
    with expect_refusal(UsageError, "inapplicable-option", "host-train"):
        listed(data, "host-train")
    assert len(selected) == np.isin(data.problem_ids, (3, 4, 5)).sum()
