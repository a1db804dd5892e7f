"""Registries: files with the complete kernels of one architecture, readable by people and comparable by programs.

A registry is a JSON object with its version, its architecture and its kernels, each on its own line with its name and
every field. Files are written atomically, and validated when read.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import CkhError, DataError, UsageError
from ckh.files.jsonfields import JsonFields, own_document, read_json
from ckh.files.outputs import FileKind, head_of, write_output
from ckh.files.untrusted import MOST_TEXT_BYTES, read_text
from ckh.kernels.lists import ListFormat, Registry, recognises
from ckh.learn.answers.listed import kernel_list
from ckh.ops import operation_of_kernel, part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.kernels.pools import KernelList
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation, Kernel, Problem

VERSION = 1
_STDIN = "-"
_PREDICTED, _HEAD_CHARACTERS = '"ckh.predict_many"', 100
_HEAD = re.compile(rb'\s*\{\s*"version":\s*\d+,\s*"arch":\s*"[^"]*",\s*"kernels":\s*\[')
REGISTRY = FileKind("registry of kernels", lambda path: _HEAD.match(head_of(path)) is not None)


def write_registry(path: Path, kernels: Sequence[Kernel], *, arch: str, replace: bool = False) -> None:
    """Write kernels to a file in the given order, atomically; `replace` as of `write_output`."""
    said = [_as_named(kernel) for kernel in kernels]
    for number, first in _repeated(said):
        raise UsageError(
            f"the kernel {_name(said[number])} occurs twice, at {first} and at {number}", code="duplicate-rows"
        )
    lines = [json.dumps({"name": _name(kernel), **asdict(kernel)}) for kernel in said]
    text = f'{{\n"version": {VERSION},\n"arch": {json.dumps(arch)},\n"kernels": [\n' + ",\n".join(lines) + "\n]\n}\n"
    write_output(path, text.encode(), replace=replace)


def read_registry(path: Path, op: AnyOperation) -> Registry[Any]:
    """Read a registry of an operation's kernels, or a kernel list of AMD's tools."""
    document = read_json(path, unique=True)
    lists = part_of(op, op.kernels.lists, ListFormat)
    if isinstance(document, dict) and recognises(document):
        if lists is None:
            raise DataError(f"{path}: ckh reads no kernel lists of AMD's tools for {op.name}", code="unsupported")
        return lists.read(path, document)
    entries = document.pop("kernels", None) if isinstance(document, dict) else None
    file = JsonFields(path, document)
    version = file.scalar("version", int)
    if version != VERSION:
        file.fail("version", f"is {version}, this ckh reads {VERSION}")
    arch = file.scalar("arch", str)
    if not isinstance(entries, list):
        file.fail("kernels", "must be a list")
    file.finish()
    kernels = tuple(_kernel(path, number, entry, op) for number, entry in enumerate(entries))
    for number, first in _repeated(kernels):
        file.fail(f"kernels[{number}]", f"is kernels[{first}] again")
    return Registry(arch, kernels)


def limited_models(source: str, models: Sequence[Model]) -> list[Model]:
    """Restrict models to the kernels of a file."""
    text = sys.stdin.read(MOST_TEXT_BYTES) if source == _STDIN else read_text(Path(source))
    specs = [(model, model.spec) for model in models]
    return [model.limited_to(_listed(source, text, spec.op, spec.arch, spec.dtype)) for model, spec in specs]


def first_fits(path: Path, op: AnyOperation, arch: str, dtype: str) -> Callable[[Problem], Kernel | None]:
    """Return the choice of a program without heuristics: the first kernel of its list that applies, None without one.

    CK's dispatcher chooses in this way by default (`SelectionStrategy::FirstFit`). In the output of ckh predict each
    problem has a list of its own.
    """
    text = read_text(path)
    answers = first_choices(path, op) if _PREDICTED in text[:_HEAD_CHARACTERS] else None
    listed = _listed(str(path), text, op, arch, dtype) if answers is None else None
    spec, listing = load_arch(arch), op.kernels.listed
    assert listing is not None  # as for all measured operations

    def first(problem: Problem) -> Kernel | None:
        own = listed
        if answers is not None:
            name = answers.get(problem.canonical())
            own = None if name is None else kernel_list([name], op, str(path))
        if own is None:
            return None
        applicable = listing(problem, spec, path, own)
        return applicable.pool[int(applicable.chosen[0])] if len(applicable.chosen) else None

    return first


def first_choices(path: Path, op: AnyOperation) -> dict[str, str]:
    """Name of each problem's first kernel in the output of ckh predict, by the problem as it runs, which is padded."""
    with own_document(path, "ckh predict --json"):
        answers = [answer for answer in read_json(path)["results"] if answer["kernels"]]
        return {as_it_runs(answer, op): str(answer["kernels"][0]["kernel"]) for answer in answers}


def as_it_runs(answer: Any, op: AnyOperation) -> str:
    """Canonical text of an answer's problem, padded if its kernels are for that."""
    own: str = answer["problem"]
    return op.padded(op.problems.parse(own)).canonical() if answer.get("padded") else own


def _listed(source: str, text: str, op: AnyOperation, arch: str, dtype: str) -> KernelList[Kernel]:
    """Kernels of a file, given its text."""
    if source == _STDIN or not text.lstrip().startswith(("{", "[")):
        names = [name for line in text.splitlines() if (name := line.partition("#")[0].strip())]
        return kernel_list(names, op, "stdin" if source == _STDIN else source)
    registry = read_registry(Path(source), op)
    if registry.arch not in ("", arch):
        raise UsageError(f"{source} holds kernels of {registry.arch}, not {arch}", code="model-mismatch")
    return kernel_list(registry.built(load_arch(arch), dtype), op, source)


def _name(kernel: Kernel) -> str:
    return operation_of_kernel(kernel).kernels.name(kernel)


def _as_named(kernel: Kernel) -> Kernel:
    """Kernel rebuilt from its name, so that numbers are Python's own types."""
    op = operation_of_kernel(kernel)
    name = op.kernels.name(kernel)
    try:
        said = op.kernels.parse(name)
    except DataError as error:
        raise UsageError(
            f"a kernel has a value that its name cannot express: {error.message}", code="bad-kernel"
        ) from error
    if said != kernel:
        raise UsageError(f"the name {name} does not identify its kernel", code="bad-kernel")
    return said


def _repeated(kernels: Sequence[Any]) -> list[tuple[int, int]]:
    """Indices of each repeated kernel and of its first occurrence."""
    first: dict[Any, int] = {}
    return [(at, first[kernel]) for at, kernel in enumerate(kernels) if first.setdefault(kernel, at) != at]


def _kernel(path: Path, number: int, entry: Any, op: AnyOperation) -> Kernel:
    part = JsonFields(path, entry, f"kernels[{number}].")
    name = part.scalar("name", str)
    try:
        kernel = op.kernels.parse(name)
        spelt = op.kernels.name(kernel)
    except (CkhError, ValueError) as error:
        part.fail("name", f"is wrong: {error}")
    for field, said in json.loads(json.dumps(asdict(kernel))).items():
        if (value := part.value(field)) != said or type(value) is not type(said):
            part.fail(field, f"is {value!r:.80}, the kernel's name says {said!r}")
    part.finish()
    if name != spelt:
        part.fail("name", f"must be spelt {spelt}")
    return kernel
