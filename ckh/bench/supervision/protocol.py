"""Messages between supervisor and worker: one JSON object per line, jobs to the worker and replies from it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ckh.bench.isolated.timing import MAX_LOOPS, POSSIBLE_NS
from ckh.schema import CARD, Status
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Iterator

HIP, EMULATED = "hip", "emulated"  # the kinds of workers that have a GPU
RESULT = "out"  # file of a result's elements, without a header
MAX_MESSAGE = 2000  # characters
# Statuses that a worker cannot report.
_NO_WORKERS = (
    *(Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT, Status.COMPILE_INTERRUPTED),
    *(Status.INVALID, Status.TIMEOUT, Status.UNSTABLE, Status.LAUNCH_BOUND),
    *(Status.CHOSEN, Status.PREDICTED),
)


class Op(StrEnum):
    """Kinds of jobs of a worker."""

    PROBLEM = "problem"  # prepare inputs and reference for the jobs that follow
    MEASURE = "measure"  # run a kernel, check its result, calibrate, time it
    TIME = "time"  # time a kernel whose result is known to be right
    LOAD = "load"  # load a library, without a problem; the reply's message is the kernel's name
    RUN = "run"  # run a kernel once on operands from a folder, and write its result there


class Phase(StrEnum):
    """Phases of a worker's time."""

    WAIT = "wait"  # for the next job
    INPUTS = "inputs"
    REFERENCE = "reference"
    LOAD = "load"
    RUN = "run"  # the first run, whose result is checked
    VERIFY = "verify"
    CALIBRATE = "calibrate"
    TIME = "time"
    OTHER = "other"  # reading jobs, writing replies


# Phases of actual work; the rest of the wall time is orchestration.
WORK_PHASES = (Phase.INPUTS, Phase.REFERENCE, Phase.RUN, Phase.VERIFY, Phase.CALIBRATE, Phase.TIME)

Seconds = dict[str, float]
Card = dict[str, float]
_Sample = Annotated[float, msgspec.Meta(ge=POSSIBLE_NS[0], le=POSSIBLE_NS[1])]
_Time = Annotated[float, msgspec.Meta(ge=0, le=POSSIBLE_NS[1])]


class PhaseClock:
    """Accumulates seconds by phase."""

    def __init__(self) -> None:
        self._seconds: Seconds = {}

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Add the duration of the context."""
        start = perf_counter()
        try:
            yield
        finally:
            self.add(phase, perf_counter() - start)

    def add(self, phase: Phase, seconds: float) -> None:
        """Add seconds."""
        self._seconds[phase.value] = self._seconds.get(phase.value, 0.0) + seconds

    def take(self) -> Seconds:
        """Seconds by phase since the last call."""
        taken, self._seconds = self._seconds, {}
        return taken


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Configuration of a worker process."""

    memory_limit_bytes: int  # of address space, for the host only; 0: none
    cpu: int | None  # core that it is pinned to
    kind: str = "host"
    gpu: int = 0
    flush_bytes: int = 0  # overwritten before every timed run, to flush the caches
    load_only: bool = False  # never open the device and accept only `Op.LOAD`
    fnuz_floats: bool = False  # 8-bit numbers as on CDNA3, else as in OCP's specification
    arch: str = ""
    pci: str = ""
    kfd_id: int = 0
    rotating: int = 1  # operand sets of timed runs; 0: as many as reach `rotating_bytes`
    rotating_bytes: int = 0
    checks: str = ""  # library of kernels that check results on the GPU; empty: the host does

    @property
    def is_hip(self) -> bool:
        """True for kernels of a GPU."""
        return self.kind in (HIP, EMULATED)

    @property
    def is_emulated(self) -> bool:
        """True for an emulated GPU, which has no times."""
        return self.kind == EMULATED

    def to_json(self) -> str:
        """JSON on a single line."""
        return json.dumps(asdict(self))


def device_name(machine: str, config: WorkerConfig) -> str:
    """Name of a machine's device in rows: the GPU with its index, or the core of a CPU."""
    return f"{machine}/{config.kind}{config.gpu if config.is_hip else '' if config.cpu is None else config.cpu}"


def operand_file(place: int) -> str:
    """Name of the file of an operand's elements, without a header."""
    return f"operand{place}"


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the worker. `best_ns` is the best known time of the problem, 0 if unknown.

    For a problem, `library` and `loops` are those of its anchor, if any; `folder` contains its operands in the files
    `operand_file`, and receives the result of `Op.RUN` as `RESULT`; empty: random operands. With `is_checked` there is
    a reference.
    """

    op: Op
    id: int
    problem: str = ""
    best_ns: float = 0.0
    library: str = ""
    samples: int = 0
    loops: int = 0
    folder: str = ""
    is_checked: bool = True

    def to_line(self) -> bytes:
        """JSON on a single line."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps({**named, "op": str(self.op)}).encode() + b"\n"


READY = Job(Op.LOAD, -1)  # the job that a worker's first line is the reply to


def job_from_line(line: str) -> Job:
    """Parse a job."""
    values = json.loads(line)
    return Job(**{**values, "op": Op(values["op"])})


@dataclass(frozen=True, slots=True)
class Reply:
    """Result of a job: `samples_ns` are times of a loop; `seconds` are times by phase.

    `anchor_ns` is the time of the problem's anchor (`supervisor`) right after the kernel; 0: none.

    `launch_ns` is the time of an empty kernel, launched in the same way, 0 if unknown; `by_graph` says that a graph
    launched the kernel; `card` has the GPU's sensor readings, by the names of `schema.CARD`.

    After a reply with `is_last` the worker ends, because its GPU, or the worker itself, cannot be used any more.
    """

    id: int
    status: Status
    message: Annotated[str, msgspec.Meta(max_length=MAX_MESSAGE)] = ""
    samples_ns: tuple[_Sample, ...] = ()
    loops: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOOPS)] = 0
    seconds: Seconds | None = None
    is_last: bool = False
    launch_ns: _Time = 0.0
    by_graph: bool = False
    card: Card | None = None
    anchor_ns: _Time = 0.0

    def to_line(self) -> bytes:
        """JSON on a single line, with a long message truncated."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        named |= {"status": str(self.status), "message": self.message[:MAX_MESSAGE].encode(errors="replace").decode()}
        return json.dumps(named).encode() + b"\n"


def reply_from_line(line: bytes) -> Reply:
    """Parse and validate a reply, which a kernel may have forged; raises `ValueError`."""
    values = msgspec.json.decode(line, type=dict[str, Any])
    reply = msgspec.convert(values, Reply)
    parts = (values, Reply.__slots__), (reply.seconds or {}, tuple(map(str, Phase))), (reply.card or {}, CARD)
    if any(part.keys() - set(names) for part, names in parts) or reply.status in _NO_WORKERS:
        raise ValueError("it has what no reply has")
    return reply


def mismatch(job: Job, reply: Reply) -> str:
    """Reason why a reply cannot be this worker's reply to this job; empty if it can."""
    if reply.id != job.id:
        return "it is to another job"
    is_timed = reply.status is Status.OK and job.op in (Op.MEASURE, Op.TIME)
    least, most = (1 if job.op is Op.MEASURE else job.samples, job.samples) if is_timed else (0, 0)
    if not least <= len(reply.samples_ns) <= most:
        return f"it has {len(reply.samples_ns)} times"
    if is_timed and (reply.loops < 1 or (job.op is Op.TIME and reply.loops != job.loops)):
        return f"its times are of {reply.loops} loops"
    return ""
