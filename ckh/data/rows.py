"""Building dataset rows from distinct problems, distinct kernels and results: what every reader ends with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.data.schema import MEASURED, Status
from ckh.data.tables import arrow_schema
from ckh.ops import GROUPED_CONV, operation
from ckh.ops.base import Encoding

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.ops.base import Kernel, Problem

_MS_FLOPS_PER_TFLOPS = 1e9
_MS_BYTES_PER_GB_S = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Rows of an operation as numbers into lists of distinct problems and of distinct kernels with their names."""

    problems: Sequence[Problem]
    problem_of_row: NDArray[Any]
    kernels: Sequence[Kernel]
    kernel_names: Sequence[str]
    kernel_of_row: NDArray[Any]
    op_type: str = GROUPED_CONV


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """One value a row; times in ms, NaN where there is none. `extra` holds further columns of the schema."""

    status: Sequence[str] | NDArray[Any]
    latency_ms: NDArray[Any]
    extra: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Origin:
    """What all rows of a file or run share. `hardware` is the profile by name, without `hw_`."""

    arch: str
    device: str | None
    hardware: dict[str, int]
    run_id: str


def build_table(pairs: Pairs, results: Results, origin: Origin) -> pa.Table:
    """The rows as a table of the dataset schema; TFLOPS and bandwidth follow from the time and the problem."""
    import numpy as np
    import pyarrow as pa

    op = operation(pairs.op_type)
    count = len(pairs.problem_of_row)
    status = np.asarray(results.status)
    has_time = results.latency_ms > 0
    time_ms = np.where(has_time, results.latency_ms, np.nan)
    flops = np.array([float(problem.flops) for problem in pairs.problems])[pairs.problem_of_row]
    moved = np.array([float(problem.bytes) for problem in pairs.problems])[pairs.problem_of_row]
    columns: dict[str, Any] = {
        **_taken(op.problem_columns(pairs.problems), pairs.problem_of_row),
        **_taken({"kernel_name": list(pairs.kernel_names)}, pairs.kernel_of_row),
        **_taken(op.kernel_columns(pairs.kernels, Encoding.on(origin.arch)), pairs.kernel_of_row),
        "op_type": op.name,
        "arch": origin.arch,
        "device": origin.device,
        "run_id": origin.run_id,
        "status": status,
        "latency_ms": time_ms,
        "tflops": flops / time_ms / _MS_FLOPS_PER_TFLOPS,
        "bandwidth_gb_s": moved / time_ms / _MS_BYTES_PER_GB_S,
        "is_valid": np.isin(status, [str(one) for one in MEASURED]) & has_time,
        **{f"hw_{name}": value for name, value in origin.hardware.items()},
        **results.extra,
    }
    arrays = [_array(columns.get(column.name), column.type, count) for column in op.columns]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(op))


def status_of(ok: NDArray[Any], otherwise: Status) -> NDArray[Any]:
    """`ok` where the mask is true, else another status."""
    import numpy as np

    return np.where(ok, str(Status.OK), str(otherwise))


def _taken(columns: dict[str, list[Any]], rows: NDArray[Any]) -> dict[str, Any]:
    import pyarrow as pa

    indices = pa.array(rows)
    return {name: pa.array(values).take(indices) for name, values in columns.items()}


def _array(values: Any, type_name: str, count: int) -> pa.Array:
    """An array of the type, from one value for all rows, an array, or a sequence; NaN is null."""
    import pyarrow as pa

    wanted = pa.type_for_alias(type_name)
    if values is None or isinstance(values, (str, int)):
        return pa.nulls(count, wanted) if values is None else pa.repeat(pa.scalar(values, wanted), count)
    found = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, from_pandas=True)
    return found if found.type == wanted else found.cast(wanted)
