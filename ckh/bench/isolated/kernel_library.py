"""A compiled kernel as the worker sees it: a shared library with the C functions of ABI version 1."""

from __future__ import annotations

import ctypes
import os
from typing import Any

ABI_VERSION = 1
ENTRY_POINTS = ("ckh_abi_version", "ckh_unsupported", "ckh_workspace_bytes", "ckh_run", "ckh_time")
_TIME_BY = "ckh_time_by"
BY_GRAPH, OF_NOTHING = 1, 2  # bits of how it times: launches started by a graph; of a kernel that does nothing


class Operands(ctypes.Structure):
    """The memory that a launch works on."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("a", "b", "out", "workspace"))


class KernelLibrary:
    """The functions of a loaded kernel.

    Raises:
        OSError: the file cannot be loaded, or speaks another ABI.
        AttributeError: a function is missing that is not optional, as `ckh_name`, `ckh_error`, `ckh_set_flush` and
            `ckh_time_by` are.
    """

    def __init__(self, path: str) -> None:
        self._pid = os.getpid()
        self._library = ctypes.CDLL(path)
        self._stay_alone()
        version, unsupported, workspace_bytes, run, time = ENTRY_POINTS
        if (found := self._function(version, ctypes.c_int32)()) != ABI_VERSION:
            raise OSError(f"{path} speaks ABI version {found}, not {ABI_VERSION}")
        # What a problem is depends on the operation, which the kernel and its caller agree on.
        pointer = problem = ctypes.c_void_p
        buffers, counts = (pointer,) * 4, (ctypes.c_int32,) * 2
        self.unsupported = self._function(unsupported, ctypes.c_char_p, problem)
        self.workspace_bytes = self._function(workspace_bytes, ctypes.c_int64, problem)
        self.run = self._function(run, ctypes.c_int32, problem, *buffers)
        times = ctypes.POINTER(ctypes.c_double)
        self.time = self._function(time, ctypes.c_int32, problem, *buffers, *counts, times)
        self.time_by: Any = None
        """Only of GPU kernels: how, problem, sets of operands, their number, the first one's number; as `time`."""
        if hasattr(self._library, _TIME_BY):
            sets = (ctypes.POINTER(Operands), *counts)
            self.time_by = self._function(_TIME_BY, ctypes.c_int32, ctypes.c_int32, problem, *sets, *counts, times)

    def name(self) -> str:
        """The kernel's name; empty if it states none."""
        return self._text("ckh_name")

    def error(self) -> str:
        """Why the last call returned something else than 0; empty if it states no reason."""
        return self._text("ckh_error")

    def set_flush(self, address: int, size: int) -> None:
        """Set the memory that the kernel overwrites before every timed run, if there is any and the library can."""
        if size and hasattr(self._library, "ckh_set_flush"):
            self._function("ckh_set_flush", None, ctypes.c_void_p, ctypes.c_int64)(address, size)

    def _text(self, name: str) -> str:
        if not hasattr(self._library, name):
            return ""
        return (self._function(name, ctypes.c_char_p)() or b"").decode(errors="replace")

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, name)
        function.restype, function.argtypes, function.errcheck = result, arguments, self._alone
        return function

    def _alone(self, result: Any, _function: Any, _arguments: Any) -> Any:
        self._stay_alone()
        return result

    def _stay_alone(self) -> None:
        """End this process if a kernel has forked, and this is the copy: it would do jobs and reply too."""
        if os.getpid() != self._pid:
            os._exit(0)
