"""Damage to kernels, which checks must detect, is at the intended place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ckh.emulator.codeobject import CodeObject
from tests.emulator.damage import Damage, code_of, damaged, instructions_of
from tests.emulator.keep import KEPT, Kept

if TYPE_CHECKING:
    from ckh.emulator.launch import EmulatorLibrary


def names(content: bytes, kept: Kept, library: EmulatorLibrary) -> list[list[str]]:
    """The instructions of each kernel, as the emulator reads them."""
    code = CodeObject(code_of(content, kept.arch)[0])
    return [[name for _, name, _ in instructions_of(kernel, code, library)] for kernel in code.kernels.values()]


def without_first(kernel: list[str], beginning: str) -> list[str]:
    """The instructions of a kernel with the first of a kind, of two dwords, replaced."""
    at = next((at for at, name in enumerate(kernel) if name.startswith(beginning)), None)
    return kernel if at is None else [*kernel[:at], "s_nop", "s_nop", *kernel[at + 1 :]]


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.file)
def test_each_damaged_kernel_is_detected(kept: Kept, library: EmulatorLibrary) -> None:
    """Each kernel loses its own first matrix instruction, also if several begin with the same bytes."""
    content = kept.library()
    before = names(content, kept, library)
    after = names(damaged(content, Damage.MATRIX, kept.arch, library), kept, library)
    assert after == [without_first(kernel, Damage.MATRIX) for kernel in before]
    # The kernels that flush caches or do nothing, and second stages, have none.
    have = sum(any(name.startswith("v_mfma") for name in kernel) for kernel in before)
    assert sum(item != other for item, other in zip(before, after, strict=True)) == have >= 1
