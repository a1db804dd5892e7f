"""Runs as journals record them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.data.journal import RunRecord

if TYPE_CHECKING:
    from collections.abc import Mapping


def host_run(hardware: Mapping[str, int]) -> RunRecord:
    """A run of forward convolutions on a CPU that has these quantities."""
    return RunRecord(
        run_id="run1",
        ckh_version="0",
        started="2026-01-01",
        device_kind="host",
        arch="host",
        device="A CPU",
        clock_mhz=3000,
        hardware=dict(hardware),
        compiler="c++",
        flags=("-O3",),
        seed=0,
        samples=3,
        variant="forward",
        problems="p",
        kernels="k",
        dtype="fp32",
    )
