"""A compiled kernel as the worker sees it: a shared library with the C functions of ABI version 1."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckh.ops.gemm_universal.problem import GemmProblem
    from ckh.problems import ConvProblem

ABI_VERSION = 1

_FIELDS = (
    *("n", "c", "k", "g", "di", "hi", "wi", "z", "y", "x", "stride_d", "stride_h", "stride_w"),
    *("pad_d", "pad_h", "pad_w", "dilation_d", "dilation_h", "dilation_w", "do", "ho", "wo"),
)


class CConvProblem(ctypes.Structure):
    """`struct ckh_conv_problem`."""

    _fields_ = [(name, ctypes.c_int64) for name in _FIELDS]


def c_problem(problem: ConvProblem) -> CConvProblem:
    """The convolution as kernels take it."""
    return CConvProblem(**{name: getattr(problem, name) for name in _FIELDS})


class CGemmProblem(ctypes.Structure):
    """`struct ckh_gemm_problem`."""

    _fields_ = [(name, ctypes.c_int64) for name in ("m", "n", "k", "split_k")]


def c_gemm_problem(problem: GemmProblem) -> CGemmProblem:
    """The matrix product as kernels take it."""
    return CGemmProblem(problem.m, problem.n, problem.k, problem.split_k)


class KernelLibrary:
    """The functions of a loaded kernel.

    Raises:
        OSError: the file cannot be loaded, or speaks another ABI.
        AttributeError: a function is missing that is not optional, as `ckh_name`, `ckh_error` and `ckh_set_flush` are.
    """

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        # What a problem is depends on the operation, which the kernel and its caller agree on.
        pointer = problem = ctypes.c_void_p
        library.ckh_abi_version.restype = ctypes.c_int32
        if (found := library.ckh_abi_version()) != ABI_VERSION:
            raise OSError(f"{path} speaks ABI version {found}, not {ABI_VERSION}")
        self.unsupported = library.ckh_unsupported
        self.unsupported.restype, self.unsupported.argtypes = ctypes.c_char_p, [problem]
        self.workspace_bytes = library.ckh_workspace_bytes
        self.workspace_bytes.restype, self.workspace_bytes.argtypes = ctypes.c_int64, [problem]
        self.run = library.ckh_run
        self.run.restype, self.run.argtypes = ctypes.c_int32, [problem, *(pointer,) * 4]
        self.time = library.ckh_time
        self.time.restype = ctypes.c_int32
        self.time.argtypes = [problem, *(pointer,) * 4, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_double)]
        self._library = library

    def name(self) -> str:
        """The kernel's name; empty if it does not tell."""
        return self._text("ckh_name")

    def error(self) -> str:
        """Why the last call returned something else than 0; empty if it does not tell."""
        return self._text("ckh_error")

    def set_flush(self, address: int, size: int) -> None:
        """Tell the kernel what to overwrite before every timed run, if there is anything and it can be told."""
        function = getattr(self._library, "ckh_set_flush", None)
        if size and function is not None:
            function.restype, function.argtypes = None, [ctypes.c_void_p, ctypes.c_int64]
            function(address, size)

    def _text(self, function_name: str) -> str:
        function = getattr(self._library, function_name, None)
        if function is None:
            return ""
        function.restype, function.argtypes = ctypes.c_char_p, []
        return (function() or b"").decode(errors="replace")
