"""Measure kernels by jobs on one device, of this machine or of a cluster node, and make rows of the replies.

The only place that decides which times are invalid and which are unstable.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from statistics import median
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from ckh.bench.isolated.timing import UNSTABLE_SPREAD, complaint, is_launch_bound, summarize
from ckh.bench.supervision.protocol import Job, Op, Reply
from ckh.data.journal import KernelRecord, ReferenceRecord, ResultRow, RunRecord
from ckh.data.peaks import MOST, least_ms
from ckh.schema import CALLING, Status
from ckh.text.log import note
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ckh.bench.compilation.compile import Built
    from ckh.bench.devices.device import DeviceIdentity
    from ckh.data.settings import Settings
NS_PER_MS = 1e6


class JobRunner(Protocol):
    """A runner of jobs on one device: a `Supervisor`, or that of a cluster node."""

    node: str  # name of machine and device; empty: the only device of this machine
    phase_s: dict[str, float]
    restarts: int

    def run(self, setup: Job | None, jobs: Sequence[Job], /) -> Iterator[tuple[Job, Reply]]:
        """Run jobs on the problem of `setup`; yields each with its reply, in order, until done or stopped."""


def on_problem(problem: str, best_ns: float = 0.0) -> Job:
    """Job that sets up a problem; `best_ns` is its best known time, 0 if unknown."""
    return Job(Op.PROBLEM, -1, problem=problem, best_ns=best_ns)


def measure(runner: JobRunner, setup: Job, built: Sequence[Built], samples: int) -> Iterator[tuple[int, Reply]]:
    """Measure kernels on the problem of `setup`; yields index and reply of each, failed builds first."""
    numbers = [number for number, build in enumerate(built) if build.status is Status.OK]
    for number, build in enumerate(built):
        if build.status is not Status.OK:
            yield number, Reply(number, build.status, build.message)
    jobs = [Job(Op.MEASURE, number, library=built[number].library, samples=samples) for number in numbers]
    for job, reply in runner.run(setup, jobs):
        yield job.id, reply


def shared_line(count: int) -> str:
    """Line on measurements while other processes used the GPU, by their number; empty without any."""
    return f"other processes had memory on the GPU during {count} measurements" if count else ""


def new_record(identity: DeviceIdentity, settings: Settings, pairs: int | None = None) -> RunRecord:
    """Record of a run that begins now, with a plan of `pairs` pairs."""
    now = datetime.now(timezone.utc)
    return RunRecord(
        run_id=f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        ckh_version=__version__,
        started=now.isoformat(timespec="seconds"),
        device_kind=identity.kind,
        arch=identity.arch,
        device=identity.name,
        clock_mhz=identity.clock_mhz,
        hardware=identity.hardware,
        compiler=identity.compiler,
        flags=identity.flags,
        environment=identity.environment,
        pairs=pairs,
        **asdict(settings),
    )


def with_times(reply: Reply) -> Reply:
    """Turn an OK reply with invalid times into one with the reason; return others unchanged."""
    reason = complaint(reply.samples_ns) if reply.status is Status.OK else ""
    return replace(reply, status=Status.IMPOSSIBLE_TIME, message=reason, samples_ns=()) if reason else reply


def below_peak(reply: Reply, problem: str, gpu: RunRecord | DeviceIdentity) -> Reply:
    """Turn an OK reply with a time above the peak rates of the GPU into one with the reason."""
    if reply.status is not Status.OK or not reply.samples_ns:
        return reply
    ms, least = median(reply.samples_ns) / NS_PER_MS, least_ms(problem, gpu.arch, gpu.hardware["num_cus"])
    if ms * MOST >= least:
        return reply
    reason = f"it took {ms:.3g} ms, at the peak rates of {gpu.arch} it takes {least:.3g} ms"
    return replace(reply, status=Status.IMPOSSIBLE_TIME, message=reason, samples_ns=())


def result_row(run_id: str, problem: str, kernel: str, reply: Reply, built: Built) -> ResultRow:
    """Row of a (problem, kernel) pair, both by name. A status of `MEASURED` implies positive, finite times."""
    reply = with_times(reply)
    row = ResultRow(
        run_id=run_id,
        problem=problem,
        kernel=kernel,
        status=reply.status,
        message=reply.message,
        source_hash=built.source_hash,
        time=round(time.time(), 3),
    )
    if reply.status is not Status.OK:
        return row
    timing = summarize(reply.samples_ns)
    status, said = Status.OK, ""
    if is_launch_bound(timing.median_ns, reply.launch_ns, by_graph=reply.by_graph):
        status, said = Status.LAUNCH_BOUND, f"{timing.median_ns / reply.launch_ns:.1f} times an empty kernel"
    elif timing.spread > UNSTABLE_SPREAD:
        status, said = Status.UNSTABLE, f"the samples spread by {timing.spread:.1%}"
    return structs.replace(
        row,
        status=status,
        message="; ".join(filter(None, (said, reply.message))),
        latency_ms=timing.median_ns / NS_PER_MS,
        latency_min_ms=timing.min_ns / NS_PER_MS,
        spread=round(timing.spread, 6),
        samples_ns=reply.samples_ns,
        loops=reply.loops,
        launch_ms=reply.launch_ns / NS_PER_MS or None,
        by_graph=reply.by_graph,
        card=reply.card or {},
    )


def within_scratch(built: Built, limit: int | None) -> Built:
    """Refuse a kernel that needs more scratch memory than a limit, if there is one."""
    resources = None if built.binary is None else built.binary.resources
    if limit is None or resources is None or resources.scratch_bytes <= limit:
        return built
    message = f"it uses {resources.scratch_bytes} bytes of scratch memory per lane; the limit is {limit}"
    return replace(built, status=Status.INVALID, message=message)


@dataclass(slots=True)
class Totals:
    """Counts of a run, and seconds by phase and in total."""

    statuses: Counter[str] = field(default_factory=Counter)
    first_failures: dict[str, str] = field(default_factory=dict)
    remeasured: int = 0
    drifted: int = 0
    suspects_left: int = 0
    shared: int = 0
    references: list[ReferenceRecord] = field(default_factory=list)
    compile_s: float = 0.0
    wall_s: float = 0.0
    phase_s: dict[str, float] = field(default_factory=dict)
    restarts: int = 0
    workers: int = 1
    uses: dict[str, dict[str, float]] = field(default_factory=dict)
    """Seconds of each worker by what it did or waited for, by name."""


def unless_moved(row: ResultRow, moved: Collection[str]) -> ResultRow:
    """Mark the row of rounds during which the clock changed as unstable."""
    if row.kernel not in moved or row.status is not Status.OK:
        return row
    return structs.replace(row, status=Status.UNSTABLE, message="the clock changed while it was measured")


def note_hidden_code(records: Sequence[KernelRecord]) -> None:
    """Report kernels whose resources do not show all of their code."""
    hidden = sum(
        bool(record.calling) or (record.resources is not None and record.resources.has_unexplained_scratch)
        for record in records
    )
    if hidden:
        note(
            f"{hidden} of {len(records)} kernels call functions that the compiler did not inline, or have scratch "
            f"memory without reported spills (columns {CALLING}, scratch_bytes)"
        )
