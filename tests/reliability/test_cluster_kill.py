"""A broken cluster: a cut connection, a killed scheduler, a killed nanny; a resumed run has every pair once."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from ckh.data.journal import JOURNAL_NAME, is_started, read_journal
from ckh.errors import ExitCode
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.report.of_run import is_ended
from tests.reliability.kills import KERNELS, ROOT, counting

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.data.journal import Journal

pytest.importorskip("distributed", reason="needs the extra 'cluster'")

PROBLEMS = [
    ConvProblem(Direction.FORWARD, n=1, c=8, k=8, g=1, hi=size, wi=size, y=3, x=3, pad_h=1, pad_w=1).canonical()
    for size in range(7, 31)
]
_NODES = 3
_MOST_STARTS = 60  # devices of a busy machine may differ by more than the limit
KILLS = {"short": 1, "long": 50}
_TIMEOUT_S = 300


class _Proxy:
    """A port that forwards to a scheduler, until it is cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections."""
        for item in (self._listening, *self._open):
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self._listening.accept()
                self._open.append(ours)
                theirs = socket.create_connection(("127.0.0.1", self._target))
                self._open.append(theirs)
                for item, other in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=_pump, args=(item, other), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)  # the other end is closed


class _Cluster:
    """A scheduler with nodes, and a port that forwards to it."""

    def __init__(self, bench: _Bench) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        quiet = ("--no-dashboard",)
        self._scheduler = bench.start(
            "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), *quiet
        )
        node = ("distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}", "--nworkers", "1", "--nthreads", "1", *quiet)
        self._nannies = [bench.start(*node) for _ in range(_NODES)]
        self._proxy, self._port = _Proxy(port), port
        self.is_usable = True

    def address(self, kind: str) -> str:
        """Address for clients: the port that is cut, or the scheduler's own."""
        return f"tcp://127.0.0.1:{self._proxy.port if kind == 'connection' else self._port}"

    def break_(self, kind: str) -> None:
        """Cut the client's connection, or kill the scheduler, or a nanny."""
        if kind == "connection":
            self._proxy.cut()
            self._proxy = _Proxy(self._port)
        elif kind == "scheduler":
            self._scheduler.kill()
            self.is_usable = False
        else:
            self._nannies.pop().kill()
            self.is_usable = len(self._nannies) > 1

    def end(self) -> None:
        """Kill everything that is left."""
        self._proxy.cut()


class _Bench:
    """Runs in folders, started repeatedly, with a cache for all of their processes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._random, self._started = folder, random.Random(0), list[subprocess.Popen[str]]()
        self._cluster: _Cluster | None = None
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "CKH_CACHE_DIR": str(folder / "cache")}
        (folder / "problems.txt").write_text("\n".join(PROBLEMS), encoding="utf-8")
        (folder / "kernels").write_text("\n".join(KERNELS), encoding="utf-8")

    def start(self, *command: str, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """A process in a new session."""
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def rows(self, name: str) -> int:
        """Number of results in a journal."""
        with suppress(OSError):
            return (self.folder / name / JOURNAL_NAME).read_bytes().count(b'{"kind": "result"')
        return 0

    def go_on(self, name: str, kind: str) -> bool:
        """Start or resume a run, and break the cluster after some results if `kind` is given; True if it was broken."""
        cluster = self._usable_cluster()
        until = self.rows(name) + self._random.randint(1, len(PROBLEMS) * len(KERNELS) // 3)
        what = ["--problems", "problems.txt", "--kernels", "kernels", "--samples", "30"]
        which = ["--resume"] if is_started(self.folder / name / JOURNAL_NAME) else what
        where = ("--out", name, "--cluster", cluster.address(kind))
        process = self.start("ckh", "bench", "--device", "host", *where, *which, stderr=subprocess.PIPE)
        while process.poll() is None and self.rows(name) < until:
            time.sleep(0.01)
        is_broken = bool(kind) and process.poll() is None
        if is_broken:
            cluster.break_(kind)
        _, said = process.communicate(timeout=_TIMEOUT_S)
        assert "Traceback" not in said, said
        assert process.returncode in {ExitCode.OK, ExitCode.NO_DEVICE}, said
        if process.returncode == ExitCode.NO_DEVICE and "[nodes-differ]" not in said:
            assert is_broken, said
            assert "[cluster-lost]" in said, said
            assert "--resume" in said, said
        return is_broken

    def _usable_cluster(self) -> _Cluster:
        """Return a working cluster."""
        if self._cluster is None or not self._cluster.is_usable:
            self.end()
            self._cluster = _Cluster(self)
        return self._cluster

    def end(self) -> None:
        """End all processes."""
        if self._cluster is not None:
            self._cluster.end()
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._started.clear()

    def is_complete(self, name: str) -> bool:
        """True if a run has all of its pairs; each is then there once, measured by one device per problem."""
        if not is_started(self.folder / name / JOURNAL_NAME):
            return False
        journal = read_journal(self.folder / name)
        if len(journal.final_rows()) < len(PROBLEMS) * len(KERNELS) or not is_ended(journal):
            return False
        first = Counter((row.problem, row.kernel) for row in counting(journal) if not row.remeasured)
        assert first == Counter((problem, kernel) for problem in PROBLEMS for kernel in KERNELS)
        assert all(len(nodes) == 1 for nodes in _nodes(journal).values())
        assert [path.name for path in (self.folder / name).iterdir()] == [JOURNAL_NAME]
        return True


def _nodes(journal: Journal) -> dict[str, set[str]]:
    """Devices of each problem's final rows."""
    result: dict[str, set[str]] = {}
    for row in journal.final_rows():
        result.setdefault(row.problem, set()).add(row.node)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["connection", "scheduler", "nanny"])
def test_nothing_is_lost_when_a_cluster_breaks(tmp_path: Path, kind: str, reliability: str) -> None:
    """A cut connection and a dead scheduler end a run with a hint to resume; without a nanny the others do all."""
    bench, kills, starts, runs = _Bench(tmp_path), 0, 0, 0
    try:
        while kills < KILLS[reliability]:
            for _ in range(_MOST_STARTS):
                # Nodes take seconds to start: the last resumed run is left undisturbed.
                kills += bench.go_on(f"run{runs}", kind if kills < KILLS[reliability] else "")
                starts += 1
                if bench.is_complete(f"run{runs}"):
                    break
            else:
                raise AssertionError(f"run{runs} does not come to its end")
            runs += 1
            print(f"{kind}: {kills} kills, {starts} starts, {runs} runs", flush=True)  # noqa: T201 - for docs/reliability.md
    finally:
        bench.end()
