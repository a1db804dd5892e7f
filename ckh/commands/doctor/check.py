"""Output of `ckh doctor --check`, and its archive for a bug report."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import TYPE_CHECKING

from ckh.bench.checks.checkup import RUNS, Checkup
from ckh.commands._common import print_table, say
from ckh.data.journal import JOURNAL_NAME
from ckh.documents import Document, enveloped
from ckh.files.outputs import FileKind, write_output
from ckh.text.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ckh.bench.checks.checkup import CheckedPair
    from ckh.bench.compilation.tool_checks import ToolCheck
    from ckh.text.anonymous import Anonymizer

_DOCUMENT, _DOCTOR = "check.json", "doctor.json"


def _is_archive(path: Path) -> bool:
    try:
        with tarfile.open(path) as archive:
            return archive.next() is not None and archive.getnames()[0] == _DOCUMENT
    except (tarfile.TarError, OSError, EOFError):
        return False


ARCHIVE = FileKind("archive of a check", _is_archive)


class CheckDocument(Document):
    """ckh doctor --check --json: an end-to-end check of a device."""

    schema = "doctor_check"

    ok: bool
    """Whether all steps succeeded."""
    archive: str
    """The archive that was written."""
    kind: str
    """Host, hip or emulated."""
    arch: str | None
    """Architecture; null if no device could be opened."""
    device: str | None
    steps: tuple[ToolCheck, ...]
    """Steps in order, up to one that fails and that the next depends on."""
    pairs: tuple[CheckedPair, ...]
    sensors: tuple[Mapping[str, float | None], ...]
    """Sensor readings before and after each run."""


def document(checkup: Checkup, out: Path) -> CheckDocument:
    """Document with the results of a check."""
    return CheckDocument(
        ok=checkup.exit_code == 0,
        archive=str(out),
        kind=checkup.kind,
        arch=checkup.arch or None,
        device=checkup.device or None,
        steps=tuple(checkup.steps),
        pairs=tuple(checkup.pairs()),
        sensors=tuple(checkup.sensors),
    )


def write_archive(out: Path, result: Document, report: Document, folder: Path, names: Anonymizer) -> None:
    """Archive the document, the output of `ckh doctor` and the journals, without names of users and hosts.

    Raises:
        OutputError: it cannot be written.
    """
    documents = {_DOCUMENT: result, _DOCTOR: report}
    files = {name: json.dumps(names.value(enveloped(item)), indent=2) + "\n" for name, item in documents.items()}
    for run in RUNS:
        journal = folder / run / JOURNAL_NAME
        if journal.exists():
            lines = (json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines())
            text = "".join(json.dumps(names.value(line)) + "\n" for line in lines)
            files[f"{run}/{JOURNAL_NAME}"] = text
    write_output(out, gzip.compress(_tar(files), mtime=0))


def _tar(files: dict[str, str]) -> bytes:
    """Tar archive whose entries have no owner and time."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def print_check(checkup: Checkup, out: Path) -> None:
    """Print the steps, failures with remedies, and times."""
    rows = [[step.name, "ok" if step.ok else "failed", format_duration(step.seconds)] for step in checkup.steps]
    print_table(checkup.device or checkup.kind, ("step", "", "time"), rows)
    say()
    for step in checkup.steps:
        say(f"{step.name}: {step.found}")
        if step.remedy:
            say(f"remedy: {step.remedy}")
    pairs = [
        [pair.kernel, " / ".join(pair.statuses), *(_ms(item) for item in (*pair.times_ms, None, None)[:2])]
        for pair in checkup.pairs()
    ]
    if pairs:
        say()
        print_table("", ("kernel", "status", "ms", "again"), pairs)
    say(f"\nwritten to {out}, for a bug report: no environment, no names of users and hosts, no home folders")


def _ms(time_ms: float | None) -> str:
    return "-" if time_ms is None else f"{time_ms:.4f}"
