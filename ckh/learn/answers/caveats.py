"""Construction of answers with their caveats. Imports little, since quick answers use it.

A new caveat is a function here, listed in `_CAVEATS`: text, JSON and Python show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.documents import fields_of
from ckh.learn.answers.answer import (
    AUTO,
    MODEL,
    ORDER_ALONE,
    PROBED,
    PROBLEM,
    SET_COVERED,
    SET_SHOWN,
    TABLE,
    TIMED_ALONE,
    WHY,
    Answer,
    Caveat,
)
from ckh.learn.answers.known import Known, find_known, not_measured, other_device
from ckh.learn.models.reach import beyond
from ckh.ops import requested
from ckh.requested import added_work, padded_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ckh.learn.answers.answer import AnswerRows, ModelFacts
    from ckh.learn.models.frequent import Frequent
    from ckh.learn.models.measured_set import MeasuredSet
    from ckh.ops.base import Problem

MEASURE_FIRST = "measure-first"
NOT_IN_HEADERS = "not in these headers"
OUT_OF_ORDER = (
    "the ranking model determines the order; TFLOPS are predicted by a separate model and need not decrease with rank"
)
_ALIKE = "with equal scores; measured kernels are shown first, then the first in the pool"


def _padded(answer: Answer) -> Iterator[Caveat]:
    if answer.padded:
        from dataclasses import replace

        problem: Any = answer.problem
        sizes = problem.to_dict()
        changes = ", ".join(f"{name.upper()} {sizes[name]} to {size}" for name, size in answer.padded.items())
        changes += added_work(problem, replace(problem, **answer.padded))
        message = f"{changes} (no kernel applies unpadded); times and TFLOPS are of the padded problem"
        summary = "{count} of {total} problems are padded, e.g. {problem}: {message}"
        yield Caveat("padded", message, answer.padded, PROBLEM, "padded", summary)


def _not_measured(answer: Answer) -> Iterator[Caveat]:
    if (doubts := answer.not_measured) is not None:
        data = {"basis": doubts.basis, "source": doubts.source, "worth": doubts.worth}
        summary = "{count} of {total} problems:\n{message}"
        yield Caveat("not-measured", "\n".join(doubts.lines()), data, MODEL, summary=summary)


def _of_model(answer: Answer) -> Iterator[Caveat]:
    for warning in answer.facts.warnings:
        yield Caveat("model-warning", f"this model is {warning}", {"warning": warning}, summary="{message}")


def _estimated(answer: Answer) -> Iterator[Caveat]:
    rows = answer.rows
    if 0 < rows.estimated < rows.candidates:
        message = f"{rows.estimated} of kinds without training data, ranked by the analytic estimate"
        yield Caveat("estimated", message, {"kernels": rows.estimated}, WHY, summary="")
    if rows.compiled is not None:
        message = f"registers and LDS: {rows.compiled} from the compiler, others from the tile"
        yield Caveat("estimated-resources", message, {"compiled": rows.compiled}, WHY, summary="")


def _partition(answer: Answer) -> Iterator[Caveat]:
    if (cus := answer.facts.part_cus) and answer.facts.has_estimate:
        message = f"memory bandwidth: of a whole {answer.facts.arch}; a mask or partition of {cus} CUs may have less"
        yield Caveat("whole-bandwidth", message, {"num_cus": cus}, TABLE, summary="{message}")


def _headers(answer: Answer) -> Iterator[Caveat]:
    if (headers := answer.rows.headers) is None:
        return
    if not headers.include:
        message = f"not found (ckh doctor): these kernels are of {headers.interface}, some may not build with yours"
    else:
        where = f"{headers.interface}, in {headers.include}"
        message = f"{where}: {headers.not_built} candidates cannot be built, ranked last"
    yield Caveat("headers", message, headers._asdict(), WHY, "headers", summary="")
    for reason, count in headers.reasons.items():
        data = {"reason": reason, "kernels": count}
        yield Caveat("not-in-headers", f"{count} x {NOT_IN_HEADERS}: {reason}", data, WHY, summary="")


def _not_ranked(answer: Answer) -> Iterator[Caveat]:
    if answer.known.not_ranked:
        yield Caveat("not-ranked", answer.known.not_ranked, {"families": answer.known.left_out}, WHY, summary="")


def _interval(answer: Answer) -> Iterator[Caveat]:
    if (interval := answer.interval) is None:
        return
    (low, high), apart = interval, answer.known.apart
    times = [kernel.latency_ms for kernel in answer.kernels if kernel.latency_ms is not None]
    text = f"{low:.2f}–{high:.2f} times the predicted time"
    if times:
        text = f"{_digits(low * min(times))}–{_digits(high * min(times))} ms"
    message = f"90 % prediction interval: {text}" + (f" (not calibrated for {apart})" if apart else "")
    yield Caveat("not-calibrated" if apart else "interval", message, {"low": low, "high": high}, summary="")


def _sets(answer: Answer) -> Iterator[Caveat]:
    if (count := answer.sets.get(SET_SHOWN)) and answer.rows.probe is None:
        which = f"measure {count}: one" if count > 1 else "row 1"
        message = f"{which} is within {SET_SHOWN:.0%} of the best in {SET_COVERED * 100:.0f} of 100 problems"
        summary = "{count} of {total} problems: {message}"
        yield Caveat(MEASURE_FIRST, message.replace("%", " %"), {"kernels": count}, summary=summary)


def _ties(answer: Answer) -> Iterator[Caveat]:
    tied = {place: row.ties for place, row in enumerate(answer.kernels, 1) if row.ties > 1}
    if tied:
        counts = ", ".join(f"row {place} is {count} kernels" for place, count in tied.items())
        data = {"rows": [*tied], "kernels": [*tied.values()]}
        yield Caveat("ties", f"ties: {counts} {_ALIKE}", data, WHY, summary="")


def _of_operation(answer: Answer) -> Iterator[Caveat]:
    if (part := requested(answer.facts.op)) is not None and answer.kernels:
        yield from (Caveat(*fields) for fields in part.notes(answer))


def _unmeasured(answer: Answer) -> Iterator[Caveat]:
    rows = [place for place, row in enumerate(answer.kernels, 1) if row.is_timed is False]
    if rows and answer.rows.timed and answer.frequent is None and answer.not_measured is None:
        message = f"without a measurement: row{'s' * (len(rows) > 1)} {', '.join(map(str, rows))}"
        yield Caveat("unmeasured-kernels", message, {"rows": rows}, summary="")


def _frequent(answer: Answer) -> Iterator[Caveat]:
    if answer.frequent is not None:
        yield Caveat("most-frequent", answer.frequent.line, fields_of(answer.frequent), WHY, summary="")


def _out_of_distribution(answer: Answer) -> Iterator[Caveat]:
    if answer.known.line and answer.not_measured is None:
        doubts = answer.known.doubts
        yield Caveat("out-of-distribution", answer.known.line, {"reasons": doubts}, weight=len(doubts))


def _no_speed(answer: Answer) -> Iterator[Caveat]:
    if answer.no_speed:
        summary = f"no speed predicted: for {{count}} of {{total}} problems, e.g. {{problem}}: {answer.no_speed}"
        place = WHY if answer.no_speed in (ORDER_ALONE, TIMED_ALONE) else TABLE
        data = {"reason": answer.no_speed}
        yield Caveat("no-speed", f"no speed predicted: {answer.no_speed}", data, place, summary=summary)


def _out_of_order(answer: Answer) -> Iterator[Caveat]:
    if not answer.in_order:
        yield Caveat("out-of-order", OUT_OF_ORDER, {}, summary="{message}")


_CAVEATS: tuple[Callable[[Answer], Iterator[Caveat]], ...] = (
    _interval,
    _sets,
    _ties,
    _of_operation,
    _unmeasured,
    _not_measured,
    _of_model,
    _frequent,
    _out_of_distribution,
    _padded,
    _no_speed,
    _out_of_order,
    _estimated,
    _partition,
    _headers,
    _not_ranked,
)


def answer_of(
    problem: Problem, facts: ModelFacts, rows: AnswerRows, again: str, measured: Callable[[], MeasuredSet | None]
) -> Answer:
    """Build an answer; `again` is the command that asked for it, if it was one."""
    target = "" if " --arch " in again else f" --arch {facts.arch}"
    probe = f"{again}{target} --probe {AUTO if facts.sets else PROBED}" if again and facts.can_probe else ""
    doubts = None if facts.not_measured is None else facts.not_measured.of_problem(problem, facts.arch, probe)
    commands = (probe,) if doubts is None else doubts.next_commands
    bare = Answer(
        problem=problem,
        facts=facts,
        rows=rows,
        known=known_by(
            problem,
            facts,
            measured,
            families=rows.families,
            unknown_kernels=rows.unknown_kernels,
            unmeasured=rows.unmeasured,
        ),
        not_measured=doubts,
        next_command=next((command for command in commands if rows.probe is None or command != probe), ""),
        frequent=_most_frequent(problem, facts),
        padded=padded_sizes(problem, rows.run),
        beyond=beyond(rows.run, facts.reach),
    )
    caveats = (caveat._replace(order=order) for order, find in enumerate(_CAVEATS) for caveat in find(bare))
    return bare.replaced(caveats=tuple(caveats))


def known_by(
    problem: Problem,
    facts: ModelFacts,
    measured: Callable[[], MeasuredSet | None],
    *,
    families: Iterable[str],
    unknown_kernels: int = 0,
    unmeasured: str = "",
) -> Known:
    """Check a problem, this device and kernels for extrapolation; arguments as in `answer_of` and `AnswerRows`."""
    if facts.not_measured is not None:
        return not_measured(facts.not_measured.source)
    if unmeasured:
        return Known(source=f"no kernel of {unmeasured} was measured on {facts.arch}")
    kinds = list(dict.fromkeys(filter(None, families)))
    device = other_device(facts.arch, facts.device, facts.num_cus, facts.asked_cus)
    known = find_known(problem, device, measured, facts.limits, kinds, facts.left_out)
    return known._replace(unknown_kernels=unknown_kernels)


def _most_frequent(problem: Problem, facts: ModelFacts) -> Frequent | None:
    if facts.frequent is None or facts.not_measured is not None:
        return None
    from ckh.learn.models.frequent import frequent

    return frequent(problem, **facts.frequent)


def summaries(answers: Sequence[Answer]) -> Iterator[str]:
    """Summarize the caveats of the answers for many problems, with counts and examples."""
    rows = [row for answer in answers for row in answer.kernels]
    if tied := [row.ties for row in rows if row.ties > 1]:
        yield f"ties: {len(tied)} of {len(rows)} rows are up to {max(tied)} kernels {_ALIKE}\n"
    alike: dict[tuple[int, str], list[tuple[Caveat, Answer]]] = {}
    for answer in answers:
        for caveat in answer.caveats:
            if caveat.summary:
                same = "" if "{problem}" in caveat.summary else caveat.message
                alike.setdefault((caveat.order, same), []).append((caveat, answer))
    for _, pairs in sorted(alike.items(), key=lambda group: group[0][0]):
        caveat, answer = max(pairs, key=lambda pair: pair[0].weight)
        problem, message = answer.problem.canonical(), caveat.message
        yield caveat.summary.format(count=len(pairs), total=len(answers), problem=problem, message=message)


def _digits(number: float) -> str:
    """Format a number with three significant digits, without an exponent."""
    return f"{number:.0f}" if number >= 100 else f"{number:#.3g}"  # noqa: PLR2004
