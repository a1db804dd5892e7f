"""Architectures: what each can run, read from one file each in `archspecs`.

A new architecture is a new file there; nothing here names one but the fallback `host`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ckh.archfile import read_arch, read_common_rules
from ckh.archspec import ArchSpec, CommonRules, HardwareProfile, LdsRule, OperatorTile
from ckh.errors import UsageError
from ckh.gpus import detect_gpu_arch
from ckh.jsonfields import Triple
from ckh.machine import Machine
from ckh.paths import data_dir

if TYPE_CHECKING:
    from pathlib import Path

HOST = "host"
_COMMON = "common"

__all__ = [
    "HOST",
    "ArchSpec",
    "CommonRules",
    "HardwareProfile",
    "LdsRule",
    "Machine",
    "OperatorTile",
    "Triple",
    "arch_names",
    "default_arch",
    "detect_gpu_arch",
    "load_arch",
]


def arch_names() -> tuple[str, ...]:
    """Names of all architectures, sorted."""
    return tuple(sorted(path.stem for path in data_dir("archspecs").glob("*.json") if path.stem != _COMMON))


def load_arch(name: str) -> ArchSpec:
    """The spec of an architecture; target features as in "gfx942:sramecc+" are cut off.

    Raises:
        UsageError: there is no such architecture.
        DataError: its file is malformed.
    """
    return _load(data_dir("archspecs"), name.split(":", 1)[0])


def default_arch() -> str:
    """The architecture of this machine's GPU if there is a spec for it, else the host."""
    found = detect_gpu_arch()
    return found if found in arch_names() else HOST


@cache
def _load(folder: Path, name: str) -> ArchSpec:
    if name not in arch_names():
        raise UsageError(f"unknown architecture {name!r}", "one of " + ", ".join(arch_names()), code="unknown-arch")
    return read_arch(folder / f"{name}.json", read_common_rules(folder / f"{_COMMON}.json"))
