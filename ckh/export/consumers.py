"""Programs that use choices: what an operation can write for them, and of what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.ops import operation, operation_names, part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ckh.data.dataset import Dataset
    from ckh.data.formats import RowsFormat
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The choices that a table is written of.

    Attributes:
        answers: the ranking of each problem.
        measured: measured rows of the operation, whose winners go before; None: there are none.
        installed: the folder of the program that will read the table, if its own kernels and tables count.
        replaces: whether choices replace the rows that the program has for the same shapes.
    """

    answers: Sequence[Ranking]
    measured: Dataset | None
    installed: Path | None
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class WrittenChoices:
    """The files that were written of choices.

    Attributes:
        files: path within the export and content of each.
        rows: what each problem got, in order, for JSON.
        how_to: sentences of Markdown that say how the program takes the files.
        missing: the problems that got nothing, and why, for JSON.
        environment: the variables that have the program read the files, in the shell's words, with `OUT` for the
            export's folder.
    """

    files: Mapping[str, bytes]
    rows: tuple[Mapping[str, Any], ...]
    how_to: str
    missing: tuple[Mapping[str, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """What a program's own code makes of a table of choices.

    Attributes:
        name: the file, within the export.
        rows_before: rows that the program has without the export.
        rows_after: rows that it has with it.
        lost: how many of those before are none after.
        is_unchanged: whether the program left the exported file as it is.
        failure: in words what the program's code ended with; empty if it ended well.
        shapes: of each problem the rows that the program takes without and with the export, for JSON.
    """

    name: str
    rows_before: int
    rows_after: int
    lost: int
    is_unchanged: bool
    failure: str
    shapes: tuple[Mapping[str, Any], ...]

    @property
    def problems(self) -> list[str]:
        """Description of the faults; empty if there are none."""
        found = [self.failure] if self.failure else []
        found += [f"{self.lost} of {self.rows_before} rows are lost"] if self.lost else []
        found += [] if self.is_unchanged else ["the exported file was rewritten"]
        found += [f"{one['problem']}: {one['wrong']}" for one in self.shapes if one["wrong"]]
        return found


@dataclass(frozen=True, slots=True)
class ChoiceTable:
    """Files of choices for a list of problems.

    Attributes:
        name: of the program, as on the command line.
        summary: what is written, in a few words.
        write: the files; raises `CkhError`.
        check: what the program's own code makes of an export's files, given the export's folder, its list and the
            program's folder; raises `CkhError`.
        reads: whether a file is of this operation's problems, where several operations write for the program; None:
            any file that is of no other.
        picked: the kernel that the program finds in an export's folder, in ckh's words, for problems on an
            architecture; empty: it finds no row. None: not known.
    """

    name: str
    summary: str
    write: Callable[[Choices], WrittenChoices]
    check: Callable[[Path, Mapping[str, Any], Path], list[CheckedTable]] | None = None
    reads: Callable[[str], bool] | None = None
    picked: Callable[[Path, str, Sequence[Any]], list[str]] | None = None


@dataclass(frozen=True, slots=True)
class ModelHeader:
    """A C++ header that lets a program use models that were exported to C.

    Attributes:
        name: of the program, as on the command line.
        summary: what is written, in a few words.
        how_to: a section of Markdown that says how the program takes it, for the export's README.
        text: the header for a model, by its name in the export; raises `CkhError`.
        called: what the program calls a kernel.
        program: C++ that prints the kernel, as the program calls it, that it picks of some for each problem on stdin,
            with a model by its name in the export.
    """

    name: str
    summary: str
    how_to: str
    text: Callable[[str, Model], str]
    called: Callable[[Any], str]
    program: Callable[[str, Model, Sequence[Any]], str]


@dataclass(frozen=True, slots=True)
class Instances:
    """How kernels and problems of a Python program are those of an operation.

    Attributes:
        name: of the program.
        problem: the problem that one of its templates computes with one of its instances; None if the operation has
            none such.
        kernel: the kernel that the instance is, or is nearest to; None if the operation has none such.
        template: a template of the program for a problem; raises `UsageError` where it has none.
    """

    name: str
    problem: Callable[[Any, Any], Any]
    kernel: Callable[[Any, Any], Any]
    template: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Consumers:
    """The programs that use an operation's choices, by what they take."""

    tables: tuple[ChoiceTable, ...] = ()
    records: tuple[RowsFormat, ...] = ()
    headers: tuple[ModelHeader, ...] = ()
    instances: tuple[Instances, ...] = ()


def consumers_of(op: AnyOperation) -> Consumers:
    """The programs that use an operation's choices.

    Raises:
        UsageError: the package that has it is broken.
    """
    return part_of(op, op.consumers, Consumers) or Consumers()


def all_of(kind: str) -> Iterator[tuple[AnyOperation, Any]]:
    """Each operation with each of its parts of a kind, such as `tables`."""
    for name in operation_names():
        for one in getattr(consumers_of(operation(name)), kind):
            yield operation(name), one


def named(kind: str, name: str) -> dict[str, Any]:
    """Operation -> its part of a kind for a program."""
    return {op.name: one for op, one in all_of(kind) if one.name == name}


def the_table(name: str, op: str | None, problems: str) -> tuple[AnyOperation, ChoiceTable]:
    """The operation that writes a table for a program: the one that is named, or that the problems are of.

    Raises:
        UsageError: as `the_one`.
    """
    found = named("tables", name)
    if op is None and len(found) > 1:
        mine = [one for one, table in found.items() if table.reads is not None and table.reads(problems)]
        op = next(iter(mine or [one for one, table in found.items() if table.reads is None]), None)
    return the_one("tables", name, op)


def the_one(kind: str, name: str, op: str | None) -> tuple[AnyOperation, Any]:
    """The operation that has something for a program: the one that is named, or the only one.

    Raises:
        UsageError: it has nothing, or several have.
    """
    found = named(kind, name)
    if op is not None and op not in found:
        raise UsageError(f"nothing of {op} is written for {name}", "for it are " + ", ".join(found), code="unsupported")
    if op is None and len(found) > 1:
        raise UsageError(
            f"several operations write for {name}", "name one with --op: " + ", ".join(found), code="unsupported"
        )
    chosen = op or next(iter(found))
    return operation(chosen), found[chosen]
