"""The emulator's C part by ctypes; the structures are those of csrc/workgroup.c."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from pathlib import Path

LANES = 64
ENDED, BARRIER, UNKNOWN, TOO_LONG, FAULT = range(5)  # why a workgroup stopped

CHANGED = 2  # an instruction that was reached, and changed something

LAUNCHER = ctypes.CFUNCTYPE(
    c_int, c_char_p, c_void_p, POINTER(c_uint32), POINTER(c_uint32), POINTER(c_void_p), c_uint64
)


class Registers(StrEnum):
    """The registers of a wave: scalar ones, vector ones and those for accumulation, of 64 lanes each."""

    SGPRS = "emu_sgprs"
    VGPRS = "emu_vgprs"
    ACCVGPRS = "emu_accvgprs"


class Launch(ctypes.Structure):
    """The state that a workgroup is run with."""

    _fields_ = (
        ("program", c_void_p),
        ("base", c_uint64),
        ("dwords", c_uint64),
        ("entry", c_uint64),
        ("block", c_uint32 * 3),
        ("scratch", c_uint32),
        ("user_count", c_uint32),
        ("id_bits", c_uint32),
        ("scratch_offset", c_uint32),
        ("mode", c_uint32),
        ("lds_bytes", c_uint32),
        ("user", c_uint32 * 32),
        ("instructions", c_uint64),
        ("unknown_pc", c_uint64),
        ("most", c_uint64),
    )


def _register(number: int) -> str:
    """The name of a register, of which the emulator numbers 256 v, 256 a and then s."""
    return f"{'vas'[number // 256 % 3]}{number % 256}"


class Fault(ctypes.Structure):
    """The first error of a wave."""

    _fields_ = (
        *((name, c_uint32) for name in ("kind", "wave", "other", "lane", "address")),
        ("pc", c_uint64),
        ("other_pc", c_uint64),
    )

    def describe(self, entry: int, instruction: str) -> str:
        """In words; places are counted in bytes from the kernel's entry."""
        where = f"wave {self.wave} at +{self.pc - entry:#x}"
        other = (
            f"wave {self.other} at +{self.other_pc - entry:#x}, with no barrier between the end of one and the other"
        )
        return {
            1: f"LDS race: {where} reads byte {self.address} that is written by {other}",
            2: f"LDS race: {where} writes byte {self.address} that is touched by {other}",
            3: f"{where}, lane {self.lane}, is outside the LDS: byte {self.address}",
            4: f"no instruction {instruction} in this form: {where}",
            5: f"{where}, lane {self.lane}, is outside its scratch memory: byte {self.address}",
            6: f"{where}, lane {self.lane}, is outside the memory that it may touch",
            7: f"{where} uses {_register(self.address)}, which the load at +{self.other_pc - entry:#x} brings: it did"
            " not wait for it",
        }[self.kind]


class Window(ctypes.Structure):
    """Memory that kernels may touch."""

    _fields_ = (("start", c_uint64), ("bytes", c_uint64))


class EmulatorLibrary:
    """The loaded C part.

    Raises:
        OSError: it cannot be loaded.
    """

    def __init__(self, path: Path | str) -> None:
        self._library = ctypes.CDLL(str(path))
        for name in Registers:
            getattr(self._library, name).restype = POINTER(c_uint32)
        self._library.emu_lds.restype = c_void_p
        self._library.emu_set_launcher.argtypes = (LAUNCHER,)
        self.instruction_bytes = int(self._library.emu_instruction_size())

    def set_arch(self, arch: str, *, races: bool) -> None:
        """Behave as an architecture where architectures differ; `races`: look for races in LDS."""
        for name, value in (
            ("emu_detect_races", races),
            ("emu_fnuz", arch != "gfx950"),
            ("emu_flush_half", arch == "gfx90a"),
            ("emu_is_gfx90a", arch == "gfx90a"),
        ):
            c_int.in_dll(self._library, name).value = int(value)

    def mark_changes(self, *, on: bool) -> None:
        """Mark which instructions change anything, which takes time."""
        c_int.in_dll(self._library, "emu_mark_changes").value = int(on)

    def was_reached(self, instruction: int) -> int:
        """0 if the instruction decoded at an address was not reached; `CHANGED` if it once changed something."""
        return int(self._library.emu_was_reached(c_void_p(instruction)))

    def set_launcher(self, launcher: Any) -> None:
        """Have a `LAUNCHER` carry out what programs launch; it must be kept."""
        self._library.emu_set_launcher(launcher)

    def set_message(self, text: str) -> None:
        """Set the message that HIP gives for an error that is not its own."""
        self._library.emu_set_message(text.encode())

    def set_arguments(self, address: int, size: int) -> None:
        """Name the memory that holds a kernel's arguments."""
        Window.in_dll(self._library, "emu_arguments").start = address
        Window.in_dll(self._library, "emu_arguments").bytes = size

    def confine(self, address: int, size: int) -> None:
        """Let kernels touch no memory of this process but their arguments and this; a size of 0 lets them touch all."""
        Window.in_dll(self._library, "emu_window").start = address
        Window.in_dll(self._library, "emu_window").bytes = size

    def start_group(self, launch: Launch, place: tuple[int, int, int]) -> None:
        """Set up the workgroup at a place of the grid."""
        self._library.emu_group_start(ctypes.byref(launch), *place)

    def run_group(self, launch: Launch) -> int:
        """Run it; why it stopped."""
        return int(self._library.emu_group_run(ctypes.byref(launch)))

    def registers(self, kind: Registers, wave: int = 0) -> Any:
        """A pointer to a wave's registers, until the next `start_group`."""
        return getattr(self._library, str(kind))(wave)

    def lds(self) -> int:
        """The address of the LDS."""
        return int(self._library.emu_lds())

    def fault(self) -> Fault:
        """The error of the last workgroup."""
        return Fault.in_dll(self._library, "emu_fault")

    def instruction(self, address: int, left: int) -> tuple[str, int]:
        """The name of the instruction at an address, and how many of the program's dwords that are left it has."""
        room = ctypes.create_string_buffer(100)
        count = self._library.emu_instruction_at(c_void_p(address), c_uint64(left), room, len(room))
        return room.value.decode(), int(count)
