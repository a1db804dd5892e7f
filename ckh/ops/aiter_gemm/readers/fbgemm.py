"""Reader of the kernels that FBGEMM's dispatch names for shapes: winners of third-party tunings, without times."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data.formats import Reading, ReadOptions
from ckh.data.readers.reader import parquet_columns, parquet_frame, source_of_file
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.data.spool import store
from ckh.errors import CkhError, DataError
from ckh.ops.aiter_gemm.kernel import OF_FBGEMM, parse_kernel
from ckh.ops.aiter_gemm.problem import FAMILIES, FBGEMM, OP_TYPE, AiterGemm
from ckh.ops.aiter_gemm.readers.tuned import OTHER_ARCH
from ckh.ops.aiter_gemm.tuned_device import compute_units
from ckh.schema import Column, Status

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.aiter_gemm.kernel import AiterKernel

FORMAT = "fbgemm-parquet"
OTHER_KIND = "of a kind of GEMM that ckh does not know"
REPLACED = "of a kernel that a later version of FBGEMM replaced"
BAD = "with a size or kernel that is impossible"
_ARCH = "gfx942"  # MI300X, according to the pull requests that added the tables
_COLUMNS = (
    Column("op", "string", "", "kind of GEMM"),
    Column("table", "string", "", "shape, or layer: up to this M"),
    *(Column(name, "int64", "", "") for name in ("m", "n", "k")),
    Column("kernel", "string", "", "name of the kernel"),
    Column("groups", "int64", "", "of batched and grouped GEMMs", nullable=True),
    Column("last", "string", "", "when it was last in FBGEMM"),
    Column("repo", "string", "", "of which repository"),
)


def sniff(head: bytes) -> bool:
    """True if a Parquet file has the columns of FBGEMM's collected dispatch."""
    return parquet_columns(head).issuperset(column.name for column in _COLUMNS if not column.nullable)


def read(path: Path, options: ReadOptions) -> Reading:
    """Read the kernel that FBGEMM last named for each shape.

    Raises:
        DataError: the file cannot be read, lacks a column, has no row, or has an impossible row that is not to be
            skipped.
    """
    frame = parquet_frame(path, _COLUMNS).sort_values("last", kind="stable")
    left_out: Counter[str] = Counter()
    if (options.arch or _ARCH).split(":", 1)[0] != _ARCH:
        raise DataError(f"{path}: all rows are {OTHER_ARCH}: they are of {_ARCH}", code="empty")
    won: dict[AiterGemm, AiterKernel] = {}
    for row in frame.itertuples(index=False):
        if row.op not in OF_FBGEMM:
            left_out[OTHER_KIND] += 1
            continue
        try:
            kernel = parse_kernel(str(row.kernel))
            problem = _problem(row, kernel.family)
        except CkhError as error:
            if not options.skip_bad:
                raise DataError(
                    f"{path}: a row {BAD}: {error.message}", "skip such rows with --skip-bad", code="bad-row"
                ) from None
            left_out[BAD] += 1
            continue
        left_out[REPLACED] += problem in won
        won[problem] = kernel
    if not won:
        raise DataError(f"{path}: no row is of {', '.join(OF_FBGEMM)}", code="empty")
    stored = store([_table(won, path.name)], options.output)
    return Reading(stored, (source_of_file(path, FORMAT),), bad=dict(+left_out))


def _problem(row: Any, family: str) -> AiterGemm:
    groups = 0 if row.groups is None or row.groups != row.groups else int(row.groups)
    sizes = int(row.m), int(row.n), int(row.k)
    return AiterGemm(*sizes, family, FAMILIES[family][0], FBGEMM, num_cus=compute_units(0, _ARCH), groups=groups)


def _table(won: dict[AiterGemm, AiterKernel], run_id: str) -> object:
    results = Results([str(Status.CHOSEN)] * len(won), np.full(len(won), np.nan), {})
    return build_table(Pairs.of(won.items(), OP_TYPE), results, Origin.on_gpu(_ARCH, compute_units(0, _ARCH), run_id))
