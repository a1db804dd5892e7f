"""Summary of a tuning, as text for a terminal and as Markdown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ckh.bench.isolated.timing import MANY_UNSTABLE
from ckh.bench.supervision.runner import shared_line
from ckh.shapes.problems import weights_in_words
from ckh.text.log import BORROWED, ESTIMATED, MEASURED, markdown, one_line
from ckh.text.prose import paragraphs
from ckh.text.tabletext import table_text
from ckh.tune.gains import AITER_TABLES, WORTH_IT, Ratio, established, total_gain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from ckh.tune.gains import TuneDocument, TunedShape

    _Formatter: TypeAlias = Callable[[float | None, tuple[float, float] | None], str]

_SHOWN = 20  # shapes at a terminal, by decreasing share of the time
_SHAPE, _COUNT, _SHARE, _TODAY, _TUNED, _GAIN = "shape", "count", "share", "today ms", "tuned ms", "gain (95 %)"
# Only where the consumer has tables, and where there is a prediction.
_TABLE, _PREDICTED = "table ms", "predicted (90 %)"
_NOT_MEASURED = "predicted, unmeasured"  # instead of a time
_BASES = {**dict.fromkeys((_TODAY, _TUNED, _GAIN), MEASURED), _TABLE: BORROWED, _PREDICTED: ESTIMATED}
_POOR = 0.9  # mean efficiency below which a model is poor, as ckh validate oracle has it
_KERNELS = ("layers", "today's kernel", "fastest measured kernel", "predicted kernel")


def summary(document: TuneDocument, budget: str) -> str:
    """Summary for a terminal: the first shapes, and the totals."""
    rows = document.shapes[:_SHOWN] if document.pairs_planned or _in_tables(document) else ()
    columns = _columns(document)
    cells = [_cells(row, columns, _around) for row in rows]
    table = table_text(document.folder, columns, cells, bases=_BASES) if rows else ""
    more = len(document.shapes) - len(rows) if rows else 0
    left = [f"and {more} more shapes in summary.md"] if more else []
    return table + paragraphs("\n".join([*left, *_sentences(document, budget)])) + "\n"


def page(document: TuneDocument, budget: str, commands: Sequence[str]) -> str:
    """Summary as Markdown: all shapes with their kernels, and the commands of the steps."""
    lines = [f"# {document.op} tuned on {markdown(document.device or 'no device')}", ""]
    lines += [f"- {markdown(sentence)}" for sentence in _sentences(document, budget)]
    columns = _columns(document)
    lines += ["", "| " + " | ".join((*columns, *_KERNELS)) + " |"]
    lines += ["|" + "---|" * (len(columns) + len(_KERNELS))]
    for shape in document.shapes:
        kernels = (shape.today or "none known", shape.kernel or "not measured", shape.predicted_kernel or "")
        cells = (*_cells(shape, columns, _ratio), " ".join(shape.layers), *kernels)
        lines.append("| " + " | ".join(map(markdown, cells)) + " |")
    return "\n".join([*lines, "", "```console", *map(one_line, commands), "```"]) + "\n"


def _measured(document: TuneDocument) -> Iterator[str]:
    """The measured gain, what makes the times doubtful, and what is left to measure."""
    count = len(document.shapes)
    reasons = Counter(shape.not_established for shape in document.shapes if shape.not_established is not None)
    why = ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())
    if not document.device and not document.pairs_planned:
        yield "no gain is known: no kernel was timed"
    elif document.gain is None or document.gain_interval is None:
        yield f"gain: not established on any of {count} shapes ({why})"
    else:
        of = f"{document.established} of {count} shapes"
        gain = f"{_ratio(document.gain, document.gain_interval, 3)} on {of}, {document.device}"
        gain += f"; not established on the others ({why})" if why else ""
        is_slow = document.is_worth_it is False
        yield f"not worth it: {gain}; today's kernels are as fast" if is_slow else f"gain: {gain}"
        both = [shape for shape in document.shapes if shape.gain is not None and shape.predicted_gain is not None]
        expected = [Ratio(shape.predicted_gain or 1.0, shape.predicted_gain_interval or (1.0, 1.0)) for shape in both]
        times = established(both)
        predicted = total_gain([(ms, gain) for (ms, _), gain in zip(times, expected, strict=True)])
        found = total_gain(times)
        if predicted is not None and found is not None:
            yield f"predicted for {len(both)} of them: {predicted.value:.3f}x; measured on these: {found.value:.3f}x"
    if document.drift is not None:
        low, high = document.drift
        yield f"the machine drifted: the reference kernel took {low:.2f} to {high:.2f} of its first time"
    if line := shared_line(document.shared):
        yield line
    if document.unstable is not None and document.unstable > MANY_UNSTABLE:
        yield f"{document.unstable:.0%} of the times are unstable: their samples spread by more than 5 %"
    if unmeasured := sum(shape.kernel is None for shape in document.shapes) if document.pairs_planned else 0:
        yield f"predicted, not measured: the kernels of {unmeasured} of {count} shapes"
    if not document.is_complete:
        share = f"{document.pairs} of {document.pairs_planned} pairs were measured"
        yield f"the budget ended: {share}; the same command continues"


def _sentences(document: TuneDocument, budget: str) -> Iterator[str]:
    yield from _measured(document)
    yield from document.left_out
    count, known = len(document.shapes), _in_tables(document)
    if document.today_from != AITER_TABLES:
        yield f"today's kernels: the first choice of {document.today_from}"
    if document.predicted_gain is not None:
        text = f"predicted gain: {_ratio(document.predicted_gain, document.predicted_gain_interval, 3)}"
        if document.gain is None and document.predicted_gain < WORTH_IT:
            text = f"not worth it by prediction, {text}"
        predicted = sum(shape.predicted_gain is not None and shape.gain is None for shape in document.shapes)
        of = f"on {predicted} of {count} shapes, whose gain was not measured, "
        yield f"{text} {of}" + ("over AITER's own tables" if known else "without each shape's measurements")
    if known:
        total = sum(shape.count * (shape.table_ms or 0.0) for shape in known)
        of = f"{len(known)} of {count} shapes"
        yield f"today by AITER's own tables: {total:.4g} ms for {of}, measured by AITER, not by ckh"
    if document.held_out_efficiency is not None:
        efficiency, low, high = document.held_out_efficiency
        share = f"{efficiency:.1%} ({low:.1%} to {high:.1%}) of the best measured ones"
        poor = "" if efficiency >= _POOR else "a poor model: "
        yield f"{poor}after {budget}, choices for shapes without measurements reach {share}"
    if len(document.weights) > 1:
        yield weights_in_words(document.weights)
    for name, path in (("model", document.model), ("export", document.export)):
        if path is not None:
            yield f"{name} {path}"


def _in_tables(document: TuneDocument) -> list[TunedShape]:
    """Shapes with a time in the consumer's own tables."""
    return [shape for shape in document.shapes if shape.table_ms is not None]


def _columns(document: TuneDocument) -> tuple[str, ...]:
    tables = (_TABLE,) if _in_tables(document) else ()
    predicted = () if document.predicted_gain is None else (_PREDICTED,)
    return (_SHAPE, _COUNT, _SHARE, *tables, _TODAY, _TUNED, _GAIN, *predicted)


def _cells(shape: TunedShape, columns: Sequence[str], gain: _Formatter) -> tuple[str, ...]:
    today, tuned, table = (
        "" if ms is None else f"{ms:.4g}" for ms in (shape.today_ms, shape.latency_ms, shape.table_ms)
    )
    why_not = "" if shape.kernel is None else shape.not_established or ""  # of a measured shape
    cells = {
        _SHAPE: shape.problem,
        _COUNT: str(shape.count),
        _SHARE: "" if shape.share is None else f"{shape.share:.1%}",
        _TABLE: table,
        _TODAY: today,
        _TUNED: tuned or (_NOT_MEASURED if shape.predicted_kernel else ""),
        _GAIN: gain(shape.gain, shape.gain_interval) or why_not,
        _PREDICTED: gain(shape.predicted_gain, shape.predicted_gain_interval),
    }
    return tuple(cells[name] for name in columns)


def _ratio(gain: float | None, interval: tuple[float, float] | None, digits: int = 2) -> str:
    """A gain with its interval; empty if unknown."""
    if gain is None or interval is None:
        return ""
    low, high = interval
    return f"{gain:.{digits}f}x ({low:.{digits}f}–{high:.{digits}f})"


def _around(gain: float | None, interval: tuple[float, float] | None) -> str:
    """A gain with half the width of its interval, for a narrow table; empty if unknown."""
    return "" if gain is None or interval is None else f"{gain:.2f} ±{(interval[1] - interval[0]) / 2:.2f}"
