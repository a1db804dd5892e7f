"""The columns of a measured dataset and the statuses of a measurement.

A row is a problem, a kernel, a status and numbers. Later stages do not know which device or file it came from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path

from ckh.strenum import StrEnum


def _count(unit: str, meaning: str) -> int:
    # dataclasses.field is annotated with the type of the field's value.
    return field(metadata={"unit": unit, "meaning": meaning})  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Resources:
    """Maximum over all GPU functions of a kernel; for `occupancy`, the minimum. The fields are dataset columns."""

    vgprs: int = _count("registers/lane", "vector registers, by the compiler")
    agprs: int = _count("registers/lane", "accumulation registers, by the compiler")
    sgprs: int = _count("registers/wave", "scalar registers, by the compiler")
    lds_bytes: int = _count("bytes/block", "static LDS, by the compiler")
    scratch_bytes: int = _count("bytes/lane", "scratch memory, by the compiler")
    vgpr_spills: int = _count("registers/lane", "vector registers spilled to scratch memory, by the compiler")
    sgpr_spills: int = _count("registers/wave", "scalar registers spilled to vector registers, by the compiler")
    occupancy: int = _count("waves/SIMD", "waves that fit on a SIMD, by the compiler")

    @property
    def has_unexplained_scratch(self) -> bool:
        """True for scratch memory that no reported spill explains: of called functions, or of indexed arrays."""
        return self.scratch_bytes > 0 and not self.vgpr_spills and not self.sgpr_spills


RESOURCE_NAMES = tuple(column.name for column in fields(Resources))


SCHEMA_VERSION = 1


class Status(StrEnum):
    """Results of a (problem, kernel) pair."""

    OK = "ok"
    VERIFIED = "verified"  # correct on a device without times
    INVALID = "invalid"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    COMPILE_INTERRUPTED = "compile_interrupted"  # the compiler was killed, or ran out of memory or disk space
    UNSUPPORTED = "unsupported"
    LAUNCH_ERROR = "launch_error"
    OUT_OF_MEMORY = "out_of_memory"  # of the device, which others may use too
    CRASH = "crash"
    TIMEOUT = "timeout"
    WRONG_RESULT = "wrong_result"
    NONDETERMINISTIC = "nondeterministic"  # correct once, but runs that must be bit-identical are not: a race
    IMPOSSIBLE_TIME = "impossible_time"  # no kernel takes it: the clock is wrong
    UNSTABLE = "unstable"
    LAUNCH_BOUND = "launch_bound"  # correct, but so short that its time is the launch overhead
    CHOSEN = "chosen"  # measured by others, who published the best kernel without times
    PREDICTED = "predicted"  # not measured: a model's choice, read from an export


# Meaning of a time, written to every dataset.
HOW_MEASURED = (
    "latency_ms is the median of the samples of one run of the kernel, latency_min_ms the least of them; rows read "
    "from AMD's CSV files hold the one mean that AMD's benchmark reports. tflops and bandwidth_gb_s follow from "
    "latency_ms and the problem. Failures are rows: see status and message."
)

# Rows without information about their kernel: a resumed run tries again.
TRIED_AGAIN = (Status.COMPILE_INTERRUPTED, Status.OUT_OF_MEMORY, Status.IMPOSSIBLE_TIME)

SHORTEST_MS = 1e-9  # 0.001 ns; readers reject rows with shorter times
# Rows with a time of a kernel with a correct result.
MEASURED = (Status.OK, Status.UNSTABLE, Status.LAUNCH_BOUND)
# Rows of a kernel with a correct result, including devices without times.
RIGHT = (*MEASURED, Status.VERIFIED)
# Rows of a kernel that is never trusted, whatever other rows state.
WRONG = (Status.WRONG_RESULT, Status.NONDETERMINISTIC)
# Rows of a kernel that was built but did not run correctly.
RUN_FAILED = (Status.LAUNCH_ERROR, Status.CRASH, Status.TIMEOUT, *WRONG)


@dataclass(frozen=True, slots=True)
class Column:
    """A dataset column: name, Arrow type name, unit (empty for none), meaning, and whether it may be null.

    A nullable column may also be missing from a file.
    """

    name: str
    type: str
    unit: str
    meaning: str
    nullable: bool = False


_COLUMNS = {
    group: tuple(Column(**values) for values in columns)
    for group, columns in json.loads(Path(__file__).with_name("columns.json").read_bytes()).items()
}
# Former names of columns, and their present names.
EARLIER_NAMES = {"kernel_name": "kernel"}
LAUNCHING = ("launch_ms", "by_graph")
WHERE_WHEN = ("measured_at", "node")  # recorded by rows of ckh bench
REPEATED = ("earlier_ms", "later_ms")  # independent measurements of one pair, which show its noise
# For operations that have them: memory of a kernel besides operands and result, and products of a launch.
(WORKSPACE,), (GROUPS,) = _COLUMNS["workspace"], _COLUMNS["groups"]
HARDWARE = (
    *("num_cus", "simds_per_cu", "shader_engines", "max_clock_mhz", "max_waves_per_cu", "wavefront_size"),
    *("lds_capacity", "l1_cache_kb", "l2_cache_kb", "l3_cache_kb", "num_xcd"),
)
_HARDWARE = tuple(Column(f"hw_{name}", "int64", "", f"hardware profile: {name}", nullable=True) for name in HARDWARE)
CALLING = "calling_functions"
_RESOURCES = (
    *(
        Column(resource.name, "int64", resource.metadata["unit"], resource.metadata["meaning"], nullable=True)
        for resource in fields(Resources)
    ),
    Column(CALLING, "int64", "", "GPU functions that call others, which the compiler did not inline", nullable=True),
)
CARD_COLUMNS = tuple(column.name for column in _COLUMNS["card"])  # sensor readings after the last sample
CARD = tuple(name.removeprefix("card_") for name in CARD_COLUMNS)  # names in a journal
# Numeric columns of each row; the others depend on its problem, its kernel, or its origin.
MEASURED_NUMBERS = frozenset(
    column.name for column in (*_COLUMNS["result"], *_COLUMNS["card"], *_RESOURCES) if column.type != "string"
)


def dataset_columns(
    identity: tuple[Column, ...], sizes: tuple[Column, ...], kernel: tuple[Column, ...]
) -> tuple[Column, ...]:
    """Columns of an operation's datasets: its own, and those common to all."""
    return (
        *_COLUMNS["operation"],
        *identity,
        *_COLUMNS["where"],
        *sizes,
        *_COLUMNS["kernel"],
        *kernel,
        *_COLUMNS["result"],
        *_COLUMNS["card"],
        *_RESOURCES,
        *_HARDWARE,
        *_COLUMNS["provenance"],
    )
