"""Journal records, and a parser that validates every line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

import msgspec

from ckh.data.settings import SETTINGS, Settings
from ckh.files.jsonfields import parse_json
from ckh.schema import RESOURCE_NAMES, SCHEMA_VERSION, Resources, Status

_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(Settings):
    """Provenance of the rows with this `run_id`: device, compiler and settings of a run.

    `hardware` is the device's profile under the names of `schema.HARDWARE`; `device_kind` is "host", "hip" or
    "emulated". `environment` lists environment variables that slow down launches. `pairs` is the number of pairs in the
    plan that follows; None if the run continues an earlier plan.
    """

    run_id: str
    ckh_version: str
    started: str
    device_kind: str
    arch: str
    device: str
    clock_mhz: int
    hardware: dict[str, int]
    compiler: str
    flags: tuple[str, ...]
    environment: tuple[str, ...] = ()
    pairs: int | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def settings(self) -> Settings:
        """Return the settings without the provenance."""
        return Settings(**{name: getattr(self, name) for name in SETTINGS})


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """Names of the kernels in a run's plan, which the tasks that follow refer to by index.

    `pairs` is the number of pairs of a new plan, which replaces the one before; None for the run's first.
    """

    run_id: str
    kernels: tuple[str, ...]
    pairs: int | None = None


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A problem in a run's plan, and the indices of its kernels in the order of measurement."""

    run_id: str
    problem: str
    kernels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChosenRecord:
    """A selection of a run of earlier versions: a problem, its kernels by their indices in the plan, and its node.

    `chosen_by` is what ranked the kernels: prior knowledge, or a model trained on a number of pairs of this run.
    """

    run_id: str
    problem: str
    kernels: tuple[int, ...]
    chosen_by: str
    time: float
    node: str = ""


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """The compiler's report on a kernel, which result rows refer to by `source_hash`.

    `calling` is the number of its GPU functions that call others; None: unknown, as in older journals.
    """

    run_id: str
    source_hash: str
    code_hash: str
    resources: Resources | None
    calling: int | None = None


class ResultRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="result", tag_field="kind", gc=False):
    """Result of a (problem, kernel) pair, with its time of arrival.

    Each of `samples_ns` is the mean of `loops` launches.

    `node` is the machine and device of a cluster that measured the pair; empty for the run's own device.

    Times are None unless the status is ok, unstable or launch_bound. `latency_ms` is the median, `spread` the median
    absolute deviation relative to it.

    Kernels of a problem that were remeasured in the same interleaved rounds have the same `time`; their samples are in
    the order of the rounds.

    `launch_ms` is the time of an empty kernel, timed the same way: as a graph, or launch by launch. `card` holds the
    GPU's sensor readings right after the last sample, under the names of `schema.CARD`.
    """

    run_id: str
    problem: str
    kernel: str
    status: Status
    message: str = ""
    latency_ms: float | None = None
    latency_min_ms: float | None = None
    spread: float | None = None
    samples_ns: tuple[float, ...] = ()
    loops: _Int64 = 0
    remeasured: bool = False
    source_hash: str = ""
    time: float = 0.0
    node: str = ""
    launch_ms: float | None = None
    by_graph: bool = False
    card: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class ReferenceRecord:
    """A check of the machine: time of the reference kernel, and system readings.

    `ratio` is the time relative to the run's first on that device; clock and temperature are None where unavailable.
    """

    run_id: str
    problem: str
    kernel: str
    latency_ms: float
    ratio: float
    clock_mhz: float | None
    temperature_c: float | None
    time: float
    node: str = ""


@dataclass(frozen=True, slots=True)
class EndRecord:
    """How a run ended: "complete", "interrupted" or "budget"; seconds per phase of the worker, and in total."""

    run_id: str
    reason: str
    wall_s: float
    phase_s: dict[str, float]


Record = RunRecord | PlanRecord | TaskRecord | ChosenRecord | KernelRecord | ResultRow | ReferenceRecord | EndRecord

_KINDS: dict[type[Any], str] = {
    RunRecord: "run",
    PlanRecord: "plan",
    TaskRecord: "task",
    ChosenRecord: "chosen",
    KernelRecord: "kernel",
    ResultRow: "result",
    ReferenceRecord: "reference",
    EndRecord: "end",
}
_RECORDS = {kind: record for record, kind in _KINDS.items() if record is not ResultRow}
_FIELDS = {kind: {"kind", *(field.name for field in fields(record))} for kind, record in _RECORDS.items()}
RUN_START = b'{"kind": "run"'
decode_row = msgspec.json.Decoder(ResultRow).decode


def record_line(record: Record) -> str:
    """Format a record as a line of a journal."""
    if isinstance(record, ResultRow):
        values = msgspec.to_builtins(record)
        values["samples_ns"] = [round(sample, 1) for sample in record.samples_ns]
    else:
        values = {"kind": _KINDS[type(record)], **asdict(record)}
    return json.dumps(values, allow_nan=False) + "\n"


def parse_record(line: bytes) -> Record:
    """Parse a line of a journal."""
    values = parse_json(line)
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind == "result":  # one that `decode_row` refuses, e.g. with JSON's NaN
        return msgspec.convert(values, ResultRow)
    if not isinstance(kind, str) or kind not in _RECORDS:
        raise ValueError(f"it is of no kind of record: {kind!r:.60}")
    resources = values.get("resources") if kind == "kernel" else None
    strange = values.keys() - _FIELDS[kind]
    if strange or (isinstance(resources, dict) and resources.keys() - set(RESOURCE_NAMES)):
        raise ValueError(f"it has fields that a {kind} does not have")
    if kind == "run" and values.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"schema version {values.get('schema_version')!r:.60}, this is {SCHEMA_VERSION}")
    record: Record = msgspec.convert(values, _RECORDS[kind])
    return record
