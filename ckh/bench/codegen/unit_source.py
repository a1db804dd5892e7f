"""Common parts of all kernel sources: a unit consists of a kernel's parameters as constants, and ckh's headers.

Defines the error for a kernel that a device cannot build for a known reason, which is a result, not a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def translation_unit(first: str, lines: Iterable[str], *last: str) -> str:
    """Source that includes a header, states `lines` in the namespace `ckh::kernel`, then includes the others."""
    included = "".join(f'#include "{name}"\n' for name in last)
    head, tail = f'#include "{first}"\n\nnamespace ckh::kernel {{\n', f"\n}}  // namespace ckh::kernel\n\n{included}"
    return "\n".join((head, *lines, tail))


def header_contents(folder: Path) -> bytes:
    """Names and contents of a folder's headers, which a compiled kernel depends on in addition to its own source."""
    headers = sorted(folder.glob("*.hpp"))
    return b"".join(header.name.encode() + b"\0" + header.read_bytes() + b"\0" for header in headers)


class UnsupportedKernelError(Exception):
    """A kernel that a device cannot build; the message names the missing feature."""
