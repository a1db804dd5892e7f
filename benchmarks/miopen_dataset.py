"""A dataset of ckh from a Parquet file of solver times with the columns of AMD's find databases.

    python benchmarks/miopen_dataset.py TIMES.parquet ARCH CUS OUT.parquet

Columns: direction (F, B, W), dtype, layout, ndim, the sizes, solver, time_ms. Times of 0 are no times, and problems
whose stated output does not follow from their sizes are left out; both are counted.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from ckh.data import tables
from ckh.data.dataset import Dataset, write_dataset
from ckh.ops.miopen_conv.fdb import FdbDevice
from ckh.ops.miopen_conv.formats import to_arrow
from ckh.ops.miopen_conv.table import read_parquet


def main() -> None:
    """Convert one file."""
    source, arch, num_cus, out = sys.argv[1:]
    path = Path(source)
    table = read_parquet(path, FdbDevice(arch, int(num_cus)), skip_bad=True)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    sources = [{"name": path.name, "format": "find-db times", "sha256": digest}]
    rows = tables.to_pandas(to_arrow(table, path.name))
    write_dataset(Dataset(rows, {"sources": sources, "runs": []}), out)
    left_out = sum(table.bad.values())
    print(f"{out}: {len(rows):,} rows; left out: {table.without_time:,} without time, {left_out:,} bad {table.bad}")


if __name__ == "__main__":
    main()
