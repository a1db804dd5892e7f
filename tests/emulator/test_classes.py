"""Kernels of the record are compiled and executed on the emulated GPU, on problems that reach every end of their loops.

Needs a HIP compiler and CK Tile's headers. Of each operation, architecture, direction and pipeline the class with most
options is executed, of those the first in fp16; CKH_TEST_CLASSES=all executes all classes.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from ckh.bench.checks.harness import Executed, execute, executed_classes, loop_ends, record_text, was_executed
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import EMULATED_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.supervision.supervisor import Supervisor, SupervisorOptions
from ckh.ops import operation
from ckh.schema import Status
from tests.real import Real, compiles, interface_here, set_kernel_cache

_TIMEOUT_S = 600.0
VERIFIED = [one for one in executed_classes() if one.status == Status.VERIFIED]


def kind(one: Executed) -> tuple[str, str, str, str]:
    """Operation, architecture, direction if there is one, and pipeline of a class."""
    kernel: Any = operation(one.op).kernels.parse(one.kernel)
    return one.op, one.arch, str(getattr(kernel, "variant", "")), str(kernel.pipeline)


def sample(found: list[Executed]) -> list[Executed]:
    """One class for each operation, architecture, direction and pipeline."""
    chosen: dict[tuple[str, ...], Executed] = {}
    for one in sorted(found, key=lambda one: (-one.kernel_class.count(","), "fp16" not in one.kernel_class, one)):
        chosen.setdefault(kind(one), one)
    return sorted(chosen.values())


EACH = [
    pytest.param(one, marks=compiles((one.arch, one.op, one.kernel)), id=f"{one.arch} {one.op} {one.kernel_class}")
    for one in (VERIFIED if os.environ.get("CKH_TEST_CLASSES") == "all" else sample(VERIFIED))
    if one.interface == interface_here()
]


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch) -> None:
    set_kernel_cache(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("one", EACH)
def test_kernels_of_the_record(one: Executed, real_kernels: Real) -> None:
    """The kernel is right on every problem."""
    device, kernel = open_device(EMULATED_KIND, DeviceOptions(one.arch)), operation(one.op).kernels.parse(one.kernel)
    built = real_kernels[one.arch, kernel]
    assert built.status is Status.OK, built.message
    options = SupervisorOptions(_TIMEOUT_S, device.worker_configs()[0])
    with Supervisor(device, options, lambda: False) as supervisor:
        replies = dict(execute(supervisor, built.library, loop_ends(device, kernel)))
    accepted = {Status.VERIFIED, Status.UNSUPPORTED}
    wrong = {problem.canonical(): reply.message for problem, reply in replies.items() if reply.status not in accepted}
    assert wrong == {}
    assert sum(reply.status is Status.VERIFIED for reply in replies.values()) == one.problems


def test_the_sample() -> None:
    """It has every pipeline of each operation and direction on each architecture once, and kernels with options."""
    chosen = sample(VERIFIED)
    kinds = [kind(one) for one in chosen]
    assert len(set(kinds)) == len(kinds)
    assert {("grouped_conv", "gfx942", "bwd_weight", "mem"), ("gemm_universal", "gfx942", "", "compv6")} <= set(kinds)
    assert set(kinds) == {kind(one) for one in VERIFIED}
    assert sum("," in one.kernel_class for one in chosen) > len(chosen) // 3


def test_the_record_names_its_kernels() -> None:
    """Each kernel of the record parses, belongs to its class, and occurs once."""
    found = executed_classes()
    assert len({(one.op, one.arch, one.kernel_class) for one in found}) == len(found)
    for one in found:
        op = operation(one.op)
        trials = measured_of(op).trials
        assert trials is not None
        assert trials().kernel_class(op.kernels.parse(one.kernel)) == one.kernel_class
        assert one.status in set(Status)
        assert (one.status == Status.VERIFIED) is (not one.reason)
    assert record_text(list(found)) == record_text(sorted(found))


def test_never_executed_classes_are_reported() -> None:
    """A kernel of a recorded class was executed on its architecture, and on no other."""
    one = VERIFIED[0]
    kernel = operation(one.op).kernels.parse(one.kernel)
    assert was_executed(kernel, one.arch)
    assert not was_executed(kernel, "gfx908")
