"""Building dataset rows from distinct problems, distinct kernels and results: what every reader ends with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.data.schema import CONV_DATASET, MEASURED, Status
from ckh.data.tables import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.kernels.config import ConvKernel
    from ckh.problems import ConvProblem

OP_TYPE = "grouped_conv"
_MS_FLOPS_PER_TFLOPS = 1e9
_MS_BYTES_PER_GB_S = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Rows as numbers into lists of distinct problems and of distinct kernels with their names."""

    problems: Sequence[ConvProblem]
    problem_of_row: NDArray[Any]
    kernels: Sequence[ConvKernel]
    kernel_names: Sequence[str]
    kernel_of_row: NDArray[Any]


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

    count = len(pairs.problem_of_row)
    status = np.asarray(results.status)
    has_time = results.latency_ms > 0
    time_ms = np.where(has_time, results.latency_ms, np.nan)
    flops = np.array([float(problem.flops) for problem in pairs.problems])[pairs.problem_of_row]
    moved = np.array([float(problem.bytes) for problem in pairs.problems])[pairs.problem_of_row]
    columns: dict[str, Any] = {
        **_taken(_problem_columns(pairs.problems), pairs.problem_of_row),
        **_taken(_kernel_columns(pairs.kernels, pairs.kernel_names), pairs.kernel_of_row),
        "op_type": OP_TYPE,
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
    arrays = [_array(columns.get(column.name), column.type, count) for column in CONV_DATASET]
    return pa.Table.from_arrays(arrays, schema=arrow_schema())


def status_of(ok: NDArray[Any], otherwise: Status) -> NDArray[Any]:
    """`ok` where the mask is true, else another status."""
    import numpy as np

    return np.where(ok, str(Status.OK), str(otherwise))


def _problem_columns(problems: Sequence[ConvProblem]) -> dict[str, list[Any]]:
    sizes = [problem.columns() for problem in problems]
    return {
        "variant": [str(problem.variant) for problem in problems],
        "dtype": [problem.dtype for problem in problems],
        "layout": [problem.layout for problem in problems],
        "ndim_spatial": [problem.ndim for problem in problems],
        **{name: [row[name] for row in sizes] for name in (sizes[0] if sizes else ())},
    }


def _kernel_columns(kernels: Sequence[ConvKernel], names: Sequence[str]) -> dict[str, list[Any]]:
    return {
        "kernel_name": list(names),
        "tile_m": [kernel.tile_m for kernel in kernels],
        "tile_n": [kernel.tile_n for kernel in kernels],
        "tile_k": [kernel.tile_k for kernel in kernels],
        # The feature engine's names. AMD's own converter calls them block_size, gemm_m, gemm_n in the order of the
        # name, which is m, n, k: its block_size is really tile_m.
        "block_size": [kernel.tile_k for kernel in kernels],
        "gemm_m_per_block": [kernel.tile_m for kernel in kernels],
        "gemm_n_per_block": [kernel.tile_n for kernel in kernels],
        "pipeline": [kernel.pipeline for kernel in kernels],
        "wave_mode": [str(kernel.scheduler) for kernel in kernels],
        "has_dsb": [int(kernel.double_smem_buffer) for kernel in kernels],
        "has_si": [int(kernel.split_image) for kernel in kernels],
        "num_groups_to_merge": [kernel.num_groups_to_merge for kernel in kernels],
        "two_stage": [int(kernel.two_stage) for kernel in kernels],
    }


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
