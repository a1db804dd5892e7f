"""Kernels that others measured are candidates of their problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckh.archs import load_arch
from ckh.data.dataset import read_dataset

SHIPPED = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("aiter-gemm-gfx942", 7069),
        ("aiter-gemm-gfx950", 10_942),
        ("aiter-moe-gfx942", 1152),
        ("aiter-moe-gfx942-mi300", 180),
        ("aiter-moe-gfx950", 3478),
        ("fbgemm-gemm-gfx942", 453),
    ],
)
def test_no_measured_kernel_breaks_a_rule(name: str, rows: int) -> None:
    """Every kernel that AITER measured or FBGEMM names is a candidate among what its tuner tried."""
    dataset = read_dataset(SHIPPED / f"{name}.parquet").winners()
    op, problems, arch = dataset.op, dataset.contests(), load_arch(name.rsplit("-", 1)[1])
    known = {}
    for number, kernel in zip(dataset.problem_ids.tolist(), dataset.frame["kernel"].tolist(), strict=True):
        key = op.kernels.key_of(problems[number])
        if key not in known:
            known[key] = {
                op.kernels.name(item) for item in op.kernels.candidates(problems[number], arch, SHIPPED).kernels
            }
        assert kernel in known[key], problems[number]
    assert len(dataset.frame) == rows
