"""Vector arithmetic equals NumPy's, lane by lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.emulator.vector_cases import COMPARES, CONVERSIONS, FLOATS, INTEGERS, VectorCase, sources_of
from tests.emulator.wave import VCC

if TYPE_CHECKING:
    from tests.emulator.wave import Array, Wave


def _inputs(case: VectorCase) -> dict[int, Array]:
    """The registers of the sources."""
    return {2 * place: values for place, values in enumerate(sources_of(case, np.random.default_rng(1)))}


def check_arithmetic(wave: Wave, case: VectorCase) -> None:
    """Compare an instruction with NumPy, bit by bit; any NaN is a NaN."""
    inputs = _inputs(case)
    got = wave.run(case.text, vgprs=inputs).vector(6, case.result)
    with np.errstate(all="ignore"):
        expected = case.expected(*inputs.values()).astype(case.result)
    if np.dtype(case.result).kind == "f":
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        got, expected = np.nan_to_num(got), np.nan_to_num(expected)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("case", [*INTEGERS, *FLOATS, *CONVERSIONS], ids=lambda case: case.text)
def test_arithmetic(wave: Wave, case: VectorCase) -> None:
    """Integers, floating point, packed numbers and conversions give NumPy's bits."""
    check_arithmetic(wave, case)


@pytest.mark.parametrize("case", COMPARES, ids=lambda case: case.text)
def test_compares(wave: Wave, case: VectorCase) -> None:
    """A compare sets the bits of active lanes, and clears the others."""
    inputs = _inputs(case)
    mask = 0xFFFF_0F0F_3333_7777
    state = wave.run(case.text, vgprs=inputs, exec_mask=mask)
    expected = sum(int(yes) << lane for lane, yes in enumerate(case.expected(*inputs.values())))
    assert state.pair(VCC) == expected & mask
