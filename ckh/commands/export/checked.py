"""`ckh export --check`: runs a program's own code on an export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands._common import print_json, print_table, say
from ckh.documents import Document
from ckh.errors import DataError, ExitCode, UsageError
from ckh.export.consumers import named
from ckh.export.folder import list_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.export.consumers import CheckedTable


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
    """Check an existing export and print the result.

    Raises:
        CkhError: it is not an export of choices for the program, or the program's code cannot be run.
    """
    checked = checked_tables(to, out, program)
    if as_json:
        print_json(ExportCheckedDocument(str(out), to, checked_document(checked)))
    else:
        print_checked(checked)
    conclude(checked, has_missing=False)


def checked_tables(to: str, out: Path, program: Path) -> list[CheckedTable]:
    """Tables of an export, as read by the program's own code.

    Raises:
        CkhError: it is not an export of choices for the program, or the program's code cannot be run.
    """
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
