"""Resources of the kernels that were compiled here, by architecture and name: a line each, in the cache.

An estimate goes by them where nobody measured, without a look at the libraries themselves.
"""

from __future__ import annotations

import json
import os
from dataclasses import astuple
from typing import TYPE_CHECKING

from ckh.errors import DataError
from ckh.files.paths import RESOURCES, cache_dir
from ckh.files.untrusted import MOST_TEXT_BYTES, read_bytes
from ckh.schema import RESOURCE_NAMES, Resources

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


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
    """The resources of kernels by name; none where nothing was compiled or the cache cannot be used."""
    try:
        lines = read_bytes(_path(arch, op), MOST_TEXT_BYTES).splitlines()
    except DataError:
        return {}
    return dict(_entries(lines))


def _path(arch: str, op: str) -> Path:
    return cache_dir(RESOURCES) / f"{arch}-{op}.jsonl"


def _entries(lines: Iterable[bytes]) -> Iterable[tuple[str, Resources]]:
    for line in lines:
        try:
            kernel, *values = json.loads(line)
        except (ValueError, TypeError, RecursionError):  # empty, cut off, or of no kernel
            continue
        is_whole = isinstance(kernel, str) and len(values) == len(RESOURCE_NAMES)
        if is_whole and all(type(value) is int and 0 <= value < 2**31 for value in values):
            yield kernel, Resources(*values)
