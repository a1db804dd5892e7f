"""Memory for kernels: aligned, guarded, and its own pages, so that a wild kernel is found out and not believed."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = NDArray[Any]

PAGE = mmap.PAGESIZE
READABLE_TAIL_BYTES = 256  # zeros that kernels may read behind an input
_HUGE_PAGE_BYTES = 2 << 20
_CANARY = 0xA5
_PROT_READ = 1


def _pages(size: int) -> Array:
    """`size` bytes of zeros that start a page; large ones in huge pages, which time more steadily."""
    memory = mmap.mmap(-1, max(size, 1))
    if size >= _HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def input_array(values: Array) -> Array:
    """A copy of the values, followed by readable zeros, that cannot be written: a kernel that tries crashes.

    Raises:
        OSError: there is not enough memory.
    """
    memory = _pages(values.nbytes + READABLE_TAIL_BYTES)
    copy = memory[: values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    libc = ctypes.CDLL(None, use_errno=True)
    length = -(-memory.nbytes // PAGE) * PAGE
    if libc.mprotect(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(length), _PROT_READ):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return copy


class GuardedBuffer:
    """Bytes between two canaries of a page each.

    Raises:
        OSError: there is not enough memory.
    """

    def __init__(self, size: int) -> None:
        self._memory = _pages(size + 2 * PAGE)
        self.data = self._memory[PAGE : PAGE + size]
        self._canaries = (self._memory[:PAGE], self._memory[PAGE + size : 2 * PAGE + size])
        self.reset()

    @property
    def address(self) -> int:
        """Of the first byte; it starts a page."""
        return int(self._memory.ctypes.data) + PAGE

    def reset(self) -> None:
        """Restore the canaries."""
        for canary in self._canaries:
            canary[:] = _CANARY

    def overrun(self) -> str:
        """Where something was written outside, e.g. "12 bytes behind"; empty if nowhere."""
        places = zip(("in front of", "behind"), self._canaries, strict=True)
        found = [f"{np.count_nonzero(canary != _CANARY)} bytes {where}" for where, canary in places if _touched(canary)]
        return " and ".join(found)


def _touched(canary: Array) -> bool:
    return bool((canary != _CANARY).any())


def array_view(buffer: GuardedBuffer, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """The buffer's first bytes as an array."""
    view: Array = buffer.data[: dtype.itemsize * prod(shape)].view(dtype).reshape(tuple(shape))
    return view
