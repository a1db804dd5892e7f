"""Moves between lanes and files, masks, SDWA, DPP and the modifiers of packed numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.emulator.wave import EXEC, VCC

if TYPE_CHECKING:
    from tests.emulator.wave import Wave

LANE = np.arange(64)
A = np.random.default_rng(6).integers(0, 1 << 32, 64, np.uint32)
B = np.random.default_rng(7).integers(0, 1 << 32, 64, np.uint32)
OLD = np.full(64, 0xCAFE_BABE, np.uint32)


def test_between_lanes_and_scalars(wave: Wave) -> None:
    """The first active lane, a lane by number, and back."""
    assert wave.run("v_readfirstlane_b32 s8, v0", vgprs={0: A}, exec_mask=0b1000).sgprs[8] == A[3]
    assert wave.run("v_readlane_b32 s8, v0, 17", vgprs={0: A}).sgprs[8] == A[17]
    got = wave.run("v_writelane_b32 v0, s8, 17", vgprs={0: A}, sgprs={8: 5}).vgprs[0]
    np.testing.assert_array_equal(got, np.where(LANE == 17, 5, A))


def test_accumulation_registers(wave: Wave) -> None:
    """Written values are read back; inactive lanes keep their values."""
    state = wave.run(
        "v_accvgpr_write_b32 a3, v0",
        "v_accvgpr_read_b32 v6, a3",
        vgprs={0: A, 6: OLD},
        exec_mask=0xFFFF_0000_FFFF_0000,
    )
    np.testing.assert_array_equal(state.vgprs[6], np.where(LANE % 32 >= 16, A, OLD))


def test_dpp(wave: Wave) -> None:
    """Permutations within four lanes, shifts and rotations within sixteen, and masks of rows."""
    moved: dict[str, Any] = {
        "v_mov_b32_dpp v6, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf": A[LANE ^ 1],
        "v_mov_b32_dpp v6, v0 row_ror:3 row_mask:0xf bank_mask:0xf": A[LANE // 16 * 16 + (LANE - 3) % 16],
        "v_mov_b32_dpp v6, v0 row_shr:1 row_mask:0xf bank_mask:0xf": np.where(LANE % 16, A[LANE - 1], OLD),
        "v_mov_b32_dpp v6, v0 row_bcast:15 row_mask:0xa bank_mask:0xf": np.where(
            LANE // 16 % 2, A[np.maximum(LANE // 16 * 16 - 1, 0)], OLD
        ),
        "v_add_u32_dpp v6, v0, v2 row_shl:4 row_mask:0xf bank_mask:0xf bound_ctrl:0": B
        + np.where(LANE % 16 < 12, A[(LANE + 4) % 64], 0).astype(np.uint32),
    }
    for text, expected in moved.items():
        got = wave.run(text, vgprs={0: A, 2: B, 6: OLD}).vgprs[6]
        np.testing.assert_array_equal(got, expected, text)


def test_sdwa(wave: Wave) -> None:
    """Bytes and words are selected from sources, and a part of the result is kept."""
    added = wave.run(
        "v_add_u32_sdwa v6, v0, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1",
        vgprs={0: A, 2: B},
    )
    np.testing.assert_array_equal(added.vgprs[6], (A >> 8 & 255) + (B >> 16))
    kept = wave.run(
        "v_mov_b32_sdwa v6, v0 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0", vgprs={0: A, 6: OLD}
    )
    np.testing.assert_array_equal(kept.vgprs[6], A << 16 | OLD & 0xFFFF)


def test_masks_and_carries(wave: Wave) -> None:
    """A mask selects, carries propagate, and a compare can deactivate lanes."""
    mask = 0x1234_5678_9ABC_DEF0
    bits = np.array([mask >> lane & 1 for lane in range(64)], bool)
    chosen = wave.run(
        "v_cndmask_b32 v6, v0, v2, vcc", vgprs={0: A, 2: B}, sgprs={VCC: mask & 0xFFFFFFFF, VCC + 1: mask >> 32}
    )
    np.testing.assert_array_equal(chosen.vgprs[6], np.where(bits, B, A))
    state = wave.run("v_add_co_u32 v6, vcc, v0, v2", "v_addc_co_u32 v8, vcc, v2, v4, vcc", vgprs={0: A, 2: B, 4: OLD})
    carry = (A.astype(np.uint64) + B) >> np.uint64(32)
    np.testing.assert_array_equal(state.vgprs[6], A + B)
    np.testing.assert_array_equal(state.vgprs[8], (B.astype(np.uint64) + OLD + carry).astype(np.uint32))
    left = wave.run("v_cmpx_lt_u32 vcc, v0, v2", vgprs={0: A, 2: B})
    assert left.pair(EXEC) == sum(1 << int(lane) for lane in np.flatnonzero(A < B))


def test_wide_product(wave: Wave) -> None:
    """v_mad_u64_u32 adds 64 bits to a product, and reports overflow."""
    c = np.random.default_rng(8).integers(0, 1 << 63, 64, np.uint64) * np.uint64(2)
    state = wave.run("v_mad_u64_u32 v[6:7], vcc, v0, v2, v[4:5]", vgprs={0: A, 2: B, 4: c})
    exact = [int(a) * int(b) + int(z) for a, b, z in zip(A, B, c, strict=True)]
    np.testing.assert_array_equal(state.vector(6, np.uint64), np.array([x & (1 << 64) - 1 for x in exact], np.uint64))
    assert state.pair(VCC) == sum((x >> 64 != 0) << lane for lane, x in enumerate(exact))


def test_bits_below_a_lane(wave: Wave) -> None:
    """Both counts of lower lanes give each lane its number."""
    got = wave.run("v_mbcnt_lo_u32_b32 v6, -1, 0", "v_mbcnt_hi_u32_b32 v6, -1, v6").vgprs[6]
    np.testing.assert_array_equal(got, LANE)


def test_mixed_precision(wave: Wave) -> None:
    """Sources of v_fma_mix are fp32 or a half of a register in fp16."""
    random = np.random.default_rng(9)
    halves = random.standard_normal((64, 4)).astype(np.float16)
    c = random.standard_normal(64).astype(np.float32)
    inputs: dict[int, Any] = {0: np.ascontiguousarray(halves[:, :2]), 2: np.ascontiguousarray(halves[:, 2:]), 4: c}
    got = wave.run("v_fma_mix_f32 v6, v0, v2, v4 op_sel:[1,0,0] op_sel_hi:[1,1,0]", vgprs=inputs)
    expected = (halves[:, 1].astype(np.float64) * halves[:, 2] + c).astype(np.float32)
    np.testing.assert_array_equal(got.vector(6, np.float32), expected)
    a, b = (random.standard_normal(64).astype(np.float32) for _ in range(2))
    high = wave.run("v_fma_mixhi_f16 v6, v0, v2, v4 op_sel_hi:[0,0,0]", vgprs={0: a, 2: b, 4: c, 6: OLD})
    rounded = (a.astype(np.float64) * b + c).astype(np.float32).astype(np.float16)
    np.testing.assert_array_equal((high.vgprs[6] >> 16).astype(np.uint16).view(np.float16), rounded)
    assert set(high.vgprs[6] & 0xFFFF) == {0xBABE}


def test_halves_of_packed_numbers(wave: Wave) -> None:
    """op_sel selects the half of a source, and neg_lo and neg_hi negate."""
    random = np.random.default_rng(10)
    a, b = (random.standard_normal((64, 2)).astype(np.float16) for _ in range(2))
    text = "v_pk_add_f16 v6, v0, v2 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1] neg_hi:[0,0]"
    got = np.ascontiguousarray(wave.run(text, vgprs={0: a, 2: b}).vgprs[6]).view(np.float16).reshape(64, 2)
    np.testing.assert_array_equal(got[:, 0], a[:, 1] - b[:, 0])
    np.testing.assert_array_equal(got[:, 1], a[:, 0] + b[:, 1])
    x, y, z = (random.standard_normal((64, 2)).astype(np.float32) for _ in range(3))
    wide = wave.run("v_pk_fma_f32 v[6:7], v[0:1], v[2:3], v[4:5] op_sel_hi:[0,1,1]", vgprs={0: x, 2: y, 4: z})
    expected = (x[:, :1].astype(np.longdouble) * y + z).astype(np.float32)
    np.testing.assert_array_equal(wide.vgprs[6:8].T.copy().view(np.float32), expected)
