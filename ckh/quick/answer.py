"""Answers from prepared files, computed in C only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError, UsageError
from ckh.files.paths import PROBES, user_data_dir
from ckh.ops import requested
from ckh.quick.scored_pool import ScoredPool
from ckh.quick.store import is_wanted, paths, read_facts, stamp
from ckh.requested import requested_problem
from ckh.text.log import note_once, warn
from ckh.text.prose import whole_names

if TYPE_CHECKING:
    from ckh.learn.models.measured_set import MeasuredSet
    from ckh.ops.base import Problem
    from ckh.quick.request import Request


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
        prepared = _in_cache(request)
        if prepared is None:
            return None
        facts, model_path = prepared
        problem = problem_of(request, facts)
        fields = problem.to_dict()
        if any(fields[name] != value for name, value in facts["fixed"].items()):
            return None
        note_once(facts["note"])

        def measured() -> MeasuredSet | None:
            from ckh.learn.models.measured_set import read_measured

            of_model = pool.model_facts
            return read_measured(Path(of_model.path), of_model.limits)

        pool, again = ScoredPool.read(facts, model_path), f"ckh predict {request.as_typed()}"
        uses_probes = "no_measured" not in request.flags and (user_data_dir() / PROBES).exists()
        answer = pool.answer(problem, request.top, again, measured, uses_probes=uses_probes)
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
    problem = requested_problem(op, part, request.sizes, request.kind["variant"], facts["dtype"])
    completed: Problem = part.completed(problem, arch)
    return completed
