"""Answers as text for a terminal. Imports little, since quick answers use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.learn.answers.answer import KERNELS, MODEL, PROBLEM, TABLE, WHY
from ckh.learn.answers.caveats import NOT_IN_HEADERS, summaries
from ckh.log import one_line
from ckh.ops import in_words
from ckh.prose import paragraphs, prose
from ckh.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ckh.learn.answers.answer import Answer, KernelRow
    from ckh.learn.answers.probes import Probe

_COLUMNS = ("predicted TFLOPS", "predicted ms")
_WHY = " (reasons: --why)"
_HOST = "host"
_MARGIN = 8  # of the words in front of lines


def answer_text(answer: Answer, *, why: bool) -> str:
    """An answer as text; `why` lists the reasons why kernels do not apply."""
    lines = [*_head(answer, why=why), *(_probe_lines(answer.rows.probe) if answer.rows.probe is not None else ())]
    head = [paragraphs(one_line(line)) for line in lines]
    shown = _shown([answer])
    rows = [[str(place), *_cells(one, **shown)] for place, one in enumerate(answer.kernels, 1)]
    below = [f"\n{prose(one.message)}\n" for one in answer.caveats if one.place == TABLE]
    text = "\n".join([*head, "", table_text("", ("", *_headings(**shown)), rows)]) + "".join(below)
    return text if answer.explanation is None else "\n".join([text, *answer.explanation.lines(), ""])


def answers_text(answers: Sequence[Answer]) -> str:
    """The answers for many problems as text."""
    shown = _shown(answers)
    rows = [[one.problem.canonical(), *_cells(row, **shown)] for one in answers for row in one.kernels]
    below = [f"\n{paragraphs(summary)}\n" for summary in summaries(answers)]
    return table_text("", ("problem", *_headings(**shown)), rows) + "".join(below)


def _head(answer: Answer, *, why: bool) -> Iterator[str]:
    facts, rows = answer.facts, answer.rows
    warning = " (host timings, not valid for GPUs)" if facts.arch == _HOST else ""
    refused = sum(rows.refused.values())
    measured = "" if rows.timed is None else f" ({rows.timed} measured)"
    yield from _labelled("problem", in_words(answer.problem), answer.problem.canonical())
    yield from _of_place(answer, PROBLEM)
    if answer.not_measured is None:
        yield from _labelled("model", f"{facts.model}, measured on {facts.device or facts.arch}{warning}")
    yield from _of_place(answer, MODEL)
    if facts.other_models:
        yield from _labelled("", f"preferred over {', '.join(facts.other_models)}")
    reasons = _WHY if refused and not why else ""
    yield from _labelled("kernels", f"{rows.candidates} candidates{measured}, {refused} refused{reasons}")
    yield from _of_place(answer, KERNELS)
    if why:
        yield from _labelled("", *(f"{count} x {reason}" for reason, count in rows.refused.items()))
        yield from _of_place(answer, WHY)


def _of_place(answer: Answer, place: str) -> Iterator[str]:
    for one in answer.caveats:
        if one.place == place:
            yield from one.message.split("\n") if place == MODEL else _labelled(one.label, one.message)


def _labelled(label: str, *lines: str) -> Iterator[str]:
    """Lines behind a word, or behind as many spaces."""
    for number, line in enumerate(lines):
        yield f"{'' if number else label:{_MARGIN}} {line}"


def _probe_lines(probe: Probe) -> Iterator[str]:
    yield f"measured the first {len(probe.fastest_first())} on {probe.device}, {probe.when}"
    failed = (one for one in probe.kernels if one.latency_ms is None)
    yield from _labelled("", *(f"{one.kernel} failed: {one.status} {one.message}" for one in failed))


def _shown(answers: Sequence[Answer]) -> Mapping[str, bool]:
    """Optional columns of a table."""
    return {
        "is_measured": any(one.rows.probe is not None for one in answers),
        "has_bandwidth": any(one.has_bandwidth for one in answers),
    }


def _headings(*, is_measured: bool, has_bandwidth: bool) -> Iterable[str]:
    return (
        *_COLUMNS,
        *(["predicted GB/s"] if has_bandwidth else []),
        *(["measured ms"] if is_measured else []),
        "kernel",
    )


def _cells(row: KernelRow, *, is_measured: bool, has_bandwidth: bool) -> Iterable[str]:
    more = [*([row.bandwidth_gb_s] if has_bandwidth else []), *([row.measured_latency_ms] if is_measured else [])]
    values = (row.tflops, row.latency_ms, *more)
    return [*map(_figure, values), f"{row.kernel}, {NOT_IN_HEADERS}" if row.not_in_headers else row.kernel]


def _figure(value: float | None) -> str:
    """A number of a table, or a dash for a missing value."""
    return "-" if value is None or value != value else f"{value:.4g}"  # noqa: PLR0124 - NaN
