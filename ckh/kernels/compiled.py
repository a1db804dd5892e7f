"""Resources of compiled kernels by architecture and name: shipped results, and those of kernels compiled here.

Estimates use them without measurements, and without inspecting the libraries again. Shipped results are one file per
architecture and operation in archspecs/compiled (benchmarks/compiled_pools.py); those of kernels compiled with this
machine's headers and compiler are in the cache, one line each, and take precedence.
"""

from __future__ import annotations

import json
import os
from dataclasses import astuple, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.files.paths import COMPILED, RESOURCES, cache_dir, data_dir
from ckh.files.untrusted import MOST_TEXT_BYTES, read_bytes
from ckh.schema import RESOURCE_NAMES, Resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ShippedKernel:
    """The compiler's results for a kernel.

    Attributes:
        resources: maximum over all its GPU functions; for `occupancy`, the minimum.
        code_bytes: size of these functions.
        trips: numbers of iterations over K that each is for.
    """

    resources: Resources
    code_bytes: int
    trips: tuple[str, ...]


def add_compiled(arch: str, op: str, kernel: str, resources: Resources) -> None:
    """Add a kernel of an operation compiled for an architecture; the last entry of a name wins."""
    # A single write is not interleaved with other processes'; the leading newline isolates a line truncated by a full
    # disk.
    line = f"\n{json.dumps([kernel, *astuple(resources)])}\n".encode()
    file = os.open(_path(arch, op), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def compiled(arch: str, op: str) -> dict[str, Resources]:
    """Resources of kernels by name; results from this machine replace shipped ones."""
    return {name: kernel.resources for name, kernel in shipped(arch, op).items()} | compiled_here(arch, op)


def compiled_here(arch: str, op: str) -> dict[str, Resources]:
    """Resources of kernels compiled here, by name; empty if there are none or the cache cannot be used."""
    try:
        lines = read_bytes(_path(arch, op), MOST_TEXT_BYTES).splitlines()
    except DataError:
        return {}
    return {name: resources for name, resources, _ in _entries(lines)}


@cache
def shipped(arch: str, op: str) -> Mapping[str, ShippedKernel]:
    """Shipped results of an operation's kernels by name; empty without a file."""
    path = shipped_path(arch, op)
    lines = path.read_bytes().splitlines() if path.exists() else []
    return {
        name: ShippedKernel(resources, rest[0], tuple(rest[1:])) for name, resources, rest in _entries(lines) if rest
    }


def shipped_compiler(arch: str, op: str) -> str:
    """The compiler, and the interface of CK Tile's headers, that what ships of an operation is of."""
    with shipped_path(arch, op).open(encoding="utf-8") as lines:
        return str(json.loads(next(lines))["compiler"])


def shipped_path(arch: str, op: str) -> Path:
    """File of shipped results: a header line, then one line per kernel."""
    return data_dir("archspecs") / COMPILED / f"{arch}-{op}.jsonl"


def _path(arch: str, op: str) -> Path:
    return cache_dir(RESOURCES) / f"{arch}-{op}.jsonl"


def _entries(lines: Iterable[bytes]) -> Iterator[tuple[str, Resources, list[Any]]]:
    """Yield name, resources, and further values of each line."""
    count = len(RESOURCE_NAMES)
    for line in lines:
        try:
            kernel, *values = json.loads(line)
        except (ValueError, TypeError, RecursionError):  # empty, truncated, or not a kernel
            continue
        is_whole = isinstance(kernel, str) and len(values) >= count
        if is_whole and all(type(value) is int and 0 <= value < 2**31 for value in values[:count]):
            yield kernel, Resources(*values[:count]), values[count:]
