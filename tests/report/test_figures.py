"""Figures of reports: their numbers compared with plain loops, and their contents in SVG, PNG and page."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from ckh.assess.metrics import best_of_first
from ckh.learn.models.artifact import load_model
from ckh.report import measurements
from ckh.report.draw import file_png, file_svg, page_svg
from ckh.report.drawing import Bars, Body, Dots, Drawing, Heat, Line, Lines, PageTable, Report, Spread, Spreads
from ckh.report.html_page import page
from ckh.report.measurements import Look, looks_of_runs, machine, repeats, report_dataset
from ckh.report.of_models import baseline_efficiencies, judge, report_model
from tests.learn.conftest import efficiencies, measured, saved
from tests.refusals import expect_values

BODIES: list[Body] = [
    Lines([Line("a", [1, 2, 3], [0.1, 0.2, 0.3], low=[0, 0, 0], high=[1, 1, 1]), Line("b", [1], [0.5])], "x", "y"),
    Bars(["one", "a_very_long_name_of_a_kernel_" * 4], [3, 1], ["3", "1"], "x", strong=1),
    Spreads([Spread("model", 0.31, 0.1, 0.2, 0.3, 0.4, 0.5)], "efficiency"),
    Heat(["a", "b"], ["c"], [[0.5], [None]], [[3], [0]], "C", "K"),
    Dots(["N", "C"], [[1.0, 2.0], [4.0]], [[3, 1], [4]], "size"),
]


def figure(body: Body) -> Drawing:
    """A figure whose title is markup unless escaped."""
    return Drawing("some", "A < B & C", 'a "note"', body)


def test_few_ticks_of_a_logarithmic_axis_are_labelled() -> None:
    """A curve with few points has these as ticks, as plain numbers, without powers of ten between."""
    counts = [54, 108, 216, 432]
    svg = page_svg(figure(Lines([Line("a", counts, [0.1, 0.2, 0.3, 0.4])], "problems", "y", log_x=True)))
    shown = re.findall(r">([^<>]+)</text>", svg)
    assert [text for text in shown if text in map(str, counts)] == list(map(str, counts))
    assert not [text for text in shown if text.startswith("10") and text != "108"]


def places_of_marks(svg: str, axis: str) -> list[float]:
    """Positions along an axis of points with a text, ascending."""
    return sorted(float(place) for place in re.findall(rf'<use [^>]* {axis}="([\d.]+)"[^>]*><title>', svg))


def test_zero_has_its_own_tick_among_sizes() -> None:
    """Each value of each size is a dot: 0 left of 1, the others at equal distances where they are powers of two."""
    sizes = {"pad_h": np.array([0.0] * 5 + [1, 1]), "C": np.array([1.0, 2, 4, 8, 16, 32, 64])}
    result = measurements.coverage(sizes, 7)
    assert result is not None
    expect_values(result.title, "7", "2", "C", "1", "64")
    svg = page_svg(result)
    dots = re.findall(r"<title>(\S+) (\d+): (\d+)</title>", svg)
    assert sorted(dots) == sorted(
        [("pad_h", "0", "5"), ("pad_h", "1", "2"), *(("C", str(2**i), "1") for i in range(7))]
    )
    gaps = np.diff(sorted(set(places_of_marks(svg, "x"))))
    assert gaps[1:] == pytest.approx([gaps[1]] * 6, rel=1e-4)
    assert gaps[0] == pytest.approx(2 * gaps[1], rel=1e-4)


def test_no_point_is_lost_on_logarithmic_axes() -> None:
    """All points are drawn, with 0 along both axes."""
    values = [0.0, 1e-3, 1e-2, 1e-1, 1.0]
    points = Line("", values, values, style="points", tips=[str(value) for value in values])
    svg = page_svg(figure(Lines([points], "x", "y", log_x=True, log_y=True)))
    for axis in "xy":
        gaps = np.diff(places_of_marks(svg, axis))
        assert len(gaps) == len(values) - 1
        assert (gaps > 1).all()


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_figure_renders_as_svg_png_and_numbers(body: Body) -> None:
    """Each kind renders as both, with title, accessible name and table."""
    drawing = figure(body)
    root = ET.fromstring(file_svg(drawing))  # noqa: S314 - our own text
    assert root.find("{http://www.w3.org/2000/svg}title").text == "A < B & C"  # type: ignore[union-attr]
    png = file_png(drawing)
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">I", png[16:20])[0] == pytest.approx(2 * 740, abs=2)
    text = page_svg(drawing)
    svg = ET.fromstring(text)  # noqa: S314 - our own text
    assert svg.get("role") == "img"
    assert svg.get("aria-label") == 'A < B & C. a "note"'
    assert "#0072b2" not in text
    table = drawing.body.numbers()
    assert table.rows
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_points_beyond_an_axis_are_triangles_at_its_edge() -> None:
    """Points above or below the visible range are drawn at the edge with another mark."""
    points = Line("", [1, 2, 3, 4], [0.5, 9.0, 0.6, -3.0], style="points")
    drawn = []
    for y_range in (None, (0.0, 1.0)):
        svg = page_svg(figure(Lines([points], "x", "y", y_range=y_range)))
        uses = re.findall(r'<use [^>]*href="#([^"]+)"[^>]* y="([\d.]+)"', svg)
        marks = Counter(mark for mark, _ in uses)
        drawn.append(sorted(marks[mark] for mark in {mark for mark, _ in uses}))
    assert sum(drawn[0]) == sum(drawn[1])
    assert len(drawn[1]) == len(drawn[0]) + 2


def test_pictures_are_the_same_to_the_byte() -> None:
    """Two renderings are equal, so that they can be kept under version control."""
    drawing = figure(BODIES[0])
    assert file_svg(drawing) == file_svg(drawing)
    assert file_png(drawing) == file_png(drawing)


def test_a_page_loads_nothing_and_hides_no_markup() -> None:
    """It has no address but SVG namespaces, names are escaped, and a policy forbids the rest."""
    evil = "<script>alert(1)</script>"
    made = Report(evil, evil, [(evil, evil)], [figure(BODIES[1])], [PageTable(evil, [evil], [[evil]])])
    text = page(made).decode()
    assert "<script" not in text
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', text) == []
    assert "default-src 'none'" in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)


def test_the_only_script_is_allowed_by_the_policy() -> None:
    """A page with a data table has one script, the only allowed hash; kernel names are escaped."""
    evil = "</td><script>alert(1)</script>"
    made = Report("a", "b", [], [], [PageTable(evil, ["kernel", "ms"], [[evil, "1"]], frozenset({0}), is_data=True)])
    text = page(made).decode()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert re.findall(r"script-src ([^;\"]+)", text) == [f"'sha256-{digest}'"]
    assert "alert" not in script
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 3  # in the heading, the name of the box and the cell
    assert "script-src" not in page(Report("a", "b", [], [])).decode()


def test_a_dataset_is_summarized() -> None:
    """Winners and failures equal those of a loop over the rows."""
    data = measured()
    made = report_dataset(data, [Path("a.parquet")])
    result = {drawing.name: drawing for drawing in made.figures}
    frame = data.frame
    wins: dict[str, int] = {}
    for number in range(14):
        rows = frame[(data.problem_ids == number) & frame["is_valid"]]
        name = rows.loc[rows["latency_ms"].idxmin(), "kernel"]
        wins[name] = wins.get(name, 0) + 1
    bars = result["winners"].body
    assert isinstance(bars, Bars)
    assert dict(zip(bars.labels, bars.values, strict=True)) == dict(sorted(wins.items(), key=lambda win: -win[1])[:12])
    assert result["winners"].title.startswith(f"{len(wins)} of {frame['kernel'].nunique()} kernels")
    failed = int((~frame["is_valid"]).sum())
    lost = result["failures"].body
    assert isinstance(lost, Bars)
    assert (list(lost.labels), list(lost.values)) == (["wrong result"], [failed])
    assert ("measurements", f"{len(frame):,}") in made.facts


def test_a_model_is_evaluated(tmp_path: Path) -> None:
    """Efficiency, regret and baselines equal those of a loop; the heat map has every problem once."""
    model, data = load_model(saved(tmp_path / "model")), measured()
    judged = judge(model, data, measured_alone=True)
    expected = efficiencies(tmp_path / "model")
    assert judged.efficiency == pytest.approx(expected, rel=1e-12)
    best = best_of_first(judged.times, judged.ranked.place, range(1, 25))
    assert best[0] == pytest.approx(expected, rel=1e-12)
    assert best[-1] == pytest.approx(1.0)
    assert (np.diff(best, axis=0) >= 0).all()
    made = report_model(judged, data)
    result = {drawing.name: drawing for drawing in made.figures}
    assert list(result) == ["efficiency", "regret", "heat", "roofline", "calibration"]
    spreads = result["efficiency"].body
    assert isinstance(spreads, Spreads)
    assert spreads.rows[0].mean == pytest.approx(expected.mean())
    assert len(spreads.rows) == 1 + len(baseline_efficiencies(judged, data))
    heat = result["heat"].body
    assert isinstance(heat, Heat)
    assert sum(map(sum, heat.counts)) == 14
    total = sum(
        (value or 0) * count
        for values, counts in zip(heat.values, heat.counts, strict=True)
        for value, count in zip(values, counts, strict=True)
    )
    assert total == pytest.approx(expected.sum())
    worst, _problems = made.tables
    assert worst.rows[0][0] == f"{expected.min():.1%}"
    assert worst.rows[0][4].startswith(f"printf '%s\\n' {worst.rows[0][1]} > worst-")
    below = np.flatnonzero(~judged.times.is_best()[judged.ranked.best_ranked(judged.times.problem)])
    assert 0 < len(below) < 14
    assert {row[1] for row in worst.rows} == {data.problems()[i].canonical() for i in below}


def test_noise_is_drawn_by_quantiles() -> None:
    """The middle of the curve is the median; without known spreads there is no curve."""
    spread = np.linspace(0.001, 0.1, 1001)
    noise = measurements.noise(spread)
    assert noise is not None
    assert "spread less than 5.1%" in noise.title  # 0.0505
    assert measurements.noise(np.full(3, np.nan)) is None


def test_the_machine_chart_uses_reference_measurements() -> None:
    """Drift is against a run's median; clock and temperature are drawn if known; one measurement is no drift."""
    looks = [Look(60.0 * i, 1.0 + 0.1 * (i == 4), 3000.0 - 100 * i if i else None, None) for i in range(5)]
    drawings = machine({"a": looks, "b": looks[:1]})
    assert [drawing.name for drawing in drawings] == ["machine", "clock"]
    assert "+0.0% to +10.0%" in drawings[0].title
    assert "2600 to 2900 MHz" in drawings[1].title
    body = drawings[0].body
    assert isinstance(body, Lines)
    (line,) = body.lines
    assert list(line.x) == pytest.approx([0, 1, 2, 3, 4])
    assert list(line.y) == pytest.approx([0, 0, 0, 0, 0.1])
    assert "minutes" in body.x_label
    assert machine({"b": looks[:1]}) == []


def test_reference_measurements_come_from_dataset_metadata() -> None:
    """Complete ones are used; foreign content is ignored."""
    good = [0.0, 1.5, None, 61.0]
    bad: list[Any] = [[0.0, 1.5], [0.0, "1", None, None], [0.0, None, None, None], "text", [float("inf"), 1, 1, 1]]
    runs: list[dict[str, Any]] = [{"run_id": "r", "looks": [good, *bad]}, {"run_id": "s"}, {"run_id": "t", "looks": 1}]
    assert looks_of_runs(runs) == {"r": [Look(0.0, 1.5, None, 61.0)]}


def test_repeated_problems_show_drift() -> None:
    """Each problem is the median of its kernels' second times over their first, in the order of measuring."""
    problem = np.repeat(np.arange(12), 5)
    earlier = np.random.default_rng(0).uniform(1, 2, 60)
    drift = np.linspace(-0.1, 0.1, 12)
    later = earlier * (1 + drift[problem])
    later[3] = np.nan
    drawing = repeats(earlier, later, problem)
    assert drawing is not None
    assert isinstance(drawing.body, Lines)
    assert drawing.body.lines[0].y == pytest.approx(drift)
    assert "within 5.5%" in drawing.title
    assert repeats(earlier[:20], later[:20], problem[:20]) is None
