"""Prepared answers of the shipped models: part of the wheel, so that the first call after installation is quick.

Written by hatch_build.py: a model file per model, and facts per kind of its problems; models with pools that are too
large to prepare are left out. An editable installation has none, since prepared files depend on the sources. Large
model files are compressed in the wheel; their first use unpacks them into the cache.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import ModelError
from ckh.files.paths import MODELS_VARIABLE, cache_dir, data_dir, files, folders, user_data_dir, write_atomic
from ckh.ops import DEFAULT_OPERATION, built_in_requested
from ckh.quick.headers import are_known
from ckh.quick.store import VERSION, detected_arch, encode_facts, read_facts
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckh.export.groups import Group
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Problem
    from ckh.quick.request import Request

FOLDER = Path(__file__).with_name("prepared")
_INDEX = "index.json"
_HOST = "host"
_MAX_PLAIN_BYTES = 4 << 20  # larger model files are compressed, to 40 % of their size
_PACKED = ".z"  # suffix of compressed files
_MOST_KERNELS = 2500  # larger pools take megabytes, and are prepared on the user's machine


def find(request: Request) -> tuple[dict[str, Any], Path] | None:
    """Return the facts and the model file for a request; None if other models may answer, or nothing was prepared."""
    if not FOLDER.is_dir() or request.kind["model"] or os.environ.get(MODELS_VARIABLE) or _has_own_models():
        return None
    now = _stamp()
    index = read_facts(FOLDER / _INDEX, now)
    kind = request.kind
    if index is None or (arch := kind["arch"] or detected_arch() or _HOST) not in index["dtypes"]:
        return None
    op = kind["op"] or DEFAULT_OPERATION
    dtype = kind["dtype"] or index["dtypes"][arch].get(op, "")
    name = index["names"].get(_key(op, dtype, arch, kind.get(f"pool of {op}", "")))
    facts = None if name is None else read_facts(FOLDER / name, now)
    if facts is None or (facts["headers"] is not None and are_known()):
        return None
    models = data_dir("models")
    answer = facts["answer"]
    answer |= {
        "path": str(models / answer["path"]),
        "other_models": [str(models / other) for other in answer["other_models"]],
    }
    return facts, _model_file(f"{answer['model']}.ckhm")


def _model_file(name: str) -> Path:
    """Return the model file with a name, unpacked."""
    packed = FOLDER / f"{name}{_PACKED}"
    try:
        state = packed.stat()
    except FileNotFoundError:
        return FOLDER / name
    path = cache_dir("shipped") / f"{state.st_size}-{state.st_mtime_ns}-{name}"
    if not path.exists():
        try:
            write_atomic(path, zlib.decompress(packed.read_bytes()))
        except zlib.error as error:
            raise ModelError(f"{packed} is damaged: {error}", code="damaged-model") from error
        for old in path.parent.glob(f"*-{name}"):
            if old != path:
                old.unlink(missing_ok=True)  # of another version
    return path


def write(folder: Path) -> None:
    """Prepare all shipped models, into a new folder."""
    from ckh.archs import load_arch
    from ckh.export.groups import exported
    from ckh.export.programs import model_content
    from ckh.learn.models.artifact import fitting_models, list_models, load_model, wanted_for
    from ckh.quick.prepare import facts_of

    folder.mkdir(parents=True)
    parts = built_in_requested()
    stamp = _stamp()
    names: dict[str, str] = {}
    dtypes: dict[str, dict[str, str]] = {}
    for ref in list_models([data_dir("models")]):
        spec, arch = ref.spec, load_arch(ref.spec.arch)
        dtypes.setdefault(spec.arch, {})[spec.op_type] = parts[spec.op_type].default_dtype or arch.default_dtype
        model = load_model(ref.path)
        part = exported(spec.op_type)
        groups = _quick_groups(model, part.groups(model))
        if not groups:
            continue
        made = model_content(model, ref.path.name, part.kind, groups)
        is_large = len(made.content) > _MAX_PLAIN_BYTES
        file, content = (_PACKED, zlib.compress(made.content, 9)) if is_large else ("", made.content)
        (folder / f"{ref.path.name}.ckhm{file}").write_bytes(content)
        for group, rules, numbers in zip(groups, made.rules, made.numbers, strict=True):
            result = spec.op.kernels.candidates(group.example, arch, ref.path)
            facts = facts_of(model, part.kind, group, rules, result, are_shipped=True) | {"numbers": numbers}
            others = [ref.path.name for ref in fitting_models(wanted_for(group.example, spec.arch))[1:]]
            name = f"{len(names)}.json"
            facts["stamp"] = stamp
            facts["answer"] |= {"path": ref.path.name, "other_models": others}
            (folder / name).write_bytes(encode_facts(facts))
            pool = parts[spec.op_type].pool(group.example.to_dict())
            names[_key(spec.op_type, group.example.dtype, spec.arch, pool)] = name
    (folder / _INDEX).write_bytes(encode_facts({"stamp": stamp, "names": names, "dtypes": dtypes}))


def _quick_groups(model: Model, groups: Iterable[Group]) -> list[Group]:
    """Groups of problems that a model answers; empty if a pool is too large to prepare."""
    result = []
    for group in groups:
        if len(group.kernels) > _MOST_KERNELS:
            return []
        if len(group.kernels) and _is_chosen(model, group.example):
            result.append(group)
    return result


def _is_chosen(model: Model, problem: Problem) -> bool:
    """True if a model is selected for a problem."""
    from ckh.learn.models.artifact import fitting_models, wanted_for

    return fitting_models(wanted_for(problem, model.spec.arch))[0].path == model.path


def _key(*parts: str) -> str:
    return " ".join(part or "-" for part in parts)


def _stamp() -> str:
    """Validity stamp of shipped answers: this version, and the sizes of shipped files."""
    parts = [__version__, str(VERSION)]
    for folder in (str(data_dir("archspecs")), *folders(str(data_dir("models")))):
        parent = len(os.path.dirname(folder))  # noqa: PTH120 - quicker
        parts += (f"{path[parent:]} {state.st_size}" for path, state in files(folder))
    return "\n".join(parts)


def _has_own_models() -> bool:
    return bool(folders(str(user_data_dir() / "models")))
