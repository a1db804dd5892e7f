"""Measuring single kernels of one problem on a device, each result journalled at once.

While a search waits for a compiler, others compile what it will probably request next: nothing is compiled while a
kernel is timed.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from ckh.bench.isolated.rounds import time_in_rounds
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.rows import NS_PER_MS, result_row
from ckh.bench.supervision.runner import measure, on_problem
from ckh.data.journal import KernelRecord
from ckh.schema import MEASURED
from ckh.search.run import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from ckh.bench.compilation.compile import Built
    from ckh.bench.supervision.driver import Driver
    from ckh.bench.supervision.protocol import Job, Reply
    from ckh.data.journal import JournalWriter, ResultRow, RunRecord
    from ckh.ops.base import Kernel

_LOOK_AHEAD = 4  # how many times more expected kernels are requested than compilers run: some are compiled already


class Measurer:
    """Compiles and measures kernels on one problem, one at a time, in a worker of its own. Use it as a context manager.

    Args:
        driver: what builds and runs them; once it is stopped, measuring raises `StoppedError`.
        problem: its canonical text.
        run: the run's record, in the journal already.
        journal: where every result goes.
    """

    def __init__(self, driver: Driver, problem: str, run: RunRecord, journal: JournalWriter) -> None:
        self._driver = driver
        self._problem = problem
        self._run = run
        self._journal = journal
        self._open = ExitStack()
        self._made: dict[Kernel, Built] = {}
        self._built: dict[str, Built] = {}
        self._best_ns = 0.0

    def __enter__(self) -> Measurer:  # noqa: PYI034 - Self is not in Python 3.10
        """Open a worker, which starts with its first job."""
        self._worker = self._open.enter_context(self._driver.worker())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the worker."""
        self._open.__exit__(kind, error, at)

    def measure(self, kernel: Kernel, ahead: Callable[[int], Sequence[Kernel]] = lambda _count: ()) -> ResultRow:
        """Measure a kernel and write its row to the journal.

        Args:
            kernel: what is measured.
            ahead: at most so many kernels that are probably measured next; called when this one must be compiled.

        Raises:
            StoppedError: it was stopped before there was a result.
            DeviceError: the compiler or the worker cannot be started.
            OutputError: the journal cannot be written.
        """
        name, built = full_name(kernel), self._build(kernel, ahead)
        replies = [reply for _, reply in measure(self._worker, self._setup(), [built], self._run.samples)]
        if not replies:
            raise StoppedError
        row = self._row(name, replies[0], built)
        self._journal.add(row)
        if row.status in MEASURED and row.latency_ms:
            time_ns = row.latency_ms * NS_PER_MS
            self._best_ns = min(self._best_ns or time_ns, time_ns)
        return row

    def compare(
        self, rows: Sequence[ResultRow], rounds: int, seed: int, should_stop: Callable[[], bool]
    ) -> list[ResultRow]:
        """Time measured kernels again, in turns; the rows that replace theirs, in the journal, fastest first.

        Args:
            rows: of kernels that this measured, with times.
            rounds: how often each is timed.
            seed: of their order.
            should_stop: called instead of the one that measuring has.

        Raises:
            StoppedError: it was stopped before all was done.
            DeviceError: the worker cannot be started.
            OutputError: the journal cannot be written.
        """
        kernels = [(self._built[row.kernel].library, row.loops) for row in rows]
        with self._driver.worker(should_stop=should_stop) as worker:
            replies = time_in_rounds(worker, self._setup(), kernels, rounds, f"{seed} best {self._problem}")
        if replies is None:
            raise StoppedError
        again = [
            replace(self._row(row.kernel, reply, self._built[row.kernel]), remeasured=True)
            for row, reply in zip(rows, replies, strict=True)
        ]
        self._journal.add(*again)
        return sorted((row for row in again if row.latency_ms), key=lambda row: row.latency_ms or 0.0)

    def _setup(self) -> Job:
        return on_problem(self._problem, self._best_ns)

    def _build(self, kernel: Kernel, ahead: Callable[[int], Sequence[Kernel]]) -> Built:
        if kernel not in self._made:
            jobs = self._driver.jobs
            others = [other for other in ahead(_LOOK_AHEAD * jobs) if other not in self._made]
            self._made |= self._driver.build([kernel, *others[: jobs - 1]])
        if kernel not in self._made:
            raise StoppedError
        built = self._made[kernel]
        self._built[full_name(kernel)] = built
        if built.binary is not None:
            resources = built.binary.resources
            self._journal.add_kernels([KernelRecord(self._run.run_id, built.source_hash, built.code_hash, resources)])
        return built

    def _row(self, kernel: str, reply: Reply, built: Built) -> ResultRow:
        row = result_row(self._run.run_id, self._problem, kernel, reply, built)
        return replace(row, node=self._worker.node)
