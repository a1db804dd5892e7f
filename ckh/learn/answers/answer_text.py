"""Answers as text for a terminal. Imports little, since quick answers use it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ckh.learn.answers.answer import KERNELS, MODEL, PROBLEM, TABLE, WHY
from ckh.learn.answers.caveats import NOT_IN_HEADERS, summaries
from ckh.ops import in_words, requested
from ckh.text.log import MEASURED, one_line, painted
from ckh.text.prose import paragraphs, prose, room
from ckh.text.tabletext import HOW_WHOLE, table_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.learn.answers.answer import Answer
    from ckh.learn.answers.probes import Probe

_PARTS = ("tile", "waves", "instruction", "pipeline")
_FIGURE = 11  # maximum columns of a figure
_WHY = " (reasons: --why)"
_HOST = "host"
_MARGIN = 8  # width of the labels in front of lines


def answer_text(answer: Answer, *, why: bool) -> str:
    """Format an answer as text; `why` lists the reasons why kernels do not apply."""
    probe = answer.rows.probe
    head = [*_head(answer, why=why), *(_probe_lines(probe) if probe is not None else ())]
    below = [f"\n{prose(caveat.message)}\n" for caveat in answer.caveats if caveat.place == TABLE]
    text = "\n".join([*head, "", _table([answer])]) + "".join(below)
    return text if answer.explanation is None else "\n".join([text, *answer.explanation.lines(), ""])


def answers_text(answers: Sequence[Answer]) -> str:
    """Format the answers for many problems as text."""
    below = [f"\n{paragraphs(summary)}\n" for summary in summaries(answers)]
    return _table(answers, is_many=True) + "".join(below)


def _head(answer: Answer, *, why: bool) -> Iterator[str]:
    facts, rows = answer.facts, answer.rows
    warning = " (host timings, not valid for GPUs)" if facts.arch == _HOST else ""
    refused = sum(rows.refused.values())
    measured = "" if rows.timed is None else f" ({rows.timed} measured)"
    yield from _labelled("problem", in_words(answer.problem), answer.problem.canonical())
    yield from _of_place(answer, PROBLEM)
    if answer.not_measured is None:
        model = f"{facts.model}, measured on {facts.device or facts.arch}{warning}"
        yield from (painted(line, MEASURED) for line in _labelled("model", model))
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
    for caveat in answer.caveats:
        if caveat.place == place:
            yield from _doubts(answer, caveat.message) if place == MODEL else _labelled(caveat.label, caveat.message)


def _doubts(answer: Answer, message: str) -> Iterator[str]:
    """Why an answer is not measured, with what stands in, and the commands that measure."""
    for line in message.split("\n"):
        laid = _laid(line)
        doubts = answer.not_measured
        yield laid if doubts is None or line.startswith("next ") else painted(laid, doubts.colour)


def _laid(line: str) -> str:
    return paragraphs(one_line(line))


def _labelled(label: str, *lines: str) -> Iterator[str]:
    """Indent lines under a label in front of the first."""
    for number, line in enumerate(lines):
        yield _laid(f"{'' if number else label:{_MARGIN}} {line}")


def _probe_lines(probe: Probe) -> Iterator[str]:
    yield painted(_laid(f"measured the first {len(probe.fastest_first())} on {probe.device}, {probe.when}"), MEASURED)
    failed = (timed for timed in probe.kernels if timed.latency_ms is None)
    yield from _labelled("", *(f"{timed.kernel} failed: {timed.status} {timed.message}" for timed in failed))


def _table(answers: Sequence[Answer], *, is_many: bool = False) -> str:
    """Format a table of kernels, by name parts if complete names do not fit."""
    rows = [row for answer in answers for row in answer.kernels]
    places = [str(place) for answer in answers for place, _ in enumerate(answer.kernels, 1)]
    problems = [answer.problem.canonical() for answer in answers for _ in answer.kernels] if is_many else []
    figures: dict[str, list[float | None]] = {
        "predicted TFLOPS": [row.tflops for row in rows],
        "predicted ms": [row.latency_ms for row in rows],
    }
    if any(answer.has_bandwidth for answer in answers):
        figures["predicted GB/s"] = [row.bandwidth_gb_s for row in rows]
    if any(answer.rows.probe is not None for answer in answers):
        figures["measured ms"] = [row.measured_latency_ms for row in rows]
    bases = {name: basis for name in figures if (basis := _basis(name, answers))}
    cells = [[_figure(number) for number in own] for own in zip(*figures.values(), strict=True)]
    space = room()
    needed = _FIGURE * len(figures) + max((len(row.kernel) for row in rows), default=0)
    needed += max(map(len, problems), default=0)
    is_narrow = space is not None and needed > space
    parts = _parts(answers) if is_narrow else None
    if parts is None:
        is_grouped = is_narrow or not is_many
        first = ("", places) if is_grouped else ("problem", problems)
        kernels = [f"{row.kernel}, {NOT_IN_HEADERS}" if row.not_in_headers else row.kernel for row in rows]
        named = [[cell, *own, kernel] for cell, own, kernel in zip(first[1], cells, kernels, strict=True)]
        return table_text("", (first[0], *figures, "kernel"), named, problems if is_grouped else (), bases)
    for column, row in zip(parts.rows, rows, strict=True):
        column[-1] += f" {NOT_IN_HEADERS}" if row.not_in_headers else ""
    if not any(column[-1] for column in parts.rows):
        parts = parts._replace(headings=parts.headings[:-1], rows=[column[:-1] for column in parts.rows])
    shown = [[place, *own, *column] for place, own, column in zip(places, cells, parts.rows, strict=True)]
    note = f"in all rows: {' '.join(parts.shared)} {HOW_WHOLE}" if parts.shared else HOW_WHOLE
    return table_text("", ("", *figures, *parts.headings), shown, problems, bases) + prose(note) + "\n"


def _basis(figure: str, answers: Sequence[Answer]) -> str:
    """What a column of figures is based on; nothing for predictions of a model of this GPU, or of several kinds."""
    if figure.startswith("measured"):
        return MEASURED
    colours = {"" if answer.not_measured is None else answer.not_measured.colour for answer in answers}
    return colours.pop() if len(colours) == 1 else ""


class _Parts(NamedTuple):
    """Name parts of kernels as columns of a table, the last column with options, and the options shared by all."""

    headings: list[str]
    rows: list[list[str]]
    shared: list[str]


def _parts(answers: Sequence[Answer]) -> _Parts | None:
    """Split kernel names into parts; None without such parts, or if two kernels of a problem would look the same."""
    part = requested(answers[0].facts.op) if answers else None
    if part is None or not part.kernel:
        return None
    pattern = re.compile(part.kernel)
    by_answer = [[pattern.fullmatch(row.kernel) for row in answer.kernels] for answer in answers]
    names = [matched for of_answer in by_answer for matched in of_answer if matched is not None]
    if not names or len(names) < sum(map(len, by_answer)):
        return None
    headings = [name for name in _PARTS if name in pattern.groupindex]
    options = [_options(matched) for matched in names]
    shared = [word for word in dict.fromkeys(options[0]) if all(word in words for words in options)]
    rows = [
        [*(matched[name] for name in headings), " ".join(word for word in words if word not in shared)]
        for matched, words in zip(names, options, strict=True)
    ]
    left = iter(rows)
    for of_answer in by_answer:
        own = {tuple(next(left)) for _ in of_answer}
        if len(own) < len({matched.string for matched in of_answer if matched is not None}):
            return None
    return _Parts([*headings, "options"], rows, shared)


def _options(matched: re.Match[str]) -> list[str]:
    """Options of a kernel: names of set flags, and values of other fields."""
    groups = {name: value for name, value in matched.groupdict().items() if name not in _PARTS and value != "False"}
    by_group = ([name] if value == "True" else value.split("_") for name, value in groups.items())
    return [word for words in by_group for word in words if word]


def _figure(number: float | None) -> str:
    """Format a number of a table, or a dash for a missing one."""
    return "-" if number is None or number != number else f"{number:.4g}"  # noqa: PLR0124 - NaN
