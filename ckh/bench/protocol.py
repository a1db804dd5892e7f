"""What supervisor and worker say to each other: one JSON object per line, jobs one way and replies the other."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from ckh.data.schema import Status
from ckh.strenum import StrEnum


class Op(StrEnum):
    """What the worker is asked to do."""

    PROBLEM = "problem"  # make inputs and reference; they serve the jobs that follow
    MEASURE = "measure"  # run a kernel, check its result, calibrate, time it
    TIME = "time"  # time a kernel whose result is known to be right


class Phase(StrEnum):
    """What the worker's time goes into."""

    WAIT = "wait"  # for the next job
    INPUTS = "inputs"
    REFERENCE = "reference"
    LOAD = "load"
    RUN = "run"  # the first run, whose result is checked
    VERIFY = "verify"
    CALIBRATE = "calibrate"
    TIME = "time"
    OTHER = "other"  # reading jobs, writing replies


# Phases that are the work itself; the rest of the wall time is orchestration.
WORK_PHASES = (Phase.INPUTS, Phase.REFERENCE, Phase.RUN, Phase.VERIFY, Phase.CALIBRATE, Phase.TIME)

Seconds = dict[str, float]


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker is started with; zero bytes: no limit; `cpu` None: not pinned."""

    memory_limit_bytes: int
    cpu: int | None

    def to_json(self) -> str:
        """As one line."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Job:
    """One thing for the worker to do. `best_ns` is the best time known for the problem, 0 when there is none."""

    op: Op
    id: int
    problem: str = ""
    best_ns: float = 0.0
    library: str = ""
    samples: int = 0
    loops: int = 0

    def to_line(self) -> bytes:
        """As one line."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps({**named, "op": str(self.op)}).encode() + b"\n"


def job_from_line(line: str) -> Job:
    """Read a job back."""
    values = json.loads(line)
    return Job(**{**values, "op": Op(values["op"])})


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a job: `samples_ns` are times of one loop; `seconds` says by phase where the time went."""

    id: int
    status: Status
    message: str = ""
    samples_ns: tuple[float, ...] = ()
    loops: int = 0
    seconds: Seconds | None = None

    def to_line(self) -> bytes:
        """As one line."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps({**named, "status": str(self.status)}).encode() + b"\n"


def reply_from_line(line: bytes) -> Reply:
    """Read a reply back.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    values = json.loads(line)
    return Reply(**{**values, "status": Status(values["status"]), "samples_ns": tuple(values["samples_ns"])})
