"""Answers as text for a terminal. Imports little, since quick answers use it."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ckh.learn.answers.answer import PROBLEM, TABLE, WHY
from ckh.learn.answers.caveats import MEASURE_FIRST, NOT_IN_HEADERS, summaries
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
_HOST = "host"
_INTERVAL = "interval"
_MARGIN = 8  # width of the labels in front of lines
_WORDS = re.compile("(?<!large)_")  # between the options of a name; large_tensor is one


def answer_text(answer: Answer, *, why: bool) -> str:
    """Format an answer as text, of about ten lines; `why` adds details."""
    probe = answer.rows.probe
    head = [*_head(answer, why=why), *(_probe_lines(probe) if probe is not None else ())]
    table, parts = _table([answer])
    below = [caveat for caveat in answer.caveats if caveat.place == TABLE]
    # How many to measure stands in the interval's line, which only --why shows then.
    first = MEASURE_FIRST if not why and any(caveat.kind == MEASURE_FIRST for caveat in below) else _INTERVAL
    is_wide = parts is not None and first == _INTERVAL
    hints = [*(["--wide: whole names"] if is_wide else []), *(["--why: details"] if not why else [])]
    note = [*(caveat.message for caveat in below if caveat.kind == first), *([", ".join(hints)] if hints else [])]
    shared = [f"in all rows: {' '.join(parts.shared)}"] if why and parts is not None and parts.shared else []
    lines = [*shared, "; ".join(note), *(c.message for c in below if c.kind not in (first, _INTERVAL))]
    following = [_laid(f"next     {answer.next_command}")] if answer.next_command else []
    explained = ["", *answer.explanation.lines()] if answer.explanation is not None else []
    return "\n".join([*head, table + "\n".join([*map(prose, filter(None, lines)), *following, *explained, ""])])


def answers_text(answers: Sequence[Answer]) -> str:
    """Format the answers for many problems as text."""
    table, parts = _table(answers, is_many=True)
    words = "" if parts is None or not parts.shared else f"in all rows: {' '.join(parts.shared)} "
    note = "" if parts is None else prose(words + HOW_WHOLE) + "\n"
    below = [f"\n{paragraphs(summary)}\n" for summary in summaries(answers)]
    doubts = [answer.not_measured for answer in answers if answer.not_measured is not None]
    following = [_laid(f"next     {doubts[0].next_commands[-1]}") + "\n"] if doubts else []
    return "".join([table, note, *below, *following])


def _head(answer: Answer, *, why: bool) -> Iterator[str]:
    facts, rows, doubts = answer.facts, answer.rows, answer.not_measured
    yield from _labelled("problem", in_words(answer.problem), *([answer.problem.canonical()] if why else []))
    yield from _of_place(answer, PROBLEM)
    if doubts is None:
        warning = " (host timings, not valid for GPUs)" if facts.arch == _HOST else ""
        model = f"{facts.model}, measured on {facts.device or facts.arch}{warning}"
        yield from (painted(line, MEASURED) for line in _labelled("model", model))
    else:
        yield from (painted(_laid(line), doubts.colour) for line in doubts.lines())
    if not why:
        return
    if facts.other_models:
        yield from _labelled("", f"preferred over {', '.join(facts.other_models)}")
    measured = "" if rows.timed is None else f" ({rows.timed} measured)"
    counts = f"{rows.candidates} candidates{measured}, {sum(rows.refused.values())} refused"
    yield from _labelled("kernels", counts, *(f"{count} x {reason}" for reason, count in rows.refused.items()))
    yield from _of_place(answer, WHY)


def _of_place(answer: Answer, place: str) -> Iterator[str]:
    for caveat in answer.caveats:
        if caveat.place == place:
            yield from _labelled(caveat.label, caveat.message)


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


def _table(answers: Sequence[Answer], *, is_many: bool = False) -> tuple[str, _Parts | None]:
    """Format a table of kernels, by name parts, which are returned too, if complete names do not fit."""
    rows = [row for answer in answers for row in answer.kernels]
    places = [str(place) for answer in answers for place, _ in enumerate(answer.kernels, 1)]
    problems = [answer.problem.canonical() for answer in answers for _ in answer.kernels] if is_many else []
    figures: dict[str, list[float | None]] = {
        "predicted TFLOPS": [row.tflops for row in rows],
        "predicted ms": [row.latency_ms for row in rows],
        "predicted GB/s": [row.bandwidth_gb_s for row in rows],
        "measured ms": [row.measured_latency_ms for row in rows],
    }
    figures = {name: numbers for name, numbers in figures.items() if any(map(_is_number, numbers))}
    bases = {name: basis for name in figures if (basis := _basis(name, answers))}
    cells = [[_figure(numbers[place]) for numbers in figures.values()] for place in range(len(rows))]
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
        groups = problems if is_grouped else ()
        return table_text("", (first[0], *figures, "kernel"), named, groups, bases, is_ruled=is_many), None
    shown = [[places[number], *cells[number], *names] for number, names in parts.rows.items()]
    groups = [problems[number] for number in parts.rows] if is_many else ()
    return table_text("", ("", *figures, *parts.headings), shown, groups, bases, is_ruled=is_many), parts


def _basis(figure: str, answers: Sequence[Answer]) -> str:
    """What a column of figures is based on; nothing for predictions of a model of this GPU, or of several kinds."""
    if figure.startswith("measured"):
        return MEASURED
    colours = {"" if answer.not_measured is None else answer.not_measured.colour for answer in answers}
    return colours.pop() if len(colours) == 1 else ""


class _Parts(NamedTuple):
    """Name parts of kernels as columns of a table, and the options shared by all."""

    headings: list[str]
    rows: dict[int, list[str]]  # by number; a kernel that differs in a flag from one above is named in its options
    shared: list[str]


def _parts(answers: Sequence[Answer]) -> _Parts | None:
    """Split kernel names into parts; None without such parts, or if two kernels of a problem would look the same."""
    part = requested(answers[0].facts.op) if answers else None
    if part is None or not part.kernel:
        return None
    pattern = re.compile(part.kernel)
    kernels = [row for answer in answers for row in answer.kernels]
    names = [matched for row in kernels if (matched := pattern.fullmatch(row.kernel)) is not None]
    if not names or len(names) < len(kernels):
        return None
    headings = [name for name in _PARTS if name in pattern.groupindex]
    options = [_options(matched) for matched in names]
    shared = [word for word in dict.fromkeys(options[0]) if all(word in words for words in options)]
    rows: dict[int, list[str]] = {}
    number = 0
    for answer in answers:
        words_of: dict[int, list[str]] = {}  # of the rows of this answer
        for place, row in enumerate(answer.kernels, 1):
            own = [names[number][name] for name in headings]
            words = [word for word in options[number] if word not in shared]
            words += [NOT_IN_HEADERS] if row.not_in_headers else []
            alike = [known for known in words_of if rows[known][:-1] == own]
            if any(words == words_of[known] and row.kernel != kernels[known].kernel for known in alike):
                return None
            flags = {known: flag for known in alike if (flag := _flag(words_of[known], words))}
            if flags and row.measured_latency_ms is None and not _is_number(row.tflops):  # figures need a row
                known, flag = next(iter(flags.items()))
                rows[known][-1] = "; ".join(filter(None, [rows[known][-1], f"row {place}: {flag}"]))
            else:
                rows[number], words_of[number] = [*own, " ".join(words)], words
            number += 1
    if any(row[-1] for row in rows.values()):
        headings.append("options")
    else:
        rows = {number: row[:-1] for number, row in rows.items()}
    return _Parts(headings, rows, shared)


def _flag(first: Sequence[str], second: Sequence[str]) -> str:
    """The option that one of two kernels has more than the other; empty if they differ otherwise."""
    more, fewer = Counter(second) - Counter(first), Counter(first) - Counter(second)
    if len(changed := [*more.elements(), *(f"not {word}" for word in fewer.elements())]) == 1:
        return changed[0]
    return ""


def _options(matched: re.Match[str]) -> list[str]:
    """Options of a kernel: names of set flags, and values of other fields."""
    groups = {name: value for name, value in matched.groupdict().items() if name not in _PARTS and value != "False"}
    by_group = ([name] if value == "True" else _WORDS.split(value) for name, value in groups.items())
    return [word for words in by_group for word in words if word]


def _is_number(number: float | None) -> bool:
    return number is not None and number == number  # noqa: PLR0124 - not NaN


def _figure(number: float | None) -> str:
    """Format a number of a table, or a dash for a missing one."""
    return f"{number:.4g}" if number is not None and _is_number(number) else "-"
