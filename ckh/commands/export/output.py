"""The documents of `ckh export --json`, and `--check`, which runs a program's own code on an export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import typer

from ckh.commands._common import print_json, print_table, say
from ckh.documents import Document
from ckh.errors import DataError, ExitCode, UsageError
from ckh.export.consumers import named
from ckh.export.folder import list_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ckh.export.consumers import CheckedTable


class ExportDocument(Document):
    """ckh export --json: exported files."""

    schema = "export"

    out: str
    """The folder."""
    ckh: str
    """Version."""
    to: str
    """The program or format."""
    models: tuple[Mapping[str, Any], ...]
    files: Mapping[str, int]
    """Bytes by name."""
    embedded: bool | None = None
    """Whether C sources hold the models."""


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


class ExportChoicesDocument(Document):
    """ckh export --json of problems: choices and exported files."""

    schema = "export_choices"

    out: str
    """The folder."""
    to: str
    """The program."""
    op_type: str
    """The operation."""
    replaces: bool
    """Whether choices replace the program's own rows."""
    choices: tuple[ExportedChoice, ...]
    """Choices in the order of the problems."""
    missing: tuple[MissingChoice, ...]
    """Problems without a row."""
    environment: Mapping[str, str]
    """Environment variables that make the program read the files, in shell syntax; OUT stands for the folder."""
    checked: tuple[CheckedFile, ...] | None
    """Tables as read by the program's own code; null: not checked."""
    files: Mapping[str, int]
    """Bytes by name."""


@dataclass(frozen=True, slots=True)
class DescribedKernels:
    """The kernels of a file."""

    form: Literal["registry", "configuration"]
    kernels: int
    """Kernels of the file that the architecture supports."""


@dataclass(frozen=True, slots=True)
class FallbackList:
    """A fallback list, evaluated on the problems that it was made for."""

    problems: int
    covered: int
    """Problems with an applicable kernel in the list."""
    basis: str
    """Whether efficiencies are measured or predicted."""
    efficiency: float
    """Mean efficiency of the first applicable kernel."""
    single_efficiency: float
    """Mean efficiency of the best single kernels, 0 for problems to which they do not apply."""
    oracle: float
    """Mean efficiency of the best kernel of each problem."""
    single_kernels: tuple[str, ...]
    """Best single kernel of each direction, element type and layout."""


class ExportListsDocument(Document):
    """ckh export --json of kernels for AMD's tools: kernels and exported files."""

    schema = "export_lists"

    out: str
    """The folder."""
    to: str
    """The format."""
    op_type: str
    """The operation."""
    arch: str
    kernels: tuple[str, ...]
    """Complete names, in the order of the lists."""
    described: Mapping[str, DescribedKernels]
    """Kernels of each file."""
    ordered: FallbackList | None
    """The fallback list; null: not requested."""
    files: Mapping[str, int]
    """Bytes by name."""


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


class ExportCheckedDocument(Document):
    """ckh export --check --json: an export as read by a program's own code."""

    schema = "export_checked"

    out: str
    """The folder."""
    to: str
    """The program."""
    checked: tuple[CheckedFile, ...]
    """Tables as read by the program's own code."""


def check_export(to: str, out: Path, program: Path, *, as_json: bool) -> None:
    """Check an existing export and print the result."""
    checked = checked_tables(to, out, program)
    if as_json:
        print_json(ExportCheckedDocument(str(out), to, checked_document(checked)))
    else:
        print_checked(checked)
    conclude(checked, has_missing=False)


def checked_tables(to: str, out: Path, program: Path) -> list[CheckedTable]:
    """Tables of an export, as read by the program's own code."""
    document = list_of(out)
    table = named("tables", to).get(str(document.get("op_type")))
    if document.get("to") != to or table is None:
        raise DataError(f"{out} is not an export of tables for {to}", "write one with --problems", code="not-an-export")
    if table.check is None:
        raise UsageError(
            f"tables for {to} of {document['op_type']} cannot be checked", "omit --check", code="unsupported"
        )
    try:
        result: list[CheckedTable] = table.check(out, document, program)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{out / 'export.json'} is damaged, or of another version of ckh: {error!r}", code="damaged"
        ) from error
    return result


def checked_document(checked: Sequence[CheckedTable]) -> tuple[CheckedFile, ...]:
    """Tables as parts of a document."""
    return tuple(
        CheckedFile(
            file=table.name,
            rows_before=table.rows_before,
            rows_after=table.rows_after,
            lost=table.lost,
            unchanged=table.is_unchanged,
            problems=tuple(table.problems),
            shapes=tuple(CheckedShape(**shape) for shape in table.shapes),
        )
        for table in checked
    )


def print_checked(checked: Sequence[CheckedTable]) -> None:
    """Print the row that the program selects for each shape, without and with the export, and errors."""
    for table in checked:
        rows = [[shape["problem"], _words(shape["today"]), _words(shape["export"])] for shape in table.shapes]
        print_table(table.name, ("problem", "today", "with this export"), rows)
        say(f"rows  {table.rows_before} today, {table.rows_after} with this export, {table.lost} lost")
        for problem in table.problems:
            say(f"WRONG  {problem}")
    if not checked:
        say("nothing to check: the export has no table")
    elif not any(item.problems for item in checked):
        say("OK: the program finds every row, builds every kernel, and keeps its own rows")


def _words(row: dict[str, Any] | None) -> str:
    if row is None:
        return "default"
    basis = "not measured" if row["predicted"] else f"{row['us']} us"
    return f"{row['kernel']} splitK={row['split_k']} ({basis})"


def conclude(checked: Sequence[CheckedTable], *, has_missing: bool) -> None:
    """Exit with the code of failed checks or missing problems."""
    if any(item.problems for item in checked):
        raise typer.Exit(int(ExitCode.GATE_FAILED))
    if has_missing:
        raise typer.Exit(int(ExitCode.NO_KERNEL))
