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
from ckh.prose import one_of

if TYPE_CHECKING:
    from pathlib import Path

HOST = "host"
_COMMON = "common"
_LEAST_NAME = 5  # characters of "mi300"

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
    "arch_of_gpu",
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


def arch_of_gpu(name: str) -> tuple[str, int]:
    """The architecture of a GPU product such as "MI300X", or of a series such as "mi300", and its compute units.

    They are 0 where they are those of the largest GPU of the architecture; any other name is returned as it is.
    """
    if name in (names := arch_names()):
        return name, 0
    wanted = _plain(name)
    specs = [load_arch(arch) for arch in names]
    if len(wanted) >= _LEAST_NAME:
        for matches in (str.__eq__, str.startswith):
            for spec in specs:
                units = [count for gpu, count in spec.gpus.items() if matches(_plain(gpu), wanted)]
                if units:
                    return spec.name, 0 if max(spec.gpus.values()) in units else units[0]
    return (wanted if wanted in names else name), 0


def _plain(name: str) -> str:
    return name.lower().translate({ord(mark): None for mark in " -_"})


def default_arch() -> str:
    """The architecture of this machine's GPU if there is a spec for it, else the host."""
    found = detect_gpu_arch()
    return found if found in arch_names() else HOST


@cache
def _load(folder: Path, name: str) -> ArchSpec:
    if name not in arch_names():
        known, _ = arch_of_gpu(name)
        if known == name:
            gpus = (gpu.lower() for arch in arch_names() for gpu in load_arch(arch).gpus)
            hint = one_of(name, arch_names(), also=gpus)
            raise UsageError(f"unknown architecture {name!r}", hint, code="unknown-arch")
        return load_arch(known)
    return read_arch(folder / f"{name}.json", read_common_rules(folder / f"{_COMMON}.json"))
