"""Files in AMD's CSV format, and datasets read from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.data.dataset import write_dataset
from ckh.data.formats import ReadOptions
from ckh.data.merge import merge
from ckh.data.readers import read_input
from ckh.ops.grouped_conv.amd_csv import AMD_COLUMNS
from tests.learn.conftest import measured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ckh.data.dataset import Dataset

KERNEL = "grouped_conv_forward_bf16_2d_64x32x16_compv3_intrawave"
_ROW = dict(zip(AMD_COLUMNS, (KERNEL, 0, 2, 64, 128, 2, 1, 28, 28, 1, 3, 3, *[1] * 3, 0, 1, 1, *[1] * 3), strict=False))
# 2 N K C/G Ho Wo Y X = 2 * 2 * 128 * 32 * 784 * 9 operations.
FLOPS = 115_605_504
ROW = _ROW | {"latency_ms": 0.5, "tflops": FLOPS / 0.5 / 1e9, "non_zero": 7}


@pytest.fixture
def write_csv(tmp_path: Path) -> Callable[..., Path]:
    """Write rows, each given by its differences from a good row; `columns` gives the order."""

    def write(*rows: dict[str, Any], columns: Sequence[str] = AMD_COLUMNS, name: str = "amd.csv") -> Path:
        lines = [",".join(columns), *(",".join(str((ROW | row)[column]) for column in columns) for row in rows)]
        path = tmp_path / name
        path.write_bytes("".join(line + "\r\n" for line in lines).encode())
        return path

    return write


@pytest.fixture
def dataset(write_csv: Callable[..., Path]) -> Dataset:
    """Two problems that differ in a stride, and three kernels, one of which returned zeros on the second problem."""
    kernels = [f"grouped_conv_forward_bf16_2d_64x32x16_{how}" for how in ("compv3", "compv4_intrawave_dsb", "mem")]
    rows = [
        {"kernel": kernel, "stride_h": stride, "latency_ms": 0.1 * (i + 1), "tflops": 0, "non_zero": zero}
        for stride in (1, 2)
        for i, kernel in enumerate(kernels)
        for zero in [0 if stride == 2 and i == 1 else 5]
    ]
    return merge([read_input(write_csv(*rows), ReadOptions(arch="gfx942"))]).dataset


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Rows of fourteen problems with 24 kernels in random order, spread over two files."""
    order = np.random.default_rng(1).permutation(len(measured()))
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path, rows in zip(paths, np.array_split(order, 2), strict=True):
        write_dataset(measured().select(rows), path)
    return paths
