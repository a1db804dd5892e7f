"""Summary of a tuning, as text for a terminal and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.text.log import BORROWED, MEASURED
from ckh.text.prose import paragraphs
from ckh.text.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.tune.gains import TuneDocument, TunedShape

_SHOWN = 20  # shapes at a terminal, by decreasing share of the time
_COLUMNS = ("shape", "count", "share", "today ms", "tuned ms", "gain", "95 % interval")
_TABLE = "table ms"  # only where the consumer has tables
_BASES = {**dict.fromkeys(("today ms", "tuned ms", "gain"), MEASURED), _TABLE: BORROWED}


def summary(document: TuneDocument, budget: str) -> str:
    """Summary for a terminal: the first shapes, and the totals."""
    rows = document.shapes[:_SHOWN] if document.device or _in_tables(document) else ()
    columns = _columns(document)
    table = table_text(document.folder, columns, [_cells(one, columns) for one in rows], bases=_BASES) if rows else ""
    more = len(document.shapes) - len(rows) if rows else 0
    left = [f"and {more} more shapes in summary.md"] if more else []
    return table + paragraphs("\n".join([*left, *_sentences(document, budget)])) + "\n"


def page(document: TuneDocument, budget: str) -> str:
    """Summary as Markdown: all shapes with their kernels."""
    lines = [f"# {document.op} tuned on {document.device or 'no device'}", "", *_sentences(document, budget), ""]
    columns = _columns(document)
    lines += ["| " + " | ".join((*columns, "layers", "today's kernel", "fastest measured kernel")) + " |"]
    lines += ["|" + "---|" * (len(columns) + 3)]
    for one in document.shapes:
        cells = (*_cells(one, columns), " ".join(one.layers), one.today or "none applies", one.kernel or "not measured")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _sentences(document: TuneDocument, budget: str) -> Iterator[str]:
    yield _verdict(document)
    if known := _in_tables(document):
        total = sum(one.count * one.table_ms for one in known if one.table_ms is not None)
        of = f"{len(known)} of {len(document.shapes)} shapes"
        yield f"today by AITER's own tables: {total:.4g} ms for {of}, measured by AITER, not by ckh"
    if document.another_hour is not None:
        gain, low, high = (100 * one for one in document.another_hour)
        more = f"{gain:+.1f} points of mean efficiency ({low:+.1f} to {high:+.1f})"
        yield f"after {budget}, another hour would bring {more}"
    for name, path in (("model", document.model), ("export", document.export)):
        if path is not None:
            yield f"{name} {path}"


def _verdict(document: TuneDocument) -> str:
    if document.gain is None or document.gain_interval is None:
        return "gain: not measured" + ("" if document.device else ", as nothing was timed")
    low, high = document.gain_interval
    of = f"{sum(one.gain is not None for one in document.shapes)} of {len(document.shapes)} shapes"
    gain = f"{document.gain:.3f}x ({low:.3f}–{high:.3f}) on {of}, {document.device}"
    return f"gain: {gain}" if document.is_worth_it else f"not worth it: {gain}; today's kernels are as fast"


def _in_tables(document: TuneDocument) -> list[TunedShape]:
    """Shapes with a time in the consumer's own tables."""
    return [one for one in document.shapes if one.table_ms is not None]


def _columns(document: TuneDocument) -> tuple[str, ...]:
    return (*_COLUMNS[:3], _TABLE, *_COLUMNS[3:]) if _in_tables(document) else _COLUMNS


def _cells(one: TunedShape, columns: tuple[str, ...]) -> tuple[str, ...]:
    times = {_TABLE: one.table_ms, "today ms": one.today_ms, "tuned ms": one.latency_ms}
    return (
        one.problem,
        str(one.count),
        "" if one.share is None else f"{one.share:.1%}",
        *("" if time is None else f"{time:.4g}" for name, time in times.items() if name in columns),
        "" if one.gain is None else f"{one.gain:.2f}x",
        "" if one.gain_interval is None else "–".join(f"{end:.2f}" for end in one.gain_interval),
    )
