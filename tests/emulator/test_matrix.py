"""Matrix instructions multiply matrices in AMD's register layout, as NumPy does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.emulator.matrices import ACCUMULATORS, MATRIX, check_matrix, matrix_text
from tests.emulator.wave import rows

if TYPE_CHECKING:
    from tests.emulator.wave import Wave

Array = Any


@pytest.mark.parametrize("file", ACCUMULATORS)
@pytest.mark.parametrize("name", MATRIX)
def test_matrix(wave: Wave, name: str, file: str) -> None:
    """D is A B + C, with accumulators in either file."""
    check_matrix(wave, matrix_text(name, file), MATRIX[name], file)


def test_rows_of_registers() -> None:
    """The helper puts a lane's values into consecutive registers."""
    halves = np.arange(256, dtype=np.uint16).reshape(64, 4)
    result = rows(halves)
    assert result.shape == (2, 64)
    assert int(result[1, 3]) == 14 | 15 << 16
