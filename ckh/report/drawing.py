"""A report as plain data: `draw` renders a figure as SVG and PNG, `html_page` a whole report as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Line:
    """A line, steps or points."""

    label: str  # its label; a line without one belongs to the previous line, and has its colour
    x: Sequence[float]  # values from left to right
    y: Sequence[float]  # as many values
    style: str = "line"  # "line", "steps" or "points"
    low: Sequence[float] = ()  # lower edge of a band around it, with as many values; empty: no band
    high: Sequence[float] = ()  # its upper edge
    tips: Sequence[str] = ()  # tooltip of each point; empty: none
    size: float | None = None  # size of points, in typographic points; None: by their number
    is_quiet: bool = False  # whether it is grey, behind the others
    is_plain: bool = False  # whether its values are not marked


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines on common axes."""

    lines: Sequence[Line]  # the most important first
    x_label: str  # label of the axis, with its unit
    y_label: str  # label of the axis, with its unit
    log_x: bool = False  # whether x is logarithmic, with a separate position for 0 if it occurs
    log_y: bool = False  # whether y is logarithmic
    percent_x: bool = False  # whether x are shares, shown in percent
    percent_y: bool = False  # whether y are shares, shown in percent
    x_from_zero: bool = False  # whether x begins at 0
    y_range: tuple[float, float] | None = None  # range of y; None: all
    zero: bool = False  # whether a line at y = 0 is drawn
    labels_above: bool = False  # whether labels are above the axes, not at the ends of the lines


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars with their values beside them, the first on top; those in `strong` are emphasized."""

    labels: Sequence[str]
    values: Sequence[float]
    texts: Sequence[str]
    x_label: str
    strong: int = 0


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles of a distribution: 5, 25, 50, 75 and 95 %, and the mean."""

    label: str
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    mean: float


@dataclass(frozen=True, slots=True)
class Spreads:
    """Distributions, one per row, the first on top; values are shares."""

    rows: Sequence[Spread]
    x_label: str


@dataclass(frozen=True, slots=True)
class Heat:
    """Shares in a grid; None for empty cells. `counts` is the number of problems in each."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    counts: Sequence[Sequence[int]]
    x_label: str
    y_label: str


@dataclass(frozen=True, slots=True)
class Dots:
    """A row of dots for each name: values and their frequencies, on a common logarithmic axis that begins at 0."""

    names: Sequence[str]
    values: Sequence[Sequence[float]]
    counts: Sequence[Sequence[int]]
    x_label: str


Body = Lines | Bars | Spreads | Heat | Dots


@dataclass(frozen=True, slots=True)
class PageTable:
    """Cells as text below column names."""

    title: str  # title of the table
    columns: Sequence[str]  # column names
    rows: Sequence[Sequence[str]]  # as many cells each
    code: frozenset[int] = frozenset()  # columns of names, set as code
    note: str = ""  # text above the table
    is_data: bool = False  # whether it can be sorted and filtered


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure."""

    name: str  # name of its files
    title: str  # its main statement, as a sentence
    note: str  # how to read it
    body: Body  # its content


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a page."""

    title: str  # subject of the report
    subtitle: str  # source of the data
    facts: Sequence[tuple[str, str]]  # names and values at the top
    figures: Sequence[Drawing]  # figures in order
    tables: Sequence[PageTable] = ()  # tables below the figures
    refresh_s: int | None = None  # interval in seconds after which a browser reloads the page; None: never


def numbers(figure: Drawing) -> PageTable:
    """A figure's numbers as a table, as an accessible alternative."""
    columns, rows = _CELLS[type(figure.body)](figure.body)
    return PageTable("", columns, rows)


def _of_lines(body: Lines) -> tuple[list[str], list[list[str]]]:
    rows = []
    for line in body.lines:
        step = max(1, len(line.x) // _MOST_ROWS)
        for i in range(0, len(line.x), step):
            band = [_number(line.low[i]), _number(line.high[i])] if line.low else ["", ""]
            rows.append([line.label, _number(line.x[i]), _number(line.y[i]), *band])
    has_band = any(line.low for line in body.lines)
    columns = ["", body.x_label, body.y_label, *(["from", "to"] if has_band else [])]
    return columns, [row[: len(columns)] for row in rows]


def _of_spreads(body: Spreads) -> tuple[list[str], list[list[str]]]:
    rows = [
        [row.label, *(f"{value:.1%}" for value in (row.mean, row.p5, row.p25, row.p50, row.p75, row.p95))]
        for row in body.rows
    ]
    return [body.x_label, "mean", "P5", "P25", "P50", "P75", "P95"], rows


def _of_heat(body: Heat) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            name,
            *("" if value is None else f"{value:.1%} ({count})" for value, count in zip(values, counts, strict=True)),
        ]
        for name, values, counts in zip(body.rows, body.values, body.counts, strict=True)
    ]
    return [f"{body.y_label} \\ {body.x_label}", *body.columns], rows


def _of_dots(body: Dots) -> tuple[list[str], list[list[str]]]:
    rows = [
        [name, ", ".join(f"{value:g} ({count})" for value, count in zip(values, counts, strict=True))]
        for name, values, counts in zip(body.names, body.values, body.counts, strict=True)
    ]
    return ["", body.x_label], rows


def _number(value: float) -> str:
    return f"{value:.4g}"


_MOST_ROWS = 24  # per line, in its table
_CELLS: dict[type, Callable[[Any], tuple[list[str], list[list[str]]]]] = {
    Lines: _of_lines,
    Bars: lambda body: (["", body.x_label], list(map(list, zip(body.labels, body.texts, strict=True)))),
    Spreads: _of_spreads,
    Heat: _of_heat,
    Dots: _of_dots,
}
