"""Consumers of choices: the formats that an operation can write for other programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.ops import operation, operation_names, part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ckh.data.dataset import Dataset
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Input of a table of choices."""

    answers: Sequence[Ranking]  # the ranking of each problem
    measured: Dataset | None  # measured rows of the operation, whose winners take precedence; None without
    installed: Path | None  # folder of the program that will read the table, if its own kernels and tables are used
    replaces: bool = False  # whether choices replace the program's rows for the same shapes


@dataclass(frozen=True, slots=True)
class ExportedChoice:
    """Chosen kernel of a problem."""

    problem: str
    """Canonical text."""
    kernel: str
    """Complete name of the first choice."""
    us: float | None
    """Measured time, or an upper bound of the predicted one, in microseconds; null: unknown."""
    basis: str
    """Source of the time."""
    predicted: bool
    """Whether the time is predicted."""
    model: str | None
    """The model that chose; null: chosen by measurement."""
    arch: str
    written: bool
    """Whether a row was written; false: the program has its own row."""


@dataclass(frozen=True, slots=True)
class MissingChoice:
    """A problem without a row."""

    problem: str
    """Canonical text."""
    reason: str


@dataclass(frozen=True, slots=True)
class WrittenChoices:
    """Files written for choices."""

    files: Mapping[str, bytes]  # path within the export and content of each
    rows: tuple[ExportedChoice, ...]  # result for each problem, in order
    how_to: str  # Markdown text on how the program uses the files
    missing: tuple[MissingChoice, ...] = ()  # problems without a choice, with reasons
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that make the program read the files, in shell syntax; `OUT` stands for the folder."""


@dataclass(frozen=True, slots=True)
class TakenRow:
    """A row of a program's table."""

    kernel: str
    """Kernel name, or the names of both stages joined by a plus."""
    split_k: str
    """Value in the table."""
    us: str
    """Value in the table."""
    predicted: bool
    """Whether it is predicted rather than measured."""


@dataclass(frozen=True, slots=True)
class CheckedShape:
    """A problem in a program's table."""

    problem: str
    """Canonical text."""
    today: TakenRow | None
    """The row that the program uses without the export; null: its default."""
    export: TakenRow | None
    """The row that it uses with the export; null: its default."""
    wrong: str
    """Error in the selected row; empty: none."""


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A table of an export."""

    file: str
    """The table, within the export."""
    rows_before: int
    """Rows without the export."""
    rows_after: int
    """Rows with the export."""
    lost: int
    """Rows that the export removes."""
    unchanged: bool
    """Whether the program leaves the exported file unchanged."""
    problems: tuple[str, ...]
    """Errors; empty: none."""
    shapes: tuple[CheckedShape, ...]
    """Problems in order."""


@dataclass(frozen=True, slots=True)
class ChoiceTable:
    """Files of choices for a list of problems."""

    name: str  # name of the program on the command line
    summary: str  # short description of the output
    write: Callable[[Choices], WrittenChoices]  # builds the files; raises `CkhError`
    check: Callable[[Path, Mapping[str, Any], Path], tuple[CheckedFile, ...]] | None = None
    """Runs the program's own code on an export's files, given the export's folder, its list and the program's folder;
    raises `CkhError`."""
    reads: Callable[[str], bool] | None = None
    """True for a file with problems of this operation, where several operations write for the program; None: the
    operation takes any file that belongs to no other."""
    picked: Callable[[Path, str, Sequence[Any]], list[str]] | None = None
    """The kernel that the program finds in an export's folder, by ckh's name, for problems on an architecture; empty:
    it finds no row. None: unknown."""


@dataclass(frozen=True, slots=True)
class ModelHeader:
    """A C++ header with which a program uses models exported to C."""

    name: str  # name of the program on the command line
    summary: str  # short description of the output
    how_to: str  # a section of Markdown on how the program uses it, for the export's README
    text: Callable[[str, Model], str]  # the header for a model, given its name in the export; raises `CkhError`
    called: Callable[[Any], str]  # the program's name of a kernel
    program: Callable[[str, Model, Sequence[Any]], str]
    """C++ code that prints the kernel, by the program's name, selected from a list for each problem on stdin, using a
    model by its name in the export."""


@dataclass(frozen=True, slots=True)
class Instances:
    """Mapping between kernels and problems of a Python program and those of an operation."""

    name: str  # name of the program
    problem: Callable[[Any, Any], Any]
    """The problem that a template computes with an instance; None if the operation has no such problem."""
    kernel: Callable[[Any, Any], Any]  # the kernel equal or closest to the instance; None if the operation has none
    template: Callable[[Any], Any]  # a template of the program for a problem; raises `UsageError` if it has none


@dataclass(frozen=True, slots=True)
class Consumers:
    """Consumers of an operation's choices, by format."""

    tables: tuple[ChoiceTable, ...] = ()
    headers: tuple[ModelHeader, ...] = ()
    instances: tuple[Instances, ...] = ()


def consumers_of(op: AnyOperation) -> Consumers:
    """Return the consumers of an operation's choices."""
    return part_of(op, op.consumers, Consumers) or Consumers()


def all_of(kind: str) -> Iterator[tuple[AnyOperation, Any]]:
    """Yield each operation with each of its consumers of a kind, such as `tables`."""
    for name in operation_names():
        for consumer in getattr(consumers_of(operation(name)), kind):
            yield operation(name), consumer


def named(kind: str, name: str) -> dict[str, Any]:
    """Operation -> its consumer of a kind with a program's name."""
    return {op.name: consumer for op, consumer in all_of(kind) if consumer.name == name}


def the_table(name: str, op: str | None, problems: str) -> tuple[AnyOperation, ChoiceTable]:
    """Return the operation that writes a table for a program: the named one, or that of the problems."""
    tables = named("tables", name)
    if op is None and len(tables) > 1:
        readers = [op_name for op_name, table in tables.items() if table.reads is not None and table.reads(problems)]
        op = next(iter(readers or [op_name for op_name, table in tables.items() if table.reads is None]), None)
    return the_one("tables", name, op)


def the_one(kind: str, name: str, op: str | None) -> tuple[AnyOperation, Any]:
    """Return the operation that has a consumer for a program: the named one, or the only one."""
    consumers = named(kind, name)
    if op is not None and op not in consumers:
        raise UsageError(
            f"nothing of {op} is written for {name}", "for it are " + ", ".join(consumers), code="unsupported"
        )
    if op is None and len(consumers) > 1:
        raise UsageError(
            f"several operations write for {name}", "name one with --op: " + ", ".join(consumers), code="unsupported"
        )
    chosen = op or next(iter(consumers))
    return operation(chosen), consumers[chosen]
