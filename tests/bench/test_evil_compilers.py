"""The suite "Evil compilers": any behaviour of a compiler becomes its kernel's row, and the run continues.

A kernel's source names the behaviour of its compiler, so that one run has compilers of all kinds, with right ones
between them. The long version (`--reliability=long`) repeats it in ten orders.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.compilation.binary import ElfFault
from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision import campaign as campaign_module
from ckh.bench.supervision.campaign import Campaign
from ckh.bench.supervision.limits import BenchLimits
from ckh.data.journal import ResultRow, read_journal
from ckh.data.settings import Given
from ckh.schema import Status
from tests.bench.evil import processes_with
from tests.bench.faults import GOOD, PROBLEM, FaultyDevice

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


RIGHT = 6  # kernels
LIMITS = BenchLimits(timeout_s=60.0, jobs=2, compile_timeout_s=4.0)
MARK = "CKH_TEST_EVIL"
ORDERS = {"short": 1, "long": 10}
_COMPILE = '"$@"'  # of a right compiler
_ERROR = "echo 'a.cpp:1: error: no such thing' >&2"


@dataclass(frozen=True, slots=True)
class Kind:
    """Behaviour of a compiler, as sh statements that use `$library`; status and a part of the message of its row."""

    script: str
    status: Status
    message: str


_ERROR_STATUS, _INTERRUPTED, _LATE = Status.COMPILE_ERROR, Status.COMPILE_INTERRUPTED, Status.COMPILE_TIMEOUT
_HANGS, _TIMEOUT = (
    "the compiler hangs: it computed for less than 0.04 of 4 s",
    "the compiler took longer than 4 s of CPU time",
)

KINDS = {
    # Hanging.
    "hangs": Kind("sleep 1000", _LATE, _HANGS),
    "hangs and ignores signals": Kind("trap '' TERM INT HUP; while :; do sleep 1; done", _LATE, _HANGS),
    "stops": Kind("kill -STOP $$", _LATE, _HANGS),
    "closes its pipes and hangs": Kind("exec 2>&-; sleep 1000", _LATE, _HANGS),
    "prints without end": Kind("while :; do echo flood flood flood flood >&2; done", _LATE, _TIMEOUT),
    # Processes.
    "leaves a daemon that floods": Kind(
        f"{_COMPILE}; setsid sh -c 'while :; do echo flood >&2; done' &", Status.OK, ""
    ),
    "leaves a daemon and fails": Kind(f"setsid sleep 1000 & {_ERROR}; exit 1", _ERROR_STATUS, "error: no such thing"),
    # Ending.
    "fails": Kind(f"{_ERROR}; exit 1", _ERROR_STATUS, "error: no such thing"),
    "fails without a word": Kind("exit 9", _ERROR_STATUS, "the compiler ended with code 9"),
    "fails with a flood": Kind("head -c 40000000 /dev/zero | tr '\\0' e >&2; exit 1", _ERROR_STATUS, "eeee"),
    "fails with garbage": Kind("printf 'error: \\377\\033[31m' >&2; exit 1", _ERROR_STATUS, "error: \ufffd"),
    "fails when it has written": Kind(f"{_COMPILE}; {_ERROR}; exit 1", _ERROR_STATUS, "error: no such thing"),
    "crashes": Kind(
        "echo 'cc1plus: internal compiler error: Segmentation fault' >&2; exit 4", _ERROR_STATUS, "internal"
    ),
    "warns at length": Kind(f"head -c 30000000 /dev/zero | tr '\\0' w >&2; {_COMPILE}", Status.OK, ""),
    "prints at length": Kind(f"head -c 30000000 /dev/zero; {_COMPILE}", Status.OK, ""),
    # Killed, or out of resources.
    "is killed": Kind("kill -9 $$", _INTERRUPTED, "the compiler was killed by SIGKILL"),
    "is killed when it has written": Kind(f"{_COMPILE}; kill -9 $$", _INTERRUPTED, "killed by SIGKILL"),
    "is killed below gcc": Kind(
        "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1", _INTERRUPTED, "Killed signal"
    ),
    "is killed below clang": Kind(
        "echo 'clang++: error: unable to execute command: Killed' >&2; exit 254", _INTERRUPTED, "Killed"
    ),
    "is killed below a shell": Kind("sh -c 'kill -9 $$'; exit $?", _INTERRUPTED, ""),
    "has no memory": Kind(
        "echo 'cc1plus: out of memory allocating 65536 bytes' >&2; exit 1", _INTERRUPTED, "out of memory"
    ),
    "has no room": Kind(
        "echo 'fatal error: error writing to a.s: No space left on device' >&2; exit 1", _INTERRUPTED, "No space left"
    ),
    # Claiming success.
    "writes nothing": Kind("exit 0", _ERROR_STATUS, "no such file"),
    "writes text": Kind("echo hello > $library", _ERROR_STATUS, ElfFault.NOT_ELF),
    "writes a link": Kind(
        f"{_COMPILE}; mv $library $library.x; ln -s $library.x $library", _ERROR_STATUS, "not a regular file"
    ),
    "writes half of it": Kind(
        f"{_COMPILE}; head -c 3000 $library > part; mv part $library", _ERROR_STATUS, "not a library of a kernel: "
    ),
    "writes all but the last byte": Kind(f"{_COMPILE}; truncate -s -1 $library", _ERROR_STATUS, ElfFault.DAMAGED),
    "writes only a header": Kind(f"{_COMPILE}; truncate -s 64 $library", _ERROR_STATUS, "not a library of a kernel: "),
    "writes terabytes": Kind("truncate -s 2T $library", _ERROR_STATUS, "1 GiB"),
    "writes for another machine": Kind(
        rf"{_COMPILE}; printf '\363' | dd of=$library bs=1 seek=18 conv=notrunc 2> /dev/null",
        _ERROR_STATUS,
        ElfFault.OTHER_MACHINE,
    ),
    "writes without entry points": Kind(
        "echo 'int a;' > $library.c; gcc -shared -fPIC -o $library $library.c",
        _ERROR_STATUS,
        "ckh_abi_version",
    ),
    "writes an object file": Kind('gcc -c -x c++ -o $library "$source"', _ERROR_STATUS, ElfFault.NOT_SHARED),
    # Harmless behaviour.
    "removes its source": Kind(f'{_COMPILE}; rm "$source"', Status.OK, ""),
    "writes in two steps": Kind(
        f"{_COMPILE}; mv $library $library.x; sleep 0.2; mv $library.x $library", Status.OK, ""
    ),
}


class EvilCompilers(FaultyDevice):
    """Right kernels, with compilers of all kinds while they are evil, and right ones otherwise."""

    def __init__(self) -> None:
        super().__init__(*[GOOD] * (len(KINDS) + RIGHT))
        self.scripts = {full_name(k): kind.script for k, kind in zip(self.kernels, KINDS.values(), strict=False)}

    def compile_command(self, kernel: Any, source: Path, library: Path) -> list[str]:
        """Compiler requested by the first line of the source, the kernel's name."""
        right = super().compile_command(kernel, source, library)
        name = source.read_text(encoding="utf-8").partition("\n")[0].removeprefix("// ")
        if name not in self.scripts:
            return right
        known = f"cd {shlex.quote(str(source.parent))}; library={shlex.quote(str(library))}; source={source}; "
        return ["sh", "-c", known + self.scripts[name], "sh", *right]


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the suite, resumed with right compilers: rows of both by kind, those of right kernels, and leftovers."""

    first: dict[str, list[ResultRow]]
    resumed: dict[str, list[ResultRow]]
    right: list[ResultRow]
    processes: list[str]
    files: list[str]


@pytest.fixture(scope="module")
def runs(reliability: str, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The suite."""
    return list(all_runs(tmp_path_factory.mktemp("evil"), ORDERS[reliability]))


def all_runs(folder: Path, orders: int) -> Iterator[Run]:
    problems, kernels = folder / "problems.txt", folder / "kernels"
    problems.write_text(PROBLEM.canonical(), encoding="utf-8")
    for seed in range(orders):
        device = EvilCompilers()
        names = list(device.names)
        random.Random(seed).shuffle(names)
        kernels.write_text("\n".join(names), encoding="utf-8")
        out, cache, mark = folder / str(seed), folder / f"cache{seed}", f"{MARK}={os.getpid()}.{seed}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CKH_CACHE_DIR", str(cache))
            patch.setenv(*mark.split("="))
            patch.setattr(campaign_module, "open_device", lambda _kind, _options, device=device: device)
            given = Given(problems=str(problems), kernels=str(kernels), seed=seed)
            Campaign("host", given, out, resume=False).run(LIMITS)
            rows = [row for row in read_journal(out).rows if not row.remeasured]
            device.scripts = {}
            Campaign("host", Given(), out, resume=True).run(LIMITS)
            more = [row for row in read_journal(out).rows if not row.remeasured][len(rows) :]
        of_kind = dict(zip(KINDS, device.names, strict=False))
        yield Run(
            {kind: [row for row in rows if row.kernel == name] for kind, name in of_kind.items()},
            {kind: [row for row in more if row.kernel == name] for kind, name in of_kind.items()},
            [row for row in rows if row.kernel in device.names[len(KINDS) :]],
            processes_with(mark),
            [path.name for path in cache.rglob("*") if path.suffix != ".so" and path.is_file()],
        )


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_a_separate_row(name: str, runs: list[Run]) -> None:
    """It has the reason; only a kernel whose compiler was interrupted is tried again on resume."""
    kind = KINDS[name]
    for run in runs:
        (row,) = run.first[name]
        assert (row.status, row.message if kind.message not in row.message else "") == (kind.status, "")
        assert len(row.message) <= 400
        assert [row.status for row in run.resumed[name]] == [Status.OK] * (kind.status is _INTERRUPTED)


def test_correct_kernels_are_measured(runs: list[Run]) -> None:
    """All of them are, whatever ran in parallel with their compilers."""
    assert [[row.status for row in run.right] for run in runs] == [[Status.OK] * RIGHT] * len(runs)


def test_no_process_or_file_is_left(runs: list[Run]) -> None:
    """There is no process, and the cache contains only libraries."""
    assert [(run.processes, run.files) for run in runs] == [([], [])] * len(runs)


def test_their_number_is_documented() -> None:
    """docs/reliability.md states it."""
    page = (Path(__file__).parents[2] / "docs/reliability.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if Path(__file__).name in line)
    assert re.findall("[0-9]+", row)[:2] == [str(len(KINDS)), str(RIGHT)]


PROGRAM = """
import signal, sys
from pathlib import Path
from ckh.bench.compilation.compile import KernelBuilder
from tests.bench.faults import GOOD, FaultyDevice

class Slow(FaultyDevice):
    def compile_command(self, kernel, source, library):
        return ["sh", "-c", f"setsid sleep 1000 & touch {library}; echo $$ $! > {sys.argv[1]}; wait"]

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
device = Slow(GOOD)
KernelBuilder(device).build(device.kernels, 1, lambda _count, _text: None)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_compilers_end_with_their_parent(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their children end too; the files of a killed run are removed by the next one."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    mark = f"{MARK}={os.getpid()}.{number}.{tmp_path}"
    note = tmp_path / "note"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(note)],
        env={**os.environ, MARK: mark.removeprefix(f"{MARK}=")},
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while not (note.exists() and note.read_text(encoding="utf-8").endswith("\n")):
                assert process.poll() is None
                time.sleep(0.01)
            until = time.monotonic() + 60
            while len(processes_with(mark)) < 4:  # the environment of a starting process cannot be read
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.01)
            process.send_signal(number)
        except BaseException:
            process.kill()
            raise
    deadline = time.monotonic() + 20
    while processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes_with(mark) == []
    device = FaultyDevice(GOOD)
    KernelBuilder(device).build(device.kernels, 1, lambda _count, _text: None)
    kernels = tmp_path / "cache/kernels"
    assert [path.suffix for path in kernels.rglob("*") if path.is_file()] == [".so"]
    assert len(list(kernels.iterdir())) == 1
