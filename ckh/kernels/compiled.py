"""Resources of kernels compiled on this machine, by architecture and name.

Estimates use them without measurements, and without inspecting the libraries again. They are in the cache, one line for
each kernel.
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
    from pathlib import Path


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


def compiled_here(arch: str, op: str) -> dict[str, Resources]:
    """Resources of kernels compiled here, by name; empty if there are none or the cache cannot be used."""
    try:
        lines = read_bytes(_path(arch, op), MOST_TEXT_BYTES).splitlines()
    except DataError:
        return {}
    resources_of = {}
    for line in lines:
        try:
            kernel, *numbers = json.loads(line)
        except (ValueError, TypeError, RecursionError):  # empty, truncated, or not a kernel
            continue
        is_whole = isinstance(kernel, str) and len(numbers) >= len(RESOURCE_NAMES)
        numbers = numbers[: len(RESOURCE_NAMES)]
        if is_whole and all(type(number) is int and 0 <= number < 2**31 for number in numbers):
            resources_of[kernel] = Resources(*numbers)
    return resources_of


def _path(arch: str, op: str) -> Path:
    return cache_dir(RESOURCES) / f"{arch}-{op}.jsonl"
