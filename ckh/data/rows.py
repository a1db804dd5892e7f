"""Construction of dataset rows from distinct problems, distinct kernels and results, shared by all readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.data.tables import compact_type
from ckh.errors import DataError
from ckh.ops import operation
from ckh.ops.base import Encoding
from ckh.schema import MEASURED, SHORTEST_MS, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.ops.base import Kernel, Problem

_MS_FLOPS_PER_TFLOPS = 1e9
_MS_BYTES_PER_GB_S = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Rows of an operation as indices into lists of distinct problems and distinct kernels."""

    problems: Sequence[Problem]
    problem_of_row: NDArray[Any]
    kernels: Sequence[Kernel]
    kernel_names: Sequence[str]
    kernel_of_row: NDArray[Any]
    op_type: str

    @classmethod
    def of(cls, rows: Iterable[tuple[Problem, Kernel]], op_type: str) -> Pairs:
        """Number the distinct problems and kernels of rows, in order of appearance."""
        problems: dict[Problem, int] = {}
        kernels: dict[Kernel, int] = {}
        numbers = [
            (problems.setdefault(problem, len(problems)), kernels.setdefault(kernel, len(kernels)))
            for problem, kernel in rows
        ]
        problem_of_row, kernel_of_row = np.array(numbers).T
        names = list(map(operation(op_type).kernels.name, kernels))
        return cls(list(problems), problem_of_row, list(kernels), names, kernel_of_row, op_type)


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """One value per row; times in ms, NaN for missing. `extra` holds further columns of the schema."""

    status: Sequence[str] | NDArray[Any] | pa.DictionaryArray
    latency_ms: NDArray[Any]
    extra: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Origin:
    """Facts shared by all rows of a file or run. `hardware` is the profile by name, without `hw_`."""

    arch: str
    device: str | None
    hardware: dict[str, int]
    run_id: str

    @classmethod
    def on_gpu(cls, arch: str, num_cus: int, run_id: str) -> Origin:
        """Rows measured on a GPU of an architecture with this number of compute units."""
        hardware = load_arch(arch).hardware.to_dict() | {"num_cus": num_cus}
        return cls(arch, f"{arch}, {num_cus} CUs", hardware, run_id)


def build_table(pairs: Pairs, results: Results, origin: Origin) -> pa.Table:
    """Build a compact table (`tables.compact`); TFLOPS and bandwidth are derived from the time and the problem."""
    import pyarrow as pa

    op = operation(pairs.op_type)
    count = len(pairs.problem_of_row)
    status = results.status if isinstance(results.status, pa.Array) else pa.array(results.status).dictionary_encode()
    is_measured = np.array([text in MEASURED for text in status.dictionary.to_pylist()], dtype=bool)
    has_time = results.latency_ms > 0
    time_ms = np.where(has_time, results.latency_ms, np.nan)
    if (time_ms < SHORTEST_MS).any():
        raise DataError(
            f"a time of {np.nanmin(time_ms):g} ms is too short: the minimum is {SHORTEST_MS:g} ms", code="bad-time"
        )
    flops = np.array([float(problem.flops) for problem in pairs.problems])[pairs.problem_of_row]
    moved = np.array([float(problem.bytes) for problem in pairs.problems])[pairs.problem_of_row]
    shared: dict[str, str | int | None] = {
        "op_type": op.name,
        "arch": origin.arch,
        "device": origin.device,
        "run_id": origin.run_id,
    }
    shared |= {f"hw_{name}": value for name, value in origin.hardware.items()}
    columns: dict[str, Any] = {
        **_numbered(op.problems.columns(pairs.problems), pairs.problem_of_row),
        **_numbered({"kernel": list(pairs.kernel_names)}, pairs.kernel_of_row),
        **_numbered(op.kernels.columns(pairs.kernels, Encoding.on(origin.arch)), pairs.kernel_of_row),
        **_numbered({name: [value] for name, value in shared.items()}, np.zeros(count, dtype=np.int32)),
        "status": status,
        "latency_ms": time_ms,
        "tflops": flops / time_ms / _MS_FLOPS_PER_TFLOPS,
        "bandwidth_gb_s": moved / time_ms / _MS_BYTES_PER_GB_S,
        "is_valid": is_measured[status.indices.to_numpy()] & has_time,
        **results.extra,
    }
    # Empty columns share one array.
    empty = pa.nulls(count, pa.int64())
    arrays = [_array(columns.get(column.name, empty), compact_type(column)) for column in op.training.columns]
    return pa.Table.from_arrays(arrays, names=op.column_names())


def status_of(ok: NDArray[Any], otherwise: Status) -> pa.DictionaryArray:
    """`ok` where the mask is true, else `otherwise`."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array((~ok).astype("int32")), [str(Status.OK), str(otherwise)])


def _numbered(columns: dict[str, list[Any]], rows: NDArray[Any]) -> dict[str, Any]:
    """Dictionary-encoded columns sharing one index array."""
    import pyarrow as pa

    indices = pa.array(np.asarray(rows, dtype=np.int32))
    return {name: (indices, values) for name, values in columns.items()}


def _array(values: Any, wanted: pa.DataType) -> pa.Array:
    """Convert (indices, values), an array or a sequence to an array of the type; NaN becomes null."""
    import pyarrow as pa

    if isinstance(values, tuple):
        indices, distinct = values
        if None in distinct:
            return pa.array(distinct, wanted.value_type).take(indices).dictionary_encode()
        return pa.DictionaryArray.from_arrays(indices, pa.array(distinct, wanted.value_type))
    array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, from_pandas=True)
    if array.type == wanted:
        return array
    if pa.types.is_dictionary(wanted):
        return array.cast(wanted.value_type).dictionary_encode()
    if pa.types.is_int64(array.type) and pa.types.is_float64(wanted) and array.null_count == len(array):
        return array.view(wanted)
    return array.cast(wanted)
