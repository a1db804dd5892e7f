"""Memory for kernels: out-of-bounds writes are detected, and reads just after an input return zeros."""

from __future__ import annotations

import ctypes
import mmap
import signal
import subprocess
import sys

import numpy as np
import pytest

from ckh.bench.isolated.memory import READABLE_TAIL_BYTES, GuardedBuffer, input_array
from tests.refusals import expect_values

SIZES = (0, 1, 4, 4095, 4096, 4097, 3_000_001)


@pytest.mark.parametrize("size", SIZES)
def test_a_buffer_is_page_aligned_and_writable(size: int) -> None:
    """Exactly its own bytes may be written."""
    buffer = GuardedBuffer(size)
    assert buffer.data.nbytes == size
    assert buffer.address % mmap.PAGESIZE == 0
    ctypes.memset(buffer.address, 0xFF, size)
    assert int(np.count_nonzero(buffer.data == 0xFF)) == size
    assert buffer.overrun() == ""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 12, mmap.PAGESIZE])
def test_out_of_bounds_writes_are_counted(size: int, count: int) -> None:
    """Up to a page on either side, each side is reported with its bytes, and a reset clears them."""
    buffer = GuardedBuffer(size)
    ctypes.memset(buffer.address - count, 0, count)
    expect_values(buffer.overrun(), count, "front")
    buffer.restore_guards()
    assert buffer.overrun() == ""
    ctypes.memset(buffer.address + size, 0, count)
    expect_values(buffer.overrun(), count, "behind")
    ctypes.memset(buffer.address - 3, 0, 3)
    expect_values(buffer.overrun(), 3, "front", count, "behind")
    buffer.restore_guards()
    assert buffer.overrun() == ""


def test_reset_keeps_the_content_of_the_buffer() -> None:
    """Only the guards are restored."""
    buffer = GuardedBuffer(8)
    buffer.data[:] = 7
    ctypes.memset(buffer.address + 8, 0, 1)
    buffer.restore_guards()
    assert buffer.data.tolist() == [7] * 8


def test_an_impossible_buffer_size_is_an_os_error() -> None:
    """A petabyte is not available, and the caller gets an error."""
    with pytest.raises(OSError, match="memory"):
        GuardedBuffer(1 << 50)


@pytest.mark.parametrize("shape", [(1,), (3, 5), (16, 64), (2, 7, 11, 1, 3), (1000, 1000)])
def test_an_input_is_a_page_aligned_copy_followed_by_zeros(shape: tuple[int, ...]) -> None:
    """A kernel reads the values, and zeros where its last vector extends beyond them."""
    values = np.random.default_rng(1).random(shape, dtype=np.float32) + 1
    copy = input_array(values)
    assert copy.shape == shape
    assert copy.ctypes.data % mmap.PAGESIZE == 0
    np.testing.assert_array_equal(copy, values)
    assert READABLE_TAIL_BYTES >= 4 * 16  # the widest SIMD vector
    assert ctypes.string_at(copy.ctypes.data + copy.nbytes, READABLE_TAIL_BYTES) == bytes(READABLE_TAIL_BYTES)
    values[...] = 0
    assert (copy >= 1).all()


@pytest.mark.parametrize("offset", [0, 4 * 6 - 1, 4 * 6, 4 * 6 + READABLE_TAIL_BYTES - 1])
def test_kernel_that_writes_an_input_crashes(offset: int) -> None:
    """A write from C to a value, or to the zeros after it, ends the process; a read does not."""
    program = (
        "import ctypes, numpy\n"
        "from ckh.bench.isolated.memory import input_array\n"
        "copy = input_array(numpy.ones((2, 3), numpy.float32))\n"
        f"print(len(ctypes.string_at(copy.ctypes.data + {offset}, 1)), flush=True)\n"
        f"ctypes.memset(copy.ctypes.data + {offset}, 1, 1)\n"
        "print('alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "1\n"
    assert done.returncode == -signal.SIGSEGV
