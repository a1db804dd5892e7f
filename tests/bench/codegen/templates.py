"""ckh's headers for CK Tile: the shared ones, and those of each operation."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ckh.bench.codegen import ck_tile
from ckh.bench.computation import measured_of
from ckh.ops import operation

if TYPE_CHECKING:
    from pathlib import Path


def _of(op: str) -> Path:
    emission = measured_of(operation(op)).hip
    assert emission is not None
    (folder,) = emission.templates
    return folder


SHARED = ck_tile.template_dir()
OPERATIONS = {op: _of(op) for op in ("grouped_conv", "gemm_universal")}


def copy_templates(op: str, folder: Path) -> Path:
    """Copy all headers included by an operation's sources into one folder."""
    for source in (SHARED, OPERATIONS[op]):
        shutil.copytree(source, folder, dirs_exist_ok=True)
    return folder
