"""The memory interface for kernels, and its implementations on the CPU and on a GPU."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ckh.bench.isolated.hip_runtime import HipMemoryError, HipRuntime
from ckh.bench.isolated.typed import NAN_BYTE
from ckh.data.settings import MAX_SETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ckh.bench.isolated.typed import Array, ElementType


PAGE = mmap.PAGESIZE
READABLE_TAIL_BYTES = 256  # zeros after an input that kernels may read
_HUGE_PAGE_BYTES = 2 << 20
CANARY = 0xA5  # byte of the guards of a buffer
_PLACES = ("in front of", "behind")
_PROT_READ = 1
# Detects kernels that rely on a zeroed workspace; the first megabytes are enough for that.
WORKSPACE_FILL_BYTES = 4 << 20
GUARD_BYTES = 4096


def _pages(size: int) -> Array:
    """Page-aligned zeros; large blocks use huge pages, whose timing is more stable."""
    memory = mmap.mmap(-1, max(size, 1))
    if size >= _HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the kernel was built without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def input_array(values: Array) -> Array:
    """Read-only copy of the values, followed by readable zeros: a kernel that writes to it crashes."""
    memory = _pages(values.nbytes + READABLE_TAIL_BYTES)
    copy = memory[: values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    libc = ctypes.CDLL(None, use_errno=True)
    length = -(-memory.nbytes // PAGE) * PAGE
    if libc.mprotect(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(length), _PROT_READ):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return copy


class GuardedBuffer:
    """Memory between two guard pages with canaries."""

    def __init__(self, size: int) -> None:
        self._memory = _pages(size + 2 * PAGE)
        self.data = self._memory[PAGE : PAGE + size]
        self._canaries = (self._memory[:PAGE], self._memory[PAGE + size : 2 * PAGE + size])
        self.restore_guards()

    @property
    def address(self) -> int:
        """Address of the first byte, page-aligned."""
        return int(self._memory.ctypes.data) + PAGE

    def restore_guards(self) -> None:
        """Restore the canaries."""
        for canary in self._canaries:
            canary[:] = CANARY

    def overrun(self) -> str:
        """Position of an out-of-bounds write, e.g. "12 bytes behind"; empty if there is none."""
        return overrun_of(self._canaries)


def overrun_of(canaries: Iterable[Array]) -> str:
    """Position of an out-of-bounds write, given the guards before and behind; empty if there is none."""
    touched = ((np.count_nonzero(guard != CANARY), where) for guard, where in zip(canaries, _PLACES, strict=True))
    return " and ".join(f"{count} bytes {where}" for count, where in touched if count)


class Memory(Protocol):
    """Inputs, output and workspace of kernels; defaults are those of a CPU, timed with warm caches.

    Methods raise `OSError` or `HipError` when memory runs out.
    """

    # Whether wall time measures a kernel run. On a GPU, the first run includes loading the kernel.
    times_first_runs: bool
    compare: Callable[[int, int, int], int] | None = None
    """Counts the bytes that differ between two addresses, given their number, on a GPU; None: the host compares."""

    def clear(self) -> None:
        """Free inputs and output."""

    def add_input(self, values: Array) -> Array:
        """Store an operand until cleared; returns it as the host sees it."""

    def set_output(self, shape: Sequence[int], element: ElementType) -> None:
        """Allocate a result."""

    def provide_workspace(self, size: int) -> None:
        """Allocate at least `size` bytes."""

    def reset(self, workspace_bytes: int) -> None:
        """Fill the output with a pattern that no kernel writes, the used workspace with NaN, and restore the guards."""

    def pointers(self) -> tuple[int, ...]:
        """Arguments of the kernel: inputs in order, output, workspace."""

    def operand_sets(self) -> list[tuple[int, ...]]:
        """Sets of arguments that timed runs rotate through, starting with `pointers`."""
        return [self.pointers()]

    def shortage(self) -> str:
        """How many sets of arguments timed runs had for lack of memory; empty if they had all."""
        return ""

    def overrun(self) -> str:
        """Out-of-bounds write of output or workspace, e.g. "12 bytes behind the output", whose guards are restored."""
        for name, buffer in zip(("output", "workspace"), self._written(), strict=True):
            if where := buffer.overrun():
                buffer.restore_guards()
                return f"{where} the {name}"
        return ""

    def _written(self) -> Sequence[GuardedBuffer | DeviceBuffer]:
        """Output and workspace."""

    def result(self, number: int = 0) -> Array:
        """Output of a set of arguments, by its number, until the next call."""

    def keep_result(self) -> None:
        """Keep a copy of the first set's output."""

    def kept(self) -> Array:
        """Return the copy."""

    def changed(self, numbers: Iterable[int]) -> list[int]:
        """Return the sets whose inputs changed, or whose output is not the kept one; without `compare`, the first."""

    def repair_inputs(self) -> bool:
        """Restore inputs that a kernel has overwritten; True if there were any."""
        return False

    def probe(self) -> None:
        """Raise `HipError` if the device no longer works."""
        return

    def flush_buffer(self) -> tuple[int, int]:
        """Memory that kernels overwrite to flush the caches before timed runs: address and bytes; zeros if none."""
        return 0, 0


class HostMemory(Memory):
    """Host memory. Inputs are read-only: a kernel that writes to them crashes."""

    times_first_runs = True

    def __init__(self) -> None:
        self._inputs: list[Array] = []
        self._output = GuardedBuffer(0)
        self._result = self._kept = self._output.data
        self._unwritten_byte = NAN_BYTE
        self._workspace = GuardedBuffer(0)

    def clear(self) -> None:
        self._inputs.clear()
        self._output = GuardedBuffer(0)
        self._result = self._kept = self._output.data

    def add_input(self, values: Array) -> Array:
        """Read-only copy in separate pages."""
        self._inputs.append(input_array(values))
        return self._inputs[-1]

    def set_output(self, shape: Sequence[int], element: ElementType) -> None:
        self._output = GuardedBuffer(element.storage.itemsize * prod(shape))
        self._result = self._output.data.view(element.storage).reshape(tuple(shape))
        self._kept = np.empty_like(self._result)
        self._unwritten_byte = element.unwritten_byte

    def provide_workspace(self, size: int) -> None:
        if size > self._workspace.data.nbytes:
            self._workspace = GuardedBuffer(size)

    def reset(self, workspace_bytes: int) -> None:
        self._workspace.restore_guards()
        self._workspace.data[: min(workspace_bytes, WORKSPACE_FILL_BYTES)] = NAN_BYTE
        self._output.restore_guards()
        self._output.data.fill(self._unwritten_byte)

    def pointers(self) -> tuple[int, ...]:
        return *(values.ctypes.data for values in self._inputs), self._output.address, self._workspace.address

    def _written(self) -> tuple[GuardedBuffer, GuardedBuffer]:
        return self._output, self._workspace

    def result(self, number: int = 0) -> Array:  # noqa: ARG002 - there is one
        return self._result

    def keep_result(self) -> None:
        np.copyto(self._kept, self._result)

    def kept(self) -> Array:
        return self._kept

    def changed(self, numbers: Iterable[int]) -> list[int]:  # noqa: ARG002 - there is one
        return [0] if differing(self._result, self._kept) else []


def differing(first: Array, second: Array) -> int:
    """Number of elements whose bits differ."""
    bits = np.dtype(f"u{first.itemsize}")
    return int(np.count_nonzero(first.view(bits) != second.view(bits)))


def _rounded(size: int) -> int:
    """Round up to the alignment of operands."""
    return -(-size // GUARD_BYTES) * GUARD_BYTES


class DeviceBuffer:
    """GPU memory between two guards."""

    def __init__(self, runtime: HipRuntime, size: int) -> None:
        self._runtime = runtime
        self.size = size
        self._start = runtime.allocate(size + 2 * GUARD_BYTES)
        self.address = self._start + GUARD_BYTES
        self.restore_guards()

    def free(self) -> None:
        """Free the memory."""
        self._runtime.free(self._start)
        self.size = 0

    def restore_guards(self) -> None:
        """Restore the contents of the guards."""
        for guard in self._guards():
            self._runtime.fill(guard, CANARY, GUARD_BYTES)

    def overrun(self) -> str:
        """Position of an out-of-bounds write, e.g. "12 bytes behind"; empty if there is none."""
        there = np.empty((2, GUARD_BYTES), np.uint8)
        for bytes_there, guard in zip(there, self._guards(), strict=True):
            self._runtime.download(bytes_there.ctypes.data, guard, GUARD_BYTES)
        return overrun_of(there)

    def upload(self, values: Array) -> None:
        """Copy an array to the buffer's first bytes."""
        self._runtime.upload(self.address, values.ctypes.data, values.nbytes)

    def download(self, values: Array) -> None:
        """Copy the buffer's first bytes to an array."""
        self._runtime.download(values.ctypes.data, self.address, values.nbytes)

    def fill(self, byte: int, size: int) -> None:
        """Set the first `size` bytes."""
        if size:
            self._runtime.fill(self.address, byte, size)

    def _guards(self) -> tuple[int, int]:
        return self._start, self.address + self.size


class HipMemory(Memory):
    """Memory of one GPU. Kernels can overwrite inputs there, so the host keeps a copy."""

    times_first_runs = False

    def __init__(self, runtime: HipRuntime, flush_bytes: int, rotating: int = 1, rotating_bytes: int = 0) -> None:
        self._runtime = runtime
        self._rotating, self._rotating_bytes = rotating, rotating_bytes
        self._copies: DeviceBuffer | None = None
        self._wanted_copies = self._possible_copies = MAX_SETS
        self._flush_bytes = flush_bytes
        self._flush: DeviceBuffer | None = None
        self._inputs: list[tuple[Array, DeviceBuffer]] = []
        self._outputs: list[DeviceBuffer] = []  # the output, and the copy that is kept of it
        self._reserved: list[DeviceBuffer] = []
        self._result: Array = np.empty(0)
        self._unwritten_byte = NAN_BYTE
        self._workspace = DeviceBuffer(runtime, 0)

    def clear(self) -> None:
        self._free_others()
        buffers = [*(buffer for _, buffer in self._inputs), *self._outputs]
        self._inputs, self._outputs, self._result = [], [], np.empty(0)
        self._possible_copies = MAX_SETS
        for buffer in buffers:
            buffer.free()

    def reserve(self, size: int) -> DeviceBuffer:
        """Allocate a buffer until cleared, or until a workspace needs its memory: its size is 0 then."""
        self._reserved.append(DeviceBuffer(self._runtime, size))
        return self._reserved[-1]

    def _free_others(self) -> bool:
        """Free what kernels can be measured without; True if there was any."""
        buffers = [*self._reserved, *filter(None, [self._copies])]
        self._reserved, self._copies = [], None
        for buffer in buffers:
            buffer.free()
        return bool(buffers)

    def add_input(self, values: Array) -> Array:
        """Upload an operand; the array must not be changed."""
        buffer = DeviceBuffer(self._runtime, values.nbytes)
        self._inputs.append((values, buffer))
        buffer.upload(values)
        return values

    def set_output(self, shape: Sequence[int], element: ElementType) -> None:
        for _ in range(2):
            self._outputs.append(DeviceBuffer(self._runtime, element.storage.itemsize * prod(shape)))
        self._result = np.empty(tuple(shape), element.storage)
        self._unwritten_byte = element.unwritten_byte

    def provide_workspace(self, size: int) -> None:
        """Allocate at least `size` bytes; a smaller buffer is freed first, and so are others if memory is short."""
        if size <= self._workspace.size:
            return
        self._workspace.free()
        try:
            self._workspace = DeviceBuffer(self._runtime, size)
        except HipMemoryError:
            self._workspace = DeviceBuffer(self._runtime, 0)
            if not self._free_others():
                raise
            self.provide_workspace(size)
            self._possible_copies //= 2

    def reset(self, workspace_bytes: int) -> None:
        """Fill output and workspace, restore the guards, and wait for completion."""
        output = self._outputs[0]
        for buffer in self._written():
            buffer.restore_guards()
        self._workspace.fill(NAN_BYTE, min(workspace_bytes, WORKSPACE_FILL_BYTES))
        output.fill(self._unwritten_byte, output.size)
        if self._copies is not None:
            self._zero_copies(self.operand_sets())
        self._runtime.synchronize()

    def _zero_copies(self, sets: Sequence[Sequence[int]]) -> None:
        """Zero the outputs of copies: kernels may leave zeros out, and outputs are not zeroed for each timed launch."""
        byte = self._unwritten_byte if self._result.ndim == 1 else 0  # with gaps, which must stay, there is one axis
        for *_, output, _ in sets[1:]:
            self._runtime.fill(output, byte, self._outputs[0].size)

    def pointers(self) -> tuple[int, ...]:
        inputs = (buffer.address for _, buffer in self._inputs)
        return *inputs, self._outputs[0].address, self._workspace.address

    def operand_sets(self) -> list[tuple[int, ...]]:
        """Return the operands at `pointers` and their copies, which are made on the first call: as many as fit."""
        *inputs, _, workspace = first = self.pointers()
        sizes = [*(buffer.size for _, buffer in self._inputs), self._outputs[0].size]
        *starts, set_bytes = accumulate(map(_rounded, sizes), initial=0)
        more = self._rotating - 1 if self._rotating else min(MAX_SETS - 1, self._rotating_bytes // max(1, set_bytes))
        is_new, self._wanted_copies = self._copies is None, more
        self._possible_copies = min(more, self._possible_copies)
        while self._copies is None and self._possible_copies:
            try:
                self._copies = DeviceBuffer(self._runtime, self._possible_copies * set_bytes)
            except HipMemoryError:  # noqa: PERF203 - there are a handful
                self._possible_copies //= 2
        if self._copies is None:
            return [first]
        copies, more = self._copies, self._possible_copies
        sets = [[copies.address + number * set_bytes + start for start in starts] for number in range(more)]
        for each in sets if is_new else ():
            for copy, address, size in zip(each, inputs, sizes, strict=False):  # the output has no content
                self._runtime.copy(copy, address, size)
        every = [first, *((*each, workspace) for each in sets)]
        if is_new:
            self._zero_copies(every)
        return every

    def shortage(self) -> str:
        if self._possible_copies >= self._wanted_copies:
            return ""
        return f"launches took turns with {self._possible_copies + 1} of {self._wanted_copies + 1} sets of operands"

    def result(self, number: int = 0) -> Array:
        self._runtime.download(self._result.ctypes.data, self.output(number), self._result.nbytes)
        return self._result

    def output(self, number: int) -> int:
        """Address of the output of a set of operands."""
        return self.operand_sets()[number][-2] if number else self._outputs[0].address

    def keep_result(self) -> None:
        output, kept = self._outputs
        self._runtime.copy(kept.address, output.address, output.size)

    def kept(self) -> Array:
        kept = np.empty_like(self._result)
        self._outputs[1].download(kept)
        return kept

    def changed(self, numbers: Iterable[int]) -> list[int]:
        if self.compare is None:
            return [0] if differing(self.result(), self.kept()) else []
        buffers, sets = [*(buffer for _, buffer in self._inputs), self._outputs[1]], self.operand_sets()
        return [number for number in sorted(numbers) if self._differs(sets[number], buffers)]

    def _differs(self, addresses: Sequence[int], buffers: Sequence[DeviceBuffer]) -> bool:
        """True if contents at addresses are not those of buffers, by the GPU."""
        assert self.compare is not None
        pairs = zip(addresses, buffers, strict=False)
        return any(self.compare(at, buffer.address, buffer.size) for at, buffer in pairs if at != buffer.address)

    def repair_inputs(self) -> bool:
        """Download the inputs and restore those that were overwritten; True if any were.

        Copies are made anew; True also if one of them was overwritten.
        """
        repaired = False
        for values, buffer in self._inputs:
            downloaded = np.empty_like(values)
            buffer.download(downloaded)
            if downloaded.tobytes() != values.tobytes():
                buffer.upload(values)
                repaired = True
        if self._copies is not None:
            if self.compare is not None:
                buffers = [buffer for _, buffer in self._inputs]
                repaired |= any(self._differs(each, buffers) for each in self.operand_sets()[1:])
            if repaired:
                self._copies.free()
                self._copies = None
        return repaired

    def probe(self) -> None:
        """Write, wait and read: after a persistent error, one of these fails."""
        self._workspace.restore_guards()
        self._runtime.synchronize()
        self._workspace.overrun()

    def flush_buffer(self) -> tuple[int, int]:
        """Flush buffer, allocated on first use."""
        if not self._flush_bytes:
            return 0, 0
        if self._flush is None:
            self._flush = DeviceBuffer(self._runtime, self._flush_bytes)
        return self._flush.address, self._flush.size

    def _written(self) -> tuple[DeviceBuffer, DeviceBuffer]:
        return self._outputs[0], self._workspace
