"""GPU memory: guarded, filled with NaN, uploaded once and restored after a kernel overwrote it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.bench.isolated.hip_runtime import HipError, HipMemoryError, HipRuntime
from ckh.bench.isolated.memory import GUARD_BYTES, DeviceBuffer, HipMemory
from ckh.bench.isolated.typed import element_type
from tests.refusals import expect_refusal, expect_values, has_values

if TYPE_CHECKING:
    from pathlib import Path

A = np.arange(6, dtype=np.float16).reshape(2, 3)
B = np.arange(20, dtype=np.float16)

pytestmark = pytest.mark.usefixtures("own_hip_library")


@pytest.fixture
def runtime(own_hip_library: Path) -> HipRuntime:
    """The runtime of the stub."""
    return HipRuntime(0)


@pytest.fixture
def memory(runtime: HipRuntime) -> HipMemory:
    """Two inputs and space for five fp16 numbers."""
    memory = HipMemory(runtime, 4096)
    for values in (A, B):
        assert memory.add_input(values) is values
    memory.set_output((5,), element_type("fp16"))
    return memory


@pytest.mark.parametrize("count", [1, 12, GUARD_BYTES])
def test_out_of_bounds_writes_are_counted(runtime: HipRuntime, count: int) -> None:
    """Either side is reported with its bytes until the guards are restored; the bytes between may be written."""
    buffer = DeviceBuffer(runtime, 100)
    runtime.fill(buffer.address, 0, 100)
    assert buffer.overrun() == ""
    runtime.fill(buffer.address - count, 0, count)
    expect_values(buffer.overrun(), count, "front")
    runtime.fill(buffer.address + 100, 0, count)
    expect_values(buffer.overrun(), count, "front", count, "behind")
    buffer.restore_guards()
    assert buffer.overrun() == ""


def test_a_reset_fills_output_and_workspace_with_nan(memory: HipMemory, runtime: HipRuntime) -> None:
    """In the workspace, as much as the kernel requested."""
    memory.provide_workspace(64)
    workspace = memory.pointers()[3]
    runtime.fill(workspace, 0, 64)
    memory.reset(48)
    assert np.isnan(memory.result()).all()
    result = np.empty(64, np.uint8)
    runtime.download(result.ctypes.data, workspace, 64)
    assert result.tolist() == [0xFF] * 48 + [0] * 16


def test_an_out_of_bounds_write_is_named_once(memory: HipMemory, runtime: HipRuntime) -> None:
    """Output and workspace are both guarded, and their guards are restored by the check."""
    memory.provide_workspace(10)
    _, _, output, workspace = memory.pointers()
    memory.reset(10)
    runtime.fill(output + 10, 0, 2)
    runtime.fill(workspace - 1, 0, 1)
    expect_values(memory.overrun(), 2, "behind", "output")
    expect_values(memory.overrun(), 1, "front", "workspace")
    assert memory.overrun() == ""


def test_the_result_is_downloaded(memory: HipMemory, runtime: HipRuntime) -> None:
    """It has the shape and the dtype of the output."""
    written = np.array([1, -2, 3, 0.5, 65504], np.float16)
    runtime.upload(memory.pointers()[2], written.ctypes.data, written.nbytes)
    assert memory.result().dtype == np.float16
    assert memory.result().tolist() == written.tolist()


def test_inputs_are_restored_if_they_changed(memory: HipMemory, runtime: HipRuntime) -> None:
    """A changed byte is detected and restored; nothing is reported for intact inputs."""
    assert not memory.repair_inputs()
    _, b, _, _ = memory.pointers()
    runtime.fill(b + 39, 1, 1)
    assert memory.repair_inputs()
    result = np.empty_like(B)
    runtime.download(result.ctypes.data, b, B.nbytes)
    assert result.tolist() == B.tolist()
    assert not memory.repair_inputs()


def test_a_workspace_grows_and_stays(memory: HipMemory) -> None:
    """A smaller request needs no new one."""
    memory.provide_workspace(100)
    first = memory.pointers()[3]
    memory.provide_workspace(50)
    assert memory.pointers()[3] == first


def test_a_failed_workspace_allocation_keeps_the_old_one(memory: HipMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next kernel can have a smaller one."""
    monkeypatch.setenv("CKH_STUB_MEMORY", "100000")
    memory.provide_workspace(10_000)
    with pytest.raises(HipMemoryError):
        memory.provide_workspace(1_000_000)
    memory.provide_workspace(20_000)
    memory.reset(20_000)
    assert memory.overrun() == ""


def test_clearing_gives_memory_back(memory: HipMemory, runtime: HipRuntime) -> None:
    """The buffers of inputs and output become invalid, and their memory is reused."""
    a, _, output, _ = memory.pointers()
    memory.clear()
    for address in (a, output):
        with expect_refusal(HipError, "hip-error", "invalid argument"):
            runtime.fill(address, 0, 1)
    memory.add_input(B)
    memory.add_input(A)
    memory.set_output((1,), element_type("bf16"))
    assert memory.result().dtype == np.uint16


def test_the_flush_buffer_is_created_once_and_on_demand(memory: HipMemory, runtime: HipRuntime) -> None:
    """It is requested by every kernel."""
    address, size = memory.flush_buffer()
    assert (size, memory.flush_buffer()) == (4096, (address, 4096))
    runtime.fill(address, 1, size)
    assert HipMemory(runtime, 0).flush_buffer() == (0, 0)


def test_a_probe_detects_a_permanent_error(memory: HipMemory, own_hip_library: Path) -> None:
    """It raises only after the kernel that broke the GPU."""
    memory.probe()
    stub = ctypes.CDLL(str(own_hip_library))
    stub.stub_arm(b"stub_launch=700!")
    memory.probe()
    stub.stub_launch()
    for _ in range(2):
        with expect_refusal(HipError, "hip-error", "illegal memory access"):
            memory.probe()


@pytest.mark.parametrize(
    ("rotating", "rotating_bytes", "sets"),
    [
        (1, 1 << 20, 1),
        (3, 0, 3),
        (0, 0, 1),
        (0, 3 * GUARD_BYTES, 2),  # an operand begins at a page boundary
        (0, 10 * 3 * GUARD_BYTES - 1, 10),
        (0, 1 << 30, 64),
    ],
)
def test_operands_are_copied_for_rotation(runtime: HipRuntime, rotating: int, rotating_bytes: int, sets: int) -> None:
    """As many sets as requested, or as exceed the caches, at most 64; the first one's result is checked."""
    memory = HipMemory(runtime, 0, rotating, rotating_bytes)
    for values in (A, B):
        memory.add_input(values)
    memory.set_output((5,), element_type("fp16"))
    memory.provide_workspace(64)
    result = memory.operand_sets()
    assert len(result) == sets
    assert result[0] == memory.pointers()
    assert memory.operand_sets() == result
    addresses = [address for a, b, out, _ in result for address in (a, b, out)]
    assert len(set(addresses)) == 3 * sets
    assert {workspace for *_, workspace in result} == {memory.pointers()[3]}
    for a, b, out, _ in result:
        for address, values in ((a, A), (b, B)):
            copy = np.empty_like(values)
            runtime.download(copy.ctypes.data, address, copy.nbytes)
            assert copy.tobytes() == values.tobytes()
        runtime.fill(out, 0, 10)
    assert memory.overrun() == ""
    assert not memory.repair_inputs()
    memory.clear()


@pytest.mark.parametrize(("shape", "byte"), [((10, 1), 0), ((10,), 0xFF)])
def test_outputs_of_copies_are_zero_unless_they_have_gaps(
    runtime: HipRuntime, shape: tuple[int, ...], byte: int
) -> None:
    """Stored with gaps they have one axis, and are filled as the first output; both at first, and when reset."""
    memory = HipMemory(runtime, 0, 3)
    memory.set_output(shape, element_type("fp16"))
    for _ in range(2):
        for number, *_ in enumerate(memory.operand_sets()[1:], 1):
            assert (memory.result(number).view(np.uint8) == byte).all()
            runtime.fill(memory.output(number), 7, 20)
        memory.reset(0)
    memory.clear()


def test_copies_give_way_to_a_workspace(runtime: HipRuntime, own_hip_library: Path) -> None:
    """Half as many are made again, which the memory says, and all of them for the next problem."""
    memory = HipMemory(runtime, 0, 5)
    stub = ctypes.CDLL(str(own_hip_library))
    for size, sets in ((64, 3), (128, 5)):
        memory.add_input(A)
        memory.set_output((5,), element_type("fp16"))
        assert len(memory.operand_sets()) == 5
        if sets < 5:
            stub.stub_arm(b"hipMalloc@1=2")
        memory.provide_workspace(size)
        assert len(memory.operand_sets()) == sets
        assert has_values(memory.shortage(), sets, 5) == (sets < 5)
        memory.clear()


def test_the_next_problem_has_its_own_copies(runtime: HipRuntime) -> None:
    """The copies of the previous problem are freed."""
    memory = HipMemory(runtime, 0, 2)
    for values in (A, A + 1):
        memory.clear()
        memory.add_input(values)
        memory.add_input(B)
        memory.set_output((5,), element_type("fp16"))
        _, (copied, *_) = memory.operand_sets()
        copy = np.empty_like(values)
        runtime.download(copy.ctypes.data, copied, copy.nbytes)
        assert copy.tolist() == values.tolist()
