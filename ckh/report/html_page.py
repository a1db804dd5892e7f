"""A report as one self-contained page: light and dark, with accessible tables of all numbers."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.report.draw import page_svg
from ckh.report.drawing import COLOURS
from ckh.text.log import printable
from ckh.version import __version__

if TYPE_CHECKING:
    from ckh.report.drawing import Drawing, PageTable, Report

PAGE_START = b'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="generator" content="ckh'
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_SCRIPT = Path(__file__).with_name("page.js")
_STYLES = Path(__file__).with_name("page.css")


def page(report: Report) -> bytes:
    """The page, which is the same for the same report."""
    script = allowed = ""
    if any(table.is_data for table in report.tables):  # only this script, which sorts and filters tables, may run
        text = _SCRIPT.read_text(encoding="utf-8")
        digest = b64encode(sha256(text.encode()).digest()).decode()
        script, allowed = f"<script>{text}</script>\n", f"; script-src 'sha256-{digest}'"
    css = _STYLES.read_text(encoding="utf-8")
    for paper in ("light", "dark"):
        colours = "".join(f"--{colour.name}:{getattr(colour, paper)};" for colour in COLOURS)
        css = css.replace(f"@{paper.upper()}@", colours)
    facts = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in report.facts)
    return (
        PAGE_START
        + (
            f' {__version__}">\n'
            f'<meta name="viewport" content="width=device-width,initial-scale=1">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}{allowed}">\n'
            f"<title>{_text(report.title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n"
            f"<header><h1>{_text(report.title)}</h1><p>{_text(report.subtitle)}</p>\n<dl>{facts}</dl></header>\n"
            + "".join(map(_figure, report.figures))
            + "".join(
                f"<section>\n<h2>{_text(table.title)}</h2>\n"
                + (f"<p>{_text(table.note)}</p>\n" if table.note else "")
                + (_entries(table) if len(table.code) > 1 and not table.is_data else _table(table))
                + "</section>\n"
                for table in report.tables
            )
            + f"<footer>ckh {__version__}. This page loads nothing.</footer>\n"
            f"</main>\n{script}</body>\n</html>\n"
        ).encode()
    )


def _figure(figure: Drawing) -> str:
    return (
        f'<figure id="{figure.name}">\n<h2>{_text(figure.title)}</h2>\n'
        f'<div class="scroll">{page_svg(figure)}</div>\n'
        f"<figcaption>{_text(figure.note)}</figcaption>\n"
        f"<details><summary>The numbers</summary>{_table(figure.body.numbers())}</details>\n</figure>\n"
    )


def _entries(table: PageTable) -> str:
    """Rows with long names as a list, which needs no width: two cells, and expandable details."""
    entries = ""
    for row in table.rows:
        first, second, *details = zip(table.columns, row, strict=True)
        parts = "".join(f"<dt>{_text(name)}</dt><dd><code>{_text(cell)}</code></dd>" for name, cell in details if cell)
        head = f"<strong>{_text(first[1])}</strong> {_text(first[0])} <code>{_text(second[1])}</code>"
        entries += f"<li><details><summary>{head}</summary><dl>{parts}</dl></details></li>\n"
    return f'<ol class="entries">{entries}</ol>\n'


def _table(table: PageTable) -> str:
    head = "".join(_cell("th", name, is_code=i in table.code) for i, name in enumerate(table.columns))
    rows = "".join(
        "<tr>" + "".join(_cell("td", cell, is_code=i in table.code) for i, cell in enumerate(row)) + "</tr>\n"
        for row in table.rows
    )
    kind = ' class="data"' if table.is_data else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(table.title or "The numbers")}">'
        f"<table{kind}><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>\n"
    )


def _cell(tag: str, text: str, *, is_code: bool) -> str:
    scope = ' scope="col"' if tag == "th" else ""
    if not is_code:
        return f"<{tag}{scope}>{_text(text)}</{tag}>"
    return f'<{tag}{scope} class="code">{_text(text) if tag == "th" else f"<code>{_text(text)}</code>"}</{tag}>'


def _text(text: str) -> str:
    return escape(printable(text))
