"""Preparation of quick answers: the pool of a kind of problems, its forests and its features as data for C."""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError, ModelError
from ckh.export.decisions import Expression
from ckh.files.paths import write_atomic
from ckh.ops.base import TiledSizes
from ckh.quick.scored_pool import ScoredPool, packed
from ckh.quick.store import encode_facts, estimate_path, is_wanted, names_path, paths, read_facts, stamp
from ckh.ranking.library import is_available

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from ckh.export.groups import Group, ProblemKind
    from ckh.export.programs import RulePrograms
    from ckh.kernels.pools import Candidates
    from ckh.learn.answers.answer_rows import ToldPool
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation, Kernel, Problem
    from ckh.quick.request import Request

MOST_KERNELS = 200_000  # per pool: preparing takes 30 microseconds for each


def prepare(request: Request) -> bool:
    """Prepare answers for a request that the full command has just answered.

    Failures are ignored: the full command will answer the next time, too.
    """
    with suppress(CkhError, OSError):
        return is_wanted() and is_available() and _prepare(request)
    return False


def _prepare(request: Request) -> bool:
    from ckh.archs import assumed_gpu, default_arch, load_arch
    from ckh.learn.models.artifact import unusable_models
    from ckh.ops import built_in_names

    facts_path, model_path = paths(request)
    now = stamp(request)
    if (facts := read_facts(facts_path, now)) is not None and _can_open(facts, model_path):
        return True
    # Before anything warns of it: what was never verified is stated in every answer, by the full command.
    if load_arch(request.kind["arch"] or default_arch()).unverified:
        return False
    chooser = request.chooser()
    if chooser.op.name not in built_in_names():
        return False
    problem = chooser.problem(request.sizes, request.kind["variant"], "predict")
    made = prepared(chooser.model(problem, stands_in=True), problem)
    if made is None:
        return False
    facts, contents = made
    is_assumed = not (request.kind["arch"] or request.kind["model"])
    facts |= {"stamp": now, "unusable": unusable_models(), "note": assumed_gpu() if is_assumed else ""}
    facts_path.unlink(missing_ok=True)  # while the two files do not match
    for path, content in zip((names_path(model_path), model_path, estimate_path(model_path)), contents, strict=False):
        write_atomic(path, content)
    write_atomic(facts_path, encode_facts(facts))
    return True


def prepared(model: Model, problem: Problem) -> tuple[dict[str, Any], list[bytes]] | None:
    """Prepare the pool of a problem's kind: facts, names, and the content of the model and of an estimate if any.

    None if the model alone does not answer all problems of the kind, or not in C.
    """
    from ckh.learn.answers.batches import own_candidates, runnable

    run, _ = runnable(problem, model)
    candidates = own_candidates(run, model)
    if len(candidates.pool) > MOST_KERNELS or not len(candidates.chosen) or not _can_prepare(model, problem):
        return None
    known = _kind_and_group(model, run, candidates)
    return None if known is None else _prepared(model, candidates, run, *known)


def _can_prepare(model: Model, problem: Problem) -> bool:
    """True if one model answers all problems of the kind that have kernels, with values that C computes."""
    from ckh.learn.analytic.transfer import is_for_all_sizes

    if model.shown_beside or (model.is_estimate and model.spec.op.problems.tiled is None):
        return False  # C has forests for the order and TFLOPS only
    return model.not_measured is None or is_for_all_sizes(problem, model)


def _kind_and_group(model: Model, problem: Problem, candidates: Candidates[Kernel]) -> tuple[ProblemKind, Group] | None:
    """The kind of a problem and its candidates with their rules, to be traced; None if C cannot state the problem."""
    from ckh.archs import load_arch
    from ckh.export.groups import ProblemKind, exported, group_of, ruled_group

    op = model.spec.op
    if op.exported is not None:
        kind = exported(op.name).kind
        if not kind.has(problem):
            return None
    elif all(isinstance(getattr(problem, name.lower()), int) for name in op.problems.sizes):
        sizes = {name: name.lower() for name in op.problems.sizes}
        kind = ProblemKind(op.name, 0, op.summary, (), sizes, type(problem), {})
    else:
        return None
    if candidates.rules is not None:
        return kind, ruled_group(kind, problem, candidates.pool, candidates.rules, load_arch(model.spec.arch))
    return None if op.exported is None else (kind, group_of(model, problem))


def _prepared(
    model: Model, candidates: Candidates[Kernel], problem: Problem, kind: ProblemKind, group: Group
) -> tuple[dict[str, Any], list[bytes]]:
    """Build the facts, and the files: the names, the model and, if it is completed by one, the estimate."""
    import numpy as np

    from ckh.export.programs import model_content
    from ckh.learn.analytic.estimate import ESTIMATE, KernelShapes
    from ckh.learn.analytic.transfer import estimate_model

    made = model_content(model, model.path.name, kind, [group], is_alone=True)
    names, name_codes = _names(model.spec.op, group.kernels)
    facts = _facts_of(model, kind, group, made.rules[0], candidates, problem)
    facts |= {"names": names, "names_checksum": zlib.crc32(name_codes)}
    contents = [name_codes, made.content]
    if model.estimate is not None and not model.is_estimate:
        # It scores kernels of each shape, whether they apply or not; reports of compiled kernels distinguish all.
        shape_of = np.arange(len(group.kernels))
        if not model.estimate.compiled:
            shape_of = KernelShapes.of(group.kernels).distinct()[1]
        _, first, shape_of = np.unique(shape_of, return_index=True, return_inverse=True)
        shapes = tuple(group.kernels[number] for number in first.tolist())
        alike = replace(group, kernels=shapes, judgements=((),), judged_by=[0] * len(shapes))
        estimate = estimate_model(model.estimate.wanted)
        contents.append(model_content(estimate, ESTIMATE, kind, [alike], is_alone=True).content)
        facts |= {"shapes": len(shapes), "shape_of": packed(shape_of.astype(np.int32).tobytes())}
    return facts, contents


def _names(op: AnyOperation, kernels: Sequence[Kernel]) -> tuple[list[tuple[int, list[str]]], bytes]:
    """Encode names: for each part its distinct texts and the bytes of a number, and all kernels' numbers."""
    import numpy as np

    from ckh.kernels.table import KernelTable, distinct

    table = kernels if isinstance(kernels, KernelTable) else KernelTable.of(op.kernels.type, kernels)
    parts = op.kernels.name_parts or (((), op.kernels.name),)
    stated = {name for names, _ in parts for name in names}
    texts, numbers = [], []
    for names, text in parts:
        own = names or [field.name for field in fields(op.kernels.type) if field.name not in stated]
        columns = [(codes, len(values)) for values, codes in map(table.coded, own)]
        _, number = distinct(columns, len(table))
        _, first = np.unique(number, return_index=True)
        size = 1 if len(first) <= 1 << 8 else 4
        texts.append((size, [text(table[index]) for index in first.tolist()]))
        numbers.append(number.astype(f"<u{size}").tobytes())
    return texts, b"".join(numbers)


def _can_open(facts: dict[str, Any], path: Path) -> bool:
    with suppress(CkhError, OSError):
        return bool(ScoredPool.read(facts, path))
    return False


def _facts_of(
    model: Model,
    kind: ProblemKind,
    group: Group,
    rules: RulePrograms,
    candidates: Candidates[Kernel],
    problem: Problem,
) -> dict[str, Any]:
    """Facts that an answer needs besides the model file, for JSON."""
    from ckh.archs import load_arch
    from ckh.learn.answers.ranking import facts_of as facts_of_model
    from ckh.learn.answers.ranking import lacking, told_pool

    lacks = lacking(model.spec.op, load_arch(model.spec.arch), group.kernels)
    told = told_pool(model, group.kernels, lacks, candidates.timed or 0)
    own = group.refused(problem) if candidates.rules is None else candidates.by_problem
    return {
        "answer": facts_of_model(model, problem).as_json(),
        "dtype": problem.dtype,
        "sizes": list(kind.sizes.values()),
        "fixed": _fixed(problem, kind.sizes.values()),
        "key": list(group.key),
        "tiled": _tiled_facts(model, kind, problem),
        "pool": len(group.kernels),
        "headers": told.headers,
        "is_timed_known": candidates.timed is not None,
        "refused": {words: left for words, count in candidates.refused.items() if (left := count - own.get(words, 0))},
        "reasons": [[_listed(part) for part in text] for text in rules.reasons],
        "completion": "" if model.is_estimate else model.completion or "",
        **_kind_facts(told),
    }


def _fixed(problem: Problem, sizes: Collection[str]) -> dict[str, Any]:
    """The fields besides sizes, which problems of the kind share."""
    return {name: value for name, value in problem.to_dict().items() if name not in sizes}


def _kind_facts(told: ToldPool) -> dict[str, Any]:
    """Kinds of the kernels, and the kind of each."""
    import numpy as np

    if len(told.kinds) > 1 << 8:
        raise ModelError(f"there are kernels of {len(told.kinds)} kinds")
    return {"kinds": told.kinds, "kind_of": packed(np.asarray(told.kind_of).astype(np.uint8).tobytes())}


def _tiled_facts(model: Model, kind: ProblemKind, problem: Problem) -> list[Any]:
    """Expressions for an estimate's M, N, K and batches from a problem's sizes; empty without an estimate."""
    tiled = model.spec.op.problems.tiled
    if tiled is None or model.estimate is None:
        return []

    def number(name: str) -> Expression:
        return kind.value(problem, lambda traced: getattr(tiled(traced), name))

    return [_listed(number(field.name)) for field in fields(TiledSizes)]


def _listed(part: str | Expression) -> Any:
    """Convert an expression to lists; text is unchanged."""
    if isinstance(part, str):
        return part
    return [part.op, *(_listed(operand) if isinstance(operand, Expression) else operand for operand in part.operands)]
