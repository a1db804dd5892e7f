"""Checks of results by kernels on the GPU that computes them: the reference's sums, and comparisons of outputs."""

from __future__ import annotations

import ctypes
from functools import partial
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np

from ckh.bench.computation import computation_of
from ckh.bench.isolated.memory import DeviceBuffer
from ckh.bench.isolated.operands import stored_shape, tensor_of
from ckh.bench.isolated.typed import element_type
from ckh.bench.isolated.verify import Sums
from ckh.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.bench.computation import Operand, Split
    from ckh.bench.isolated.hip_runtime import HipRuntime
    from ckh.bench.isolated.memory import HipMemory
    from ckh.bench.isolated.typed import Array, ElementType
    from ckh.bench.isolated.verify import Limits, Range
    from ckh.ops.base import Problem

# Numbers of element types in checks.hip.
_SUMMED = {"fp32": 0, "fp16": 1, "bf16": 2, "int8": 3, "fp8": 4, "bf8": 4}
_COMPARED = {"fp32": 0, "fp16": 1, "bf16": 2, "int32": 3}
_FACTORS = 2
_COUNTER = np.dtype(np.uint64)
_pointer, _i32, _i64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_ARGUMENTS = {
    "ckh_sum": (_i32, *(_pointer,) * 6),
    "ckh_outside": (_i32, *(_pointer,) * 3, _i64, _i32, _pointer),
    "ckh_differ": (*(_pointer,) * 2, _i64, _pointer),
}


class GpuChecks:
    """The compiled checks.hip on a GPU, for a memory. Methods raise `HipError`, for lack of memory `HipMemoryError`."""

    def __init__(self, path: str, runtime: HipRuntime, memory: HipMemory) -> None:
        self._runtime, self.memory = runtime, memory
        try:
            self._library = ctypes.CDLL(path)
            for name, arguments in _ARGUMENTS.items():
                getattr(self._library, name).argtypes = arguments
        except (OSError, AttributeError) as error:
            reason = f"the kernels that check results cannot be loaded: {error}"
            raise DeviceError(reason, f"delete {path}, or check on the host (--verify-on host)") from error
        self._counter = DeviceBuffer(runtime, _COUNTER.itemsize)
        memory.compare = partial(self._counted, "ckh_differ")

    def sums(self, problem: Problem, inputs: Sequence[Array], *, fnuz_floats: bool) -> Sums | None:
        """Return a problem's sums, given its inputs as tensors; None if there are no kernels for it."""
        computation = computation_of(problem)
        operands, result = computation.operands_of(problem)
        if computation.contractions is None:
            return None
        sums = Sums(np.empty(prod(result.shape)), np.empty(prod(result.shape), np.float32))
        dtype, buffers = operands[0].dtype, list[DeviceBuffer]()

        def buffer(size: int, values: Array | None = None) -> DeviceBuffer:
            buffers.append(DeviceBuffer(self._runtime, size))
            if values is not None:
                buffers[-1].upload(values)
            return buffers[-1]

        try:
            factors = [
                address if operand.order is None else buffer(values.nbytes, values).address
                for operand, values, address in zip(operands[:_FACTORS], inputs, self.memory.pointers(), strict=False)
            ]
            numbers = element_type(dtype, fnuz_floats=fnuz_floats).widened(np.arange(256, dtype=np.uint8))
            codes = buffer(numbers.nbytes, numbers).address
            exact, magnitude = buffer(sums.exact.nbytes), buffer(sums.magnitude.nbytes)
            for each in computation.contractions(problem):
                where = (*factors, codes, exact.address, magnitude.address)
                self._call("ckh_sum", _SUMMED[dtype], ctypes.addressof(each), *where)
            exact.download(sums.exact)
            magnitude.download(sums.magnitude)
        finally:
            for allocated in buffers:
                allocated.free()
        return sums

    def outside(self, dtype: str, output: int, bounds: Sequence[int], size: int, unwritten: int) -> int:
        """Return the number of elements of an output that are outside of their bounds, all by their addresses."""
        return self._counted("ckh_outside", _COMPARED[dtype], output, *bounds, size, unwritten)

    def _counted(self, name: str, *arguments: int) -> int:
        count = np.empty(1, _COUNTER)
        self._counter.fill(0, count.nbytes)
        self._call(name, *arguments, self._counter.address)
        self._counter.download(count)
        return int(count[0])

    def _call(self, name: str, *arguments: int) -> None:
        self._runtime.require(getattr(self._library, name)(*arguments), name)


class GpuLimits:
    """Limits of right results in the memory of the GPU that computes them, as stored there."""

    def __init__(self, checks: GpuChecks, limits: Limits, output: Operand, element: ElementType) -> None:
        self._checks, self._limits = checks, limits
        self._output, self._element, self._size = output, element, prod(stored_shape(output))
        self._bounds = [checks.memory.reserve(self._size * element.bound.itemsize) for _ in range(2)]
        self._held: Range | None = None  # by these buffers

    def holds(self, number: int, split: Split) -> bool:
        """True if the whole output of a set of operands is right; otherwise the host has to look."""
        if self._limits.judges_together(split) or not all(bound.size for bound in self._bounds):
            return False
        if (right := self._limits.range_of(split)) is not self._held:
            self._bounds[0].upload(self._stored(right.low, inf))
            self._bounds[1].upload(self._stored(right.high, -inf))
            self._held = right
        addresses, unwritten = [bound.address for bound in self._bounds], self._element.unwritten_byte
        output = self._checks.memory.output(number)
        return not self._checks.outside(self._output.dtype, output, addresses, self._size, unwritten)

    def _stored(self, bounds: Array, gap: float) -> Array:
        """Bounds as the output is stored, with a number for what is between its rows."""
        stored = np.full(stored_shape(self._output), gap, self._element.bound)
        tensor_of(self._output, stored)[...] = bounds.reshape(self._output.shape)
        return stored
