"""Export of models to C: sources, model files, an example, and build files."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import HOST
from ckh.errors import UsageError
from ckh.export.consumers import named
from ckh.export.folder import model_names
from ckh.export.groups import exported, kinds
from ckh.export.programs import model_content
from ckh.ranking.layout import CSRC
from ckh.text.log import markdown
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ckh.export.groups import Code, Group, ProblemKind
    from ckh.export.programs import ModelContent
    from ckh.learn.models.artifact import Model

TEMPLATES = Path(__file__).with_name("c")
_LINE, _WORDS = 120, 6
_SPACE = "\u00a0"  # marks spaces without a line break
_TITLE = "/* Kinds of problems, and their fields in order, with defaults: from the tables of ckh. */"
_CODES = "/* X(name, default, least, end, place in the keys of groups, and what is added there) */"


def names_header(kinds: Sequence[ProblemKind]) -> str:
    """Build the header ckh_names.h: names of values, and the fields of problems with their defaults."""
    named = {code.end: code for kind in kinds for code in kind.codes if code.prefix}
    numbered = " ".join(f"X({kind.name}, {kind.name.upper()}, {kind.number})" for kind in kinds)
    parts = [_TITLE, *map(_enum, named.values()), f"#define CKH_KINDS(X) {numbered}", _CODES, *map(_fields, kinds)]
    return "\n".join(parts) + "\n"


def _enum(code: Code) -> str:
    members = ", ".join([*map(code.in_c, code.values), str(code.end)])
    return _wrapped(f"enum {{ {members} }};")


def _fields(kind: ProblemKind) -> str:
    defaults = kind.defaults()
    codes = (
        (code.name, code.in_c(defaults[code.field]), code.least, code.end, code.place, code.added)
        for code in kind.codes
    )
    sizes = ((name, defaults[name]) for name in kind.sizes.values())
    name = f"CKH_{kind.name.upper()}"
    comment = _wrapped(f"/* ckh_{kind.name}_problem: {kind.summary} */")
    return "\n".join([comment, _macro(f"{name}_CODES", codes), _macro(f"{name}_SIZES", sizes)])


def _macro(name: str, rows: Iterable[tuple[object, ...]]) -> str:
    calls = (f"X({', '.join(map(str, row))})".replace(" ", _SPACE) for row in rows)
    return _wrapped(f"#define {name}(X) {' '.join(calls)}", " \\").replace(_SPACE, " ")


def _wrapped(text: str, end: str = "") -> str:
    lines = textwrap.wrap(text, _LINE - len(end), subsequent_indent="  ", break_long_words=False)
    return f"{end}\n".join(lines)


@dataclass(frozen=True, slots=True, eq=False)
class _Exported:
    """A model with its exported content."""

    name: str
    model: Model
    kind: ProblemKind
    groups: tuple[Group, ...]
    file: ModelContent


def c_files(models: Sequence[Model], *, embed: bool) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Build the files of an export, and a description of them for JSON."""
    prepared = [_prepare(name, model) for name, model in zip(model_names(models), models, strict=True)]
    contents = {export.name: export.file.content for export in prepared}
    report = {
        "ckh": __version__,
        "to": "c",
        "embedded": embed,
        "models": [_facts(export) for export in prepared],
    }
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(CSRC.glob("*.[ch]"))}
    texts |= {
        "ckh_names.h": names_header(kinds(models)),
        "ckh_embedded.c": _embedded_text(contents if embed else {}),
        "example.c": _example(prepared[0], embed=embed),
        "README.md": _readme(prepared, embed=embed),
    }
    sources = " ".join(name for name in texts if name.endswith(".c") and name != "example.c")
    texts["CMakeLists.txt"] = _template("CMakeLists.txt").replace("@SOURCES@", sources)
    files = {name: text.encode() for name, text in texts.items()}
    if not embed:
        files |= {_path(name): content for name, content in contents.items()}
    return files, report


def model_files(to: str, models: Sequence[Model], *, embed: bool = False) -> tuple[dict[str, bytes], dict[str, Any]]:
    """As `c_files`, unless `to` is "c" with the headers of a C++ program, one per model."""
    files, report = c_files(models, embed=embed)
    if to == report["to"]:
        return files, report
    of_op = named("headers", to)
    for name, model in zip(model_names(models), models, strict=True):
        header = of_op.get(model.spec.op_type)
        if header is None:
            raise UsageError(f"{to} has no {model.spec.op_type}", "it has " + ", ".join(of_op), code="unsupported")
        if model.spec.arch == HOST:
            raise UsageError(
                f"{model.path} is for CPUs, and {to} runs kernels of GPUs",
                "name a model of a GPU",
                code="model-mismatch",
            )
        files[f"{name}.hpp"] = header.text(name, model).encode()
    files["README.md"] += next(iter(of_op.values())).how_to.encode()
    return files, {**report, "to": to}


def _prepare(name: str, model: Model) -> _Exported:
    part = exported(model.spec.op_type)
    only = None if model.only is None else frozenset(model.only.kernels)
    limited = (group.among(only) for group in part.groups(model))
    groups = tuple(group for group in limited if len(group.kernels) or model.only is None)
    if not groups:
        raise UsageError(f"{model.path} has none of the registry's kernels", code="no-kernel")
    return _Exported(name, model, part.kind, groups, model_content(model, name, part.kind, groups))


def _template(name: str) -> str:
    return (TEMPLATES / f"{name}.in").read_text(encoding="utf-8")


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


def _example(export: _Exported, *, embed: bool) -> str:
    kind, example = export.kind, export.groups[0].example
    settings = {code.name: code.in_c(getattr(example, code.field)) for code in kind.codes}
    assigned = [f"p.{name} = {value};" for name, value in {**settings, **kind.example}.items()]
    opened = (
        f'ckh_open_embedded("{export.name}", &model)' if embed else f'ckh_open_file("{_path(export.name)}", &model)'
    )
    text = _template("example.c").replace("@KIND@", kind.name).replace("@OPEN@", opened)
    return text.replace("@SETTINGS@", "\n  ".join(textwrap.wrap(" ".join(assigned), _LINE - 2, break_long_words=False)))


def _facts(export: _Exported) -> dict[str, Any]:
    spec = export.model.spec
    return {
        "name": export.name,
        "op_type": spec.op_type,
        "variant": None if spec.variant is None else str(spec.variant),
        "dtype": spec.dtype,
        "arch": spec.arch,
        "device": spec.device,
        "rank_by": spec.rank_by,
        "targets": list(export.file.trees),
        "trees": export.file.trees,
        "kernels": export.file.kernels,
        "kinds_of_problems": len(export.groups),
        "bytes": len(export.file.content),
    }


def _readme(prepared: Sequence[_Exported], *, embed: bool) -> str:
    specs = [(export.name, export.model.spec) for export in prepared]
    rows = [f"| `{name}` | {spec.purpose} | {markdown(spec.device or spec.arch)} |" for name, spec in specs]
    where = "`ckh_open_embedded` opens them by name." if embed else "They are in `models/`."
    table = "\n".join(["| model | for | measured on |", "|---|---|---|", *rows, "", where])
    return _template("README.md").replace("@VERSION@", __version__).replace("@MODELS@", table)
