"""Runs as recorded in journals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ckh.data.journal import JournalWriter, RunRecord

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def host_run(hardware: Mapping[str, int], **changes: Any) -> RunRecord:
    """A run of forward convolutions on a CPU with these quantities, except the given fields."""
    run = RunRecord(
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
    return replace(run, **changes)


ANOTHER = host_run({"num_cus": 1}, run_id="another")


def writer_behind_another(folder: Path, **how: bool) -> JournalWriter:
    """The writer of a journal in which another run has already stored all of its results."""
    other = JournalWriter(folder)
    other.start_run(ANOTHER)
    other.close()
    return JournalWriter(folder, **how)
