"""Rendering of figures: one description as SVG for a page, as an SVG file, and as PNG."""

from __future__ import annotations

import importlib
import io
import os
import re
import textwrap
from html import escape
from math import ceil, floor, inf, log2, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.report.drawing import COLOURS, HEAT, INK, LINES, MUTED, PAPER, QUIET, RULE, Bars, Dots, Heat, Lines, Spreads
from ckh.text.log import printable
from ckh.text.tabletext import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ckh.report.drawing import Drawing, Line

    Tips = list[Sequence[str]]  # tooltips of a figure's marks: `<title>` of SVG, which needs no script

_WIDE_IN, _PIXELS = 7.4, 100  # inches, and pixels an inch
_ROW_IN, _NAMED_ROW_IN = 0.30, 0.40
_LEAST_GAP = 0.075  # share of the height between labels
_LIGHT_TEXT_FROM = 0.62  # share of the scale of a heat map
_FEW = 24  # maximum number of values of a line that are marked individually
_FEW_POINTS = 100  # maximum number of points that are drawn larger
_FEW_TICKS, _MOST_TICKS = 5, 14  # positions that are labelled individually, and ticks of an axis of sizes
_LONG, _NAME = 34, 110  # characters of a row's name, and of a name above its bar
_LARGEST_DOT = 170
_HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_SIZE = re.compile(r'(<svg [^>]*?) width="[^"]*"|(<svg [^>]*?) height="[^"]*"')
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_ID = re.compile(r'(\bid="|url\(#|href="#)')
_FONT = re.compile(r"(font(?:-family)?: ?[^;\"]*?)'DejaVu Sans'[^;\"]*")
_MARK = re.compile(r"<defs>.*?</defs>|<(use|path)\b([^>]*)/>", re.DOTALL)
_SETTINGS: dict[str, Any] = {
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "ckh",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": QUIET.light,
    "axes.labelcolor": MUTED.light,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": RULE.light,
    "text.color": INK.light,
    "xtick.color": MUTED.light,
    "ytick.color": MUTED.light,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def require_matplotlib() -> None:
    """Refuse to report without matplotlib."""
    import logging
    from importlib.util import find_spec

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # a read-only home folder does not matter
    if find_spec("matplotlib") is None:
        raise UsageError("figures need matplotlib", "pip install 'ckh[report]'", code="not-installed")
    if Path("matplotlibrc").exists():  # settings of the current folder, which matplotlib reads, and evaluates in part
        here = Path.cwd()
        os.chdir("/")
        try:
            importlib.import_module("matplotlib")
        finally:
            os.chdir(here)


def page_svg(figure: Drawing) -> str:
    """A figure for a page: full width, in the page's colours, with a name for screen readers, and tooltips."""
    tips: Tips = []
    svg = _SIZE.sub(lambda size: size[1] or size[2], _svg(figure, tips, with_title=False), count=2)
    for number, texts in enumerate(tips):
        before, start, group = svg.partition(f'<g id="tips-{number}">')
        left = iter(texts)
        svg = before + start + _MARK.sub(lambda mark, left=left: _titled(mark, left), group)  # type: ignore[misc]
    for colour in COLOURS:
        svg = svg.replace(colour.light, f"var(--{colour.name})")
    svg = _ID.sub(lambda start: f"{start[1]}{figure.name}-", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(_said(figure))}" ', 1)


def file_svg(figure: Drawing) -> bytes:
    """A figure as a file, with its title, on white paper."""
    named = f"<title>{escape(figure.title)}</title>\n <desc>{escape(_said(figure))}</desc>\n <defs>"
    svg = _svg(figure, [], with_title=True).replace("<defs>", named, 1)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{svg}'.encode()


def file_png(figure: Drawing) -> bytes:
    """A figure as a PNG with twice as many pixels, with its title, on white paper."""
    return _saved(figure, "png", [], with_title=True, dpi=2 * _PIXELS)


def _titled(mark: re.Match[str], texts: Iterator[str]) -> str:
    """A mark with the next text; marks drawn by reference, and those after the last text, are unchanged."""
    text = next(texts, None) if mark[1] else None
    return mark[0] if text is None else f"<{mark[1]}{mark[2]}><title>{escape(printable(text))}</title></{mark[1]}>"


def _said(figure: Drawing) -> str:
    return f"{figure.title}. {figure.note}"


def _svg(figure: Drawing, tips: Tips, *, with_title: bool) -> str:
    text = _saved(figure, "svg", tips, with_title=with_title, dpi=_PIXELS).decode()
    text = _METADATA.sub("", _HEAD.sub("", text, count=1))
    return _FONT.sub(r"\1system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif", text)


def _saved(figure: Drawing, kind: str, tips: Tips, *, with_title: bool, dpi: int) -> bytes:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    out = io.BytesIO()
    settings = {**_SETTINGS, **({"savefig.facecolor": PAPER.light} if with_title else {})}
    with rc_context(settings):  # type: ignore[arg-type]
        canvas = Canvas(figsize=(_WIDE_IN, 3), layout="constrained")
        FigureCanvasAgg(canvas)
        height = _DRAW[type(figure.body)](canvas.add_subplot(), figure.body, tips)
        if with_title:
            title = textwrap.wrap(figure.title, 80)
            note = textwrap.wrap(figure.note, 105)
            canvas.suptitle("\n".join(title), x=0.01, ha="left", fontsize=11.5, fontweight="bold")
            canvas.supxlabel("\n".join(note), x=0.01, ha="left", fontsize=8, color=MUTED.light)
            height += 0.22 * len(title) + 0.16 * len(note) + 0.15
        canvas.set_size_inches(_WIDE_IN, height)
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        canvas.savefig(out, format=kind, dpi=dpi, metadata=metadata)
    return out.getvalue()


def _draw_lines(axes: Any, body: Lines, tips: Tips) -> float:
    """Draw lines with labels at their ends or above, and return the height in inches."""
    _scale(axes, body)
    if body.zero:
        axes.axhline(0, color=MUTED.light, linewidth=0.8)
    colours: list[str] = []
    for line in body.lines:
        if line.is_quiet:
            colours.append(QUIET.light)
        else:
            number = len(set(colours) - {QUIET.light})
            colours.append(colours[-1] if colours and not line.label else LINES[number % len(LINES)].light)
        _draw_line(axes, line, colours[-1], body.y_range or (-inf, inf), tips)
    if body.y_range is not None:
        axes.set_ylim(*body.y_range)
    axes.set_xlabel(body.x_label)
    axes.set_ylabel(body.y_label)
    axes.grid(visible=False, axis="x", which="both")
    axes.margins(x=0.01)
    labelled = [(line, colour) for line, colour in zip(body.lines, colours, strict=True) if line.label]
    if not body.labels_above:
        _label_ends(axes, labelled)
        return 3.2
    above = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
    for number, (line, colour) in enumerate(reversed(labelled)):
        axes.annotate(line.label, (0, 1), xytext=(0, 5 + 12 * number), color=colour, **above)
    return 4.2


def _scale(axes: Any, body: Lines) -> None:
    """Make axes logarithmic or of shares, with the values themselves as ticks if there are few."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

    places = {float(x) for line in body.lines for x in line.x}
    if body.log_x:
        axes.set_xscale(**_log_scale(places))
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))
        axes.xaxis.set_minor_formatter(NullFormatter())
        if len(places) <= _FEW_TICKS:  # less than a decade may contain no power of ten
            axes.xaxis.set_major_locator(FixedLocator(sorted(places)))
            axes.xaxis.set_minor_locator(NullLocator())
    elif all(x.is_integer() for x in places):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    if body.log_y:
        axes.set_yscale(**_log_scale([y for line in body.lines for y in line.y]))
    for axis, is_percent in ((axes.xaxis, body.percent_x), (axes.yaxis, body.percent_y)):
        if is_percent:
            axis.set_major_formatter(FuncFormatter(_percent))


def _log_scale(values: Iterable[float], base: int = 10) -> dict[str, Any]:
    """A logarithmic scale; 0 is placed one power of the base below the smallest other value."""
    known = [value for value in values if value >= 0]
    if all(value > 0 for value in known):
        return {"value": "log", "base": base}
    return {"value": "symlog", "base": base, "linthresh": min((value for value in known if value > 0), default=1.0)}


def _plain(value: float, _place: int) -> str:
    return f"{value:g}"


def _percent(value: float, _place: int) -> str:
    return f"{round(100 * value, 6):g}%"


def _draw_line(axes: Any, line: Line, colour: str, y_range: tuple[float, float], tips: Tips) -> None:
    """Draw a line with its band; points out of range are triangles at the edge."""
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, linewidth=0)
    if line.style != "points":
        marker = "o" if len(line.x) <= _FEW and not line.is_plain else None
        axes.plot(line.x, line.y, color=colour, linewidth=1.8, marker=marker, markersize=3.5)
        return
    low, high = y_range
    size = line.size or (3.5 if len(line.x) > _FEW_POINTS else 8)
    look = {"color": colour, "markersize": size, "alpha": 0.6, "markeredgewidth": 0}
    look |= {"zorder": 1.5} if line.is_quiet else {}  # lines have 2
    for marker, least, most, edge in ((".", low, high, None), ("^", high, inf, high), ("v", -inf, low, low)):
        at = [i for i, y in enumerate(line.y) if least <= y <= most]
        if at:
            x, y = [line.x[i] for i in at], [line.y[i] if edge is None else edge for i in at]
            (drawn,) = axes.plot(x, y, marker, clip_on=edge is None, **look)
            if line.tips:
                _tip(tips, drawn, [line.tips[i] for i in at])


def _tip(tips: Tips, artist: Any, texts: Sequence[str]) -> None:
    """Set the tooltips of an artist's marks, in drawing order."""
    artist.set_gid(f"tips-{len(tips)}")
    tips.append(texts)


def _label_ends(axes: Any, lines: Sequence[tuple[Line, str]]) -> None:
    """Labels at the right ends, moved apart where they would overlap."""
    axes.autoscale_view()  # as the limits have not been computed yet
    to_axes = axes.transData + axes.transAxes.inverted()
    at = sorted(
        (to_axes.transform((line.x[-1], line.y[-1]))[1], line.label, colour) for line, colour in lines if len(line.y)
    )
    place = 0.0
    for share, label, colour in at:
        place = max(place, min(max(share, 0.0), 1.0))
        _write_beside(axes, label, place, colour)
        place += _LEAST_GAP


def _write_beside(axes: Any, text: str, y: float, colour: str, unit: str = "axes fraction", **font: str) -> None:
    """Write a text to the right of the axes, at a height in a unit of `matplotlib.axes.Axes.annotate`."""
    beside = {"xycoords": ("axes fraction", unit), "xytext": (6, 0), "textcoords": "offset points", "va": "center"}
    axes.annotate(text, (1, y), color=colour, annotation_clip=False, **beside, **font)


def _draw_bars(axes: Any, body: Bars, tips: Tips) -> float:
    """Draw bars from top to bottom with their values beside them, and long names above them."""
    count = len(body.labels)
    is_long = max(map(len, body.labels), default=0) > _LONG
    colours = [LINES[0].light if i < body.strong else QUIET.light for i in range(count)]
    places = [place + 0.16 * is_long for place in range(count)]
    bars = axes.barh(places, body.values, color=colours, height=0.42 if is_long else 0.66)
    most = max([*body.values, 0]) or 1
    for bar, place, value, label, text in zip(bars, places, body.values, body.labels, body.texts, strict=True):
        _tip(tips, bar, [f"{label}: {text}"])
        axes.text(value + most * 0.012, place, text, va="center", color=INK.light, fontsize=8.5)
    axes.set_xlim(0, most * 1.12)
    axes.set_xlabel(body.x_label)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.grid(visible=False)
    if not is_long:
        _name_rows(axes, body.labels)
        return 0.55 + _ROW_IN * max(count, 2)
    for place, name in enumerate(shortened(body.labels, _NAME)):
        axes.text(0, place - 0.24, name, va="center", color=INK.light, fontsize=7.5)
    axes.set_yticks([])
    axes.set_ylim(count - 0.4, -0.6)
    return 0.55 + _NAMED_ROW_IN * max(count, 2)


def _name_rows(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), shortened(names, _LONG), color=INK.light)
    axes.set_ylim(len(names) - 0.4, -0.6)


def _draw_spreads(axes: Any, body: Spreads, tips: Tips) -> float:
    """Draw each distribution: a thin line from P5 to P95, a thick one from P25 to P75, a dot at the median."""
    from matplotlib.ticker import FuncFormatter

    for place, row in enumerate(body.rows):
        colour = LINES[0].light if place == 0 else QUIET.light
        axes.plot([row.p5, row.p95], [place, place], color=colour, linewidth=1.6, solid_capstyle="round")
        (half,) = axes.plot([row.p25, row.p75], [place, place], color=colour, linewidth=7, solid_capstyle="butt")
        _tip(tips, half, [f"{row.label}: mean {row.mean:.1%}, P25 {row.p25:.1%}, P75 {row.p75:.1%}"])
        axes.plot([row.p50], [place], "o", color=PAPER.light, markeredgecolor=colour, markersize=6.5, mew=1.8)
        axes.plot([row.mean], [place], "|", color=INK.light, markersize=13, mew=1.6)
        weight = "bold" if place == 0 else "normal"
        _write_beside(axes, f"{row.mean:.1%}", place, INK.light, "data", fontweight=weight)
    _write_beside(axes, "mean", -0.75, MUTED.light, "data")
    axes.xaxis.set_major_formatter(FuncFormatter(_percent))
    axes.set_xlabel(body.x_label)
    axes.grid(visible=False, axis="y")
    _name_rows(axes, [row.label for row in body.rows])
    axes.set_ylim(len(body.rows) - 0.4, -1.0)
    return 0.75 + 0.38 * len(body.rows)


def _draw_heat(axes: Any, body: Heat, tips: Tips) -> float:
    """Draw cells in one hue, each with its value; cells without problems are empty."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    known = [value for row in body.values for value in row if value is not None]
    low, high = min(known), max(known)
    scale = LinearSegmentedColormap.from_list("ckh", HEAT)
    for y, (values, counts) in enumerate(zip(body.values, body.counts, strict=True)):
        for x, (value, count) in enumerate(zip(values, counts, strict=True)):
            if value is None:
                continue
            share = (value - low) / (high - low) if high > low else 1.0
            cell = Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=scale(share), edgecolor="none")
            axes.add_patch(cell)
            where = f"{body.x_label} {body.columns[x]}, {body.y_label} {body.rows[y]}"
            _tip(tips, cell, [f"{where}: {value:.1%} of {count} problems"])
            colour = "#ffffff" if share > _LIGHT_TEXT_FROM else "#111418"
            look = {"ha": "center", "va": "center", "color": colour}
            axes.text(x, y - 0.12, f"{value:.0%}", fontsize=9, **look)
            axes.text(x, y + 0.24, f"{count}", fontsize=6.5, **look)
    axes.set_xlim(-0.5, len(body.columns) - 0.5)
    axes.set_ylim(-0.5, len(body.rows) - 0.5)
    axes.set_xticks(range(len(body.columns)), body.columns)
    axes.set_yticks(range(len(body.rows)), body.rows)
    axes.set_xlabel(body.x_label)
    axes.set_ylabel(body.y_label)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    return 0.9 + 0.46 * len(body.rows)


def _draw_dots(axes: Any, body: Dots, tips: Tips) -> float:
    """Draw a row of dots for each name, whose area grows with the frequency of a value."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    most = max((count for counts in body.counts for count in counts), default=1)
    for place, (values, counts) in enumerate(zip(body.values, body.counts, strict=True)):
        for count in sorted(set(counts)):
            x = [value for value, own in zip(values, counts, strict=True) if own == count]
            size = sqrt(6 + _LARGEST_DOT * count / most)
            look = {"color": LINES[0].light, "markersize": size, "alpha": 0.65, "markeredgewidth": 0}
            (dots,) = axes.plot(x, [place] * len(x), "o", **look)
            _tip(tips, dots, [f"{body.names[place]} {value:g}: {count}" for value in x])
    every = [value for values in body.values for value in values]
    # Ticks are 0 if it occurs, and powers of two in equal steps.
    first = floor(log2(min((value for value in every if value > 0), default=1.0)))
    last = ceil(log2(max([*every, 1.0])))
    powers = range(first, last + 1, ceil((last - first + 1) / _MOST_TICKS))
    axes.set_xscale(**_log_scale(every, base=2))
    axes.xaxis.set_major_locator(FixedLocator([*([0.0] if 0 in every else []), *(2.0**power for power in powers)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.set_xlabel(body.x_label)
    axes.grid(visible=False, axis="x", which="both")
    _name_rows(axes, body.names)
    return 0.7 + 0.34 * len(body.names)


_DRAW: dict[type, Callable[[Any, Any, Tips], float]] = {
    Lines: _draw_lines,
    Bars: _draw_bars,
    Spreads: _draw_spreads,
    Heat: _draw_heat,
    Dots: _draw_dots,
}
