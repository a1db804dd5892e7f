"""Compiled kernels are executed and verified; damaged ones are detected as wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ckh.emulator.codeobject import CodeObject
from ckh.schema import Status
from tests.emulator.damage import Damage, code_of, damaged
from tests.emulator.keep import KEPT, RIGHT, Kept, executed

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.emulator.launch import EmulatorLibrary

EXPONENTS = {"bf16": "3", "fp32": "67"}  # of errors, which are those of rounding
FOUND_OUT = (Status.WRONG_RESULT, Status.LAUNCH_ERROR, Status.CRASH)


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("units", ["4", "228"])
def test_workgroups_wait_for_partial_sums(units: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Stream-K kernel whose blocks, one for each compute unit, share three tiles of a hundred steps."""
    monkeypatch.setenv("CKH_EMU_CUS", units)
    (kept,) = (item for item in KEPT if item.op == "gemm_streamk")
    (reply,) = executed(kept.library(), kept, tmp_path, ["gemm_streamk_fp16_rcr_m32_n96_k3200"])
    assert reply.status is Status.VERIFIED, reply.message


@pytest.mark.usefixtures("runtime")
def test_a_kernel_reads_the_packet_of_its_launch(tmp_path: Path) -> None:
    """A kernel that keeps an array of each lane in LDS, whose place follows from the sizes of the workgroup."""
    (kept,) = (kept for kept in KEPT if kept.file == "gemm_mid2025_default")
    assert any(kernel.properties & 2 for kernel in CodeObject(code_of(kept.library(), kept.arch)[0]).kernels.values())
    (reply,) = executed(kept.library(), kept, tmp_path, ["gemm_fp16_rcr_m48_n48_k112_splitk1"])
    assert reply.status is Status.VERIFIED, reply.message


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("kept", RIGHT, ids=lambda kept: kept.file)
def test_kernels_are_right(kept: Kept, tmp_path: Path) -> None:
    """Every problem that reaches another tail of a kernel's loops is verified, without a time."""
    problems = [problem.canonical() for problem in kept.problems()]
    replies = executed(kept.library(), kept, tmp_path, problems)
    assert len(problems) >= 6
    right = [reply for reply in replies if reply.status is Status.VERIFIED]
    assert len(right) == len(replies)
    error = rf"largest error \d\.\de-0[{EXPONENTS.get(kept.kernel.dtype, '45')}] of the largest output"
    assert all(re.fullmatch(error, reply.message) for reply in right)
    assert not any(reply.samples_ns for reply in replies)


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
def test_the_race_of_comp_async_is_detected(tmp_path: Path) -> None:
    """Its last loads to LDS are pending when the epilogue writes there, unless the loop ends with a third tile."""
    (kept,) = (kept for kept in KEPT if kept.races)
    problems = [f"gemm_fp16_rcr_m128_n128_k{64 * tiles}_splitk1" for tiles in (1, 2, 3, 4)]
    replies = executed(kept.library(), kept, tmp_path, problems)
    assert [reply.status for reply in replies] == [*[Status.LAUNCH_ERROR] * 2, Status.VERIFIED, Status.LAUNCH_ERROR]
    assert all("LDS race" in reply.message for reply in replies if reply.status is Status.LAUNCH_ERROR)


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("kind", Damage)
def test_damaged_kernels_are_wrong(kind: Damage, tmp_path: Path, library: EmulatorLibrary) -> None:
    """Without its barriers, a matrix instruction, an LDS write or a compare a kernel is wrong on some problem."""
    kept = KEPT[0]
    content = damaged(kept.library(), kind, kept.arch, library)
    assert content != kept.library()
    replies = executed(content, kept, tmp_path, [problem.canonical() for problem in kept.problems()])
    assert any(reply.status in FOUND_OUT for reply in replies)
    if kind is Damage.BARRIERS:
        assert any("LDS race" in reply.message for reply in replies)
