"""LDS: writes are read back, lanes exchange values, atomics add up, races and out-of-bounds accesses are detected."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.emulator.wave import Wave, WaveError

RANDOM = np.random.default_rng(11)
DATA = RANDOM.integers(0, 1 << 32, (64, 4), np.uint32)
LANE = np.arange(64, dtype=np.uint32)


def _memory(stride: int, fill: int = 0) -> np.ndarray:
    return np.full((64, stride), fill, np.uint8)


@pytest.mark.parametrize(
    ("name", "registers", "size", "shift"),
    [
        ("b8", "v0", 1, 0),
        ("b16", "v0", 2, 0),
        ("b32", "v0", 4, 0),
        ("b16_d16_hi", "v0", 2, 2),
        ("b64", "v[0:1]", 8, 0),
        ("b96", "v[0:2]", 12, 0),
        ("b128", "v[0:3]", 16, 0),
    ],
)
def test_writes(wave: Wave, name: str, registers: str, size: int, shift: int) -> None:
    """Bytes are stored at each lane's address plus offset, and nothing else is changed."""
    state = wave.run(f"ds_write_{name} v4, {registers} offset:16", vgprs={0: DATA, 4: LANE * 32}, lds=bytes(4096))
    expected = _memory(32)
    expected[:, 16 : 16 + size] = DATA.view(np.uint8)[:, shift : shift + size]
    np.testing.assert_array_equal(state.lds[: 64 * 32].reshape(64, 32), expected)


@pytest.mark.parametrize(
    ("name", "result", "size"),
    [("b32", "v6", 4), ("b64", "v[6:7]", 8), ("b96", "v[6:8]", 12), ("b128", "v[6:9]", 16)],
)
def test_reads(wave: Wave, name: str, result: str, size: int) -> None:
    """Registers get the bytes at each lane's address plus offset."""
    lds = RANDOM.bytes(64 * 32)
    state = wave.run(f"ds_read_{name} {result}, v4 offset:16", vgprs={4: LANE * 32}, lds=lds)
    expected = np.frombuffer(lds, np.uint8).reshape(64, 32)[:, 16 : 16 + size]
    np.testing.assert_array_equal(state.vgprs[6 : 6 + size // 4].T.copy().view(np.uint8), expected)


@pytest.mark.parametrize(("name", "kind"), [("u8", np.uint8), ("i8", np.int8), ("u16", np.uint16), ("i16", np.int16)])
def test_narrow_reads(wave: Wave, name: str, kind: type) -> None:
    """Bytes and words are zero- or sign-extended."""
    lds = RANDOM.bytes(64 * 32)
    state = wave.run(f"ds_read_{name} v6, v4 offset:16", vgprs={4: LANE * 32}, lds=lds)
    values = np.frombuffer(lds, np.uint8).reshape(64, 32)[:, 16:20].copy().view(kind)[:, 0]
    np.testing.assert_array_equal(state.vgprs[6].view(np.int32), values.astype(np.int32))


def test_reads_into_a_half(wave: Wave) -> None:
    """d16 reads keep the other half of the register."""
    lds = struct.pack("<16xH", 0x1234)
    old = np.full(64, 0xAAAA_BBBB, np.uint32)
    inputs = {4: LANE * 0, 6: old}
    assert wave.run("ds_read_u16_d16 v6, v4 offset:16", vgprs=inputs, lds=lds).vgprs[6, 0] == 0xAAAA_1234
    assert wave.run("ds_read_u16_d16_hi v6, v4 offset:16", vgprs=inputs, lds=lds).vgprs[6, 0] == 0x1234_BBBB


def test_two_addresses_at_once(wave: Wave) -> None:
    """Offsets of read2 and write2 count elements, with st64 64 elements."""
    near = wave.run("ds_write2_b32 v4, v0, v1 offset0:2 offset1:5", vgprs={0: DATA, 4: LANE * 32}, lds=bytes(4096))
    words = near.lds[: 64 * 32].copy().view(np.uint32).reshape(64, 8)
    np.testing.assert_array_equal(words[:, [2, 5]], DATA[:, :2])
    far = wave.run(
        "ds_write2st64_b64 v4, v[0:1], v[2:3] offset0:0 offset1:1", vgprs={0: DATA, 4: LANE * 8}, lds=bytes(4096)
    )
    np.testing.assert_array_equal(far.lds[:1024].copy().view(np.uint32).reshape(2, 64, 2)[1], DATA[:, 2:])
    lds = far.lds[:1024].tobytes()
    back = wave.run("ds_read2st64_b64 v[6:9], v4 offset0:0 offset1:1", vgprs={4: LANE * 8}, lds=lds)
    np.testing.assert_array_equal(back.vgprs[6:10].T, DATA)
    some = wave.run("ds_read2_b32 v[6:7], v4 offset0:2 offset1:5", vgprs={4: LANE * 0}, lds=lds)
    np.testing.assert_array_equal(some.vgprs[6:8, 0], np.frombuffer(lds, np.uint32)[[2, 5]])


def test_exchanges_between_lanes(wave: Wave) -> None:
    """Pull from an addressed lane, push to it, and swap neighbours."""
    order = RANDOM.permutation(64).astype(np.uint32)
    inputs = {0: DATA[:, 0], 4: order * 4}
    np.testing.assert_array_equal(wave.run("ds_bpermute_b32 v6, v4, v0", vgprs=inputs).vgprs[6], DATA[order, 0])
    pushed = wave.run("ds_permute_b32 v6, v4, v0", vgprs=inputs).vgprs[6]
    np.testing.assert_array_equal(pushed[order], DATA[:, 0])
    swapped = wave.run("ds_swizzle_b32 v6, v0 offset:swizzle(SWAP,1)", vgprs=inputs).vgprs[6]
    np.testing.assert_array_equal(swapped, DATA[np.arange(64) ^ 1, 0])


def test_atomics(wave: Wave) -> None:
    """All lanes' operations on an address count, in the order of lanes if the old value is returned."""
    small = DATA[:, 0] >> 8
    for name, expected in (
        ("add_u32", int(small.sum()) + 5),
        ("max_u32", int(small.max())),
        ("or_b32", int(np.bitwise_or.reduce(small)) | 5),
        ("min_i32", min(5, int(small.min()))),
    ):
        state = wave.run(f"ds_{name} v4, v0", vgprs={0: small, 4: LANE * 0}, lds=struct.pack("<I", 5))
        assert int(state.lds[:4].copy().view(np.uint32)[0]) == expected % (1 << 32), name
    back = wave.run("ds_add_rtn_u32 v6, v4, v0", vgprs={0: LANE, 4: LANE * 0}, lds=bytes(4))
    np.testing.assert_array_equal(back.vgprs[6], np.cumsum(LANE) - LANE)
    floats = RANDOM.standard_normal(64).astype(np.float32)
    state = wave.run("ds_add_f32 v4, v0", vgprs={0: floats, 4: LANE * 0}, lds=bytes(4))
    total = np.float32(0)
    for item in floats:
        total += item
    assert state.lds[:4].copy().view(np.float32)[0] == total
    wide = wave.run("ds_add_u64 v4, v[0:1]", vgprs={0: DATA[:, :2], 4: LANE * 0}, lds=bytes(8))
    assert int(wide.lds[:8].copy().view(np.uint64)[0]) == int(DATA[:, :2].copy().view(np.uint64).sum(dtype=np.uint64))
    exchanged = wave.run(
        "ds_cmpst_rtn_b32 v6, v4, v0, v2",
        vgprs={0: LANE * 0 + 7, 2: LANE + 100, 4: LANE * 4},
        lds=struct.pack("<64I", *([7, 8] * 32)),
    )
    after = exchanged.lds[:256].copy().view(np.uint32)
    np.testing.assert_array_equal(after, np.where(LANE % 2 == 0, LANE + 100, 8))


def test_races_are_detected(wave: Wave) -> None:
    """Two waves that access a byte without a barrier between, one of them writing, fail."""
    write, read = "ds_write_b32 v4, v0 offset:16", "ds_read_b32 v6, v4 offset:16"
    inputs = {0: DATA, 4: LANE * 4}
    with pytest.raises(WaveError, match=r"LDS race: wave 1\D.*byte 16\D.*wave 0"):
        wave.run(write, vgprs=inputs, threads=128)
    with pytest.raises(WaveError, match="LDS race"):
        wave.run(read, write, vgprs=inputs, threads=128)
    assert wave.run(read, vgprs=inputs, lds=bytes(512), threads=128).vgprs[6].sum() == 0
    got = wave.run(read, "s_barrier", read, vgprs=inputs, lds=bytes(512), threads=128)
    assert got.vgprs[6].sum() == 0


def test_out_of_bounds_accesses_are_detected(wave: Wave) -> None:
    """An address beyond the LDS is a failure that names lane and byte."""
    with pytest.raises(WaveError, match=r"lane 63\D.* LDS: byte 65536"):
        wave.run("ds_write_b32 v4, v0 offset:16", vgprs={0: DATA, 4: LANE * 4 + (65536 - 16 - 63 * 4)})
