"""Parts that the sources of all kernels share: a unit is a kernel's parameters as constants, and our headers.

A kernel that a device cannot build, for a stated reason: a result, not a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def translation_unit(first: str, lines: Iterable[str], *last: str) -> str:
    """A source that includes one header, states its lines in the namespace `ckh::kernel`, then includes the others."""
    included = "".join(f'#include "{name}"\n' for name in last)
    head, tail = f'#include "{first}"\n\nnamespace ckh::kernel {{\n', f"\n}}  // namespace ckh::kernel\n\n{included}"
    return "\n".join((head, *lines, tail))


def header_contents(folder: Path) -> bytes:
    """Names and contents of a folder's headers: what a compiled kernel depends on besides its own source."""
    headers = sorted(folder.glob("*.hpp"))
    return b"".join(header.name.encode() + b"\0" + header.read_bytes() + b"\0" for header in headers)


class UnsupportedKernelError(Exception):
    """The message says what is lacking."""
