"""A kernel that a device cannot build, for a stated reason: a result, not a fault."""

from __future__ import annotations


class UnsupportedKernelError(Exception):
    """The message says what is lacking."""
