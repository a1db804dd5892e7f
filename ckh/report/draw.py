"""Rendering of figures: one description as SVG for a page, as an SVG file, and as PNG."""

from __future__ import annotations

import importlib
import io
import os
import re
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.report import bodies, style
from ckh.report.drawing import Bars, Dots, Heat, Lines, Spreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.report.drawing import Drawing

_DRAW: dict[type, Callable[..., float]] = {
    Lines: bodies.draw_lines,
    Bars: bodies.draw_bars,
    Spreads: bodies.draw_spreads,
    Heat: bodies.draw_heat,
    Dots: bodies.draw_dots,
}
_HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_SIZE = re.compile(r'(<svg [^>]*?) width="[^"]*"|(<svg [^>]*?) height="[^"]*"')
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_ID = re.compile(r'(\bid="|url\(#|href="#)')
_FONT = re.compile(r"(font(?:-family)?: ?[^;\"]*?)'DejaVu Sans'[^;\"]*")
_SETTINGS = {
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "ckh",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": style.QUIET.light,
    "axes.labelcolor": style.MUTED.light,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": style.RULE.light,
    "text.color": style.INK.light,
    "xtick.color": style.MUTED.light,
    "ytick.color": style.MUTED.light,
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


def page_svg(figure: Drawing, *, narrow: bool) -> str:
    """A figure for a page: full width, in the page's colours, with a name for screen readers.

    Marks of the wide version show their values as tooltips.
    """
    tips = bodies.Tips()
    svg = _svg(figure, tips, narrow=narrow, with_title=False)
    if not narrow:
        svg = tips.put_into(svg)
    for colour in style.ALL:
        svg = svg.replace(colour.light, f"var(--{colour.name})")
    prefix = f"{figure.name}-{'n' if narrow else 'w'}-"
    svg = _ID.sub(lambda result: result[1] + prefix, svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(_said(figure))}" ', 1)


def file_svg(figure: Drawing) -> bytes:
    """A figure as a file, with its title, on white paper."""
    svg = _svg(figure, bodies.Tips(), narrow=False, with_title=True)
    named = f"<title>{escape(figure.title)}</title>\n <desc>{escape(_said(figure))}</desc>\n <defs>"
    head = '<?xml version="1.0" encoding="utf-8"?>\n'
    return (head + svg.replace("<defs>", named, 1)).encode()


def file_png(figure: Drawing) -> bytes:
    """A figure as a PNG with twice as many pixels, with its title, on white paper."""
    return _saved(figure, "png", bodies.Tips(), narrow=False, with_title=True, dpi=2 * style.PIXELS)


def _said(figure: Drawing) -> str:
    return f"{figure.title}. {figure.note}"


def _svg(figure: Drawing, tips: bodies.Tips, *, narrow: bool, with_title: bool) -> str:
    text = _saved(figure, "svg", tips, narrow=narrow, with_title=with_title, dpi=style.PIXELS).decode()
    text = _METADATA.sub("", _HEAD.sub("", text, count=1))
    if not with_title:
        text = _SIZE.sub(lambda result: result[1] or result[2], text, count=2)
    return _FONT.sub(r"\1system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif", text)


def _saved(figure: Drawing, kind: str, tips: bodies.Tips, *, narrow: bool, with_title: bool, dpi: int) -> bytes:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    out = io.BytesIO()
    settings: dict[str, Any] = {**_SETTINGS, **({"savefig.facecolor": style.PAPER.light} if with_title else {})}
    with rc_context(settings):  # type: ignore[arg-type]
        width = style.NARROW_IN if narrow else style.WIDE_IN
        canvas = Canvas(figsize=(width, 3), layout="constrained")
        FigureCanvasAgg(canvas)
        axes = canvas.add_subplot()
        height = _DRAW[type(figure.body)](axes, figure.body, tips, narrow=narrow)
        if with_title:
            title = textwrap.wrap(figure.title, 80)
            note = textwrap.wrap(figure.note, 105)
            canvas.suptitle("\n".join(title), x=0.01, ha="left", fontsize=11.5, fontweight="bold")
            canvas.supxlabel("\n".join(note), x=0.01, ha="left", fontsize=8, color=style.MUTED.light)
            height += 0.22 * len(title) + 0.16 * len(note) + 0.15
        canvas.set_size_inches(width, height)
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        canvas.savefig(out, format=kind, dpi=dpi, metadata=metadata)
    return out.getvalue()
