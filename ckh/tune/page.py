"""Summary of a tuning, as text for a terminal and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.text.log import MEASURED
from ckh.text.prose import paragraphs
from ckh.text.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.tune.gains import TuneDocument, TunedShape

_SHOWN = 20  # shapes at a terminal, by decreasing share of the time
_COLUMNS = ("shape", "count", "share", "today ms", "tuned ms", "gain", "95 % interval")
_BASES = dict.fromkeys(("today ms", "tuned ms", "gain"), MEASURED)


def summary(document: TuneDocument, budget: str) -> str:
    """Summary for a terminal: the first shapes, and the totals."""
    rows = document.shapes[:_SHOWN] if document.device else ()
    table = table_text(document.folder, _COLUMNS, [_cells(one) for one in rows], bases=_BASES) if rows else ""
    more = len(document.shapes) - len(rows) if rows else 0
    left = [f"and {more} more shapes in summary.md"] if more else []
    return table + paragraphs("\n".join([*left, *_sentences(document, budget)])) + "\n"


def page(document: TuneDocument, budget: str) -> str:
    """Summary as Markdown: all shapes with their kernels."""
    lines = [f"# {document.op} tuned on {document.device or 'no device'}", "", *_sentences(document, budget), ""]
    lines += ["| " + " | ".join((*_COLUMNS, "layers", "today's kernel", "fastest measured kernel")) + " |"]
    lines += ["|" + "---|" * (len(_COLUMNS) + 3)]
    for one in document.shapes:
        cells = (*_cells(one), " ".join(one.layers), one.today or "none applies", one.kernel or "not measured")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _sentences(document: TuneDocument, budget: str) -> Iterator[str]:
    yield _verdict(document)
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


def _cells(one: TunedShape) -> tuple[str, ...]:
    return (
        one.problem,
        str(one.count),
        "" if one.share is None else f"{one.share:.1%}",
        *("" if time is None else f"{time:.4g}" for time in (one.today_ms, one.latency_ms)),
        "" if one.gain is None else f"{one.gain:.2f}x",
        "" if one.gain_interval is None else "–".join(f"{end:.2f}" for end in one.gain_interval),
    )
