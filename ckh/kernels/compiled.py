"""Resources of compiled kernels by architecture and name: those that ship, and those that were compiled here.

An estimate goes by them where nobody measured, without a look at the libraries themselves. What ships is a file for
each architecture and operation in archspecs/compiled (benchmarks/compiled_pools.py); what was compiled here, with the
headers and the compiler of this machine, is in the cache, a line each, and comes first.
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
    """What the compiler made of a kernel.

    Attributes:
        resources: of all its GPU functions, the most of each; of `occupancy`, the least.
        code_bytes: size of these functions.
        trips: trips over K that each is for.
    """

    resources: Resources
    code_bytes: int
    trips: tuple[str, ...]


def add_compiled(arch: str, op: str, kernel: str, resources: Resources) -> None:
    """Add a kernel of an operation that was compiled for an architecture; of one name the last counts.

    Raises:
        DataError: the cache folder cannot be used.
        OSError: it cannot be written.
    """
    # In one write, which no other process gets in between; a line that a full disk cut off does not spoil the next.
    line = f"\n{json.dumps([kernel, *astuple(resources)])}\n".encode()
    file = os.open(_path(arch, op), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def compiled(arch: str, op: str) -> dict[str, Resources]:
    """The resources of kernels by name: those that ship, and in their place those that were compiled here."""
    return {name: one.resources for name, one in shipped(arch, op).items()} | compiled_here(arch, op)


def compiled_here(arch: str, op: str) -> dict[str, Resources]:
    """The resources of kernels by name; none where nothing was compiled or the cache cannot be used."""
    try:
        lines = read_bytes(_path(arch, op), MOST_TEXT_BYTES).splitlines()
    except DataError:
        return {}
    return {name: resources for name, resources, _ in _entries(lines)}


@cache
def shipped(arch: str, op: str) -> Mapping[str, ShippedKernel]:
    """What ships of an operation's kernels by name; none if nobody compiled them."""
    path = shipped_path(arch, op)
    lines = path.read_bytes().splitlines() if path.exists() else []
    return {
        name: ShippedKernel(resources, rest[0], tuple(rest[1:])) for name, resources, rest in _entries(lines) if rest
    }


def shipped_path(arch: str, op: str) -> Path:
    """The file of what ships: a line of what it is of, then one for each kernel."""
    return data_dir("archspecs") / COMPILED / f"{arch}-{op}.jsonl"


def _path(arch: str, op: str) -> Path:
    return cache_dir(RESOURCES) / f"{arch}-{op}.jsonl"


def _entries(lines: Iterable[bytes]) -> Iterator[tuple[str, Resources, list[Any]]]:
    """Names, resources, and what follows them."""
    count = len(RESOURCE_NAMES)
    for line in lines:
        try:
            kernel, *values = json.loads(line)
        except (ValueError, TypeError, RecursionError):  # empty, cut off, or of no kernel
            continue
        is_whole = isinstance(kernel, str) and len(values) >= count
        if is_whole and all(type(value) is int and 0 <= value < 2**31 for value in values[:count]):
            yield kernel, Resources(*values[:count]), values[count:]
