"""Host memory as used by kernels."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ckh.bench.isolated.memory import WORKSPACE_FILL_BYTES, HostMemory
from ckh.bench.isolated.typed import element_type
from tests.refusals import expect_values

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(4, dtype=np.float32)


@pytest.fixture
def memory() -> HostMemory:
    """Two inputs and space for five numbers."""
    memory = HostMemory()
    memory.add_input(A)
    memory.add_input(B)
    memory.set_output((5,), element_type("fp32"))
    return memory


def test_pointers_are_inputs_output_and_workspace(memory: HostMemory) -> None:
    """A kernel reads the operands, and its output is the result."""
    memory.provide_workspace(8)
    a, b, output, workspace = memory.pointers()
    assert ctypes.string_at(a, A.nbytes) == A.tobytes()
    assert ctypes.string_at(b, B.nbytes) == B.tobytes()
    ctypes.memset(output, 0, 20)
    ctypes.memset(workspace, 0, 8)
    assert memory.result().tolist() == [0.0] * 5
    assert memory.overrun() == ""


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a_reset_fills_the_output_with_nan(memory: HostMemory, dtype: str) -> None:
    """This holds for all floating-point types."""
    element = element_type(dtype)
    memory.clear()
    memory.set_output((2, 3), element)
    memory.result().fill(0)
    memory.reset(0)
    assert memory.result().dtype == element.storage
    assert np.isnan(element.widened(memory.result())).tolist() == [[True] * 3] * 2


def test_a_reset_fills_integer_outputs_with_an_impossible_value(memory: HostMemory) -> None:
    """Integers have no NaN; another type's output has NaN again."""
    element = element_type("int32")
    memory.set_output((3,), element)
    memory.reset(0)
    assert memory.result().tolist() == [int(element.unwritten)] * 3 == [-0x7F7F7F80] * 3
    memory.set_output((1,), element_type("fp16"))
    memory.reset(0)
    assert np.isnan(memory.result()).all()


def test_a_reset_fills_the_requested_workspace(memory: HostMemory) -> None:
    """As far as a kernel uses it; of a large one, the first megabytes."""
    memory.provide_workspace(WORKSPACE_FILL_BYTES + 100)
    workspace = memory.pointers()[3]
    memory.reset(10)
    assert ctypes.string_at(workspace, 12) == b"\xff" * 10 + bytes(2)
    memory.reset(WORKSPACE_FILL_BYTES + 100)
    assert ctypes.string_at(workspace + WORKSPACE_FILL_BYTES - 2, 4) == b"\xff\xff\0\0"


def test_an_out_of_bounds_write_is_named_once(memory: HostMemory) -> None:
    """Output and workspace are both guarded, and their guards are restored by the check."""
    memory.provide_workspace(10)
    _, _, output, workspace = memory.pointers()
    ctypes.memset(output + 20, 0, 2)
    ctypes.memset(workspace - 1, 0, 1)
    expect_values(memory.overrun(), 2, "behind", "output")
    expect_values(memory.overrun(), 1, "front", "workspace")
    assert memory.overrun() == ""


def test_a_workspace_grows_and_stays(memory: HostMemory) -> None:
    """A smaller request needs no new one."""
    memory.provide_workspace(100_000)
    first = memory.pointers()[3]
    memory.provide_workspace(50)
    assert memory.pointers()[3] == first


def test_clearing_makes_room_for_other_inputs(memory: HostMemory) -> None:
    """The next two inputs are the operands."""
    memory.clear()
    memory.add_input(B)
    memory.add_input(A)
    assert ctypes.string_at(memory.pointers()[0], B.nbytes) == B.tobytes()


def test_the_host_needs_neither_repair_nor_flush(memory: HostMemory) -> None:
    """Inputs are read-only, caches stay warm, first runs are timed, and a probe finds nothing."""
    assert not memory.repair_inputs()
    assert memory.flush_buffer() == (0, 0)
    assert memory.times_first_runs
    memory.probe()
