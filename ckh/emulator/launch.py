"""Kernel launches on the emulated GPU: load the code and run the workgroups one after another.

A workgroup that waits for another one is set aside until others had their turn. The device holds one workgroup for each
compute unit: another one starts when one has ended.

Wraps the emulator's C part by ctypes; the structures are those of csrc/workgroup.c.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import struct
import traceback
from collections import deque
from ctypes import POINTER, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.emulator.codeobject import CodeObject, CompiledKernel, find_code
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Iterator

LANES = 64
ENDED, BARRIER, UNKNOWN, TOO_LONG, FAULT, WAITS = range(6)  # reasons why a workgroup stopped


LAUNCHER = ctypes.CFUNCTYPE(
    c_int, c_char_p, c_void_p, POINTER(c_uint32), POINTER(c_uint32), POINTER(c_void_p), c_uint64
)


class Registers(StrEnum):
    """Registers of a wave: scalar, vector and accumulation registers, the latter two of 64 lanes each."""

    SGPRS = "emu_sgprs"
    VGPRS = "emu_vgprs"
    ACCVGPRS = "emu_accvgprs"


class Launch(ctypes.Structure):
    """Parameters of a workgroup's execution."""

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
        ("turn", c_uint64),
    )


def _register(number: int) -> str:
    """Name of a register; the emulator numbers 256 v, 256 a and then s."""
    return f"{'vas'[number // 256 % 3]}{number % 256}"


class Fault(ctypes.Structure):
    """First error of a wave."""

    _fields_ = (
        *((name, c_uint32) for name in ("kind", "wave", "other", "lane", "address")),
        ("pc", c_uint64),
        ("other_pc", c_uint64),
    )

    def describe(self, entry: int, instruction: str) -> str:
        """Text for a terminal; offsets are bytes from the kernel's entry."""
        where = f"wave {self.wave} at +{self.pc - entry:#x}"
        other_wave = (
            f"wave {self.other} at +{self.other_pc - entry:#x}, with no barrier between the end of one and the other"
        )
        return {
            1: f"LDS race: {where} reads byte {self.address} that is written by {other_wave}",
            2: f"LDS race: {where} writes byte {self.address} that is touched by {other_wave}",
            3: f"{where}, lane {self.lane}, is outside the LDS: byte {self.address}",
            4: f"no instruction {instruction} in this form: {where}",
            5: f"{where}, lane {self.lane}, is outside its scratch memory: byte {self.address}",
            6: f"{where}, lane {self.lane}, is outside the memory that it may touch",
            7: f"{where} uses {_register(self.address)}, which the load at +{self.other_pc - entry:#x} brings: it did"
            " not wait for it",
        }[self.kind]


class Window(ctypes.Structure):
    """Memory that kernels may access."""

    _fields_ = (("start", c_uint64), ("bytes", c_uint64))


class EmulatorLibrary:
    """The loaded C part."""

    def __init__(self, path: Path | str) -> None:
        self._library = ctypes.CDLL(str(path))
        for name in Registers:
            getattr(self._library, name).restype = POINTER(c_uint32)
        self._library.emu_times.restype = c_uint64
        self._library.emu_lds.restype = c_void_p
        self._library.emu_set_launcher.argtypes = (LAUNCHER,)
        self.instruction_bytes = int(self._library.emu_instruction_size())
        self.held_groups = min(max(int(self._library.emu_units()), 1), _MOST_HELD)

    def set_arch(self, arch: str, *, races: bool) -> None:
        """Select the behaviour of an architecture; `races`: detect races in LDS."""
        for name, value in (
            ("emu_detect_races", races),
            ("emu_fnuz", arch != "gfx950"),
            ("emu_flush_half", arch == "gfx90a"),
            ("emu_is_gfx90a", arch == "gfx90a"),
        ):
            c_int.in_dll(self._library, name).value = int(value)

    def mark_changes(self, *, on: bool) -> None:
        """Count instructions and mark those with any effect, which is slow."""
        c_int.in_dll(self._library, "emu_mark_changes").value = int(on)

    def taken(self, instruction: int) -> tuple[int, bool]:
        """Execution count of the instruction decoded at an address, and whether it ever had an effect."""
        at = c_void_p(instruction)
        return int(self._library.emu_times(at)), bool(self._library.emu_has_changed(at))

    def set_launcher(self, launcher: Any) -> None:
        """Set the `LAUNCHER` that executes launches; the caller must keep a reference."""
        self._library.emu_set_launcher(launcher)

    def set_message(self, text: str) -> None:
        """Set HIP's message for an error of the emulator."""
        self._library.emu_set_message(text.encode())

    def set_arguments(self, address: int, size: int) -> None:
        """Set the memory of a kernel's arguments."""
        Window.in_dll(self._library, "emu_arguments").start = address
        Window.in_dll(self._library, "emu_arguments").bytes = size

    def select_group(self, number: int) -> None:
        """Select one of the workgroups that the device holds, for the methods that follow."""
        self._library.emu_group_select(c_uint32(number))

    def start_group(self, launch: Launch, place: tuple[int, int, int]) -> None:
        """Set up the workgroup at a position of the grid."""
        self._library.emu_group_start(ctypes.byref(launch), *place)

    def run_group(self, launch: Launch) -> int:
        """Run the workgroup, or let it go on after `WAITS`; returns why it stopped."""
        return int(self._library.emu_group_run(ctypes.byref(launch)))

    def registers(self, kind: Registers, wave: int = 0) -> Any:
        """Pointer to a wave's registers, valid until the next `start_group`."""
        return getattr(self._library, str(kind))(wave)

    def lds(self) -> int:
        """Address of the LDS."""
        return int(self._library.emu_lds())

    def fault(self) -> Fault:
        """Error of the last workgroup."""
        return Fault.in_dll(self._library, "emu_fault")

    def instruction(self, address: int, left: int) -> tuple[str, int]:
        """Name of the instruction at an address, and its number of dwords; `left` dwords remain in the program."""
        room = ctypes.create_string_buffer(100)
        count = self._library.emu_instruction_at(c_void_p(address), c_uint64(left), room, len(room))
        return room.value.decode(), int(count)


_NOT_SUPPORTED = 801  # hipError_t
_MOST_VARIABLE, _RACES_VARIABLE = "CKH_EMU_MOST", "CKH_EMU_RACES"
REACHED_VARIABLE = "CKH_EMU_REACHED"
_MOST_INSTRUCTIONS = 50_000_000  # per wave
_TURN = 100_000  # instructions of a wave between two barriers until other workgroups get their turn
_MOST_HELD = 64  # workgroups, as in csrc/workgroup.c
_MOST_THREADS, _MOST_LDS = 1024, 160 << 10  # per workgroup; bytes
_MODE = 0xC0  # initial MODE register: fp64 and fp16 keep denormals; the bits of fp32 are from the kernel's descriptor
_FP32_DENORMALS = 0x30
_LDS_GRANULE = 512
_FETCHED = 64  # bytes after the arguments that may be loaded with them
_PACKET = struct.Struct("<4x3H2x3I40x")  # of a launch, in the queue: threads of a workgroup and of the grid
_MOST_MESSAGE = 500

Place = tuple[int, int, int]


class EmulatorError(Exception):
    """A faulty kernel, or an unsupported instruction."""


class LoadedProgram:
    """A loaded code object, and storage for its instructions, which are decoded on first execution."""

    def __init__(self, code: CodeObject, instruction_bytes: int) -> None:
        self.code = code
        start, size = code.text
        self.base, self.dwords = code.base + start, size // 4
        self.room = ctypes.create_string_buffer(self.dwords * instruction_bytes)

    def left(self, pc: int) -> int:
        """Number of dwords from an address to the end of the code, 0 if it is not the address of an instruction."""
        at, odd = divmod(pc - self.base, 4)
        return self.dwords - at if 0 <= at < self.dwords and not odd else 0

    def reached(self, library: EmulatorLibrary) -> dict[int, tuple[int, bool]]:
        """Results of `EmulatorLibrary.taken` by offset of the executed instructions from the beginning of the code."""
        room, size, first = ctypes.addressof(self.room), library.instruction_bytes, self.base - self.code.base
        results = ((first + 4 * number, library.taken(room + size * number)) for number in range(self.dwords))
        return {at: taken for at, taken in results if taken[0]}


class EmulatedGpu:
    """The emulated GPU."""

    def __init__(self, library: EmulatorLibrary, arch: str) -> None:
        self._library, self._arch = library, arch
        self._programs: dict[int, LoadedProgram] = {}
        self._most = int(os.environ.get(_MOST_VARIABLE) or _MOST_INSTRUCTIONS)
        self._reached = os.environ.get(REACHED_VARIABLE)
        library.set_arch(arch, races=os.environ.get(_RACES_VARIABLE) != "0")
        library.mark_changes(on=self._reached is not None)

    def launch(self, name: str, bundle: int, grid: Place, block: Place, arguments: Any, shared: int) -> int:
        """Run a kernel, by mangled name, of the bundle at an address; returns the number of instructions of its waves.

        `grid` are workgroups, and `block` threads of a workgroup; `arguments` are pointers to the explicit ones, and
        `shared` bytes of dynamic LDS, in addition to the kernel's own.
        """
        program = self._program(bundle)
        if name not in program.code.kernels:
            raise ValueError(f"a code object without kernel {name}")
        kernel = program.code.kernels[name]
        explicit = kernel.pack(arguments)
        size = kernel.kernarg_size + _FETCHED
        packet = _PACKET.pack(*block, *(count * threads for count, threads in zip(grid, block, strict=True)))
        kernarg = ctypes.create_string_buffer(
            kernel.kernarg(explicit, grid, block, shared).ljust(size, b"\0") + packet, size + len(packet)
        )
        address = ctypes.addressof(kernarg)
        user = kernel.user_sgprs(address, kernarg.raw, address + size)
        self._library.set_arguments(address, len(kernarg))
        launch = self._set_up(program, kernel, block, user, shared)
        self._run_groups(launch, program, _places(grid))
        if self._reached:
            Path(self._reached).write_text(json.dumps(program.reached(self._library)), encoding="utf-8")
        return int(launch.instructions)

    def _run_groups(self, launch: Launch, program: LoadedProgram, places: Iterator[Place]) -> None:
        """Run the workgroups in order; those that wait go on in turn, and another one starts where one has ended."""
        free, waiting = list(range(self._library.held_groups)), deque[tuple[int, Place]]()
        while (new := next(places, None) if free else None) is not None or waiting:
            number, place = waiting.popleft() if new is None else (free.pop(), new)
            self._library.select_group(number)
            if new is not None:
                self._library.start_group(launch, place)
            why = self._library.run_group(launch)
            self._check(why, launch, program, place)
            if why == WAITS:
                waiting.append((number, place))
            else:
                free.append(number)

    def _program(self, bundle: int) -> LoadedProgram:
        if bundle not in self._programs:
            offset, size = find_code(bundle, self._arch)
            code = CodeObject(ctypes.string_at(bundle + offset, size))
            self._programs[bundle] = LoadedProgram(code, self._library.instruction_bytes)
        return self._programs[bundle]

    def _set_up(
        self, program: LoadedProgram, kernel: CompiledKernel, block: Place, user: list[int], shared: int
    ) -> Launch:
        if not 0 < math.prod(block) <= _MOST_THREADS or kernel.lds + shared > _MOST_LDS:
            raise EmulatorError(
                f"a workgroup of {math.prod(block)} threads with {kernel.lds + shared} bytes of LDS;"
                f" the limits are {_MOST_THREADS} and {_MOST_LDS}"
            )
        launch = Launch()
        launch.program = ctypes.addressof(program.room)
        launch.base, launch.dwords, launch.entry = program.base, program.dwords, program.code.base + kernel.entry
        launch.block[:] = block
        launch.scratch = kernel.scratch
        launch.lds_bytes = -(-(kernel.lds + shared) // _LDS_GRANULE) * _LDS_GRANULE
        launch.user_count, launch.user[: len(user)] = len(user), user
        launch.id_bits = kernel.id_bits
        # Later architectures have a separate register for it.
        launch.scratch_offset = self._arch == "gfx90a" and kernel.takes_scratch_offset
        launch.mode = _MODE | (_FP32_DENORMALS if kernel.keeps_denormals else 0)
        launch.most, launch.turn = self._most, _TURN
        return launch

    def _check(self, why: int, launch: Launch, program: LoadedProgram, place: Place) -> None:
        where = f" (workgroup {', '.join(map(str, place))})"
        if why == UNKNOWN:
            pc = launch.unknown_pc
            if not program.left(pc):
                raise EmulatorError(f"a wave runs outside the program, to {pc - launch.entry:+#x}{where}")
            raise EmulatorError(f"no instruction {self._text(pc, program)} at +{pc - launch.entry:#x}{where}")
        if why == FAULT:
            fault = self._library.fault()
            raise EmulatorError(fault.describe(launch.entry, self._text(fault.pc, program)) + where)
        if why == TOO_LONG:
            raise EmulatorError(f"a wave takes more than {self._most} instructions{where}")

    def _text(self, pc: int, program: LoadedProgram) -> str:
        """Name and words of an instruction at an address."""
        name, count = self._library.instruction(pc, program.left(pc))
        words = (ctypes.c_uint32 * count).from_address(pc)
        return f"{name} ({' '.join(f'{word:08x}' for word in words)})"


def _places(grid: Place) -> Iterator[Place]:
    """Positions of all workgroups, x fastest."""
    return ((x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0]))


_attached: list[Any] = []


def attach(path: Path | str, arch: str) -> None:
    """Execute this process's launches through the replacement of libamdhip64 at a path."""
    library = EmulatorLibrary(path)
    gpu = EmulatedGpu(library, arch)

    def launch(name: bytes, bundle: int, grid: Any, block: Any, arguments: Any, shared: int) -> int:
        try:
            gpu.launch(name.decode(), bundle, tuple(grid[:3]), tuple(block[:3]), arguments, shared)
        except (EmulatorError, ValueError) as error:
            library.set_message(f"emulator: {error}"[:_MOST_MESSAGE])
        except Exception as error:  # noqa: BLE001 - it must not escape into C
            traceback.print_exc()
            library.set_message(f"emulator: {error!r}"[:_MOST_MESSAGE])
        else:
            return 0
        return _NOT_SUPPORTED

    callback = LAUNCHER(launch)
    _attached.append((gpu, callback))
    library.set_launcher(callback)
