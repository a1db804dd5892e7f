"""Shared helpers of the gates of `ckh validate`: files for CI, printed verdict, exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.commands._common import print_json, print_table, say
from ckh.errors import ExitCode
from ckh.files.outputs import FileKind, check_output, head_of, write_output
from ckh.text.log import note, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.assess.verdict import Verdict
    from ckh.documents import Document

JUNIT = typer.Option(None, "--junit", metavar="FILE", help="Write the verdict as JUnit XML too.")
SUMMARY = typer.Option(None, "--summary", metavar="FILE", help="Write the verdict as Markdown too.")
FORCE = typer.Option(False, "--force", help="Replace files of an earlier verdict.")


@dataclass(frozen=True, slots=True)
class VerdictFiles:
    """Files of a verdict, besides stdout."""

    junit: Path | None
    summary: Path | None

    def check(self, *, force: bool, inputs: Sequence[Path]) -> None:
        """Refuse files that cannot or must not be written, before the evaluation."""
        from ckh.assess.verdict import JUNIT_START, SUMMARY_START

        starts = ((self.junit, "JUnit file of ckh", JUNIT_START), (self.summary, "summary", SUMMARY_START.encode()))
        for path, name, start in starts:
            if path is not None:
                check_output(path, _kind(name, start), force=force, inputs=inputs)

    def write(self, verdict: Verdict) -> None:
        """Write the requested files."""
        if self.junit is not None:
            write_output(self.junit, verdict.junit())
        if self.summary is not None:
            write_output(self.summary, verdict.markdown())


def _kind(name: str, start: bytes) -> FileKind:
    return FileKind(name, lambda path: head_of(path).startswith(start))


def show(verdict: Verdict, document: Document, files: VerdictFiles, *, as_json: bool) -> None:
    """Write the files of a verdict, and print its document or its tables."""
    files.write(verdict)
    if as_json:
        print_json(document)
        return
    tables = list(verdict.tables)
    if tables and not tables[0].names:
        first = tables.pop(0)
        print_table(verdict.title, first.columns, first.rows)
    else:
        say(verdict.title)
    if verdict.lines:
        say("\n" + "\n".join(verdict.lines))
    for table in tables:
        say()
        figures = len(table.columns) - table.names
        if figures > 1:
            print_table(table.title, table.columns[:figures], [row[:figures] for row in table.rows])
        elif table.title:
            say(table.title)
        names = table.columns[figures:]
        width = max(map(len, names), default=0)
        for row in table.rows if names else ():
            lines = (f"  {name:{width}} {value}" for name, value in zip(names, row[figures:], strict=True))
            say("\n".join([f"\n{row[0]}", *lines]))


def conclude(verdict: Verdict) -> None:
    """Print failures and verdict; exit with 1 if there is a failure."""
    for failure in verdict.failures:
        warn(failure, "gate")
    note("FAIL" if verdict.failures else "PASS")
    if verdict.failures:
        raise typer.Exit(int(ExitCode.GATE_FAILED))
