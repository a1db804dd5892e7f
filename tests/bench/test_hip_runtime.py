"""The HIP runtime through ctypes: calls, and messages of failures."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.bench.isolated.hip_runtime import HipError, HipMemoryError, HipRuntime
from ckh.errors import DeviceError
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("own_hip_library")


def test_bytes_round_trip_through_the_gpu() -> None:
    """Uploaded data are downloaded unchanged, and a fill sets the byte, at an address that is not the host's."""
    runtime = HipRuntime(0)
    sent = np.arange(100, dtype=np.int16)
    address = runtime.allocate(300)
    runtime.upload(address, sent.ctypes.data, 200)
    runtime.fill(address + 200, 7, 100)
    runtime.synchronize()
    values = np.zeros(300, np.uint8)
    runtime.download(values.ctypes.data, address, 300)
    assert values.tobytes() == sent.tobytes() + bytes([7] * 100)
    runtime.free(address)


def test_a_failed_call_names_the_function() -> None:
    """The error has the function, HIP's name and number, and is not a lack of memory."""
    runtime = HipRuntime(0)
    with pytest.raises(HipError) as caught:
        runtime.free(4096)
    assert type(caught.value) is HipError
    expect_values(caught.value.message, "hipFree: invalid argument", "error 1")


def test_out_of_memory_is_distinguished_from_other_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its own type and states the requested size; less can be allocated afterwards."""
    monkeypatch.setenv("CKH_STUB_MEMORY", "1000000")
    runtime = HipRuntime(0)
    with pytest.raises(HipMemoryError) as caught:
        runtime.allocate(2_000_000)
    expect_values(caught.value.message, "hipMalloc", "2.0 MB", "error 2")
    runtime.free(runtime.allocate(1_000_000))


def test_an_error_is_cleared_once_raised(own_hip_library: Path) -> None:
    """A kernel that queries HIP's last error does not get ckh's."""
    runtime = HipRuntime(0)
    with pytest.raises(HipError):
        runtime.free(4096)
    assert ctypes.CDLL(str(own_hip_library)).hipGetLastError() == 0


@pytest.mark.parametrize(
    ("gpus", "gpu", "message"),
    [
        ("0", 0, "HIP finds no GPU"),
        ("1", 1, "no GPU 1: HIP has 1, numbered from 0"),
        ("4", 7, "no GPU 7: HIP has 4, numbered from 0"),
    ],
)
def test_a_missing_gpu_is_a_device_error(monkeypatch: pytest.MonkeyPatch, gpus: str, gpu: int, message: str) -> None:
    """The message tells whether there is no GPU or not this one."""
    monkeypatch.setenv("CKH_STUB_GPUS", gpus)
    with pytest.raises(DeviceError) as caught:
        HipRuntime(gpu)
    assert caught.value.message == message


def test_an_unloadable_runtime_is_a_device_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that is not a library is named with the loader's reason."""
    wrong = tmp_path / "libamdhip64.so"
    wrong.write_text("hello")
    monkeypatch.setenv("CKH_HIP_LIBRARY", str(wrong))
    with pytest.raises(DeviceError) as caught:
        HipRuntime(0)
    assert caught.value.code == "no-hip-runtime"
    expect_values(caught.value.message, wrong)


def test_a_library_without_runtime_functions_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The missing function is named."""
    monkeypatch.setenv("CKH_HIP_LIBRARY", "libc.so.6")
    with expect_refusal(DeviceError, "no-hip-runtime", "hipGetDeviceCount"):
        HipRuntime(0)


def test_the_runtime_is_searched_in_rocm_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_hip_library: Path
) -> None:
    """Without a requested library, that of ROCM_PATH is used."""
    (tmp_path / "lib").mkdir()
    own_hip_library.rename(tmp_path / "lib" / "libamdhip64.so")
    monkeypatch.delenv("CKH_HIP_LIBRARY")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    HipRuntime(0).synchronize()
