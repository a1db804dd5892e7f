"""Tables of choices for other programs, from rankings or measured rows."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.shapes.problems import problems_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.data.dataset import Dataset
    from ckh.export.consumers import CheckedFile, ChoiceTable, WrittenChoices
    from ckh.learn.answers.answering import Chooser
    from ckh.learn.answers.ranking import Ranking
    from ckh.ops.base import AnyOperation, Problem


@dataclass(frozen=True, slots=True)
class ChoicesWanted:
    """Options that select the problems."""

    problems: str  # a set or file
    model: Path | None  # folder of a model; None: the first that fits
    arch: str | None  # the architecture; None: the model's, or this machine's
    dtype: str | None  # default element type of the problems
    num_cus: int | None  # default compute units of the problems' device; None: those of `arch` (`archs.load_arch`)
    data: Sequence[Path]  # measured rows, whose winners take precedence over predictions
    installed: Path | None  # folder of the program to export for; its own rows take precedence over predictions


def choice_table(op: AnyOperation, table: ChoiceTable, wanted: ChoicesWanted, *, replaces: bool) -> WrittenChoices:
    """Files of choices, which may replace the program's own rows; winners of measured rows take precedence."""
    from ckh.export.consumers import Choices
    from ckh.learn.answers.answering import Chooser

    chooser = Chooser(wanted.model, wanted.arch, wanted.dtype, op.name)
    problems = _problems(chooser, wanted)
    measured = measured_rows(wanted.data, op, chooser.arch) if wanted.data else None
    return table.write(Choices(list(answered(chooser, problems)), measured, wanted.installed, replaces))


def _problems(chooser: Chooser, wanted: ChoicesWanted) -> tuple[Problem, ...]:
    """Problems on the device."""
    if wanted.num_cus is None:
        return chooser.load_problems(wanted.problems, None, wanted.dtype)
    problems: Sequence[Any] = problems_of(chooser.op, wanted.problems, None, wanted.dtype, chooser.dtype)
    if not all(hasattr(problem, "num_cus") for problem in problems):
        raise UsageError(f"problems of {chooser.op.name} have no compute units", "omit --num-cus", code="unsupported")
    return tuple(dict.fromkeys(item if item.num_cus else replace(item, num_cus=wanted.num_cus) for item in problems))


def answered(chooser: Chooser, problems: Sequence[Problem]) -> Iterator[Ranking]:
    """Ranking of each problem, by the model that fits or its substitute."""
    from ckh.learn.answers.ranking import rankings_of

    models = [chooser.model(problem, stands_in=True) for problem in problems]
    result: dict[Any, Ranking] = {}
    for model in dict.fromkeys(models):
        some = [problem for problem, own in zip(problems, models, strict=True) if own is model]
        result |= dict(zip(some, rankings_of(some, model), strict=True))
    return (result[problem] for problem in problems)


def measured_rows(paths: Sequence[Path], op: AnyOperation, arch: str | None = None) -> Dataset:
    """Rows of datasets, or of any input of `ckh convert`."""
    from ckh.data import conversion
    from ckh.data.dataset import DATASET, read_dataset
    from ckh.data.formats import ReadOptions
    from ckh.data.peaks import possible_rows

    with tempfile.TemporaryDirectory() as folder:
        datasets = [path for path in paths if path.is_dir() or DATASET.is_one(path)]
        others = [path for path in paths if path not in datasets]
        if others:
            datasets.append(Path(folder, "converted.parquet"))
            conversion.convert(others, datasets[-1], ReadOptions(arch=arch))
        dataset = possible_rows(read_dataset(*datasets), "--data")
    if dataset.op.name != op.name:
        raise DataError(f"the rows of --data are of {dataset.op.name}, not of {op.name}", code="mixed-data")
    return dataset


def checked_tables(to: str, out: Path, program: Path) -> tuple[CheckedFile, ...]:
    """Tables of an export, as read by a program's own code."""
    from ckh.export.consumers import named
    from ckh.export.folder import list_of

    document = list_of(out)
    table = named("tables", to).get(str(document.get("op_type")))
    if document.get("to") != to or table is None:
        raise DataError(f"{out} is not an export of tables for {to}", "write one with --problems", code="not-an-export")
    if table.check is None:
        raise UsageError(
            f"tables for {to} of {document['op_type']} cannot be checked", "omit --check", code="unsupported"
        )
    try:
        result: tuple[CheckedFile, ...] = table.check(out, document, program)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{out / 'export.json'} is damaged, or of another version of ckh: {error!r}", code="damaged"
        ) from error
    return result
