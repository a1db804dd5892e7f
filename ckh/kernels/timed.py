"""`timed_kernels.json.gz`: the complete kernels that a model's training data have times of. Each is a candidate."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ckh.errors import DataError, ModelError
from ckh.jsonfields import JsonError, parse_json
from ckh.untrusted import read_bytes, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

K = TypeVar("K")
TIMED_NAME = "timed_kernels.json.gz"
_VERSION = 1
_MOST_KERNELS = 1_000_000


@dataclass(frozen=True, slots=True)
class TimedKernels(Generic[K]):
    """Kernels that were measured on an architecture; equal files have equal ones.

    Attributes:
        arch: the architecture.
        digest: of the file's content.
        kernels: the kernels, complete, by name.
    """

    arch: str
    digest: str
    kernels: tuple[K, ...] = field(compare=False)


def timed_file(arch: str, names: set[str]) -> bytes:
    """The file's content."""
    document = {"version": _VERSION, "arch": arch, "kernels": sorted(names)}
    # No time stamp in the archive: equal models are equal files.
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)


def read_timed(path: Path, parse: Callable[[str], K]) -> TimedKernels[K]:
    """Read the file of a model.

    Args:
        path: the file.
        parse: a kernel from its name.

    Raises:
        ModelError: it is damaged, or its kernels are not known.
    """
    try:
        content = unpacked(read_bytes(path), path.name)
        arch, names = _parts(parse_json(content))
        return TimedKernels(arch, hashlib.sha256(content).hexdigest(), tuple(map(parse, names)))
    except (DataError, JsonError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path} is damaged: {error}", "train the model again, or remove the file") from error


def _parts(document: Any) -> tuple[str, list[str]]:
    """The architecture and the names."""
    arch, names = document["arch"], document["kernels"]
    if document["version"] != _VERSION or not isinstance(arch, str) or not isinstance(names, list):
        raise ValueError("it is no list of kernels of an architecture")
    if len(names) > _MOST_KERNELS or not all(isinstance(name, str) for name in names):
        raise ValueError(f"it must have {_MOST_KERNELS} names at most")
    return arch, names
