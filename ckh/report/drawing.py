"""A report as plain data: `draw` renders a figure as SVG and PNG, `html_page` a whole report as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_ROWS = 24  # per line, in its table


class Colour(NamedTuple):
    """A colour on light and on dark paper, by the name of its CSS variable."""

    name: str
    light: str
    dark: str


PAPER = Colour("paper", "#fefefe", "#14181d")
INK = Colour("ink", "#1b1f24", "#e6e9ec")
MUTED = Colour("muted", "#5f6b76", "#9aa5b1")
RULE = Colour("rule", "#e1e5e9", "#2d343c")
QUIET = Colour("quiet", "#a9b4be", "#5d6873")
LINES = (  # Okabe's and Ito's, which are distinguishable by colour-blind people
    Colour("c1", "#0072b2", "#56aee6"),
    Colour("c2", "#d55e00", "#f0935a"),
    Colour("c3", "#009e73", "#3fc79f"),
    Colour("c4", "#aa4499", "#d98bcb"),
    Colour("c5", "#8a6d00", "#d9b93b"),
)
COLOURS = (PAPER, INK, MUTED, RULE, QUIET, *LINES)
# Of a heat map, from the worst to the best: one hue, light to dark, so that it is readable without colour.
HEAT = ("#f4e3d3", "#e3d9c6", "#bcd0d6", "#7fb0cf", "#3f8abf", "#0b5c94")


@dataclass(frozen=True, slots=True)
class PageTable:
    """Cells as text below column names."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    code: frozenset[int] = frozenset()  # columns of names, set as code
    note: str = ""  # text above the table
    is_data: bool = False  # whether it can be sorted and filtered


@dataclass(frozen=True, slots=True)
class Line:
    """A line or points."""

    label: str  # a line without one belongs to the previous line, and has its colour
    x: Sequence[float]  # values from left to right
    y: Sequence[float]
    style: str = "line"  # "line" or "points"
    low: Sequence[float] = ()  # lower edge of a band around it; empty: no band
    high: Sequence[float] = ()
    tips: Sequence[str] = ()  # tooltip of each point; empty: none
    size: float | None = None  # size of points, in typographic points; None: by their number
    is_quiet: bool = False  # whether it is grey, behind the others
    is_plain: bool = False  # whether its values are not marked


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines on common axes, the most important first."""

    lines: Sequence[Line]
    x_label: str
    y_label: str
    log_x: bool = False  # whether x is logarithmic, with a separate position for 0 if it occurs
    log_y: bool = False
    percent_x: bool = False  # whether x are shares, shown in percent
    percent_y: bool = False
    y_range: tuple[float, float] | None = None  # None: all
    zero: bool = False  # whether a line at y = 0 is drawn
    labels_above: bool = False  # whether labels are above the axes, not at the ends of the lines

    def numbers(self) -> PageTable:
        """Return some points of each line, with its band."""
        has_band, rows = any(line.low for line in self.lines), []
        for line in self.lines:
            for i in range(0, len(line.x), max(1, len(line.x) // _MOST_ROWS)):
                row = [line.label, f"{line.x[i]:.4g}", f"{line.y[i]:.4g}"]
                if has_band:
                    row += [f"{line.low[i]:.4g}", f"{line.high[i]:.4g}"] if line.low else ["", ""]
                rows.append(row)
        return PageTable("", ["", self.x_label, self.y_label, *(["from", "to"] if has_band else [])], rows)


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars with their values beside them, the first on top; the first `strong` are emphasized."""

    labels: Sequence[str]
    values: Sequence[float]
    texts: Sequence[str]
    x_label: str
    strong: int = 0

    def numbers(self) -> PageTable:
        """Return the text of each bar."""
        return PageTable("", ["", self.x_label], list(map(list, zip(self.labels, self.texts, strict=True))))


class Spread(NamedTuple):
    """Mean of a distribution of shares, and its quantiles."""

    label: str
    mean: float
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float


@dataclass(frozen=True, slots=True)
class Spreads:
    """Distributions, one per row, the first on top."""

    rows: Sequence[Spread]
    x_label: str

    def numbers(self) -> PageTable:
        """Return the figures of each distribution."""
        rows = [[label, *(f"{value:.1%}" for value in values)] for label, *values in self.rows]
        return PageTable("", [self.x_label, "mean", "P5", "P25", "P50", "P75", "P95"], rows)


@dataclass(frozen=True, slots=True)
class Heat:
    """Shares in a grid; None for empty cells. `counts` is the number of problems in each."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    counts: Sequence[Sequence[int]]
    x_label: str
    y_label: str

    def numbers(self) -> PageTable:
        """Return the value and the number of problems of each cell."""
        rows = [
            [name, *("" if value is None else f"{value:.1%} ({count})" for value, count in zip(*cells, strict=True))]
            for name, *cells in zip(self.rows, self.values, self.counts, strict=True)
        ]
        return PageTable("", [f"{self.y_label} \\ {self.x_label}", *self.columns], rows)


@dataclass(frozen=True, slots=True)
class Dots:
    """A row of dots for each name: values and their frequencies, on a common logarithmic axis that begins at 0."""

    names: Sequence[str]
    values: Sequence[Sequence[float]]
    counts: Sequence[Sequence[int]]
    x_label: str

    def numbers(self) -> PageTable:
        """Return the values of each name with their frequencies."""
        rows = [
            [name, ", ".join(f"{value:g} ({count})" for value, count in zip(*dots, strict=True))]
            for name, *dots in zip(self.names, self.values, self.counts, strict=True)
        ]
        return PageTable("", ["", self.x_label], rows)


Body = Lines | Bars | Spreads | Heat | Dots


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure."""

    name: str  # name of its files
    title: str  # its main statement, as a sentence
    note: str  # how to read it
    body: Body


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a page."""

    title: str  # subject of the report
    subtitle: str  # source of the data
    facts: Sequence[tuple[str, str]]  # names and values at the top
    figures: Sequence[Drawing]
    tables: Sequence[PageTable] = ()  # below the figures
