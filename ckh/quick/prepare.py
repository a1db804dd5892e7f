"""Prepares quick answers: the pool of a kind of problems, its forests and its features as data for C."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError
from ckh.export.integers import Expression
from ckh.paths import write_atomic
from ckh.quick.store import encode_facts, is_wanted, paths, read_facts, stamp
from ckh.ranking.library import OpenModel, is_available

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.export.groups import Group, ProblemKind
    from ckh.export.programs import RulePrograms
    from ckh.kernels.pools import Candidates
    from ckh.learn.artifact import Model
    from ckh.ops.base import Kernel, Problem
    from ckh.quick.request import Request

MOST_KERNELS = 2500  # of a pool: preparing takes half a millisecond for each


def prepare(request: Request) -> bool:
    """Prepare answers for a request that the full command has just answered.

    Nothing that goes wrong here harms: the full command answers the next time too.

    Returns:
        Whether the next such call will be answered quickly.
    """
    with suppress(CkhError, OSError):
        return is_wanted() and is_available() and _prepare(request)
    return False


def _prepare(request: Request) -> bool:
    from ckh.archs import load_arch
    from ckh.export.groups import exported, group_of
    from ckh.export.programs import model_content
    from ckh.learn.unusable import unusable_models
    from ckh.ops import built_in_names

    facts_path, model_path = paths(request)
    now = stamp(request)
    if read_facts(facts_path, now) is not None and _can_open(model_path):
        return True
    chooser = request.chooser()
    if chooser.op.name not in built_in_names():
        return False
    problem = chooser.problem(request.sizes, request.kind["variant"], "predict")
    model = chooser.model(problem)
    found = model.spec.op.candidates(problem, load_arch(model.spec.arch), model.path)
    if len(found.pool) > MOST_KERNELS or model.shown_beside:  # C has forests of the order and of TFLOPS
        return False
    kind_of_problem, group = exported(model.spec.op_type).kind, group_of(model, problem)
    made = model_content(model, model.path.name, kind_of_problem, [group])
    facts = facts_of(model, kind_of_problem, group, made.rules[0], found, problem)
    facts["unusable"] = unusable_models()
    facts |= {"stamp": now, "path": str(model.path), "other_models": [str(path) for path in model.others]}
    facts_path.unlink(missing_ok=True)  # while the two do not go together
    write_atomic(model_path, made.content)
    write_atomic(facts_path, encode_facts(facts))
    return True


def _can_open(path: Path) -> bool:
    with suppress(CkhError):
        return bool(OpenModel(path))
    return False


def facts_of(
    model: Model,
    kind: ProblemKind,
    group: Group,
    rules: RulePrograms,
    found: Candidates[Kernel],
    problem: Problem | None = None,
) -> dict[str, Any]:
    """The facts that an answer needs besides the model file, for JSON.

    Args:
        model: the model.
        kind: the kind of its problems.
        group: the group of a problem.
        rules: which of the group's candidates apply.
        found: the candidates of the problem, why other kernels are refused, and how many.
        problem: the problem, if it is not the group's example.
    """
    from ckh.learn.answer import unmeasured_families
    from ckh.training import TFLOPS

    spec, one = model.spec, problem or group.example
    measured = model.measured
    own = Counter(words for candidate in group.candidates if (words := candidate.reason(one)))
    return {
        "op": spec.op_type,
        "dtype": one.dtype,
        "model": model.path.name,
        "arch": spec.arch,
        "device": spec.device,
        "tells_tflops": TFLOPS in {spec.rank_by, *spec.targets},
        "reach": model.reach,
        "bands": model.bands,
        "limits": {} if measured is None else measured.limits_by_size,
        "frequent": _frequent_facts(model, one),
        "num_cus": model.num_cus,
        "unusable": [],
        "unmeasured": unmeasured_families(model, [candidate.kernel for candidate in group.candidates]),
        "left_out": list(found.left_out),
        "sizes": list(kind.sizes.values()),
        "key": list(group.key),
        "pool": len(group.candidates),
        "timed": found.timed,
        "refused": {words: count - own[words] for words, count in found.refused.items() if count > own[words]},
        "reasons": [[_listed(part) for part in text] for text in rules.reasons],
    }


def _frequent_facts(model: Model, problem: Problem) -> dict[str, Any] | None:
    """The arguments of `frequent.frequent` besides the problem."""
    from ckh.learn.frequent import held_out

    table, op = model.frequent_table(problem), model.spec.op
    return None if table is None else {"size": op.grows_with.lower(), "left_out": held_out(op), "table": table}


def _listed(part: str | Expression) -> Any:
    """Words, or an expression as lists."""
    if isinstance(part, str):
        return part
    return [part.op, *(_listed(one) if isinstance(one, Expression) else one for one in part.operands)]
