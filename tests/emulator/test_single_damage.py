"""A single missing barrier or wait is detected; `python -m tests.emulator.single_damage` tries others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.emulator.keep import RIGHT
from tests.emulator.single_damage import Bench, Kind, evenly, instructions, kind_of, replaced

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.emulator.launch import EmulatorLibrary


_ANY_LDS = 0x0F00  # lgkmcnt of s_waitcnt: any number of LDS accesses may be pending


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
def test_a_missing_barrier_or_wait_is_detected(tmp_path: Path, library: EmulatorLibrary) -> None:
    """Without a barrier of a kernel its waves race, without a wait for a load from memory it uses data too early."""
    kept = RIGHT[0]
    bench = Bench(kept, tmp_path)
    result = instructions(kept, bench, tmp_path, library)
    for kind, message in ((Kind.BARRIER, "LDS race"), (Kind.WAIT, "which the load at")):
        of_kind = [item for item in result if item.kind is kind]
        if kind is Kind.WAIT:
            of_kind = [item for item in of_kind if item.words[0] & _ANY_LDS == _ANY_LDS]
        (chosen,) = evenly(of_kind, 1)
        reply = bench.is_found(replaced(kept.library(), chosen))
        assert reply is not None
        assert message in reply.message


def test_kinds_and_samples() -> None:
    """Each name has a kind, hints have none; samples are evenly spread."""
    names = (
        "s_waitcnt",
        "ds_write_b64",
        "ds_bpermute_b32",
        "buffer_load_dword",
        "buffer_atomic_add",
        "v_mfma_f32_32x32x8_f16",
    )
    kinds = [Kind.WAIT, Kind.LDS_WRITE, Kind.LDS_READ, Kind.LOAD, Kind.STORE, Kind.MATRIX]
    assert [kind_of(name) for name in names] == kinds
    assert [kind_of(name) for name in ("s_nop", "s_cbranch_execz", "s_setprio")] == [None] * 3
    assert [kind_of(name) for name in ("s_cbranch_scc1", "v_cmp_gt_i32", "s_add_u32")] == [
        Kind.BRANCH,
        Kind.COMPARE,
        Kind.SCALAR,
    ]
    letters = "abcdefgh"
    assert [evenly(letters, count) for count in (1, 2, 4, 20)] == [["e"], ["c", "g"], list("bdfh"), list(letters)]
