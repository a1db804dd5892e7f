"""Readers of MIOpen's find databases, AMD's text or Parquet: times of the convolution solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.data.formats import Formats, Reader, Reading, ReadOptions
from ckh.data.readers.reader import parquet_columns, source_of_file
from ckh.data.rows import Origin, Pairs, Results, build_table, status_of
from ckh.data.spool import store
from ckh.ops.miopen_conv.consumers import FIND_DB
from ckh.ops.miopen_conv.features import MIOPEN_CONV
from ckh.ops.miopen_conv.kernels.solvers import parse_solver
from ckh.ops.miopen_conv.readers.fdb import NAME, device_of, sniff
from ckh.schema import WORKSPACE, Status

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from ckh.ops.miopen_conv.readers.solver_table import SolverTable

PARQUET_NAME = "miopen-fdb-parquet"


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a find database, plain or bz2; its name states architecture and compute units unless the options do.

    Raises:
        UsageError: neither the name nor the options state the device.
        DataError: the file is unusable, or there are bad lines that are not to be skipped.
    """
    from ckh.ops.miopen_conv.readers.solver_table import read_fdb

    return _reading(path, NAME, read_fdb(path, options.arch, options.num_cus, skip_bad=options.skip_bad), options)


def read_times(path: Path, options: ReadOptions) -> Reading:
    """Read a Parquet file with the columns of find databases; name or options state the device, as in `read`.

    Raises:
        UsageError: neither the name nor the options state the device.
        DataError: the file is unusable, or there are bad rows that are not to be skipped.
    """
    from ckh.ops.miopen_conv.readers.solver_table import read_parquet

    device = device_of(path, options.arch, options.num_cus)
    return _reading(path, PARQUET_NAME, read_parquet(path, device, skip_bad=options.skip_bad), options)


def _sniff_times(head: bytes) -> bool:
    return {"direction", "layout", "solver", "time_ms"} <= parquet_columns(head)


def _reading(path: Path, name: str, table: SolverTable, options: ReadOptions) -> Reading:
    source = source_of_file(path, name)
    left_out = [f"solvers without a time, skipped: {table.without_time}"] if table.without_time else []
    return Reading(
        store([to_arrow(table, path.name)], options.output), (source,), bad=table.bad, warnings=tuple(left_out)
    )


def to_arrow(table: SolverTable, run_id: str) -> pa.Table:
    """Return the rows of a table as rows of a dataset."""
    problem_of_row = table.problem_ids()
    solver_of_row, names = table.frame["kernel"].factorize()
    latency_ms = table.frame["latency_ms"].to_numpy(dtype=np.float64)
    workspace = {name: table.frame[name].to_numpy() for name in (WORKSPACE.name,) if name in table.frame.columns}
    device = table.device
    return build_table(
        Pairs(
            table.problems(),
            problem_of_row,
            [parse_solver(str(name)) for name in names],
            [str(name) for name in names],
            solver_of_row,
            MIOPEN_CONV.op_type,
        ),
        Results(status_of(latency_ms > 0, Status.LAUNCH_ERROR), latency_ms, workspace),
        Origin.on_gpu(device.arch, device.num_cus, run_id),
    )


FORMATS = Formats(
    readers=(Reader(NAME, sniff, read), Reader(PARQUET_NAME, _sniff_times, read_times)),
    rows=(FIND_DB,),
)
