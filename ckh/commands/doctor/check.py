"""Output of `ckh doctor --check`, and its archive for a bug report, without names of users and hosts."""

from __future__ import annotations

import gzip
import io
import json
import os
import pwd
import re
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.supervision.checkup import RUNS, Checkup, ClassResult
from ckh.commands._common import print_table, say
from ckh.data.journal import JOURNAL_NAME
from ckh.documents import Document, enveloped
from ckh.files.outputs import FileKind, write_output
from ckh.text.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.bench.supervision.checkup import CheckedClass, CheckedPair, ToolCheck
    from ckh.bench.supervision.harness import Build


_USER, _HOST, _HOME = "USER", "HOST", "~"
_USER_VARIABLES = ("USER", "LOGNAME", "SUDO_USER")
_ANY_HOME = re.compile(r"/(?:home|Users)/[^/\s:'\"]+")
_NO_SECRETS = ("", "root", "localhost")


class Anonymizer:
    """Replaces home folders by ~, and user and host names by USER and HOST, as whole words."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        users = {environ.get(name, "") for name in _USER_VARIABLES}
        homes = {environ.get("HOME", "")}
        with suppress(KeyError):  # a container's user may be missing in the table
            account = pwd.getpwuid(os.getuid())
            users.add(account.pw_name)
            homes.add(account.pw_dir)
        hosts = {os.uname().nodename, environ.get("HOSTNAME", "")}
        hosts |= {host.partition(".")[0] for host in hosts}
        self._homes = sorted((str(Path(home)) for home in homes if home not in ("", "/")), key=len, reverse=True)
        self._words = [(_words(hosts), _HOST), (_words(users), _USER)]

    def text(self, text: str) -> str:
        """Anonymize a text."""
        for home in self._homes:
            text = re.sub(rf"{re.escape(home)}(?![^/\s:'\",;])", _HOME, text)
        text = _ANY_HOME.sub(_HOME, text)
        for words, instead in self._words:
            text = words.sub(instead, text)
        return text

    def value(self, value: Any) -> Any:
        """Anonymize all strings of a JSON value; keys are ckh's and unchanged."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(element) for element in value]
        return {key: self.value(element) for key, element in value.items()} if isinstance(value, dict) else value


def _words(names: set[str]) -> re.Pattern[str]:
    """Pattern of whole words among some names; matches nothing if there are none."""
    known = sorted((re.escape(name) for name in names if name not in _NO_SECRETS), key=len, reverse=True)
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(known) or '(?!)'})(?![A-Za-z0-9])", re.IGNORECASE)


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
    """Architecture; null if none is known."""
    device: str | None
    steps: tuple[ToolCheck, ...]
    """Steps in order, up to one that fails and that the next depends on."""
    pairs: tuple[CheckedPair, ...]
    sensors: tuple[Mapping[str, float | None], ...]
    """Sensor readings before and after each run."""
    build: Build | None
    """The compiler, its options and the headers' interface; null if kernel classes were not tried."""
    headers_version: str | None
    """Version that CK Tile's headers state."""
    operations: Mapping[str, Mapping[str, int]]
    """Number of kernel classes by operation and result."""
    classes: tuple[CheckedClass, ...]


def document(checkup: Checkup, headers_version: str | None, out: Path) -> CheckDocument:
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
        build=checkup.build,
        headers_version=headers_version,
        operations=checkup.counts(),
        classes=tuple(checkup.classes),
    )


def write_archive(out: Path, check: Document, report: Document, folder: Path, names: Anonymizer) -> None:
    """Archive the document, the output of `ckh doctor` and the journals, without names of users and hosts."""
    documents = {_DOCUMENT: check, _DOCTOR: report}
    files = {name: json.dumps(names.value(enveloped(content)), indent=2) + "\n" for name, content in documents.items()}
    for run in RUNS:
        journal = folder / run / JOURNAL_NAME
        if journal.exists():
            lines = (json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines())
            text = "".join(json.dumps(names.value(line)) + "\n" for line in lines)
            files[f"{run}/{JOURNAL_NAME}"] = text
    write_output(out, gzip.compress(_tar(files), mtime=0))


def _tar(files: dict[str, str]) -> bytes:
    """Tar archive whose members have no owner and time."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            data = text.encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
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
        [pair.kernel, " / ".join(pair.statuses), *(_ms(time_ms) for time_ms in (*pair.times_ms, None, None)[:2])]
        for pair in checkup.pairs()
    ]
    if pairs:
        say()
        print_table("", ("kernel", "status", "ms", "again"), pairs)
    if counts := checkup.counts():
        say()
        rows = [[op, *map(str, results.values())] for op, results in counts.items()]
        print_table("kernel classes", ("operation", *ClassResult), rows)
    for of_class in checkup.classes:
        if of_class.result in (ClassResult.NOT_COMPILED, ClassResult.WRONG):
            say(f"{of_class.op}, {of_class.kernel_class}: {of_class.result}: {of_class.kernel}: {of_class.message}")
    say(f"\nwritten to {out}, for a bug report: no environment, no names of users and hosts, no home folders")


def _ms(time_ms: float | None) -> str:
    return "-" if time_ms is None else f"{time_ms:.4f}"
