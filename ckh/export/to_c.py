"""Models as C: sources, model files, an example, and how to build them."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.export.folder import model_names
from ckh.export.groups import CONV, GEMM, groups_of, kind_of
from ckh.export.header import field_value, names_header
from ckh.export.programs import model_content
from ckh.ranking.layout import CSRC
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.export.groups import Group, ProblemKind
    from ckh.export.programs import ModelContent
    from ckh.learn.artifact import Model

_TEMPLATES = Path(__file__).with_name("c")
_LINE, _WORDS = 120, 6
_EXAMPLES: dict[str, dict[str, Any]] = {
    CONV: {"n": 16, "c": 256, "k": 256, "g": 1, "hi": 28, "wi": 28, "y": 3, "x": 3, "pad_h": 1, "pad_w": 1},
    GEMM: {"m": 128, "n": 1536, "k": 7168},
}


@dataclass(frozen=True, slots=True, eq=False)
class _Exported:
    """A model with what is exported of it."""

    name: str
    model: Model
    kind: ProblemKind
    groups: tuple[Group, ...]
    file: ModelContent


def c_files(models: Sequence[Model], *, embed: bool) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of an export, and what is in it, for JSON.

    Args:
        models: the models; each keeps its folder's name.
        embed: whether they become part of the sources instead of files.

    Raises:
        UsageError: two models have one name, or an operation cannot be exported.
        ModelError: a model is damaged, or a feature or rule cannot be exported.
    """
    exported = [_prepare(*one) for one in zip(model_names(models), models, strict=True)]
    contents = {one.name: one.file.content for one in exported}
    report = {
        "ckh": __version__,
        "to": "c",
        "embedded": embed,
        "models": [_facts(one) for one in exported],
    }
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(CSRC.glob("*.[ch]"))}
    texts |= {
        "ckh_names.h": names_header(),
        "ckh_embedded.c": _embedded_text(contents if embed else {}),
        "example.c": _example(exported[0], embed=embed),
        "README.md": _readme(exported, embed=embed),
    }
    sources = " ".join(name for name in texts if name.endswith(".c") and name != "example.c")
    texts["CMakeLists.txt"] = _template("CMakeLists.txt").replace("@SOURCES@", sources)
    files = {name: text.encode() for name, text in texts.items()}
    if not embed:
        files |= {_path(name): content for name, content in contents.items()}
    return files, report


def _prepare(name: str, model: Model) -> _Exported:
    kind, groups = kind_of(model.spec.op_type), tuple(groups_of(model))
    return _Exported(name, model, kind, groups, model_content(model, name, kind, groups))


def _template(name: str) -> str:
    """A file that something is to be put into."""
    return (_TEMPLATES / f"{name}.in").read_text(encoding="utf-8")


def _path(name: str) -> str:
    return f"models/{name}.ckhm"


def _embedded_text(contents: dict[str, bytes]) -> str:
    parts = ['/* Models that are part of the sources. */\n#include "ckh_internal.h"\n']
    for index, content in enumerate(contents.values()):
        words = [f"0x{int.from_bytes(content[at : at + 8], 'little'):x}" for at in range(0, len(content), 8)]
        lines = [", ".join(words[at : at + _WORDS]) for at in range(0, len(words), _WORDS)]
        parts.append(f"static const uint64_t data_{index}[] = {{\n  " + ",\n  ".join(lines) + "\n};\n")
    entries = [f'  {{"{name}", data_{i}, {len(content)}}}' for i, (name, content) in enumerate(contents.items())]
    parts.append("const ckh_embedded_model ckh_embedded[] = {\n" + ",\n".join(entries or ["  {0, 0, 0}"]) + "\n};\n")
    parts.append(f"const size_t ckh_embedded_count = {len(contents)};\n")
    return "\n".join(parts)


def _example(one: _Exported, *, embed: bool) -> str:
    kind, example = one.kind, one.groups[0].example
    settings = {"dtype": field_value(kind, "dtype", example.dtype), **_EXAMPLES[kind.name]}
    if kind.name == CONV:
        settings["direction"] = field_value(kind, "variant", str(example.variant))  # type: ignore[attr-defined]
    assigned = [f"p.{name} = {value};" for name, value in settings.items()]
    opened = f'ckh_open_embedded("{one.name}", &model)' if embed else f'ckh_open_file("{_path(one.name)}", &model)'
    text = _template("example.c").replace("@KIND@", kind.name).replace("@OPEN@", opened)
    return text.replace("@SETTINGS@", "\n  ".join(textwrap.wrap(" ".join(assigned), _LINE - 2, break_long_words=False)))


def _facts(one: _Exported) -> dict[str, Any]:
    spec = one.model.spec
    return {
        "name": one.name,
        "op_type": spec.op_type,
        "variant": None if spec.variant is None else str(spec.variant),
        "dtype": spec.dtype,
        "arch": spec.arch,
        "device": spec.device,
        "rank_by": spec.rank_by,
        "targets": list(one.file.trees),
        "trees": one.file.trees,
        "kernels": len(one.file.kernels),
        "kinds_of_problems": len(one.groups),
        "bytes": len(one.file.content),
    }


def _readme(exported: Sequence[_Exported], *, embed: bool) -> str:
    rows = [
        f"| `{one.name}` | {one.model.spec.purpose} | {one.model.spec.device or one.model.spec.arch} |"
        for one in exported
    ]
    where = "`ckh_open_embedded` opens them by name." if embed else "They are in `models/`."
    table = "\n".join(["| model | for | measured on |", "|---|---|---|", *rows, "", where])
    return _template("README.md").replace("@VERSION@", __version__).replace("@MODELS@", table)
