"""Workgroups that wait for one another: they take turns, and as many are held as there are compute units."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.emulator.launch import ENDED, LANES, TOO_LONG, WAITS, Launch, Registers

if TYPE_CHECKING:
    from ckh.emulator.launch import EmulatorLibrary

# while (*s[4:5] == 0); s7 = s6; end
_WORDS = (
    *(0xC0020182, 0x00000000),  # s_load_dword s6, s[4:5], 0x0
    0xBF8CC07F,  # s_waitcnt lgkmcnt(0)
    0xBF078006,  # s_cmp_lg_u32 s6, 0
    0xBF84FFFB,  # s_cbranch_scc0, to the beginning
    0xBE870006,  # s_mov_b32 s7, s6
    0xBF810000,  # s_endpgm
)
_TURN, _MOST = 100, 1000


class Waiting:
    """A workgroup of two waves that wait for a word of memory."""

    def __init__(self, library: EmulatorLibrary, flag: np.ndarray) -> None:
        library.set_arch("gfx942", races=True)
        self.library = library
        self._code = (ctypes.c_uint32 * len(_WORDS))(*_WORDS)
        self._room = ctypes.create_string_buffer(len(_WORDS) * library.instruction_bytes)
        self.launch = Launch(program=ctypes.addressof(self._room), base=ctypes.addressof(self._code))
        self.launch.dwords, self.launch.entry = len(_WORDS), self.launch.base
        self.launch.block[:] = (2 * LANES, 1, 1)
        self.launch.most, self.launch.turn = _MOST, _TURN
        self.launch.user_count = 6
        self.launch.user[4], self.launch.user[5] = flag.ctypes.data & 0xFFFFFFFF, flag.ctypes.data >> 32

    def start(self, number: int) -> int:
        """Start as one of the workgroups that the device holds."""
        self.library.select_group(number)
        self.library.start_group(self.launch, (0, 0, 0))
        return self.library.run_group(self.launch)

    def go_on(self, number: int) -> int:
        """Go on after waiting."""
        self.library.select_group(number)
        return self.library.run_group(self.launch)

    def found(self, number: int) -> list[int]:
        """What its waves loaded last."""
        self.library.select_group(number)
        return [int(self.library.registers(Registers.SGPRS, wave)[7]) for wave in range(2)]


def test_workgroups_wait_side_by_side(library: EmulatorLibrary) -> None:
    """Each keeps its registers, and goes on where it waited when its word is there."""
    flags = np.zeros(2, np.uint32)
    waiting, other = Waiting(library, flags[:1]), Waiting(library, flags[1:])
    assert (waiting.start(0), other.start(1)) == (WAITS, WAITS)
    assert waiting.go_on(0) == WAITS
    flags[1] = 7
    assert (other.go_on(1), waiting.go_on(0)) == (ENDED, WAITS)
    assert other.found(1) == [7, 7]
    flags[0] = 5
    assert waiting.go_on(0) == ENDED
    assert (waiting.found(0), other.found(1)) == ([5, 5], [7, 7])
    library.select_group(0)


def test_endless_waits_end(library: EmulatorLibrary) -> None:
    """A wave has its number of instructions in all turns together."""
    waiting = Waiting(library, np.zeros(1, np.uint32))
    turns = [waiting.start(0), *(waiting.go_on(0) for _ in range(_MOST // _TURN - 1))]
    assert turns == [*[WAITS] * (_MOST // _TURN - 1), TOO_LONG]


def test_without_turns_nothing_waits(library: EmulatorLibrary) -> None:
    """A launch of single workgroups runs until it ends."""
    waiting = Waiting(library, np.zeros(1, np.uint32))
    waiting.launch.turn = 0
    assert waiting.start(0) == TOO_LONG


@pytest.mark.parametrize("number", [0, 63])
def test_as_many_are_held_as_units(library: EmulatorLibrary, number: int) -> None:
    """The device has four compute units unless it is told otherwise; any of 64 workgroups can be selected."""
    assert library.held_groups == 4
    assert Waiting(library, np.ones(1, np.uint32)).start(number) == ENDED
    library.select_group(0)
