"""Kernels that a HIP compiler built are executed, and found right; damaged ones are found wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ckh.bench.device import EMULATED_KIND, DeviceOptions
from ckh.bench.device_choice import open_device
from ckh.bench.protocol import Job, Op, Reply
from ckh.bench.supervisor import Supervisor, SupervisorOptions
from ckh.schema import Status
from tests.emulator.damage import Damage, damaged
from tests.emulator.keep import KEPT, Kept

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.emulator.library import EmulatorLibrary

_TIMEOUT_S = 300.0
FOUND_OUT = (Status.WRONG_RESULT, Status.LAUNCH_ERROR, Status.CRASH)


def executed(content: bytes, kept: Kept, folder: Path, problems: Sequence[str]) -> list[Reply]:
    """What the worker of the emulated device says of a library on each problem."""
    path = folder / "kernel.so"
    path.write_bytes(content)
    device = open_device(EMULATED_KIND, DeviceOptions(kept.arch))
    replies = []
    with Supervisor(device, SupervisorOptions(_TIMEOUT_S, device.worker_configs()[0]), lambda: False) as supervisor:
        for problem in problems:
            setup = Job(Op.PROBLEM, -1, problem=problem)
            replies += [reply for _, reply in supervisor.run(setup, [Job(Op.MEASURE, 1, library=str(path), samples=1)])]
    return replies


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.file)
def test_kernels_are_right(kept: Kept, tmp_path: Path) -> None:
    """Every problem that reaches another end of a kernel's loops is verified, without a time."""
    problems = [problem.canonical() for problem in kept.problems()]
    replies = executed(kept.library(), kept, tmp_path, problems)
    assert len(problems) >= 6
    found = {problem: reply.status for problem, reply in zip(problems, replies, strict=True)}
    assert found == dict.fromkeys(problems, Status.VERIFIED)
    assert all(re.fullmatch(r"largest error \d\.\de-0[45] of the largest output", reply.message) for reply in replies)
    assert not any(reply.samples_ns for reply in replies)


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("kind", Damage)
def test_damaged_kernels_are_wrong(kind: Damage, tmp_path: Path, library: EmulatorLibrary) -> None:
    """Without its barriers, a matrix instruction, a write to LDS or a compare a kernel is wrong on some problem."""
    kept = KEPT[0]
    content = damaged(kept.library(), kind, kept.arch, library)
    assert content != kept.library()
    replies = executed(content, kept, tmp_path, [problem.canonical() for problem in kept.problems()])
    assert any(reply.status in FOUND_OUT for reply in replies)
    if kind is Damage.BARRIERS:
        assert any("LDS race" in reply.message for reply in replies)
