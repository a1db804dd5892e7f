"""Prepares quick answers: the pool of a kind of problems, its forests and its features as data for C."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError
from ckh.export.integers import Expression
from ckh.ops.base import TiledSizes
from ckh.paths import write_atomic
from ckh.quick.headers import headers_of
from ckh.quick.scored_pool import ScoredPool
from ckh.quick.store import encode_facts, estimate_path, is_wanted, paths, read_facts, stamp
from ckh.ranking.library import is_available

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    from ckh.learn.batches import own_candidates, runnable
    from ckh.learn.unusable import unusable_models
    from ckh.ops import built_in_names

    facts_path, model_path = paths(request)
    now = stamp(request)
    if (facts := read_facts(facts_path, now)) is not None and _can_open(facts, model_path):
        return True
    chooser = request.chooser()
    if chooser.op.name not in built_in_names():
        return False
    problem = chooser.problem(request.sizes, request.kind["variant"], "predict")
    model = chooser.model(problem, stands_in=True)
    run, _ = runnable(problem, model)
    found = own_candidates(run, model)
    if len(found.pool) > MOST_KERNELS or not len(found.chosen) or not _can_prepare(model, problem):
        return False
    facts, contents = _prepared(model, found, run)
    facts["unusable"] = unusable_models()
    facts |= {"stamp": now, "path": str(model.path), "other_models": [str(path) for path in model.others]}
    facts_path.unlink(missing_ok=True)  # while the two do not go together
    for path, content in zip((model_path, estimate_path(model_path)), contents, strict=False):
        write_atomic(path, content)
    write_atomic(facts_path, encode_facts(facts))
    return True


def _can_prepare(model: Model, problem: Problem) -> bool:
    """True if the same model answers for all problems of the kind that have kernels, by what C computes."""
    from ckh.learn.transfer import EstimateModel, is_for_all_sizes

    if model.shown_beside or (isinstance(model, EstimateModel) and not model.can_score):
        return False  # C has forests of the order and of TFLOPS
    return model.not_measured is None or is_for_all_sizes(problem, model)


def _prepared(model: Model, found: Candidates[Kernel], problem: Problem) -> tuple[dict[str, Any], list[bytes]]:
    """The facts, and the files: the model's and, where one completes it, that of the estimate."""
    from ckh.export.groups import exported, group_of
    from ckh.export.programs import model_content
    from ckh.learn.filled import CompletedModel
    from ckh.learn.transfer import ESTIMATE

    kind, group = exported(model.spec.op_type).kind, group_of(model, problem)
    made = model_content(model, model.path.name, kind, [group])
    facts = facts_of(model, kind, group, made.rules[0], found, problem)
    if not isinstance(model, CompletedModel):
        return facts, [made.content]
    return facts, [made.content, model_content(model.estimate, ESTIMATE, kind, [group]).content]


def _can_open(facts: dict[str, Any], path: Path) -> bool:
    with suppress(CkhError):
        return bool(ScoredPool(facts, path))
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
    headers = headers_of(model, group.kernels)
    own = group.refused(one)
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
        "unmeasured": unmeasured_families(model, group.kernels),
        "left_out": list(found.left_out),
        "sizes": list(kind.sizes.values()),
        "key": list(group.key),
        "tiled": _tiled_facts(model, kind, one),
        "pool": len(group.kernels),
        "headers": None if headers is None else headers._asdict(),
        "timed": found.timed,
        "refused": {words: count - own[words] for words, count in found.refused.items() if count > own[words]},
        "reasons": [[_listed(part) for part in text] for text in rules.reasons],
        **_stand_in_facts(model, group.kernels),
    }


def _stand_in_facts(model: Model, pool: Sequence[Kernel]) -> dict[str, Any]:
    """What an answer says where nothing was measured, and which kernels the estimate scores."""
    from ckh.learn.filled import CompletedModel, FilledModel
    from ckh.learn.transfer import EstimateModel, estimate_of

    op, every = model.spec.op, range(len(pool))
    estimate = estimate_of(model)
    unknown = [number for number in every if not model.is_known(pool)[number]] if isinstance(model, FilledModel) else []
    return {
        "not_measured": None if model.not_measured is None else asdict(model.not_measured),
        "is_measured_here": op.measured is not None,
        "completion": model.completion if isinstance(model, CompletedModel) else "",
        "unknown": unknown,
        "estimated": list(every) if isinstance(model, EstimateModel) else unknown,
        "compiled": None
        if estimate is None
        else [number for number in every if op.kernel_name(pool[number]) in estimate.compiled],
    }


def _tiled_facts(model: Model, kind: ProblemKind, problem: Problem) -> list[Any]:
    """How an estimate's M, N, K and batches follow from a problem's sizes, if there is an estimate."""
    from ckh.learn.filled import CompletedModel
    from ckh.learn.transfer import EstimateModel

    tiled = model.spec.op.tiled
    if tiled is None or not isinstance(model, (EstimateModel, CompletedModel)):
        return []

    def number(name: str) -> Expression:
        return kind.value(problem, lambda one: getattr(tiled(one), name))

    return [_listed(number(field.name)) for field in fields(TiledSizes)]


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
