"""Prepared answers of the models that ship: in the wheel, so that the first call after installation is quick as well.

hatch_build.py has them written. There is a model file for each model, and facts for each kind of its problems. An
editable installation has none, since what is prepared follows from the sources.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh import __version__
from ckh.ops import GEMM_UNIVERSAL, GROUPED_CONV
from ckh.paths import MODELS_VARIABLE, data_dir, user_data_dir
from ckh.quick.store import VERSION, detected_arch, encode_facts, files, folders, read_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.learn.artifact import Model
    from ckh.ops.base import Problem
    from ckh.quick.asked import Asked

FOLDER = Path(__file__).with_name("prepared")
_INDEX = "index.json"
_HOST = "host"
# Layouts that problems have which do not say one.
_GEMM_LAYOUT = "rcr"
_MIOPEN_LAYOUTS = {"2": "nchw", "3": "ncdhw"}


def find(asked: Asked) -> tuple[dict[str, Any], Path] | None:
    """The facts and the model file for what is asked; None where other models may answer, or none was prepared."""
    if not FOLDER.is_dir() or asked.kind["model"] or os.environ.get(MODELS_VARIABLE) or _has_own_models():
        return None
    now = _stamp()
    index = read_facts(FOLDER / _INDEX, now)
    kind = asked.kind
    if index is None or (arch := kind["arch"] or detected_arch() or _HOST) not in index["dtypes"]:
        return None
    op = kind["op"] or (GEMM_UNIVERSAL if kind["is_gemm"] else GROUPED_CONV)
    is_gemm = op == GEMM_UNIVERSAL
    dtype = kind["dtype"] or index["dtypes"][arch].get(op, "")
    direction = "" if is_gemm else kind["variant"] or "forward"
    ndim = "" if is_gemm else "3" if kind["is_3d"] else "2"
    name = index["names"].get(_key(op, direction, dtype, arch, ndim, kind["layout"]))
    facts = None if name is None else read_facts(FOLDER / name, now)
    if facts is None:
        return None
    models = data_dir("models")
    facts |= {
        "path": str(models / facts["path"]),
        "other_models": [str(models / other) for other in facts["other_models"]],
    }
    return facts, FOLDER / f"{facts['model']}.ckhm"


def write(folder: Path) -> None:
    """Prepare all models that ship, into a new folder.

    Raises:
        ModelError: a model is damaged, or cannot be prepared.
        OSError: it cannot be written.
    """
    from ckh.archs import load_arch
    from ckh.export.groups import groups_of, kind_of
    from ckh.export.programs import model_content
    from ckh.learn.answer import wanted_for
    from ckh.learn.artifact import fitting_models, list_models, load_model
    from ckh.quick.prepare import facts_of

    folder.mkdir(parents=True)
    stamp = _stamp()
    names: dict[str, str] = {}
    dtypes: dict[str, dict[str, str]] = {}
    for ref in list_models([data_dir("models")]):
        spec, arch = ref.spec, load_arch(ref.spec.arch)
        dtypes.setdefault(spec.arch, {})[spec.op_type] = spec.op.default_dtype or arch.default_dtype
        model = load_model(ref.path)
        groups = [group for group in groups_of(model) if group.candidates and _is_chosen(model, group.example)]
        if not groups:
            continue
        kind = kind_of(spec.op_type)
        made = model_content(model, ref.path.name, kind, groups)
        (folder / f"{ref.path.name}.ckhm").write_bytes(made.content)
        for group, rules in zip(groups, made.rules, strict=True):
            refused = spec.op.candidates(group.example, arch, ref.path).refused
            facts = facts_of(model, kind, group, rules, refused)
            others = [ref.path.name for ref in fitting_models(wanted_for(group.example, spec.arch))[1:]]
            name = f"{len(names)}.json"
            facts |= {"stamp": stamp, "path": ref.path.name, "other_models": others}
            (folder / name).write_bytes(encode_facts(facts))
            names |= dict.fromkeys(_keys_of(model, group.example), name)
    (folder / _INDEX).write_bytes(encode_facts({"stamp": stamp, "names": names, "dtypes": dtypes}))


def _is_chosen(model: Model, problem: Problem) -> bool:
    """Whether a model is the one that answers for a problem."""
    from ckh.learn.answer import wanted_for
    from ckh.learn.artifact import fitting_models

    return fitting_models(wanted_for(problem, model.spec.arch))[0].path == model.path


def _keys_of(model: Model, problem: Any) -> Iterator[str]:
    """What problems of a group are looked up by: with their layout, where it can be typed, and without."""
    op, arch = model.spec.op_type, model.spec.arch
    is_gemm = op == GEMM_UNIVERSAL
    direction, ndim = ("", "") if is_gemm else (str(problem.variant), str(problem.ndim))
    if op != GROUPED_CONV:
        yield _key(op, direction, problem.dtype, arch, ndim, problem.layout)
    own = {GEMM_UNIVERSAL: _GEMM_LAYOUT, GROUPED_CONV: problem.layout}
    if problem.layout == own.get(op, _MIOPEN_LAYOUTS.get(ndim)):
        yield _key(op, direction, problem.dtype, arch, ndim, "")


def _key(*parts: str) -> str:
    return " ".join(part or "-" for part in parts)


def _stamp() -> str:
    """What all of it was prepared for: this version, and the sizes of what ships."""
    models = str(data_dir("models"))
    parts = [__version__, str(VERSION), *files(str(data_dir("archspecs")), times=False)]
    for inside in folders(models):
        parts += [os.path.basename(inside), *files(inside, times=False)]  # noqa: PTH119 - quicker
    return "\n".join(parts)


def _has_own_models() -> bool:
    return bool(folders(str(user_data_dir() / "models")))
