"""The result of a search on a model, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ckh.learn.answers.ranking_text import is_falling, notes_text
from ckh.log import one_line
from ckh.ops import in_words
from ckh.prose import paragraphs, prose
from ckh.tabletext import json_text, table_text

if TYPE_CHECKING:
    from ckh.learn.answers.ranked import Ranked
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation, Problem
    from ckh.search.on_model import ModelSearch


def search_text(problem: Problem, model: Model, search: ModelSearch) -> str:
    """The kernels that a model expects to be the fastest, for people."""
    op, first = model.spec.op, search.first_choice
    shown = enumerate(zip(search.found, search.in_pool, strict=True), 1)
    rows = [[str(place), *_cells(op, one), yes(is_so=is_candidate)] for place, (one, is_candidate) in shown]
    head = [
        head_text(problem, model),
        f"space    {search.legal} kernels, {search.candidates} of them candidates of ckh predict",
        f"         all {search.distinct} without ties scored",
        "\n",
    ]
    tail = []
    if first is not None:
        best = search.found[0].score
        better = f"the best scores {best - first.score:.4g} more ({best:.4g})"
        tail.append(f"\nfirst choice of the candidates: {', '.join(_cells(op, first))}")
        tail.append("the best scores the same\n" if best <= first.score else better + "\n")
    table = table_text("", ("", "predicted TFLOPS", "predicted ms", "kernel", "candidate"), rows)
    notes = notes_text(search.beyond, is_in_order=is_falling(one.tflops for one in search.found))
    doubts = f"\n{prose(search.known.line)}\n" if search.known.line and model.not_measured is None else ""
    return paragraphs("\n".join(head)) + table + paragraphs("\n".join(tail)) + doubts + notes


def search_json(problem: Problem, model: Model, search: ModelSearch) -> str:
    """The same as one JSON document."""
    op, first = model.spec.op, search.first_choice
    return json_text(
        "search",
        {
            "problem": problem.canonical(),
            "sizes": problem.to_dict(),
            "model": str(model.path),
            "not_measured": None if model.not_measured is None else asdict(model.not_measured),
            "space": {"kernels": search.legal, "pool": search.candidates, "distinct": search.distinct},
            "known": search.known.document(),
            "beyond_training": search.beyond or None,
            "predictions_in_order": is_falling(one.tflops for one in search.found),
            "first_choice": None if first is None else _fields(op, first),
            "kernels": [
                {**_fields(op, one), "candidate": is_candidate}
                for one, is_candidate in zip(search.found, search.in_pool, strict=True)
            ],
        },
    )


def head_text(problem: Problem, model: Model | None) -> str:
    """The problem, and what searches."""
    doubts = None if model is None else model.not_measured
    about = [f"model    {'none' if model is None else one_line(model.path.name)}"] if doubts is None else doubts.lines()
    return "\n".join([f"problem  {in_words(problem)}", f"         {problem.canonical()}", *about])


def yes(*, is_so: bool) -> str:
    """A cell of a table."""
    return "yes" if is_so else ""


def _fields(op: AnyOperation, one: Ranked) -> dict[str, Any]:
    return {
        "kernel": op.kernel_name(one.kernel),
        "score": one.score,
        "predicted_tflops": one.tflops,
        "predicted_latency_ms": one.latency_ms,
    }


def _cells(op: AnyOperation, one: Ranked) -> list[str]:
    figures = ["-" if value is None else f"{value:.4g}" for value in (one.tflops, one.latency_ms)]
    # A short name leaves out much of what these kernels differ in.
    return [*figures, op.kernel_name(one.kernel)]
