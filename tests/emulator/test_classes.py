"""A kernel of each class is compiled and executed on the emulated GPU, on problems that reach every end of its loops.

Needs a HIP compiler and CK Tile's headers. Compiled kernels are kept by content between runs, in the cache folder that
CKH_TEST_KERNELS names, or else in ckh's own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.compile import Built, KernelBuilder, default_jobs
from ckh.bench.computation import measured_of
from ckh.bench.device import EMULATED_KIND, Device, DeviceOptions
from ckh.bench.device_choice import open_device
from ckh.bench.executed import Executed, executed_classes, record_text, was_executed
from ckh.bench.harness import execute, loop_ends
from ckh.bench.supervisor import Supervisor, SupervisorOptions
from ckh.ops import operation
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TIMEOUT_S = 600.0
VERIFIED = [one for one in executed_classes() if one.status == Status.VERIFIED]


def device_of(arch: str) -> Device:
    """The emulated GPU, if kernels can be compiled for it with the headers that the record is of."""
    if not (os.environ.get("HIPCC") and os.environ.get("CK_TILE_INCLUDE")):
        pytest.skip("HIPCC and CK_TILE_INCLUDE are not set: no real kernel is compiled")
    device = open_device(EMULATED_KIND, DeviceOptions(arch))
    interface = device.identity().compiler.split("; CK Tile ")[-1].split()[0]
    if interface not in {one.interface for one in VERIFIED}:
        pytest.skip(f"no class of the interface {interface} is in the record")
    return device


@pytest.fixture(scope="module", autouse=True)
def cache() -> Iterator[None]:
    """The cache of compiled kernels and of the emulator."""
    with pytest.MonkeyPatch.context() as patch:
        if folder := os.environ.get("CKH_TEST_KERNELS"):
            patch.setenv("CKH_CACHE_DIR", folder)
        yield


@pytest.fixture(scope="module")
def libraries(request: pytest.FixtureRequest) -> Mapping[str, Built]:
    """Every recorded kernel that is to be executed, compiled, by architecture and name."""
    items: list[Any] = request.session.items
    chosen = {item.callspec.params["one"] for item in items if _is_of_a_class(item)}
    found: dict[str, Built] = {}
    for arch in sorted({one.arch for one in chosen}):
        device = device_of(arch)
        kernels = {one.kernel: operation(one.op).parse_kernel(one.kernel) for one in sorted(chosen) if one.arch == arch}
        builder = KernelBuilder(device, _TIMEOUT_S)
        built = builder.build(list(kernels.values()), default_jobs(device.job_bytes), lambda _count, _text: None)
        found |= {f"{arch} {name}": built[kernel] for name, kernel in kernels.items()}
    return found


def _is_of_a_class(item: Any) -> bool:
    return getattr(item, "originalname", "") == test_a_kernel_of_each_class.__name__


@pytest.mark.slow
@pytest.mark.parametrize("one", VERIFIED, ids=lambda one: f"{one.arch} {one.op} {one.kernel_class}")
def test_a_kernel_of_each_class(one: Executed, libraries: Mapping[str, Built]) -> None:
    """It is right on every problem."""
    device, kernel = device_of(one.arch), operation(one.op).parse_kernel(one.kernel)
    built = libraries[f"{one.arch} {one.kernel}"]
    assert built.status is Status.OK, built.message
    options = SupervisorOptions(_TIMEOUT_S, device.worker_configs()[0])
    with Supervisor(device, options, lambda: False) as supervisor:
        replies = dict(execute(supervisor, built, loop_ends(device, kernel)))
    accepted = {Status.VERIFIED, Status.UNSUPPORTED}
    wrong = {problem.canonical(): reply.message for problem, reply in replies.items() if reply.status not in accepted}
    assert wrong == {}
    assert sum(reply.status is Status.VERIFIED for reply in replies.values()) == one.problems


def test_the_record_names_kernels_of_its_classes() -> None:
    """Each kernel of the record parses, belongs to its class, and stands once."""
    found = executed_classes()
    assert len({(one.op, one.arch, one.kernel_class) for one in found}) == len(found)
    for one in found:
        op = operation(one.op)
        trials = measured_of(op).trials
        assert trials is not None
        assert trials().kernel_class(op.parse_kernel(one.kernel)) == one.kernel_class.removesuffix(", 3D")
        assert one.status in set(Status)
        assert (one.status == Status.VERIFIED) is (not one.reason)
    assert record_text(list(found)) == record_text(sorted(found))


def test_what_was_never_executed_is_said() -> None:
    """A kernel of a recorded class was executed on its architecture, and on no other."""
    one = VERIFIED[0]
    kernel = operation(one.op).parse_kernel(one.kernel)
    assert was_executed(kernel, one.arch)
    assert not was_executed(kernel, "gfx908")
