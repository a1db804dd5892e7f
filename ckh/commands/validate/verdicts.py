"""Shared helpers of the gates of `ckh validate`: files for CI, printed verdict, exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.errors import ExitCode
from ckh.files.outputs import FileKind, check_output, head_of, write_output
from ckh.text.log import note, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.assess.verdict import Verdict

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


def give_verdict(failures: Sequence[str]) -> None:
    """Print failures and verdict; exit with 1 if there is a failure."""
    for failure in failures:
        warn(failure, "gate")
    note("FAIL" if failures else "PASS")
    if failures:
        raise typer.Exit(int(ExitCode.GATE_FAILED))
