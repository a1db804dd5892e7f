"""fp8 and bf8: of CDNA3 (fnuz) on gfx942, OCP's on gfx950."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.emulator.small_floats import FNUZ, OCP, SmallFloat, nearest
from tests.emulator.wave import Wave

if TYPE_CHECKING:
    from ckh.emulator.launch import EmulatorLibrary

FORMATS = [
    (arch, name, formats[name]) for arch, formats in (("gfx942", FNUZ), ("gfx950", OCP)) for name in ("fp8", "bf8")
]
IDS = [f"{arch} {name}" for arch, name, _ in FORMATS]


@pytest.mark.parametrize(("arch", "name", "form"), FORMATS, ids=IDS)
def test_every_pattern_to_fp32(library: EmulatorLibrary, arch: str, name: str, form: SmallFloat) -> None:
    """All 256 patterns have the value that the format defines."""
    wave, table = Wave(library, arch), form.table()
    for start in range(0, 256, 64):
        bits = np.arange(start, start + 64, dtype=np.uint32)
        got = wave.run(f"v_cvt_f32_{name} v6, v0", vgprs={0: bits}).vector(6, np.float32)
        np.testing.assert_array_equal(got, table[start : start + 64].astype(np.float32))
        pair = wave.run(f"v_cvt_pk_f32_{name} v[6:7], v0", vgprs={0: bits | 0x3800})
        np.testing.assert_array_equal(pair.vector(7, np.float32), np.full(64, table[0x38], np.float32))


@pytest.mark.parametrize(("arch", "name", "form"), FORMATS, ids=IDS)
def test_from_fp32(library: EmulatorLibrary, arch: str, name: str, form: SmallFloat) -> None:
    """fp32 is rounded to the nearest, ties to even; the other half of the register is kept."""
    wave, table = Wave(library, arch), form.table()
    finite = np.sort(table[np.isfinite(table)])
    middles = ((finite[1:] + finite[:-1]) / 2)[:: len(finite) // 30][:32]
    random = np.random.default_rng(3).standard_normal(64) * finite.max() / 4
    a, b = (np.resize(values, 64).astype(np.float32) for values in (np.concatenate([middles, random[:32]]), random))
    kept = np.full(64, 0xABCD_1234, np.uint32)
    got = wave.run(f"v_cvt_pk_{name}_f32 v6, v0, v2", vgprs={0: a, 2: b, 6: kept}).vgprs[6]
    expected = nearest(a, table) | nearest(b, table) << 8
    np.testing.assert_array_equal(got & 0xFFFF, expected)
    assert set(got >> 16) == {0xABCD}
    high = wave.run(f"v_cvt_pk_{name}_f32 v6, v0, v2 op_sel:[0,0,1]", vgprs={0: a, 2: b, 6: kept}).vgprs[6]
    np.testing.assert_array_equal(high, expected << 16 | 0x1234)


def test_too_large_is_nan(library: EmulatorLibrary) -> None:
    """Numbers beyond the largest are NaN in fp8, and infinite in OCP's bf8."""
    large = np.full(64, 1e9, np.float32)
    fnuz = Wave(library, "gfx942").run("v_cvt_pk_fp8_f32 v6, v0, v2", vgprs={0: large, 2: -large, 6: large})
    assert int(fnuz.vgprs[6, 0]) & 0xFFFF == 0x8080
    ocp = Wave(library, "gfx950").run("v_cvt_pk_bf8_f32 v6, v0, v2", vgprs={0: large, 2: -large, 6: large})
    assert int(ocp.vgprs[6, 0]) & 0xFFFF == 0xFC7C


def test_fp32_to_two_fp16_towards_zero(wave: Wave) -> None:
    """v_cvt_pkrtz_f16_f32 never gives a larger magnitude than its source's, and the nearest below."""
    random = np.random.default_rng(4)
    a, b = (random.standard_normal(64).astype(np.float32) * 100 for _ in range(2))
    got = wave.run("v_cvt_pkrtz_f16_f32 v6, v0, v2", vgprs={0: a, 2: b}).vgprs[6]
    for part, source in ((got & 0xFFFF, a), (got >> 16, b)):
        half = part.astype(np.uint16).view(np.float16)
        above = np.nextafter(np.abs(half), np.float16(np.inf)).astype(np.float64)
        assert (np.abs(half).astype(np.float64) <= np.abs(source)).all()
        assert (above > np.abs(source)).all()
