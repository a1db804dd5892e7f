"""`ckh doctor --check`: what it prints, and the archive that it writes for a bug report."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ckh.bench.checks.checkup import RUNS, Checkup
from ckh.commands._common import print_table, say
from ckh.commands._duration import format_duration
from ckh.data.journal import JOURNAL_NAME
from ckh.outputs import FileKind, write_output
from ckh.tabletext import json_text

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.anonymous import Anonymizer

SCHEMA = "doctor_check"
_DOCUMENT, _DOCTOR = "check.json", "doctor.json"


def _is_archive(path: Path) -> bool:
    try:
        with tarfile.open(path) as archive:
            return archive.next() is not None and archive.getnames()[0] == _DOCUMENT
    except (tarfile.TarError, OSError, EOFError):
        return False


ARCHIVE = FileKind("archive of a check", _is_archive)


def document(checkup: Checkup, out: Path) -> dict[str, Any]:
    """What came of a check, as JSON-able values."""
    return {
        "ok": checkup.exit_code == 0,
        "archive": str(out),
        "kind": checkup.kind,
        "arch": checkup.arch or None,
        "device": checkup.device or None,
        "steps": [asdict(step) | {"ok": step.is_ok} for step in checkup.steps],
        "pairs": [asdict(pair) | {"ratio": pair.ratio} for pair in checkup.pairs()],
        "sensors": checkup.sensors,
    }


def write_archive(out: Path, found: dict[str, Any], report: dict[str, Any], folder: Path, names: Anonymizer) -> None:
    """Write the document, what `ckh doctor` says and the runs' journals, without names of users and hosts.

    Raises:
        OutputError: it cannot be written.
    """
    files = {
        _DOCUMENT: json_text(SCHEMA, names.value(found)),
        _DOCTOR: json_text("doctor", names.value(report)),
    }
    for run in RUNS:
        journal = folder / run / JOURNAL_NAME
        if journal.exists():
            lines = (json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines())
            text = "".join(json.dumps(names.value(line)) + "\n" for line in lines)
            files[f"{run}/{JOURNAL_NAME}"] = text
    write_output(out, gzip.compress(_tar(files), mtime=0))


def _tar(files: dict[str, str]) -> bytes:
    """An archive whose entries belong to nobody and have no time."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def print_check(checkup: Checkup, out: Path) -> None:
    """Print the steps, what is wrong with remedies, and the times."""
    rows = [[step.name, "ok" if step.is_ok else "failed", format_duration(step.seconds)] for step in checkup.steps]
    print_table(checkup.device or checkup.kind, ("step", "", "time"), rows)
    say()
    for step in checkup.steps:
        say(f"{step.name}: {step.found}")
        if step.remedy:
            say(f"do: {step.remedy}")
    pairs = [
        [pair.kernel, " / ".join(pair.statuses), *(_ms(one) for one in (*pair.times_ms, None, None)[:2])]
        for pair in checkup.pairs()
    ]
    if pairs:
        say()
        print_table("", ("kernel", "status", "ms", "again"), pairs)
    say(f"\nwritten to {out}, for a bug report: no environment, no names of users and hosts, no home folders")


def _ms(time_ms: float | None) -> str:
    return "-" if time_ms is None else f"{time_ms:.4f}"
