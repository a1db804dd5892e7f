"""A compiled kernel loaded by the worker: a shared library with the C functions of ABI version 2."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ABI_VERSION = 2
ENTRY_POINTS = (
    *("ckh_abi_version", "ckh_operand_count", "ckh_unsupported", "ckh_workspace_bytes"),
    *("ckh_run", "ckh_time"),
)
_TIME_BY = "ckh_time_by"
BY_GRAPH, OF_NOTHING = 1, 2  # flags of timing: launch by a graph; launch an empty kernel


def pointers(*sets: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
    """Addresses of the operands of one or more launches, as kernels take them."""
    addresses = [address for each in sets for address in each]
    return (ctypes.c_void_p * len(addresses))(*addresses)


class KernelLibrary:
    """Functions of a loaded kernel."""

    def __init__(self, path: str) -> None:
        self._pid = os.getpid()
        self._library = ctypes.CDLL(path)
        self._stay_alone()
        version, operand_count, unsupported, workspace_bytes, run, time = ENTRY_POINTS
        if (abi_version := self._function(version, ctypes.c_int32)()) != ABI_VERSION:
            raise OSError(f"{path} has ABI version {abi_version}, not {ABI_VERSION}")
        # The layout of a problem depends on the operation; the kernel and its caller agree on it.
        problem, operands, counts = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), (ctypes.c_int32,) * 2
        self.operand_count = int(self._function(operand_count, ctypes.c_int32)())
        self.unsupported = self._function(unsupported, ctypes.c_char_p, problem)
        self.workspace_bytes = self._function(workspace_bytes, ctypes.c_int64, problem)
        self.run = self._function(run, ctypes.c_int32, problem, operands)
        times = ctypes.POINTER(ctypes.c_double)
        self.time = self._function(time, ctypes.c_int32, problem, operands, *counts, times)
        self.time_by: Any = None
        """GPU kernels only: flags, problem, operand sets, their number, index of the first set; otherwise as `time`."""
        if hasattr(self._library, _TIME_BY):
            arguments = (ctypes.c_int32, problem, operands, *counts, *counts, times)
            self.time_by = self._function(_TIME_BY, ctypes.c_int32, *arguments)

    def name(self) -> str:
        """Kernel name; empty if the library has none."""
        return self._text("ckh_name")

    def error(self) -> str:
        """Reason of the last non-zero return value; empty if none is given."""
        return self._text("ckh_error")

    def set_flush(self, address: int, size: int) -> None:
        """Set the memory that the kernel overwrites before every timed run, if the library supports it."""
        if size and hasattr(self._library, "ckh_set_flush"):
            self._function("ckh_set_flush", None, ctypes.c_void_p, ctypes.c_int64)(address, size)

    def _text(self, name: str) -> str:
        if not hasattr(self._library, name):
            return ""
        return (self._function(name, ctypes.c_char_p)() or b"").decode(errors="replace")

    def _function(self, name: str, restype: Any, *arguments: Any) -> Any:
        function = getattr(self._library, name)
        function.restype, function.argtypes, function.errcheck = restype, arguments, self._alone
        return function

    def _alone(self, result: Any, _function: Any, _arguments: Any) -> Any:
        self._stay_alone()
        return result

    def _stay_alone(self) -> None:
        """Exit if this process is a copy forked by a kernel, as it would execute jobs and reply too."""
        if os.getpid() != self._pid:
            os._exit(0)
