"""A cluster in pieces: a connection is cut, the scheduler killed, then a nanny; what is resumed has every pair once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from ckh.data.journal import JOURNAL_NAME, is_started, read_journal
from ckh.errors import ExitCode
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.reliability.kills import KERNELS, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest.importorskip("distributed", reason="needs the extra 'cluster'")

PROBLEMS = [
    ConvProblem(Direction.FORWARD, n=1, c=8, k=8, g=1, hi=size, wi=size, y=3, x=3, pad_h=1, pad_w=1).canonical()
    for size in range(7, 31)
]
_NODES = 3
_MOST_STARTS = 20  # devices of a busy machine may differ by more than is allowed
_TIMEOUT_S = 300


class _Proxy:
    """A port that leads to a scheduler, until it is cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections."""
        for one in (self._listening, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self._listening.accept()
                theirs = socket.create_connection(("127.0.0.1", self._target))
                self._open += [ours, theirs]
                for one, other in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


class _Bench:
    """A run in a folder, started again and again, with a cache for all of its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "CKH_CACHE_DIR": str(folder / "cache")}
        (folder / "problems.txt").write_text("\n".join(PROBLEMS), encoding="utf-8")
        (folder / "kernels").write_text("\n".join(KERNELS), encoding="utf-8")

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A process of its own session."""
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
        )

    def rows(self) -> int:
        """How many results the journal has."""
        with suppress(OSError):
            return (self.folder / "run" / JOURNAL_NAME).read_bytes().count(b'{"kind": "result"')
        return 0

    def go_on(self, port: int, harm: Callable[[], None]) -> str:
        """Start the run, or go on with it, and do harm once there are new results; what it said when it ended."""
        for _ in range(_MOST_STARTS):
            before = self.rows()
            what = ["--problems", "problems.txt", "--kernels", "kernels", "--samples", "30"]
            which = ["--resume"] if is_started(self.folder / "run" / JOURNAL_NAME) else what
            address = f"tcp://127.0.0.1:{port}"
            process = self.start("ckh", "bench", "--device", "host", "--out", "run", "--cluster", address, *which)
            while process.poll() is None and self.rows() == before:
                time.sleep(0.01)
            is_harmed = process.poll() is None
            if is_harmed:
                harm()
            _, said = process.communicate(timeout=_TIMEOUT_S)
            assert "Traceback" not in said, said
            assert process.returncode in {ExitCode.OK, ExitCode.NO_DEVICE}, said
            if is_harmed:
                return said
            assert "times as long" in said, said
        raise AssertionError("no run begins to measure")

    @contextmanager
    def cluster(self) -> Iterator[tuple[int, Callable[[], None], Callable[[], None]]]:
        """A scheduler with nodes: its port, how to kill it, and how to kill a node's nanny."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        quiet = ("--no-dashboard",)
        scheduler = self.start("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), *quiet)
        address = f"tcp://127.0.0.1:{port}"
        node = ("distributed.cli.dask_worker", address, "--nworkers", "1", "--nthreads", "1", *quiet)
        nannies = [self.start(*node) for _ in range(_NODES)]
        try:
            yield port, scheduler.kill, nannies[0].kill
        finally:
            for process in (scheduler, *nannies):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


@pytest.mark.slow
def test_nothing_is_lost_when_a_cluster_breaks(tmp_path: Path) -> None:
    """A cut connection and a dead scheduler end the run with how to go on; without a nanny the others do all."""
    bench = _Bench(tmp_path)
    with ExitStack() as stack:
        port, kill_scheduler, _ = stack.enter_context(bench.cluster())
        proxy = _Proxy(port)
        said = bench.go_on(proxy.port, proxy.cut)
        assert "the cluster is gone" in said
        assert "--resume" in said
        assert "the cluster is gone" in bench.go_on(port, kill_scheduler)
    left = len(PROBLEMS) * len(KERNELS) - len(read_journal(tmp_path / "run").final_rows())
    assert left > 0
    with bench.cluster() as (port, _, kill_nanny):
        bench.go_on(port, kill_nanny)
        for _ in range(_MOST_STARTS):
            if len(read_journal(tmp_path / "run").final_rows()) == len(PROBLEMS) * len(KERNELS):
                break
            bench.go_on(port, lambda: None)
    rows = read_journal(tmp_path / "run").rows
    first = Counter((row.problem, row.kernel) for row in rows if not row.remeasured)
    assert first == Counter((problem, kernel) for problem in PROBLEMS for kernel in KERNELS)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [JOURNAL_NAME]
