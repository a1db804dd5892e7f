"""A report as one self-contained page: light and dark, wide and narrow, with accessible tables of all numbers."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.report import style
from ckh.report.draw import page_svg
from ckh.report.drawing import numbers
from ckh.text.log import printable
from ckh.version import __version__

if TYPE_CHECKING:
    from ckh.report.drawing import Drawing, PageTable, Report

PAGE_START = b'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="generator" content="ckh'
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_SCRIPT = Path(__file__).with_name("page.js")
_LIGHT = "".join(f"--{colour.name}:{colour.light};" for colour in style.ALL)
_DARK = "".join(f"--{colour.name}:{colour.dark};" for colour in style.ALL)
_CSS = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}}
main{{max-width:800px;margin:0 auto;padding:2rem 1.25rem 4rem}}
h1{{font-size:1.7rem;line-height:1.2;margin:0;overflow-wrap:anywhere}}
h2{{font-size:1.12rem;line-height:1.35;margin:0 0 .5rem;text-wrap:balance}}
p,figcaption{{color:var(--muted);margin:.3rem 0 0;overflow-wrap:anywhere}}
figcaption{{font-size:.88rem}}
header dl{{display:flex;flex-wrap:wrap;gap:.9rem 2rem;margin:1.5rem 0 0;padding:1rem 0}}
header dl{{border-block:1px solid var(--rule)}}
header dl div{{min-width:5.5rem}}
dt{{font-size:.78rem;color:var(--muted)}}
dd{{margin:0}}
header dd{{font-size:1.12rem;font-weight:600;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}}
figure,section{{margin:2.6rem 0 0}}
svg{{display:block;width:100%;height:auto;max-width:100%}}
.narrow{{display:none}}
@media (max-width:640px){{.wide{{display:none}}.narrow{{display:block}}main{{padding:1.25rem 1rem 3rem}}}}
details{{margin-top:.4rem;font-size:.85rem}}
summary{{color:var(--muted);cursor:pointer;padding:.25rem 0}}
.scroll{{overflow-x:auto;max-width:100%}}
table{{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}}
th,td{{padding:.3rem .9rem .3rem 0;text-align:right;border-bottom:1px solid var(--rule);vertical-align:top}}
th{{color:var(--muted);font-weight:500;white-space:nowrap}}
@media (min-width:840px){{section:has(.data){{--wide:min(84rem,100vw - 3rem);width:var(--wide)}}}}
@media (min-width:840px){{section:has(.data){{margin-left:calc(50% - var(--wide)/2)}}}}
.data thead th{{position:sticky;top:0;background:var(--paper)}}
.data td,.data code{{white-space:nowrap;overflow-wrap:normal}}
.scroll:has(.data){{max-height:32rem;overflow:auto}}
th button{{all:unset;cursor:pointer}}
th button:focus-visible{{outline:2px solid var(--c1);outline-offset:2px}}
th[aria-sort] button{{color:var(--ink)}}
th[aria-sort=ascending] button::after{{content:" ▲"}}
th[aria-sort=descending] button::after{{content:" ▼"}}
label{{display:block;margin:.5rem 0;font-size:.88rem;color:var(--muted)}}
input{{font:inherit;color:var(--ink);background:var(--paper);border:1px solid var(--quiet);border-radius:.25rem}}
input{{padding:.2rem .5rem;width:16rem;max-width:100%}}
th:first-child,td:first-child,td.code,th.code{{text-align:left}}
code{{font:.8rem/1.45 ui-monospace,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}}
.entries{{list-style:none;padding:0;margin:.6rem 0 0}}
.entries li{{border-top:1px solid var(--rule)}}
.entries summary{{color:inherit;padding:.35rem 0}}
.entries details{{margin:0}}
.entries dl{{margin:.2rem 0 .8rem;display:grid;grid-template-columns:8rem 1fr;gap:.15rem .8rem}}
@media (max-width:640px){{.entries dl{{grid-template-columns:1fr}}}}
footer{{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--rule);font-size:.82rem;color:var(--muted)}}
@media print{{figure details{{display:none}}figure{{break-inside:avoid}}}}
"""


def page(report: Report, when: str) -> bytes:
    """The page; `when` is the time of writing."""
    refresh = "" if report.refresh_s is None else f'<meta http-equiv="refresh" content="{report.refresh_s}">\n'
    script, allowed = _script() if any(table.is_data for table in report.tables) else ("", "")
    facts = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in report.facts)
    return (
        PAGE_START
        + (
            f' {__version__}">\n'
            f'<meta name="viewport" content="width=device-width,initial-scale=1">\n{refresh}'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}{allowed}">\n'
            f"<title>{_text(report.title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n<main>\n"
            f"<header><h1>{_text(report.title)}</h1><p>{_text(report.subtitle)}</p>\n<dl>{facts}</dl></header>\n"
            + "".join(map(_figure, report.figures))
            + "".join(map(_section, report.tables))
            + f"<footer>ckh {__version__}, {_text(when)}. This page loads nothing.</footer>\n"
            f"</main>\n{script}</body>\n</html>\n"
        ).encode()
    )


def _script() -> tuple[str, str]:
    """Script that sorts and filters tables, and the end of a policy that allows only this script."""
    text = _SCRIPT.read_text(encoding="utf-8")
    digest = b64encode(sha256(text.encode()).digest()).decode()
    return f"<script>{text}</script>\n", f"; script-src 'sha256-{digest}'"


def _figure(figure: Drawing) -> str:
    return (
        f'<figure id="{figure.name}">\n<h2>{_text(figure.title)}</h2>\n'
        f'<div class="wide">{page_svg(figure, narrow=False)}</div>\n'
        f'<div class="narrow">{page_svg(figure, narrow=True)}</div>\n'
        f"<figcaption>{_text(figure.note)}</figcaption>\n"
        f"<details><summary>The numbers</summary>{_table(numbers(figure))}</details>\n</figure>\n"
    )


def _section(table: PageTable) -> str:
    note = f"<p>{_text(table.note)}</p>\n" if table.note else ""
    shown = _entries(table) if len(table.code) > 1 and not table.is_data else _table(table)
    return f"<section>\n<h2>{_text(table.title)}</h2>\n{note}{shown}</section>\n"


def _entries(table: PageTable) -> str:
    """Rows with long names as a list, which needs no width: two cells, and expandable details."""
    entries = ""
    for row in table.rows:
        first, second, *others = zip(table.columns, row, strict=True)
        parts = "".join(f"<dt>{_text(name)}</dt><dd><code>{_text(cell)}</code></dd>" for name, cell in others if cell)
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
