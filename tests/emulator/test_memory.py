"""Buffers with their bounds, global, flat and scratch memory, and atomics."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.wave import M0, Wave, WaveError, address, buffer

RANDOM = np.random.default_rng(12)
LANE = np.arange(64, dtype=np.uint32)
DATA = RANDOM.integers(0, 1 << 32, (64, 4), np.uint32)


@pytest.mark.parametrize(
    ("name", "result", "dwords"), [("dword", "v6", 1), ("dwordx2", "v[6:7]", 2), ("dwordx4", "v[6:9]", 4)]
)
def test_buffer_loads_stop_at_the_bounds(wave: Wave, name: str, result: str, dwords: int) -> None:
    """Dwords beyond the bounds are 0; offsets of lanes, instruction and SGPR add up."""
    memory, bound = RANDOM.integers(1, 255, 4096, np.uint8), 700
    text = f"buffer_load_{name} {result}, v4, s[4:7], s8 offen offset:4"
    got = wave.run(text, vgprs={4: LANE * 16}, sgprs=buffer(memory, bound, offset=8)).vgprs[6 : 6 + dwords].T
    expected = np.zeros((64, dwords), np.uint32)
    for lane in range(64):
        for part in range(dwords):
            at = lane * 16 + 12 + 4 * part
            if at + 4 <= bound:
                expected[lane, part] = memory[at : at + 4].view(np.uint32)[0]
    np.testing.assert_array_equal(got, expected)


def test_narrow_buffer_loads(wave: Wave) -> None:
    """Bytes and words are extended; d16 loads keep the other half."""
    memory = RANDOM.integers(0, 255, 4096, np.uint8)
    sgprs, inputs = buffer(memory, 4096), {4: LANE * 2, 6: np.full(64, 0xAAAA_BBBB, np.uint32)}
    at = LANE.astype(np.int64) * 2 + 4
    words = memory[at] | memory[at + 1].astype(np.uint32) << 8
    for name, expected in (
        ("ubyte", memory[at].astype(np.uint32)),
        ("sbyte", memory[at].view(np.int8).astype(np.int32).view(np.uint32)),
        ("ushort", words),
        ("short_d16", words | 0xAAAA_0000),
        ("short_d16_hi", words << 16 | 0xBBBB),
    ):
        got = wave.run(f"buffer_load_{name} v6, v4, s[4:7], s8 offen offset:4", vgprs=inputs, sgprs=sgprs).vgprs[6]
        np.testing.assert_array_equal(got, expected, name)


def test_buffer_by_index(wave: Wave) -> None:
    """With a stride, an index counts records, and records beyond the last are 0."""
    memory = np.arange(64 * 3, dtype=np.uint32) + 1
    got = wave.run("buffer_load_dword v6, v4, s[4:7], 0 idxen", vgprs={4: LANE}, sgprs=buffer(memory, 40, stride=12))
    np.testing.assert_array_equal(got.vgprs[6], np.where(LANE < 40, LANE * 3 + 1, 0))


def test_buffer_stores_stop_at_the_bounds(wave: Wave) -> None:
    """Nothing is written beyond the bounds."""
    for name, registers, size in (("byte", "v0", 1), ("short", "v0", 2), ("dword", "v0", 4), ("dwordx4", "v[0:3]", 16)):
        memory, bound = np.zeros(4096, np.uint8), 500
        sgprs = buffer(memory, bound)
        wave.run(
            f"buffer_store_{name} {registers}, v4, s[4:7], s8 offen offset:4",
            vgprs={0: DATA, 4: LANE * 16},
            sgprs=sgprs,
        )
        expected = np.zeros(4096, np.uint8)
        for lane in range(64):
            for at in range(0, size, 4):
                start, count = lane * 16 + 4 + at, min(4, size)
                if start + count <= bound:
                    expected[start : start + count] = DATA[lane].view(np.uint8)[at : at + count]
        np.testing.assert_array_equal(memory, expected, name)


def test_buffer_to_lds(wave: Wave) -> None:
    """Lanes are consecutive from M0 on; out of bounds reads are 0."""
    memory = np.arange(64, dtype=np.uint32) + 1
    state = wave.run(
        "buffer_load_dword v4, s[4:7], s8 offen lds", vgprs={4: LANE * 4}, sgprs=buffer(memory, 160) | {M0: 512}
    )
    np.testing.assert_array_equal(state.lds[512:768].copy().view(np.uint32), np.where(LANE < 40, LANE + 1, 0))


def test_buffer_atomics(wave: Wave) -> None:
    """Additions of all lanes count, in integers, fp32, fp64 and fp16 pairs; none out of bounds."""
    memory = np.zeros(64, np.uint32)
    wave.run(
        "buffer_atomic_add v0, v4, s[4:7], s8 offen offset:4", vgprs={0: LANE, 4: LANE % 2 * 4}, sgprs=buffer(memory, 8)
    )
    assert memory[:3].tolist() == [0, int(LANE[::2].sum()), 0]
    memory[:] = 0
    old = wave.run(
        "buffer_atomic_add v0, v4, s[4:7], s8 offen offset:4 sc0", vgprs={0: LANE, 4: LANE * 0}, sgprs=buffer(memory, 8)
    )
    np.testing.assert_array_equal(old.vgprs[0], np.cumsum(LANE) - LANE)
    singles = np.zeros(4, np.float32)
    wave.run(
        "buffer_atomic_add_f32 v0, v4, s[4:7], s8 offen offset:4",
        vgprs={0: LANE.astype(np.float32), 4: LANE * 0},
        sgprs=buffer(singles, 8),
    )
    assert singles.tolist() == [0, 2016, 0, 0]
    doubles = np.zeros(2, np.float64)
    wave.run(
        "buffer_atomic_add_f64 v[0:1], v4, s[4:7], s8 offen",
        vgprs={0: LANE.astype(np.float64) / 3, 4: LANE * 0},
        sgprs=buffer(doubles, 16),
    )
    assert doubles[0] == pytest.approx(2016 / 3, rel=1e-14)
    halves = np.zeros(4, np.float16)
    pairs = np.stack([np.ones(64), np.full(64, 2)], 1).astype(np.float16)
    wave.run(
        "buffer_atomic_pk_add_f16 v0, v4, s[4:7], s8 offen offset:4",
        vgprs={0: pairs, 4: LANE * 0},
        sgprs=buffer(halves, 8),
    )
    assert halves.tolist() == [0, 0, 64, 128]
    memory[:4] = 7, 8, 7, 8
    swapped = wave.run(
        "buffer_atomic_cmpswap v[0:1], v4, s[4:7], s8 offen sc0",
        vgprs={0: np.stack([LANE + 100, LANE * 0 + 7], 1), 4: LANE * 4},
        sgprs=buffer(memory, 16),
    )
    assert memory[:4].tolist() == [100, 8, 102, 8]
    assert swapped.vgprs[0, :4].tolist() == [7, 8, 7, 8]


def test_global_memory(wave: Wave) -> None:
    """Addresses of an SGPR pair plus a lane's offset, or a lane's own 64 bits."""
    memory = RANDOM.integers(0, 1 << 32, 1024, np.uint32)
    got = wave.run("global_load_dword v6, v4, s[4:5] offset:4", vgprs={4: LANE * 8}, sgprs=address(memory)).vgprs[6]
    np.testing.assert_array_equal(got, memory[LANE * 2 + 1])
    own = memory.ctypes.data + LANE.astype(np.uint64) * 16
    wide = wave.run("global_load_dwordx4 v[6:9], v[4:5], off", vgprs={4: own}).vgprs[6:10].T
    np.testing.assert_array_equal(wide, memory[:256].reshape(64, 4))
    inputs = {4: LANE, 6: np.full(64, 0xBBBB, np.uint32)}
    assert (
        wave.run("global_load_ubyte v6, v4, s[4:5]", vgprs=inputs, sgprs=address(memory)).vgprs[6, 5]
        == memory.view(np.uint8)[5]
    )
    high = wave.run(
        "global_load_short_d16_hi v6, v4, s[4:5]", vgprs={**inputs, 4: LANE * 2}, sgprs=address(memory)
    ).vgprs[6]
    np.testing.assert_array_equal(high, memory.view(np.uint16)[:64].astype(np.uint32) << 16 | 0xBBBB)
    wave.run(
        "global_store_dwordx2 v4, v[0:1], s[4:5] offset:-4",
        vgprs={0: DATA[:, :2], 4: LANE * 8 + 4},
        sgprs=address(memory),
    )
    np.testing.assert_array_equal(memory[:128].reshape(64, 2), DATA[:, :2])


def test_flat_memory(wave: Wave) -> None:
    """Flat addresses reach global memory, and through their apertures LDS."""
    memory = np.zeros(64, np.uint32)
    own = memory.ctypes.data + LANE.astype(np.uint64) * 4
    wave.run("flat_store_dword v[4:5], v0", vgprs={0: DATA[:, 0], 4: own})
    np.testing.assert_array_equal(memory, DATA[:, 0])
    shared = np.uint64(0x0001_0000_0000_0000) + LANE.astype(np.uint64) * np.uint64(4)
    got = wave.run("flat_load_dword v6, v[4:5]", vgprs={4: shared}, lds=LANE.tobytes()).vgprs[6]
    np.testing.assert_array_equal(got, LANE)


def test_global_atomics(wave: Wave) -> None:
    """fp32 and bf16 pairs are added to memory; the old value is returned on request."""
    single = np.zeros(1, np.float32)
    wave.run(
        "global_atomic_add_f32 v4, v0, s[4:5]", vgprs={0: LANE.astype(np.float32), 4: LANE * 0}, sgprs=address(single)
    )
    assert single[0] == 2016
    pairs = np.zeros(2, np.uint16)
    item = np.full((64, 2), 0x3F80, np.uint16)  # 1.0 in bf16
    wave.run("global_atomic_pk_add_bf16 v4, v0, s[4:5]", vgprs={0: item, 4: LANE * 0}, sgprs=address(pairs))
    assert (pairs.astype(np.uint32) << 16).view(np.float32).tolist() == [64, 64]
    count = np.zeros(1, np.uint32)
    old = wave.run(
        "global_atomic_add v6, v4, v0, s[4:5] sc0", vgprs={0: LANE * 0 + 2, 4: LANE * 0}, sgprs=address(count)
    )
    np.testing.assert_array_equal(old.vgprs[6], LANE * 2)


def test_scratch_memory(wave: Wave) -> None:
    """Each lane has its own; accesses outside fail."""
    kept = wave.run(
        "scratch_store_dword off, v0, off offset:8",
        "scratch_load_dword v6, off, off offset:8",
        vgprs={0: DATA[:, 0]},
        scratch=16,
    )
    np.testing.assert_array_equal(kept.vgprs[6], DATA[:, 0])
    indexed = wave.run(
        "scratch_store_dwordx2 v4, v[0:1], off",
        "scratch_load_dwordx2 v[6:7], v4, off",
        vgprs={0: DATA[:, :2], 4: LANE % 2 * 8},
        scratch=16,
    )
    np.testing.assert_array_equal(indexed.vgprs[6:8].T, DATA[:, :2])
    with pytest.raises(WaveError, match=r"scratch .*byte 8"):
        wave.run("scratch_store_dword off, v0, off offset:8", vgprs={0: DATA[:, 0]}, scratch=8)
    with pytest.raises(WaveError, match=r"scratch .*byte 400"):
        wave.run("scratch_load_dword v6, off, s8", sgprs={8: 400}, scratch=16)
