"""Runs of `ckh bench` whose processes are killed at random points, and what must hold when they are complete."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.supervisor import MAX_PASSES
from ckh.data.journal import JOURNAL_NAME, is_started, read_journal
from ckh.errors import ExitCode
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.schema import TRIED_AGAIN

if TYPE_CHECKING:
    from ckh.data.journal import Journal, ResultRow

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = tuple(
    ConvProblem(Direction.FORWARD, n=1, c=8, k=8, g=1, hi=size, wi=size, y=3, x=3, pad_h=1, pad_w=1).canonical()
    for size in (7, 8, 9, 10)
)
KERNELS = tuple(full_name(kernel) for kernel in conv_pool(Direction.FORWARD, load_arch("host"))[:240:40])
PAIRS = Counter((problem, kernel) for problem in PROBLEMS for kernel in KERNELS)

_MARK = "CKH_KILL_SUITE"  # in the environment of all that a run starts
_GONE_S = 10.0  # for processes to end after their run
_MOST_STARTS = 400  # of one run: it goes on a little each time, or is stuck
_ENDS = {ExitCode.OK, ExitCode.INTERRUPTED, ExitCode.NO_DEVICE, ExitCode.NO_KERNEL}
_KILLS_WITHIN = 3  # of workers or compilers, in one start of a run

# Compiles each source once, and then returns the cached result: like a compiler, it waits for a subprocess.
COMPILER = """#!/bin/sh
out= source=
for word in "$@"; do
  [ "$last" = -o ] && out=$word
  case $word in *.cpp) source=$word;; esac
  last=$word
done
[ -n "$source" ] || exec c++ "$@"
key=$(cksum < "$source" | tr -d ' ')
[ -n "$key" ] || exit {killed}  # it was cksum that was killed
if [ ! -e "{store}/$key" ]; then
  c++ "$@" -O0 && cp "$out" "{store}/$key.$$" && mv "{store}/$key.$$" "{store}/$key"
  exit
fi
sleep 0.05
head -c 4000 "{store}/$key" > "$out"
sleep 0.05
cp "{store}/$key" "$out"
"""

# An interrupt in a callback of Python's import system is printed and lost there: the run continues.
_IGNORED_WHILE_IMPORTING = re.compile(
    r"Exception ignored in: <function _get_module_lock.*\nTraceback .*\n"
    r"(?:  File \"<frozen importlib.*\n)+KeyboardInterrupt: *\n"
)


@dataclass(slots=True)
class Figures:
    """Statistics of a series of kills: kills, starts of runs, and completed runs."""

    kills: int = 0
    starts: int = 0
    runs: int = 0
    statuses: Counter[str] = field(default_factory=Counter)


def counting(journal: Journal) -> list[ResultRow]:
    """Rows since the last change of each problem's device: earlier ones were set aside."""
    result: dict[str, list[ResultRow]] = {}
    for row in journal.rows:
        rows = result.setdefault(row.problem, [])
        if rows and rows[-1].node != row.node:
            rows.clear()
        rows.append(row)
    return [row for rows in result.values() for row in rows]


def _has_default(pid: int, number: signal.Signals) -> bool:
    """True if a process neither catches nor ignores a signal."""
    with contextlib.suppress(OSError):
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines())
        return not (int(fields["SigCgt"], 16) | int(fields["SigIgn"], 16)) >> (number - 1) & 1
    return True


class Series:
    """Runs in a separate folder, killed until the number of kills is reached.

    Args:
        folder: folder of the runs: their outputs, caches and temporary files.
        store: folder of compiled sources, which series may share.
        target: "supervisor", "worker" or "compiler"; or "node", a process of the cluster.
        number: the signal.
        seed: seed of the times of kills.
        cluster: address of a cluster; empty: none.
    """

    def __init__(
        self, folder: Path, store: Path, target: str, number: signal.Signals, seed: int, cluster: str = ""
    ) -> None:
        self._store = store
        self._folder, self._target, self._number, self._cluster = folder, target, number, cluster
        self._seed, self._seconds = seed, 0.0
        self._random = random.Random(f"{target} {number} {seed}")
        self._mark = uuid.uuid4().hex
        self._most = self._first = 0
        self._was_starting = False  # whether Python was still loading ckh when the signal came
        self.figures = Figures()
        (folder / "temporary").mkdir(exist_ok=True, parents=True)
        self._compiler = folder / "compiler"
        self._compiler.write_text(COMPILER.format(store=store, killed=128 + signal.SIGKILL), encoding="utf-8")
        self._compiler.chmod(0o755)
        (folder / "problems.txt").write_text("\n".join(PROBLEMS), encoding="utf-8")
        (folder / "kernels").write_text("\n".join(KERNELS), encoding="utf-8")

    def run(self, kills: int) -> Figures:
        """Kill this many processes; each run is resumed until it is complete, and then checked."""
        self._seconds, self._most = self._seconds or self._undisturbed(), kills
        while self.figures.kills < kills:
            self._until_complete(self._seconds)
        return self.figures

    def aim(self, target: str, number: signal.Signals) -> None:
        """Change the target of kills, and reset the counts."""
        self._target, self._number = target, number
        self._random = random.Random(f"{target} {number} {self._seed}")
        self._first += self.figures.runs
        self.figures = Figures()

    def _undisturbed(self) -> float:
        """Duration of a run in seconds, with cached compiler results; it provides the expected pairs."""
        for name in ("second",) if any(self._store.iterdir()) else ("first", "second"):
            start = time.monotonic()
            process = self._start(name)
            _, said = process.communicate(timeout=300)
            assert process.returncode == ExitCode.OK, said
            self._check(name)
        return time.monotonic() - start

    def _until_complete(self, seconds: float) -> None:
        name = f"run{self._first + self.figures.runs}"
        for _ in range(_MOST_STARTS):
            process, self._was_starting = self._start(name), False
            self.figures.starts += 1
            if self._cluster and self.figures.kills >= self._most:
                pass  # nodes take seconds to start: the last resumed run is left undisturbed
            elif self._target == "supervisor":
                time.sleep(self._random.uniform(0, seconds))
                if process.poll() is None:  # one that has ended can still be signalled, without effect
                    self._kill(process.pid)
            else:
                self._kill_below(process, seconds)
            _, said = process.communicate(timeout=300)
            own = _IGNORED_WHILE_IMPORTING.sub("", said)
            assert "Traceback" not in own or (self._number == signal.SIGINT and self._was_starting), said
            self._require_gone(said)
            if process.returncode == ExitCode.OK and not self._interrupted(name):
                break
            is_uncaught = self._target == "supervisor" and (self._number == signal.SIGKILL or self._was_starting)
            assert process.returncode in _ENDS | ({-self._number} if is_uncaught else set()), said
        else:
            raise AssertionError(f"{name} does not come to its end")
        self.figures.runs += 1
        self._check(name)
        shutil.rmtree(self._folder / f"{name}-cache")

    def _interrupted(self, name: str) -> bool:
        """True if there are kernels whose compiler was killed."""
        return any(row.status in TRIED_AGAIN for row in read_journal(self._folder / name).final_rows())

    def _start(self, name: str) -> subprocess.Popen[str]:
        """Start a new run, or resume an existing one; each has its own cache."""
        out = self._folder / name
        is_old = is_started(out / JOURNAL_NAME)
        which = ["--resume"] if is_old else ["--problems", "problems.txt", "--kernels", "kernels", "--samples", "30"]
        where = ["--cluster", self._cluster] if self._cluster else ["--jobs", "2"]
        environment = {
            **os.environ,
            _MARK: self._mark,
            "PYTHONPATH": str(ROOT),
            "CXX": str(self._compiler),
            "CKH_CACHE_DIR": str(self._folder / f"{name}-cache"),
            "TMPDIR": str(self._folder / "temporary"),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "ckh", "bench", "--device", "host", "--out", str(out), *where, *which],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._was_starting = _has_default(pid, signal.SIGTERM)  # ckh changes it before it does anything
            os.kill(pid, self._number)
            self.figures.kills += 1

    def _kill_below(self, process: subprocess.Popen[str], seconds: float) -> None:
        """Kill some workers or compilers of a run, at random times."""
        for _ in range(_KILLS_WITHIN):
            time.sleep(self._random.uniform(0, seconds / _KILLS_WITHIN))
            while process.poll() is None:
                pids = [pid for pid, command in self._processes() if self._is_target(command)]
                if pids:
                    self._kill(self._random.choice(pids))
                    break
                time.sleep(0.002)

    def _is_target(self, command: bytes) -> bool:
        if b"guard.py" in command:
            return False
        names = {"worker": b"ckh.bench.isolated.worker", "compiler": os.fsencode(self._compiler), "node": b"spawn_main"}
        return names[self._target] in command

    def _processes(self) -> list[tuple[int, bytes]]:
        """All remaining processes started by runs, with their command lines."""
        result = []
        mark = f"{_MARK}={self._mark}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    result.append((int(entry.name), (entry / "cmdline").read_bytes()))
        return result

    def _require_gone(self, said: str) -> None:
        deadline = time.monotonic() + _GONE_S
        while left := self._processes():
            assert time.monotonic() < deadline, f"processes are left: {left}; {said}"
            time.sleep(0.005)

    def _check(self, name: str) -> None:
        """Check for the pairs of an undisturbed run, each once, complete lines, and no left-over files."""
        journal = read_journal(self._folder / name)
        rows = counting(journal)
        final = [row for row in rows if row.status not in TRIED_AGAIN]
        first = Counter((row.problem, row.kernel) for row in final if not row.remeasured)
        assert first == PAIRS, {"missing": PAIRS - first, "twice": first - PAIRS}
        rounds = Counter((row.problem, row.kernel, row.time) for row in rows if row.remeasured)
        assert set(rounds.values()) <= {1}, rounds
        again = Counter((problem, kernel) for problem, kernel, _ in rounds)
        assert not again or max(again.values()) <= MAX_PASSES, again
        self.figures.statuses.update(str(row.status) for row in journal.final_rows())
        assert [path.name for path in (self._folder / name).iterdir()] == [JOURNAL_NAME]
        cached = [path for path in (self._folder / f"{name}-cache").rglob("*") if path.is_file()]
        known = {".so", ".json", ".lock"} if self._cluster else {".so", ".json"}
        assert all(path.suffix in known and not path.name.startswith(".") for path in cached), cached
        left = {path.name for path in (self._folder / "temporary").iterdir()}
        if self._cluster:  # the scratch folders of killed clients
            left = {name for name in left if not name.startswith("ckh-dask-")}
        assert not left
