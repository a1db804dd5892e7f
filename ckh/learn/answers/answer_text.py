"""Answers as text for a terminal. Imports little, since quick answers use it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ckh.learn.answers.answer import KERNELS, MODEL, PROBLEM, TABLE, WHY
from ckh.learn.answers.caveats import NOT_IN_HEADERS, summaries
from ckh.ops import in_words, requested
from ckh.text.log import one_line
from ckh.text.prose import paragraphs, prose, room
from ckh.text.tabletext import HOW_WHOLE, table_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.learn.answers.answer import Answer, KernelRow
    from ckh.learn.answers.probes import Probe

_PARTS = ("tile", "waves", "instruction", "pipeline")
_FIGURE = 11  # columns of a figure, at most
_WHY = " (reasons: --why)"
_HOST = "host"
_MARGIN = 8  # of the words in front of lines


def answer_text(answer: Answer, *, why: bool) -> str:
    """An answer as text; `why` lists the reasons why kernels do not apply."""
    lines = [*_head(answer, why=why), *(_probe_lines(answer.rows.probe) if answer.rows.probe is not None else ())]
    head = [paragraphs(one_line(line)) for line in lines]
    rows = [(str(place), one) for place, one in enumerate(answer.kernels, 1)]
    below = [f"\n{prose(one.message)}\n" for one in answer.caveats if one.place == TABLE]
    text = "\n".join([*head, "", _table("", rows, [answer])]) + "".join(below)
    return text if answer.explanation is None else "\n".join([text, *answer.explanation.lines(), ""])


def answers_text(answers: Sequence[Answer]) -> str:
    """The answers for many problems as text."""
    rows = [(one.problem.canonical(), row) for one in answers for row in one.kernels]
    below = [f"\n{paragraphs(summary)}\n" for summary in summaries(answers)]
    return _table("problem", rows, answers) + "".join(below)


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


def _table(head: str, rows: Sequence[tuple[str, KernelRow]], answers: Sequence[Answer]) -> str:
    """A table of kernels: of one problem by the parts of their names, where whole names do not fit."""
    figures: dict[str, list[float | None]] = {
        "predicted TFLOPS": [row.tflops for _, row in rows],
        "predicted ms": [row.latency_ms for _, row in rows],
    }
    if any(one.has_bandwidth for one in answers):
        figures["predicted GB/s"] = [row.bandwidth_gb_s for _, row in rows]
    if any(one.rows.probe is not None for one in answers):
        figures["measured ms"] = [row.measured_latency_ms for _, row in rows]
    headings = (head, *figures)
    values = zip(*figures.values(), strict=True)
    cells = [[first, *map(_figure, own)] for (first, _), own in zip(rows, values, strict=True)]
    names, space = [row.kernel for _, row in rows], room()
    needed = _FIGURE * len(figures) + max(map(len, names), default=0)
    parts = _parts(answers[0].facts.op, names) if space is not None and needed > space and not head else None
    if parts is None:
        kernels = [f"{row.kernel}, {NOT_IN_HEADERS}" if row.not_in_headers else row.kernel for _, row in rows]
        named = [[*one, kernel] for one, kernel in zip(cells, kernels, strict=True)]
        return table_text("", (*headings, "kernel"), named)
    for column, (_, row) in zip(parts.rows, rows, strict=True):
        column[-1] += f" {NOT_IN_HEADERS}" if row.not_in_headers else ""
    if not any(column[-1] for column in parts.rows):
        parts = parts._replace(headings=parts.headings[:-1], rows=[column[:-1] for column in parts.rows])
    shown = [[*one, *column] for one, column in zip(cells, parts.rows, strict=True)]
    note = f"in all rows: {' '.join(parts.shared)} {HOW_WHOLE}" if parts.shared else HOW_WHOLE
    return table_text("", (*headings, *parts.headings), shown) + prose(note) + "\n"


class _Parts(NamedTuple):
    """Parts of kernels' names as columns of a table, the last with options, and the options that all have."""

    headings: list[str]
    rows: list[list[str]]
    shared: list[str]


def _parts(op: str, names: Sequence[str]) -> _Parts | None:
    """Parts of kernels' names; None if names of the operation have none, or some kernels differ in none."""
    part = requested(op)
    if part is None or not part.kernel or not names:
        return None
    pattern = re.compile(part.kernel)
    found = [one for name in names if (one := pattern.fullmatch(name)) is not None]
    if len(found) < len(names):
        return None
    headings = [name for name in _PARTS if name in pattern.groupindex]
    options = [_options(one) for one in found]
    shared = [word for word in dict.fromkeys(options[0]) if all(word in words for words in options)]
    rows = [
        [*(one[name] for name in headings), " ".join(word for word in words if word not in shared)]
        for one, words in zip(found, options, strict=True)
    ]
    is_distinct = len(set(map(tuple, rows))) == len(set(names))
    return _Parts([*headings, "options"], rows, shared) if is_distinct else None


def _options(found: re.Match[str]) -> list[str]:
    """Options of a kernel: names of flags that are set, and the words of others."""
    groups = {name: value for name, value in found.groupdict().items() if name not in _PARTS and value != "False"}
    words = [[name] if value == "True" else value.split("_") for name, value in groups.items()]
    return [word for some in words for word in some if word]


def _figure(value: float | None) -> str:
    """A number of a table, or a dash for a missing value."""
    return "-" if value is None or value != value else f"{value:.4g}"  # noqa: PLR0124 - NaN
