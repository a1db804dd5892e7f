"""Choices for other programs: tables of rankings or measured rows, and kernel lists for AMD's tools."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import DataError, NoKernelError, UsageError
from ckh.kernels.lists import ListFormat
from ckh.ops import part_of
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.archs import ArchSpec
    from ckh.data.dataset import Dataset
    from ckh.export.consumers import CheckedFile, ChoiceTable, WrittenChoices
    from ckh.learn.answers.answering import Chooser
    from ckh.learn.answers.ranking import Ranking
    from ckh.ops.base import AnyOperation, Kernel, Problem


TARGET = "amd-registry"
_TOP = 5  # kernels of each problem
_HOW_TO = """# Kernels for AMD's tools

{rows}

- A registry is read by `GroupedConvRegistry.from_json` of CK's dispatcher, or lists GEMMs as `export_registry_json` of
  the dispatcher does. The Python reader of convolutions takes no double buffer, split image, two stages,
  specialization or padding from a registry: {lost} of the {count} kernels here have such an option, which is in their
  names alone.
- A configuration is for the tile engine's instance builder, which builds the product of its values: the smallest one
  that has all of these kernels.
- `--registry` of ckh's commands reads both.
"""


@dataclass(frozen=True, slots=True)
class ChoicesWanted:
    """Options that select the problems."""

    problems: str  # a set or file
    model: Path | None  # folder of a model; None: the first that fits
    arch: str | None  # the architecture; None: the model's, or this machine's
    dtype: str | None  # default element type of the problems
    data: Sequence[Path]  # measured rows, whose winners take precedence over predictions
    installed: Path | None  # folder of the program to export for; its own rows take precedence over predictions


def choice_table(op: AnyOperation, table: ChoiceTable, wanted: ChoicesWanted, *, replaces: bool) -> WrittenChoices:
    """Files of choices, which may replace the program's own rows; winners of measured rows take precedence."""
    from ckh.export.consumers import Choices
    from ckh.learn.answers.answering import Chooser

    chooser = Chooser(wanted.model, wanted.arch, wanted.dtype, op.name)
    problems = chooser.load_problems(wanted.problems, None, wanted.dtype)
    measured = measured_rows(wanted.data, op, chooser.arch) if wanted.data else None
    return table.write(Choices(list(answered(chooser, problems)), measured, wanted.installed, replaces))


def answered(chooser: Chooser, problems: Sequence[Problem]) -> Iterator[Ranking]:
    """Ranking of each problem, by the model that fits or its substitute."""
    from ckh.learn.answers.ranking import rankings_of

    models = [chooser.model(problem, stands_in=True) for problem in problems]
    rankings: dict[Any, Ranking] = {}
    for model in dict.fromkeys(models):
        group = [problem for problem, own in zip(problems, models, strict=True) if own is model]
        rankings |= dict(zip(group, rankings_of(group, model), strict=True))
    return (rankings[problem] for problem in problems)


def measured_rows(paths: Sequence[Path], op: AnyOperation, arch: str | None = None) -> Dataset:
    """Rows of datasets, or of any input of `ckh convert`."""
    from ckh.data import conversion
    from ckh.data.dataset import DATASET, read_dataset
    from ckh.data.formats import ReadOptions
    from ckh.data.peaks import possible_rows

    with tempfile.TemporaryDirectory() as folder:
        datasets = [path for path in paths if path.is_dir() or DATASET.is_one(path)]
        inputs = [path for path in paths if path not in datasets]
        if inputs:
            datasets.append(Path(folder, "converted.parquet"))
            conversion.convert(inputs, datasets[-1], ReadOptions(arch=arch))
        dataset = possible_rows(read_dataset(*datasets), "--data")
    if dataset.op.name != op.name:
        raise DataError(f"the rows of --data are of {dataset.op.name}, not of {op.name}", code="mixed-data")
    return dataset


def checked_tables(to: str, out: Path, program: Path) -> tuple[CheckedFile, ...]:
    """Tables of an export, as read by a program's own code."""
    from ckh.export.consumers import named
    from ckh.export.folder import list_of
    from ckh.files.jsonfields import own_document

    document = list_of(out)
    table = named("tables", to).get(str(document.get("op_type")))
    if document.get("to") != to or table is None:
        raise DataError(f"{out} is not an export of tables for {to}", "write one with --problems", code="not-an-export")
    if table.check is None:
        raise UsageError(
            f"tables for {to} of {document['op_type']} cannot be checked", "omit --check", code="unsupported"
        )
    with own_document(out / "export.json", "this version of ckh export"):
        return tuple(table.check(out, document, program))


def registry_files(
    chooser: Chooser, registry: Path | None, problems: str | None, top: int | None, name: str
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Make the files of a list of this name, and the description of their contents for JSON.

    Its kernels are those of a registry, or the first `top` (or 5) of each problem of a set or file.
    """
    lists = part_of(chooser.op, chooser.op.kernels.lists, ListFormat)
    if lists is None:
        raise UsageError(
            f"AMD's registries have no kernels of {chooser.op.name}",
            "omit --op or name another",
            code="unsupported",
        )
    arch = load_arch(chooser.arch)
    kernels: Sequence[Kernel]
    if registry is not None:
        kernels = _of_file(registry, chooser.op, arch, chooser.dtype)
    else:
        rankings = _answers(chooser, str(problems))
        kernels = list(dict.fromkeys(best.kernel for ranking in rankings for best in ranking.best(top or _TOP)))
    files = lists.write(kernels, arch, name)
    report = {
        "to": TARGET,
        "op_type": chooser.op.name,
        "arch": arch.name,
        "kernels": [chooser.op.kernels.name(kernel) for kernel in kernels],
        "described": {name: {"form": file.form, "kernels": file.kernels} for name, file in files.items()},
    }
    rows = ["| file | form | kernels |", "|---|---|---|"]
    rows += [f"| `{name}` | {file.form} | {file.kernels} |" for name, file in files.items()]
    text = _HOW_TO.format(rows="\n".join(rows), count=len(kernels), lost=sum(map(_is_lost, kernels)))
    return {**{name: file.content for name, file in files.items()}, "README.md": text.encode()}, report


def _is_lost(kernel: Any) -> bool:
    """True if a convolution kernel has an option without a field in the registry."""
    flags = ("double_smem_buffer", "split_image", "two_stage", "explicit_gemm", "streamk")
    is_special = getattr(kernel, "specialization", "default") != "default"
    return is_special or any(getattr(kernel, flag, False) for flag in flags)


def _of_file(path: Path, op: AnyOperation, arch: ArchSpec, dtype: str) -> tuple[Kernel, ...]:
    from ckh.bench.planning.registry import read_registry

    registry = read_registry(path, op)
    registry.require(arch.name)
    kernels = registry.built(arch, dtype)
    if not kernels:
        raise NoKernelError(f"{path} describes no kernel that {arch.name} builds for {dtype}")
    return tuple(kernels)


def _answers(chooser: Chooser, source: str) -> list[Ranking]:
    """Rankings of the problems with applicable kernels."""
    rankings = list(answered(chooser, chooser.load_problems(source, None, None)))
    failures = [failure for ranking in rankings if (failure := ranking.failure)]
    if failures and len(failures) == len(rankings):
        raise failures[0]
    if failures:
        warn(
            f"{len(failures)} of {len(rankings)} problems have no kernel and are left out; {failures[0].message}",
            "no-kernel",
        )
    return [ranking for ranking in rankings if len(ranking.order)]
