"""Journal records, and a parser that validates every line."""

from __future__ import annotations

import json
import reprlib
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ckh.data.settings import SETTINGS, Settings
from ckh.files.jsonfields import require_characters
from ckh.schema import SCHEMA_VERSION, Resources, Status

if TYPE_CHECKING:
    from collections.abc import Callable

_INT64 = 1 << 63


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
    """Names of the kernels in a run's plan, which its tasks refer to by index."""

    run_id: str
    kernels: tuple[str, ...]


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


@dataclass(frozen=True, slots=True)
class ResultRow:
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
    loops: int = 0
    remeasured: bool = False
    source_hash: str = ""
    time: float = 0.0
    node: str = ""
    launch_ms: float | None = None
    by_graph: bool = False
    card: dict[str, float] = field(default_factory=dict)


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
_RECORDS = {kind: record for record, kind in _KINDS.items()}
RUN_START = b'{"kind": "run"'


def record_line(record: Record) -> str:
    """Format a record as a line of a journal.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    if isinstance(record, ResultRow):
        values = {item.name: getattr(record, item.name) for item in fields(record)}
        values |= {"status": str(record.status), "samples_ns": [round(sample, 1) for sample in record.samples_ns]}
    else:
        values = asdict(record)
    return json.dumps({"kind": _KINDS[type(record)], **values}, allow_nan=False) + "\n"


def parse_record(line: bytes) -> Record:
    """Parse a line of a journal.

    Raises:
        ValueError: the line is not a record; the message says why.
    """
    try:
        values = json.loads(line)
        kind = values.pop("kind")
        _require_types(values, _TYPES[kind])
        require_characters(line, values)
        return _record(kind, values)
    except RecursionError as error:
        raise ValueError("its values are nested too deep") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _record(kind: str, values: dict[str, Any]) -> Record:
    if kind == "run" and values["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema version {values['schema_version']}, this is {SCHEMA_VERSION}")
    converted = {name: made(values[name]) for name, made in _CONVERTED[kind].items() if name in values}
    record: Record = _RECORDS[kind](**{**values, **converted})
    return record


def _require_types(values: dict[str, Any], types: dict[str, Callable[[Any], bool]]) -> None:
    for name, value in values.items():
        if name in types and not types[name](value):
            raise ValueError(f"{name} is {reprlib.repr(value)}")


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_flag(value: object) -> bool:
    return type(value) is bool


def _is_integer(value: object) -> bool:
    return type(value) is int and -_INT64 <= value < _INT64


def _is_number(value: object) -> bool:
    return type(value) is float or _is_integer(value)


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and all(map(check, value))


def _object_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is dict and all(map(check, value.values()))


# Type check of a field's JSON value, by the text of its annotation.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": _is_text,
    "str | None": _or_none(_is_text),
    "bool": _is_flag,
    "int": _is_integer,
    "int | None": _or_none(_is_integer),
    "float": _is_number,
    "float | None": _or_none(_is_number),
    "tuple[str, ...]": _list_of(_is_text),
    "tuple[int, ...]": _list_of(_is_integer),
    "tuple[float, ...]": _list_of(_is_number),
    "dict[str, int]": _object_of(_is_integer),
    "dict[str, float]": _object_of(_is_number),
    "Status": _is_text,
    "Resources | None": _or_none(_object_of(_is_integer)),
}
_TYPES = {kind: {item.name: _CHECKS[str(item.type)] for item in fields(record)} for record, kind in _KINDS.items()}

# Conversion of a field's JSON value, likewise.
_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "tuple[str, ...]": tuple,
    "tuple[int, ...]": tuple,
    "tuple[float, ...]": tuple,
    "Status": Status,
    "Resources | None": lambda value: None if value is None else Resources(**value),
}
_CONVERTED = {
    kind: {item.name: _CONVERSIONS[str(item.type)] for item in fields(record) if str(item.type) in _CONVERSIONS}
    for record, kind in _KINDS.items()
}
