"""`timed_kernels.json.gz`: the complete kernels with times in a model's training data. Each is a candidate."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from ckh.errors import DataError
from ckh.files.jsonfields import model_fields
from ckh.files.untrusted import MOST_MODEL_BYTES, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

K = TypeVar("K")
TIMED_NAME = "timed_kernels.json.gz"
_VERSION = 1
_MOST_KERNELS = 1 << 17


@dataclass(frozen=True, slots=True)
class TimedKernels(Generic[K]):
    """Kernels measured on an architecture; compared by architecture and digest.

    Attributes:
        arch: the architecture.
        digest: digest of the file.
        kernels: the kernels, complete, by name.
    """

    arch: str
    digest: str
    kernels: tuple[K, ...] = field(compare=False)


def timed_file(arch: str, names: set[str]) -> bytes:
    """Build the content of the file."""
    document = {"version": _VERSION, "arch": arch, "kernels": sorted(names)}
    # No time stamp in the archive: equal models give equal files.
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)


def read_timed(path: Path, parse: Callable[[str], K]) -> TimedKernels[K]:
    """Read the file of a model."""
    with model_fields(path) as fields:
        if (version := fields.scalar("version", int)) != _VERSION:
            fields.fail("version", f"is {version}, and this ckh reads {_VERSION}")
        arch, names = fields.scalar("arch", str), fields.strings("kernels")
        if not len(set(names)) == len(names) <= _MOST_KERNELS:
            fields.fail("kernels", f"must be {_MOST_KERNELS} names at most, each once")
        try:
            kernels = tuple(map(parse, names))
        except (DataError, ValueError) as error:
            fields.fail("kernels", f"must be names of complete kernels: {error}")
        digest = hashlib.sha256(read_bytes(path, MOST_MODEL_BYTES)).hexdigest()
    return TimedKernels(arch, digest, kernels)
