"""Verdicts of gates for CI: JUnit XML, shown as tests, and Markdown, shown as a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from ckh.text.log import markdown, printable
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

_SUMMARY_START = "<!-- ckh"
# Suffix of a file -> how a verdict begins in it.
STARTS = {
    ".xml": b"<?xml version='1.0' encoding='utf-8'?>\n<testsuites name=\"ckh",
    ".md": _SUMMARY_START.encode(),
}


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a gate."""

    name: str
    failure: str = ""
    """Reason for failing; empty if the check passes."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class VerdictTable:
    """Cells as text with column headings; the first column is left-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    names: int = 0  # number of last columns whose long values a terminal shows below the first, a line each


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a gate."""

    command: str  # the gate, such as "ckh validate compare"
    title: str  # what was evaluated
    checks: tuple[Check, ...]  # the checks of the gate
    lines: tuple[str, ...] = ()  # sentences for readers
    tables: tuple[VerdictTable, ...] = ()  # figures for readers

    @property
    def failures(self) -> tuple[str, ...]:
        """Failure messages; empty if the gate passes."""
        return tuple(check.failure for check in self.checks if check.failure)

    def junit(self) -> bytes:
        """Format as a test suite with one test per check, as read by Jenkins, GitLab and GitHub Actions."""
        counts = {"tests": str(len(self.checks)), "failures": str(len(self.failures)), "errors": "0"}
        suites = ET.Element("testsuites", {"name": f"ckh {__version__}", **counts})
        suite = ET.SubElement(suites, "testsuite", {"name": printable(self.command), **counts, "skipped": "0"})
        classname = self.command.replace(" ", ".")
        for check in self.checks:
            case = ET.SubElement(suite, "testcase", {"classname": classname, "name": printable(check.name)})
            if check.failure:
                failure = ET.SubElement(case, "failure", {"message": printable(check.failure)})
                failure.text = _lines(check.detail or check.failure)
            elif check.detail:
                ET.SubElement(case, "system-out").text = _lines(check.detail)
        ET.indent(suites)
        return bytes(ET.tostring(suites, encoding="utf-8", xml_declaration=True)) + b"\n"

    def markdown(self) -> bytes:
        """Format the verdict, its reasons and its tables as a page."""
        verdict = "FAIL" if self.failures else "PASS"
        parts = [
            f"{_SUMMARY_START} {__version__} {self.command} -->",
            f"## {verdict}: {markdown(self.title)}",
            "\n".join(f"- {markdown(failure)}" for failure in self.failures),
            *map(markdown, self.lines),
            *map(_markdown_table, self.tables),
        ]
        return ("\n\n".join(filter(None, parts)) + "\n").encode()


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _markdown_table(table: VerdictTable) -> str:
    rules = ["---", *["---:"] * (len(table.columns) - 1)]
    lines = [" | ".join(map(markdown, row)) for row in (table.columns, *table.rows)]
    lines.insert(1, " | ".join(rules))
    shown = "\n".join(f"| {line} |" for line in lines)
    return f"{markdown(table.title)}\n\n{shown}" if table.title else shown
