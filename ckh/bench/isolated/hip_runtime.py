"""The HIP runtime functions used by the worker, through ctypes. Only workers may load the runtime."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DeviceError
from ckh.hardware.gpus import remedy

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY_VARIABLE = "CKH_HIP_LIBRARY"
RUNTIME = "libamdhip64.so"
_FILES = (RUNTIME, *(f"{RUNTIME}.{version}" for version in (7, 6, 5)))
_DEFAULT_ROCM = "/opt/rocm"

_pointer, _size = ctypes.c_void_p, ctypes.c_size_t
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "hipGetDeviceCount": (ctypes.POINTER(ctypes.c_int),),
    "hipSetDevice": (ctypes.c_int,),
    "hipMalloc": (ctypes.POINTER(_pointer), _size),
    "hipFree": (_pointer,),
    "hipMemcpy": (_pointer, _pointer, _size, ctypes.c_int),
    "hipMemset": (_pointer, ctypes.c_int, _size),
    "hipDeviceSynchronize": (),
    "hipGetLastError": (),
}
_INSTALL = f"install ROCm, or say where it is with ROCM_PATH, or name {RUNTIME} with {LIBRARY_VARIABLE}"
_OUT_OF_MEMORY, _NO_DEVICE = 2, 100  # hipError_t
NO_MEMORY = "out of memory"  # HIP's message of the former
_HOST_TO_DEVICE, _DEVICE_TO_HOST, _ON_DEVICE = 1, 2, 3  # hipMemcpyKind


class HipError(DeviceError):
    """A call of the HIP runtime failed; the message has the function's name and HIP's message."""

    default_code = "hip-error"


class HipMemoryError(HipError):
    """An allocation failed for lack of GPU memory; the GPU stays usable."""

    default_code = "gpu-memory"


class HipRuntime:
    """The HIP runtime on one GPU."""

    def __init__(self, gpu: int) -> None:
        self._library = _load()
        try:
            for name, arguments in _ARGUMENTS.items():
                function = getattr(self._library, name)
                function.restype, function.argtypes = ctypes.c_int, arguments
            self._library.hipGetErrorString.restype = ctypes.c_char_p
            self._library.hipGetErrorString.argtypes = (ctypes.c_int,)
        except AttributeError as error:
            raise DeviceError(f"the HIP runtime cannot be used: {error}", _INSTALL, code="no-hip-runtime") from error
        self._choose(gpu)

    def allocate(self, size: int) -> int:
        """Allocate GPU memory; returns its address."""
        address = _pointer()
        self._call("hipMalloc", ctypes.byref(address), size, what=f" of {size / 1e6:.1f} MB")
        assert address.value is not None
        return address.value

    def free(self, address: int) -> None:
        """Free an allocation."""
        self._call("hipFree", address)

    def upload(self, address: int, source: int, size: int) -> None:
        """Copy from host memory."""
        self._call("hipMemcpy", address, source, size, _HOST_TO_DEVICE)

    def download(self, target: int, address: int, size: int) -> None:
        """Copy to host memory."""
        self._call("hipMemcpy", target, address, size, _DEVICE_TO_HOST)

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy within GPU memory."""
        self._call("hipMemcpy", target, source, size, _ON_DEVICE)

    def fill(self, address: int, byte: int, size: int) -> None:
        """Set bytes asynchronously."""
        self._call("hipMemset", address, byte, size)

    def synchronize(self) -> None:
        """Wait for all work on the GPU."""
        self._call("hipDeviceSynchronize")

    def _choose(self, gpu: int) -> None:
        count = ctypes.c_int()
        try:
            self._call("hipGetDeviceCount", ctypes.byref(count), allowed=_NO_DEVICE)
        except HipError as error:
            raise DeviceError(error.message, remedy(), code=error.code) from error
        if count.value <= 0:
            raise DeviceError("HIP finds no GPU", remedy(), code="no-gpu")
        if gpu >= count.value:
            raise DeviceError(f"no GPU {gpu}: HIP has {count.value}, numbered from 0", remedy(), code="no-such-gpu")
        self._call("hipSetDevice", gpu)

    def _call(self, name: str, *arguments: Any, what: str = "", allowed: int = 0) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != allowed:
            self.require(code, f"{name}{what}")

    def require(self, code: int, name: str) -> None:
        """Raise what a function's code means, if it is not 0."""
        if code:
            text = (self._library.hipGetErrorString(code) or b"unknown error").decode(errors="replace")
            # Clear the error; otherwise the next kernel that queries HIP's last error gets this one.
            self._library.hipGetLastError()
            kind = HipMemoryError if code == _OUT_OF_MEMORY else HipError
            raise kind(f"{name}: {text} (error {code})")


def preload() -> None:
    """Load the runtime, if there is one, so that kernels find it whatever the loader's search path."""
    with suppress(DeviceError):
        _load()


def _load() -> ctypes.CDLL:
    reason = ""
    for name in _candidates():
        try:
            return ctypes.CDLL(name)
        except OSError as error:  # noqa: PERF203 - there are a handful
            # A file that exists but cannot be loaded is a better reason than one that does not exist.
            if not reason or "No such file" not in str(error):
                reason = str(error)
    raise DeviceError(f"the HIP runtime cannot be loaded: {reason}", _INSTALL, code="no-hip-runtime")


def _candidates() -> Iterator[str]:
    """Possible paths of the runtime, the requested one first."""
    if chosen := os.environ.get(LIBRARY_VARIABLE):
        yield chosen
        return
    rocm = os.environ.get("ROCM_PATH")
    if rocm:
        yield str(Path(rocm, "lib", RUNTIME))
    yield from _FILES
    if not rocm:
        yield str(Path(_DEFAULT_ROCM, "lib", RUNTIME))
