"""Prepares quick answers: the pool of a kind of problems, its forests and its features as data for C."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.errors import CkhError
from ckh.paths import write_atomic
from ckh.quick.answer import open_library
from ckh.quick.store import paths, read_facts, stamp

if TYPE_CHECKING:
    from ckh.export.groups import Group
    from ckh.learn.artifact import Model
    from ckh.ops.base import Problem
    from ckh.quick.asked import Asked

_NO_KEY = 0  # of programs: they are in the file
MOST_KERNELS = 2500  # of a pool: preparing takes half a millisecond for each


def prepare(asked: Asked) -> bool:
    """Prepare answers for what was just asked, and answered by the full command.

    Nothing that goes wrong here harms: the full command answers the next time too.

    Returns:
        Whether the next such call will be answered quickly.
    """
    with suppress(CkhError, OSError, AttributeError):
        open_library()
        return _prepare(asked)
    return False


def _prepare(asked: Asked) -> bool:
    from ckh.archs import load_arch
    from ckh.commands._problem_options import Chooser
    from ckh.commands._ranking_text import model_words
    from ckh.export.groups import kind_of
    from ckh.ops import GEMM_UNIVERSAL
    from ckh.problems import Direction

    facts_path, model_path = paths(asked)
    now = stamp(asked)
    if read_facts(facts_path, now) is not None and model_path.exists():
        return True
    kind = asked.kind
    op = kind["op"] or (GEMM_UNIVERSAL if kind["is_gemm"] else None)
    named = Path(kind["model"]) if kind["model"] else None
    chooser = Chooser(named, kind["arch"] or None, kind["dtype"] or None, op)
    variant = Direction(kind["variant"]) if kind["variant"] else None
    problem = chooser.problem(dict(asked.sizes), variant, "predict")
    model = chooser.model(problem)
    if len(model.spec.op.candidates(problem, load_arch(model.spec.arch), model.path).pool) > MOST_KERNELS:
        return False
    sizes = kind_of(model.spec.op_type).sizes
    content, group, refused = _model_file(model, problem)
    facts = {
        "stamp": now,
        "op": model.spec.op_type,
        "dtype": problem.dtype,
        "model": model_words(model.path.name, model.spec.device, model.spec.arch),
        "sizes": list(sizes.values()),
        "key": list(group.key),
        "pool": len(group.candidates),
        "refused": refused,
    }
    facts_path.parent.mkdir(mode=0o700, exist_ok=True)
    facts_path.unlink(missing_ok=True)  # while the two do not go together
    write_atomic(model_path, content)
    write_atomic(facts_path, json.dumps(facts).encode())
    return True


def _model_file(model: Model, problem: Problem) -> tuple[bytes, Group, int]:
    """The file for C with the problem's group alone, the group, and how many kernels its architecture refuses."""
    from ckh.archs import load_arch
    from ckh.export.groups import group_of, kind_of
    from ckh.export.model_file import model_file
    from ckh.export.programs import Body, GroupProgram, parts_of
    from ckh.learn.spec import TFLOPS
    from ckh.quick.bytecode import encode

    spec = model.spec
    kind = kind_of(spec.op_type)
    targets = [spec.rank_by, *({TFLOPS} & set(spec.targets) - {spec.rank_by})]
    forests = {target: model.packed_forest(target) for target in targets}
    group = group_of(model, problem)
    made, rules = parts_of(model, list(forests.values()), kind, group)
    exported = [GroupProgram(group, Body(0, rules, made))]
    programs = [encode(made, kind, group, rules)]
    content = model_file(
        model.path.name, spec, forests, exported, kind.name, _NO_KEY, programs=programs, kernel_name=spec.op.short_name
    )
    found = spec.op.candidates(problem, load_arch(spec.arch), model.path)
    return content, group, len(found.chosen) + sum(found.refused.values()) - len(group.candidates)
