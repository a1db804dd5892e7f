"""Speeds of measured kernels, compared with plain loops."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ckh.assess.times import times_of
from ckh.data.dataset import Dataset, read_dataset
from ckh.report.draw import page_svg
from ckh.report.drawing import Lines
from ckh.report.roofline import problem_table, roofline, speeds_of, times_over_problems
from tests.learn.conftest import measured

GFX950_CONV = Path(__file__).parents[2] / "data" / "amd-gfx950-conv-30kernels.parquet"
PEAK_TFLOPS, PEAK_TB_S = 4096 * 256 * 2.4e9 / 1e12, 8.0  # bf16 of an MI355X: 256 CUs at 2.4 GHz


def first_problems(dataset: Dataset, count: int) -> Dataset:
    """The rows of its first problems."""
    return dataset.select(dataset.problem_ids < count)


def test_the_table_of_problems_has_times_and_speeds() -> None:
    """Best time, TFLOPS and share of the peak of each problem equal those of a loop over the rows."""
    data = first_problems(read_dataset(GFX950_CONV), 12)
    table = problem_table(speeds_of(data, times_of(data)))
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
    figure = roofline(speeds_of(data, times_of(data)))
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
    speeds = speeds_of(data, times_of(data))
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
    speeds = speeds_of(data, times_of(data))
    table = problem_table(speeds)
    counts = {row[0]: int(row[table.columns.index("kernels")]) for row in table.rows}
    for number, problem in enumerate(data.problems()):
        assert counts[problem.canonical()] == int(data.frame["is_valid"][data.problem_ids == number].sum())
    body = roofline(speeds).body
    assert isinstance(body, Lines)
    assert all(y > 0 for line in body.lines for y in line.y)
