"""Differences of gfx90a: opcodes of matrix instructions, and scratch memory through buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.emulator.matrices import MATRIX, NAMES_90A, check_matrix, matrix_text
from tests.emulator.wave import Wave, WaveError

if TYPE_CHECKING:
    from ckh.emulator.launch import EmulatorLibrary

SCRATCH = {0: 0, 1: 1 << 31, 2: 0, 3: 0}
LANE = np.arange(64, dtype=np.uint32)
DATA = np.random.default_rng(19).integers(0, 1 << 32, (64, 2), np.uint32)
STORE = "buffer_store_dwordx2 v[0:1], v4, s[0:3], 0 offen offset:8"
LOAD = "buffer_load_dwordx2 v[6:7], v4, s[0:3], 0 offen offset:8"


@pytest.mark.parametrize("own", NAMES_90A)
def test_matrices(wave90a: Wave, own: str) -> None:
    """D is A B + C under gfx90a's opcodes; subnormal numbers, which it flushes to zero, are avoided."""
    name = NAMES_90A[own]
    check_matrix(wave90a, matrix_text(name, "a").replace(name, own), MATRIX[name], "a")


def test_subnormal_numbers_are_zero(library: EmulatorLibrary) -> None:
    """In fp16 the smallest normal number counts and half of it does not; on gfx942 both do."""
    ones, zeros = np.ones((64, 4), np.float16), np.zeros((64, 4), np.float32)
    for arch, name, counted in (
        ("gfx90a", "v_mfma_f32_16x16x16f16", (True, False)),
        ("gfx942", "v_mfma_f32_16x16x16_f16", (True, True)),
    ):
        text = matrix_text("v_mfma_f32_16x16x16_f16", "a").replace("v_mfma_f32_16x16x16_f16", name)
        for factor, is_counted in zip((1, 0.5), counted, strict=True):
            tiny = ones * np.float16(2.0**-14 * factor)
            state = Wave(library, arch).run(text, vgprs={0: tiny, 16: ones}, accvgprs={32: zeros})
            assert state.accvgprs[64].view(np.float32)[0] == (16 * 2.0**-14 * factor if is_counted else 0)


def test_scratch_memory(wave90a: Wave) -> None:
    """Lanes read back what they stored; the SGPR's offset applies to all lanes; accesses outside fail.

    Invalidating the cache in between loses nothing.
    """
    inputs = {0: DATA, 4: LANE % 2 * 8}
    got = wave90a.run(STORE, "buffer_wbinvl1", "buffer_wbinvl1_vol", LOAD, vgprs=inputs, sgprs=SCRATCH, scratch=24)
    np.testing.assert_array_equal(got.vgprs[6:8].T, DATA)
    done = wave90a.run(
        STORE,
        "buffer_load_dword v6, off, s[0:3], s8 offset:8",
        vgprs={**inputs, 4: LANE * 0},
        sgprs=SCRATCH | {8: 256},
        scratch=24,
    )
    np.testing.assert_array_equal(done.vgprs[6], DATA[:, 1])
    with pytest.raises(WaveError, match=r"scratch .*byte 16"):
        wave90a.run(STORE, vgprs=inputs, sgprs=SCRATCH, scratch=16)


def test_other_architectures_lack_these_buffer_instructions(library: EmulatorLibrary) -> None:
    """A swizzled buffer on gfx942 is not emulated, which is an error."""
    with pytest.raises(WaveError, match="in this form"):
        Wave(library, "gfx942").run(
            "buffer_load_dwordx2 v[6:7], v4, s[4:7], s8 offen offset:4",
            vgprs={4: LANE},
            sgprs={4: 0, 5: 1 << 31, 6: 0, 7: 0, 8: 0},
        )
