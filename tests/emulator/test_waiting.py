"""Loads complete as late as s_waitcnt allows; LDS accesses without a wait may complete after barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.wave import M0, Wave, WaveError, address, buffer

LANE = np.arange(64, dtype=np.uint32)
MEMORY = np.random.default_rng(5).integers(0, 1 << 32, 1024, np.uint32)
VM_0, VM_1, LGKM_0, LGKM_1 = ([0xBF8C0000 | bits] for bits in (0x0F70, 0x0F71, 0xC07F, 0xC17F))
BARRIER = [0xBF8A0000]
LOAD = "global_load_dword v6, v4, s[4:5] offset:4"
ADD = "v_add_u32 v6, v0, v2"
MOVE_TO_V0 = [0x7E000306]  # v_mov_b32 v0, v6
MOVE_TO_V6 = [0x7E0C0300]  # v_mov_b32 v6, v0
INPUTS = {0: LANE, 2: LANE, 4: LANE * 4}


def test_a_load_is_waited_for(wave: Wave) -> None:
    """A register may be read only after s_waitcnt; then it has the loaded value."""
    with pytest.raises(WaveError, match=r"wave 0 at \+0x8 .*v6\D.*\+0x0"):
        wave.run(LOAD, MOVE_TO_V0, sgprs=address(MEMORY), vgprs=INPUTS)
    got = wave.run(LOAD, VM_0, MOVE_TO_V0, sgprs=address(MEMORY), vgprs=INPUTS)
    np.testing.assert_array_equal(got.vgprs[0], MEMORY[1:65])
    with pytest.raises(WaveError, match="uses v6"):
        wave.run(LOAD, LGKM_0, MOVE_TO_V0, sgprs=address(MEMORY), vgprs=INPUTS)


def test_a_register_is_not_written_while_it_is_loaded(wave: Wave) -> None:
    """The load could complete after another instruction's result."""
    with pytest.raises(WaveError, match="uses v6"):
        wave.run(LOAD, ADD, sgprs=address(MEMORY), vgprs=INPUTS)
    with pytest.raises(WaveError, match="uses v6"):
        wave.run("ds_read_b32 v6, v4 offset:16", MOVE_TO_V6, lds=bytes(1024), vgprs=INPUTS)


def test_waits_complete_the_oldest_loads(wave: Wave) -> None:
    """Waiting until one access is pending completes all but the last, including stores."""
    store = [0xDC708000, 0x00040004]  # global_store_dword v4, v0, s[4:5]
    memory = MEMORY.copy()
    got = wave.run(LOAD, store, VM_1, MOVE_TO_V0, sgprs=address(memory), vgprs=INPUTS)
    np.testing.assert_array_equal(got.vgprs[0], MEMORY[1:65])
    with pytest.raises(WaveError, match="uses v6"):
        wave.run(store, LOAD, VM_1, MOVE_TO_V0, sgprs=address(memory), vgprs=INPUTS)


def test_scalar_loads_return_in_any_order(wave: Wave) -> None:
    """A scalar load is known to be complete only when its counter is 0."""
    load, read, use = (
        "s_load_dwordx2 s[8:9], s[4:5], 0x8",
        "ds_read_b32 v6, v4 offset:16",
        [0x7E000208],
    )  # v_mov_b32 v0, s8
    given: dict[str, Any] = {"sgprs": address(MEMORY), "vgprs": INPUTS, "lds": bytes(1024)}
    for texts in ((load, use), (load, read, LGKM_1, use)):
        with pytest.raises(WaveError, match="uses s8"):
            wave.run(*texts, **given)
    got = wave.run(load, read, LGKM_0, use, **given)
    assert set(got.vgprs[0]) == {MEMORY[2]}
    assert got.pair(8) == int(MEMORY[2]) | int(MEMORY[3]) << 32


def test_lds_is_waited_for_before_a_barrier(wave: Wave) -> None:
    """A write without a wait may complete after the barrier, when another wave reads."""
    own = [0x24080082]  # v_lshlrev_b32 v4, 2, v0: v0 is the thread
    others = [0x2A0A08FF, 256]  # v_xor_b32 v5, 0x100, v4: the place of the other wave's thread
    write, read = "ds_write_b32 v4, v0 offset:16", [0xD86C0010, 0x06000005]  # ds_read_b32 v6, v5 offset:16
    with pytest.raises(WaveError, match="LDS race"):
        wave.run(own, others, write, BARRIER, read, threads=128)
    got = wave.run(own, others, write, LGKM_0, BARRIER, read, threads=128)
    np.testing.assert_array_equal(got.vgprs[6], LANE + 64)
    with pytest.raises(WaveError, match="LDS race"):  # a read goes on behind a barrier, too
        wave.run(own, others, read, BARRIER, write, threads=128)


def test_a_load_to_lds_arrives_late(wave: Wave) -> None:
    """Before the wait the LDS has NaN, afterwards the memory's content."""
    load, read = "buffer_load_dword v4, s[4:7], s8 offen lds", [0xD86C0000, 0x06000005]  # ds_read_b32 v6, v5
    given: dict[str, Any] = {
        "sgprs": buffer(MEMORY, 4096) | {M0: 0},
        "vgprs": {4: LANE * 4, 5: LANE * 4},
        "lds": bytes(1024),
    }
    early = wave.run(load, read, LGKM_0, **given)
    assert set(early.vgprs[6]) == {0xFFFFFFFF}
    np.testing.assert_array_equal(wave.run(load, VM_0, read, LGKM_0, **given).vgprs[6], MEMORY[:64])
