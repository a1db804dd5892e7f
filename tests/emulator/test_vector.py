"""Vector arithmetic equals NumPy's, lane by lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.emulator.vector_cases import COMPARES, CONVERSIONS, FLOATS, INTEGERS, VectorCase, check_arithmetic, inputs_of
from tests.emulator.wave import VCC

if TYPE_CHECKING:
    from tests.emulator.wave import Wave


@pytest.mark.parametrize("case", [*INTEGERS, *FLOATS, *CONVERSIONS], ids=lambda case: case.text)
def test_arithmetic(wave: Wave, case: VectorCase) -> None:
    """Integers, floating point, packed numbers and conversions give NumPy's bits."""
    check_arithmetic(wave, case)


@pytest.mark.parametrize("case", COMPARES, ids=lambda case: case.text)
def test_compares(wave: Wave, case: VectorCase) -> None:
    """A compare sets the bits of active lanes, and clears the others."""
    inputs = inputs_of(case)
    mask = 0xFFFF_0F0F_3333_7777
    state = wave.run(case.text, vgprs=inputs, exec_mask=mask)
    expected = sum(int(yes) << lane for lane, yes in enumerate(case.expected(*inputs.values())))
    assert state.pair(VCC) == expected & mask
