"""Bodies of each kind of figure. Each function fills axes and returns the requested height in inches."""

from __future__ import annotations

import re
from html import escape
from math import ceil, floor, inf, log2, sqrt
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ckh.report import style
from ckh.text.log import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ckh.report.drawing import Bars, Dots, Heat, Line, Lines, Spreads

_ROW_IN = 0.30
_LEAST_GAP = 0.075  # share of the height between labels
_LIGHT_TEXT_FROM = 0.62  # share of the scale of a heat map
_NAMED_ROW_IN = 0.40
_FEW_POINTS = 100  # maximum number of points that are drawn larger
_TICKS = 5  # maximum number of individually labelled positions
_LONG, _SHORT = 34, 16  # characters of a row's name
_NAME_WIDE, _NAME_NARROW = 110, 56  # characters of a name above its bar


class Tips:
    """Tooltips of a figure's marks: `<title>` of SVG, which needs no script."""

    def __init__(self) -> None:
        self._texts: list[Sequence[str]] = []

    def add(self, artist: Any, texts: Sequence[str]) -> None:
        """Set the texts of an artist's marks, in drawing order."""
        artist.set_gid(f"tips-{len(self._texts)}")
        self._texts.append(texts)

    def put_into(self, svg: str) -> str:
        """Insert all texts into the figure's SVG."""
        for number, texts in enumerate(self._texts):
            before, result, group = svg.partition(f'<g id="tips-{number}">')
            left = iter(texts)
            svg = before + result + _MARK.sub(lambda mark, left=left: _titled(mark, left), group)  # type: ignore[misc]
        return svg


_MARK = re.compile(r"<defs>.*?</defs>|<(use|path)\b([^>]*)/>", re.DOTALL)


def _titled(mark: re.Match[str], texts: Iterator[str]) -> str:
    """A mark with the next text; marks drawn by reference, and those after the last text, are unchanged."""
    text = next(texts, None) if mark[1] else None
    return mark[0] if text is None else f"<{mark[1]}{mark[2]}><title>{escape(printable(text))}</title></{mark[1]}>"


def draw_lines(axes: Any, body: Lines, tips: Tips, *, narrow: bool) -> float:
    """Lines with labels at their ends, or on a narrow page in a row above."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if body.log_x:
        _scale_by_powers(axes, {float(x) for line in body.lines for x in line.x})
    elif all(float(x).is_integer() for line in body.lines for x in line.x):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6 if narrow else 10))
    if body.log_y:
        axes.set_yscale(**_log_scale([y for line in body.lines for y in line.y]))
    if body.zero:
        axes.axhline(0, color=style.MUTED.light, linewidth=0.8)
    for line, colour in zip(body.lines, _colours(body.lines), strict=True):
        _draw_line(axes, line, colour, body.y_range, tips)
    if body.percent_x:
        axes.xaxis.set_major_formatter(FuncFormatter(_percent))
    if body.percent_y:
        axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    _limit(axes, body)
    axes.set_xlabel(body.x_label)
    axes.set_ylabel(body.y_label)
    axes.grid(visible=False, axis="x", which="both")
    axes.margins(x=0.01)
    labelled = [(line, colour) for line, colour in zip(body.lines, _colours(body.lines), strict=True) if line.label]
    if narrow or body.labels_above:
        _label_above(axes, labelled)
    else:
        _label_ends(axes, labelled)
    return (2.9 if narrow else 3.2) + (1.0 if body.labels_above else 0.0)


def _limit(axes: Any, body: Lines) -> None:
    if body.x_from_zero:
        axes.set_xlim(0, 1.02 * max(x for line in body.lines for x in line.x) or 1)
    if body.y_range is not None:
        axes.set_ylim(*body.y_range)


def _scale_by_powers(axes: Any, places: set[float]) -> None:
    """Make the horizontal axis logarithmic; its ticks are the values themselves if there are few."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    axes.set_xscale(**_log_scale(places))
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.xaxis.set_minor_formatter(NullFormatter())
    if len(places) <= _TICKS:  # less than a decade may contain no power of ten
        axes.xaxis.set_major_locator(FixedLocator(sorted(places)))
        axes.xaxis.set_minor_locator(NullLocator())


def _log_scale(values: Iterable[float], base: int = 10) -> dict[str, Any]:
    """A logarithmic scale; 0 is placed one power of the base below the smallest other value."""
    known = [value for value in values if value >= 0]
    if all(value > 0 for value in known):
        return {"value": "log", "base": base}
    return {"value": "symlog", "base": base, "linthresh": min((item for item in known if item > 0), default=1.0)}


def _plain(value: float, _place: int) -> str:
    return f"{value:g}"


def _percent(value: float, _place: int) -> str:
    return f"{round(100 * value, 6):g}%"


def _colours(lines: Sequence[Line]) -> list[str]:
    """A colour for each line; a line without a label has the colour of the previous one."""
    result: list[str] = []
    for line in lines:
        if line.is_quiet:
            result.append(style.QUIET.light)
            continue
        number = len(set(result) - {style.QUIET.light})
        result.append(result[-1] if result and not line.label else style.LINES[number % len(style.LINES)].light)
    return result


def _draw_line(axes: Any, line: Line, colour: str, y_range: tuple[float, float] | None, tips: Tips) -> None:
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, linewidth=0)
    if line.style == "points":
        _draw_points(axes, line, colour, y_range or (-inf, inf), tips)
    elif line.style == "steps":
        axes.step(line.x, line.y, where="post", color=colour, linewidth=1.8)
    else:
        marker = "o" if len(line.x) <= _FEW and not line.is_plain else None
        axes.plot(line.x, line.y, color=colour, linewidth=1.8, marker=marker, markersize=3.5)


def _draw_points(axes: Any, line: Line, colour: str, y_range: tuple[float, float], tips: Tips) -> None:
    """Points, larger if there are few; a triangle at the edge for each point out of range."""
    low, high = y_range
    size = line.size or (3.5 if len(line.x) > _FEW_POINTS else 8)
    kinds = ((".", low, high, None), ("^", high, inf, high), ("v", -inf, low, low))
    for marker, least, most, edge in kinds:
        at = [i for i, y in enumerate(line.y) if least <= y <= most]
        if at:
            x, y = [line.x[i] for i in at], [line.y[i] if edge is None else edge for i in at]
            look = {"color": colour, "markersize": size, "alpha": 0.6, "markeredgewidth": 0}
            look |= {"zorder": 1.5} if line.is_quiet else {}  # lines have 2
            (drawn,) = axes.plot(x, y, marker, clip_on=edge is None, **look)
            if line.tips:
                tips.add(drawn, [line.tips[i] for i in at])


_FEW = 24  # maximum number of values of a line that are marked individually


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


def _label_above(axes: Any, lines: Sequence[tuple[Line, str]]) -> None:
    for number, (line, colour) in enumerate(reversed(lines)):
        axes.annotate(
            line.label,
            (0, 1),
            xycoords="axes fraction",
            xytext=(0, 5 + 12 * number),
            textcoords="offset points",
            color=colour,
            annotation_clip=False,
        )


def draw_bars(axes: Any, body: Bars, tips: Tips, *, narrow: bool) -> float:
    """Bars from top to bottom with their values beside them."""
    places = range(len(body.labels))
    colours = [style.LINES[0].light if i < body.strong else style.QUIET.light for i in places]
    for bar, label, text in zip(
        axes.barh(places, body.values, color=colours, height=0.66), body.labels, body.texts, strict=True
    ):
        tips.add(bar, [f"{label}: {text}"])
    most = max([*body.values, 0]) or 1
    for place, value, text in zip(places, body.values, body.texts, strict=True):
        axes.text(value + most * 0.012, place, text, va="center", color=style.INK.light, fontsize=8.5)
    axes.set_xlim(0, most * (1.25 if narrow else 1.12))
    axes.set_xlabel(body.x_label)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.grid(visible=False)
    if max(map(len, body.labels), default=0) <= _LONG:
        _name_rows(axes, body.labels, narrow=narrow)
        return 0.55 + _ROW_IN * max(len(body.labels), 2)
    _name_bars(axes, body.labels, narrow=narrow)
    return 0.55 + _NAMED_ROW_IN * max(len(body.labels), 2)


def _name_bars(axes: Any, names: Sequence[str], *, narrow: bool) -> None:
    """Names above their bars, using the full width."""
    from ckh.text.tabletext import shortened

    for bar in axes.patches:
        bar.set_height(0.42)
        bar.set_y(bar.get_y() + 0.28)
    for text in axes.texts:
        text.set_y(text.get_position()[1] + 0.16)
    for place, name in enumerate(shortened(names, _NAME_NARROW if narrow else _NAME_WIDE)):
        axes.text(0, place - 0.24, name, va="center", color=style.INK.light, fontsize=7.5)
    axes.set_yticks([])
    axes.set_ylim(len(names) - 0.4, -0.6)


def _name_rows(axes: Any, names: Sequence[str], *, narrow: bool) -> None:
    from ckh.text.tabletext import shortened

    short = (
        ["\n".join(wrap(item, _SHORT)) for item in shortened(names, 2 * _SHORT)] if narrow else shortened(names, _LONG)
    )
    axes.set_yticks(range(len(names)), short, color=style.INK.light)
    axes.set_ylim(len(names) - 0.4, -0.6)


def draw_spreads(axes: Any, body: Spreads, tips: Tips, *, narrow: bool) -> float:
    """A row for each distribution: a thin line from P5 to P95, a thick one from P25 to P75, a dot at the median."""
    from matplotlib.ticker import FuncFormatter

    for place, row in enumerate(body.rows):
        colour = style.LINES[0].light if place == 0 else style.QUIET.light
        axes.plot([row.p5, row.p95], [place, place], color=colour, linewidth=1.6, solid_capstyle="round")
        (half,) = axes.plot([row.p25, row.p75], [place, place], color=colour, linewidth=7, solid_capstyle="butt")
        tips.add(half, [f"{row.label}: mean {row.mean:.1%}, P25 {row.p25:.1%}, P75 {row.p75:.1%}"])
        axes.plot([row.p50], [place], "o", color=style.PAPER.light, markeredgecolor=colour, markersize=6.5, mew=1.8)
        axes.plot([row.mean], [place], "|", color=style.INK.light, markersize=13, mew=1.6)
        weight = "bold" if place == 0 else "normal"
        _write_beside(axes, f"{row.mean:.1%}", place, style.INK.light, "data", fontweight=weight)
    _write_beside(axes, "mean", -0.75, style.MUTED.light, "data")
    axes.xaxis.set_major_formatter(FuncFormatter(_percent))
    axes.set_xlabel(body.x_label)
    axes.grid(visible=False, axis="y")
    _name_rows(axes, [row.label for row in body.rows], narrow=narrow)
    axes.set_ylim(len(body.rows) - 0.4, -1.0)
    return 0.75 + 0.38 * len(body.rows)


def draw_heat(axes: Any, body: Heat, tips: Tips, *, narrow: bool) -> float:
    """Cells in one hue, each with its value; cells without problems are empty."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    known = [value for row in body.values for value in row if value is not None]
    low, high = min(known), max(known)
    scale = LinearSegmentedColormap.from_list("ckh", style.HEAT)
    for y, (values, counts) in enumerate(zip(body.values, body.counts, strict=True)):
        for x, (value, count) in enumerate(zip(values, counts, strict=True)):
            if value is None:
                continue
            share = (value - low) / (high - low) if high > low else 1.0
            cell = Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=scale(share), edgecolor="none")
            axes.add_patch(cell)
            where = f"{body.x_label} {body.columns[x]}, {body.y_label} {body.rows[y]}"
            tips.add(cell, [f"{where}: {value:.1%} of {count} problems"])
            colour = "#ffffff" if share > _LIGHT_TEXT_FROM else "#111418"
            look = {"ha": "center", "va": "center", "color": colour}
            axes.text(x, y - (0 if narrow else 0.12), f"{value:.0%}", fontsize=8 if narrow else 9, **look)
            if not narrow:
                axes.text(x, y + 0.24, f"{count}", fontsize=6.5, **look)
    axes.set_xlim(-0.5, len(body.columns) - 0.5)
    axes.set_ylim(-0.5, len(body.rows) - 0.5)
    axes.set_xticks(
        range(len(body.columns)), body.columns, rotation=45 if narrow else 0, ha="right" if narrow else "center"
    )
    axes.set_yticks(range(len(body.rows)), body.rows)
    axes.set_xlabel(body.x_label)
    axes.set_ylabel(body.y_label)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    return 0.9 + (0.36 if narrow else 0.46) * len(body.rows) + (0.3 if narrow else 0.0)


def draw_dots(axes: Any, body: Dots, tips: Tips, *, narrow: bool) -> float:
    """A row of dots for each name, whose area grows with the frequency of a value."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    most = max((count for counts in body.counts for count in counts), default=1)
    largest = 90 if narrow else 170
    for place, (values, counts) in enumerate(zip(body.values, body.counts, strict=True)):
        for count in sorted(set(counts)):
            x = [value for value, item in zip(values, counts, strict=True) if item == count]
            size = sqrt(6 + largest * count / most)
            look = {"color": style.LINES[0].light, "markersize": size, "alpha": 0.65, "markeredgewidth": 0}
            (dots,) = axes.plot(x, [place] * len(x), "o", **look)
            tips.add(dots, [f"{body.names[place]} {value:g}: {count}" for value in x])
    every = [value for values in body.values for value in values]
    axes.set_xscale(**_log_scale(every, base=2))
    axes.xaxis.set_major_locator(FixedLocator(_powers_of_two(every, 7 if narrow else 14)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.set_xlabel(body.x_label)
    axes.grid(visible=False, axis="x", which="both")
    _name_rows(axes, body.names, narrow=narrow)
    return 0.7 + 0.34 * len(body.names)


def _powers_of_two(values: Sequence[float], most: int) -> list[float]:
    """Ticks of an axis of sizes: 0 if it occurs, and powers of two in equal steps, at most `most`."""
    first = floor(log2(min((value for value in values if value > 0), default=1.0)))
    last = ceil(log2(max([*values, 1.0])))
    step = ceil((last - first + 1) / most)
    return [*([0.0] if 0 in values else []), *(2.0**power for power in range(first, last + 1, step))]
