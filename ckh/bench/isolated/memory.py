"""The memory that kernels work on, behind one small interface; `HostMemory` is this machine's own."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ckh.bench.isolated.typed import NAN_BYTE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.bench.isolated.typed import ElementType

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
        """Address of the first byte, page-aligned."""
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


# A kernel that counts on zeros in its workspace is found out; the first megabytes are enough for that.
WORKSPACE_FILL_BYTES = 4 << 20


class Memory(Protocol):
    """Inputs, output and workspace of kernels. Its methods raise `OSError` or `HipError` when there is not enough."""

    # Whether the clock on the wall says how long a run of a kernel takes. A GPU loads the kernel before the first.
    times_first_runs: bool

    def clear(self) -> None:
        """Give back inputs and output."""

    def add_input(self, values: Array) -> Array:
        """Keep an operand for kernels until cleared; returns it as the host sees it."""

    def set_output(self, shape: Sequence[int], element: ElementType) -> None:
        """Make room for a result."""

    def provide_workspace(self, size: int) -> None:
        """Have at least so many bytes."""

    def reset(self, workspace_bytes: int) -> None:
        """Fill the output with what no kernel writes, the used workspace with NaN, and restore the guards."""

    def pointers(self) -> tuple[int, int, int, int]:
        """The kernel's arguments: inputs a and b, output, workspace."""

    def operand_sets(self) -> list[tuple[int, int, int, int]]:
        """Sets of such arguments that timed runs take in turn, the first one that of `pointers`."""

    def overrun(self) -> str:
        """Where a kernel wrote out of bounds, e.g. "12 bytes behind the output"; empty if nowhere."""

    def result(self) -> Array:
        """The kernel's result."""

    def repair_inputs(self) -> bool:
        """Restore inputs that a kernel has overwritten; whether one has."""

    def probe(self) -> None:
        """Raise `HipError` if the device does not work any more."""

    def flush_buffer(self) -> tuple[int, int]:
        """Memory that kernels overwrite before timed runs to empty the caches: pointer and bytes, zeros for none."""


class HostMemory:
    """Pages of this process. Inputs cannot be written: a kernel that tries crashes."""

    times_first_runs = True

    def __init__(self) -> None:
        self._inputs: list[Array] = []
        self._output = GuardedBuffer(0)
        self._result: Array = self._output.data
        self._unwritten_byte = NAN_BYTE
        self._workspace = GuardedBuffer(0)

    def clear(self) -> None:
        """Give back inputs and output."""
        self._inputs.clear()
        self._output = GuardedBuffer(0)
        self._result = self._output.data

    def add_input(self, values: Array) -> Array:
        """A read-only copy in pages of its own."""
        self._inputs.append(input_array(values))
        return self._inputs[-1]

    def set_output(self, shape: Sequence[int], element: ElementType) -> None:
        """Make room for a result between guards."""
        self._output = GuardedBuffer(element.storage.itemsize * prod(shape))
        self._result = array_view(self._output, shape, element.storage)
        self._unwritten_byte = element.unwritten_byte

    def provide_workspace(self, size: int) -> None:
        """Have at least so many bytes."""
        if size > self._workspace.data.nbytes:
            self._workspace = GuardedBuffer(size)

    def reset(self, workspace_bytes: int) -> None:
        """Fill output and workspace and restore the guards."""
        self._workspace.reset()
        self._workspace.data[: min(workspace_bytes, WORKSPACE_FILL_BYTES)] = NAN_BYTE
        self._output.reset()
        self._output.data.fill(self._unwritten_byte)

    def pointers(self) -> tuple[int, int, int, int]:
        """Addresses."""
        a, b = self._inputs
        return a.ctypes.data, b.ctypes.data, self._output.address, self._workspace.address

    def operand_sets(self) -> list[tuple[int, int, int, int]]:
        """One: the caches are warm."""
        return [self.pointers()]

    def overrun(self) -> str:
        """The first of output and workspace that has something written beside it; its guards are restored."""
        for name, buffer in (("output", self._output), ("workspace", self._workspace)):
            if where := buffer.overrun():
                buffer.reset()
                return f"{where} the {name}"
        return ""

    def result(self) -> Array:
        """The output itself."""
        return self._result

    def repair_inputs(self) -> bool:
        """Nothing can have happened to them."""
        return False

    def probe(self) -> None:
        """It works, or this would not run."""

    def flush_buffer(self) -> tuple[int, int]:
        """None: kernels of the host are timed with warm caches."""
        return 0, 0
