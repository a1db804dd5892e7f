"""Answers from prepared files, computed in C only."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import nullcontext, suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.errors import CkhError, ModelError, UsageError
from ckh.files.paths import PROBES, user_data_dir
from ckh.ops import requested
from ckh.quick.scored_pool import ScoredPool, read_headers, value_of
from ckh.quick.store import is_wanted, paths, read_facts, stamp
from ckh.requested import requested_problem
from ckh.text.log import note_once, warn
from ckh.text.prose import whole_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.learn.answers.answer import Answer, KernelRow, ModelFacts
    from ckh.learn.answers.probes import Probe
    from ckh.learn.models.measured_set import MeasuredSet
    from ckh.ops.base import Problem
    from ckh.quick.request import Request
    from ckh.quick.scored_pool import KernelKind, PreparedHeaders
    from ckh.ranking.library import RankedCandidate


class _Ranked(NamedTuple):
    """A ranking by C: the problem that runs, its numbers, the number of applicable kernels, and the first ones."""

    run: Problem
    sizes: list[int]
    candidates: int
    choices: Sequence[RankedCandidate]


def answered(command: str, request: Request) -> str | None:
    """Return the output of a command, after preparing this kind of problems; None if the full command must answer."""
    if command == "predict" and (text := text_of(request)) is not None:
        return text
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy multiplies no matrices here: do not start threads
    if command == "search":
        return searched_text(request)
    from ckh.quick.prepare import prepare

    return _prepared(request, warns=False) if prepare(request) else None


def text_of(request: Request) -> str | None:
    """Return the output of `ckh predict` from prepared files; None if there are none for this kind of problems."""
    return _prepared(request, warns=True) if is_wanted() else None


def searched_text(request: Request) -> str | None:
    """Return the output of `ckh search` for a request; None if the full command is needed, such as for errors."""
    from ckh.archs import load_arch
    from ckh.search.on_model import search_json, search_model, search_text

    try:
        chooser = request.chooser()
        problem = chooser.problem(request.sizes, request.kind["variant"], "search")
        model = chooser.model(problem)
        model_search = search_model(problem, model, load_arch(model.spec.arch), request.top)
    except CkhError:
        return None
    with whole_names(is_whole="wide" in request.flags):
        return (search_json if "json" in request.flags else search_text)(problem, model, model_search)


def _prepared(request: Request, *, warns: bool) -> str | None:
    """Return the output from prepared files."""
    try:
        result = _in_cache(request)
        if result is None:
            return None
        facts, model_path = result
        problem = problem_of(request, facts)
        fields = problem.to_dict()
        if any(fields[name] != value for name, value in facts["fixed"].items()):
            return None
        note_once(facts["note"])
        answer = _answer(problem, facts, model_path, request)
        for text in facts["unusable"] if warns else ():
            warn(text, "unusable-model")
        with whole_names(is_whole="wide" in request.flags):
            if "json" in request.flags:
                from ckh.learn.answers.answer_document import answer_json

                return answer_json(answer)
            from ckh.learn.answers.answer_text import answer_text

            return answer_text(answer, why="why" in request.flags)
    except (CkhError, OSError, AttributeError, KeyError, IndexError, TypeError, ValueError):
        return None


def _in_cache(request: Request) -> tuple[dict[str, Any], Path] | None:
    facts_path, model_path = paths(request)
    facts = read_facts(facts_path, stamp(request))
    return None if facts is None else (facts, model_path)


def problem_of(request: Request, facts: dict[str, Any]) -> Problem:
    """Return the requested problem."""
    op, arch = facts["answer"]["op"], facts["answer"]["arch"]
    part = requested(op)
    if part is None:
        raise UsageError(f"no options for problems of {op}", code="missing-option")
    result = requested_problem(op, part, request.sizes, request.kind["variant"], facts["dtype"])
    problem: Problem = part.completed(result, arch)
    return problem


def _answer(problem: Problem, facts: dict[str, Any], path: Path, request: Request) -> Answer:
    """Build the answer that the full command would give."""
    from ckh.learn.answers.answer import AnswerRows, ModelFacts
    from ckh.learn.answers.caveats import answer_of
    from ckh.learn.models.reach import beyond, peak_tflops

    of_model = ModelFacts.of_json(facts["answer"])
    probe = _measured(problem, of_model.arch) if "no_measured" not in request.flags else None
    pool = ScoredPool(facts, path)
    run, sizes, count, choices = _ranked(problem, facts, pool, request.top if probe is None else 0)
    headers = read_headers(facts)
    has_speeds = of_model.has_speeds and not beyond(run, of_model.reach)
    made = _KernelRows(pool, headers, peak_tflops(of_model.peak, run) if has_speeds else 0.0)
    kernels = made.first(choices, request.top) if probe is None else [made.row(choice) for choice in choices]
    applying, refused = pool.count(pool.reasons(sizes))
    if probe is not None:
        probe, kernels = _in_front(probe, kernels)
        kernels = _tied(probe, kernels)
    shown = kernels[: request.top]
    rows = AnswerRows(
        run=run,
        kernels=shown,
        ranked_by="c",
        candidates=count,
        refused=_refused(facts, refused, sizes),
        timed=_applying(applying, "is_timed") if facts["is_timed_known"] else None,
        estimated=_applying(applying, "is_estimated"),
        compiled=_applying(applying, "is_compiled") if of_model.has_estimate else None,
        headers=None if headers is None else headers.note(applying),
        families=[made.family_of[kernel_row.kernel] for kernel_row in shown],
        probe=probe,
    )
    return answer_of(problem, of_model, rows, f"ckh predict {request.as_typed()}", lambda: _measured_set(of_model))


def _ranked(problem: Problem, facts: dict[str, Any], pool: ScoredPool, rows: int) -> _Ranked:
    """Rank a problem, or the padded problem if no kernel applies to it."""
    part = requested(facts["answer"]["op"])
    padded = problem if part is None else part.padded(problem)
    for run in dict.fromkeys((problem, padded)):
        sizes = pool.sizes(run)
        with suppress(ModelError) if run != padded else nullcontext():
            return _Ranked(run, sizes, *pool.rank(sizes, rows))
    raise AssertionError("the last one is ranked, or raises")


def _measured_set(facts: ModelFacts) -> MeasuredSet | None:
    from ckh.learn.models.measured_set import read_measured

    return read_measured(Path(facts.path), facts.limits)


def _applying(counts: Mapping[KernelKind, int], what: str) -> int:
    """Number of applicable kernels with a property."""
    return sum(count for kind, count in counts.items() if getattr(kind, what))


class _KernelRows:
    """Converts kernels of a pool to rows of a ranking; speeds up to `most_tflops` are shown."""

    def __init__(self, pool: ScoredPool, headers: PreparedHeaders | None, most_tflops: float) -> None:
        self._pool, self._headers, self._most_tflops = pool, headers, most_tflops
        self.family_of: dict[str, str] = {}

    def first(self, choices: Sequence[RankedCandidate], top: int) -> list[KernelRow]:
        """Return the first rows: ties share a row, if the headers can build all of them or none."""
        from ckh.learn.answers.answer import MAX_TIED

        kernel_rows: list[KernelRow] = []
        for _, same in groupby(choices, lambda choice: (choice.score, self._pool.kind(choice.kernel).lack >= 0)):
            if len(kernel_rows) == top:
                break
            first, *others = same
            tied = tuple(self._pool.name(other.kernel) for other in others[:MAX_TIED])
            kernel_rows.append(self.row(first)._replace(ties=1 + len(others), tied=tied))
        return kernel_rows

    def row(self, choice: RankedCandidate) -> KernelRow:
        """Return a row for one kernel."""
        from ckh.learn.answers.answer import KernelRow

        kind, name = self._pool.kind(choice.kernel), self._pool.name(choice.kernel)
        self.family_of[name] = kind.family
        lack = "" if self._headers is None else self._headers.lack(kind.lack)
        has_speed = choice.tflops <= self._most_tflops  # not NaN
        tflops, latency_ms = (choice.tflops, choice.latency_ms) if has_speed else (None, None)
        return KernelRow(name, choice.score, tflops, latency_ms, None, not_in_headers=lack)


def _tied(probe: Probe, kernels: Sequence[KernelRow]) -> list[KernelRow]:
    """Group probed kernels into rows: one row per probed kernel, and one per score for the others."""
    from ckh.learn.answers.answer import MAX_TIED

    timed = len(probe.fastest_first())
    end = len(kernels) - (len(probe.kernels) - timed)
    rows = list(kernels[:timed])
    for _, same in groupby(kernels[timed:end], lambda kernel: (kernel.score, bool(kernel.not_in_headers))):
        first, *others = same
        tied = tuple(other.kernel for other in others[:MAX_TIED])
        rows.append(first._replace(ties=1 + len(others), tied=tied))
    return rows + list(kernels[end:])


def _measured(problem: Problem, arch: str) -> Probe | None:
    """Read the probe of the problem on this machine; imports nothing if there are no probes."""
    if not (user_data_dir() / PROBES).exists():
        return None
    from ckh.learn.answers.probes import recall

    return recall(problem.canonical(), arch)


def _in_front(probe: Probe, kernels: list[KernelRow]) -> tuple[Probe, list[KernelRow]]:
    from ckh.learn.answers.probes import in_front

    known, order = in_front(probe, [kernel.kernel for kernel in kernels])
    times = [timed.latency_ms for timed in known.fastest_first()]
    rows = [kernels[place]._replace(measured_latency_ms=ms) for place, ms in zip(order, times, strict=False)]
    return known, rows + [kernels[place] for place in order[len(rows) :]]


def _refused(facts: dict[str, Any], refused: Mapping[int, int], sizes: Sequence[int]) -> dict[str, int]:
    """Number of kernels refused by architecture and problem, by reason, counted as in `choose` of operations."""
    counts = Counter(facts["refused"])
    for reason, count in refused.items():
        if words := "".join(map(str, (value_of(part, sizes) for part in facts["reasons"][reason]))):
            counts[words] += count
    return dict(counts.most_common())
