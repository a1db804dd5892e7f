"""Answers for many problems, from pools that are prepared in memory, one for each kind of problems."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ckh.errors import CkhError
from ckh.files.paths import PROBES, user_data_dir
from ckh.ops import built_in_names, requested
from ckh.quick.prepare import prepared
from ckh.quick.scored_pool import ScoredPool
from ckh.quick.store import is_wanted
from ckh.ranking.library import is_available

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.learn.answers.answer import Answer
    from ckh.learn.answers.answering import Chooser
    from ckh.learn.models.measured_set import MeasuredSet
    from ckh.ops.base import Problem

_LEAST = 16  # problems of a kind for which preparing pays off
_TRIED = 4  # problems of a kind, of which one has a kernel


def prepared_answers(
    chooser: Chooser, problems: Sequence[Problem], top: int, again: str, *, stands_in: bool, uses_probes: bool
) -> dict[Problem, Answer]:
    """Answers for the problems whose kind can be prepared, and of which there are many; others are left out."""
    part = requested(chooser.op.name)
    if part is None or chooser.op.name not in built_in_names() or not (is_wanted() and is_available()):
        return {}
    kinds: dict[tuple[str, str], list[Problem]] = defaultdict(list)
    for problem in problems:
        kinds[problem.dtype, part.pool(problem.to_dict())].append(problem)
    answers: dict[Problem, Answer] = {}
    uses_probes = uses_probes and (user_data_dir() / PROBES).exists()
    for of_kind in kinds.values():
        known = _prepared(chooser, of_kind, stands_in=stands_in) if len(of_kind) >= _LEAST else None
        if known is None:
            continue
        pool, measured = known
        fixed = pool.facts["fixed"].items()
        for problem in of_kind:
            fields = problem.to_dict()
            if all(fields[name] == value for name, value in fixed):
                with suppress(CkhError):  # no kernel, of which the ranking tells the reason
                    answers[problem] = pool.answer(problem, top, again, measured, uses_probes=uses_probes)
    return answers


def _prepared(
    chooser: Chooser, problems: Sequence[Problem], *, stands_in: bool
) -> tuple[ScoredPool, Callable[[], MeasuredSet | None]] | None:
    """The pool of a kind of problems, and the measurements of its model; None if it cannot be prepared."""
    for example in problems[:_TRIED]:
        with suppress(CkhError):
            model = chooser.model(example, stands_in=stands_in)
            if (made := prepared(model, example)) is not None:
                facts, contents = made
                return ScoredPool(facts, *contents), partial(getattr, model, "measured")
    return None
