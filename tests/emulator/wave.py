"""Waves that execute a few instructions on given registers."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh.emulator.launch import ENDED, FAULT, LANES, UNKNOWN, Launch, Registers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.emulator.launch import EmulatorLibrary

Array = NDArray[Any]
Words = NDArray[np.uint32]

ALL_LANES = (1 << LANES) - 1
VCC, M0, EXEC, SCC = 106, 124, 126, 253
_SGPRS, _VGPRS = 256, 512
_MODE = 0xF0  # keeps all denormals, rounds to nearest
_LDS_BYTES = 65536
TEXTS = Path(__file__).with_name("instructions.txt")
_END = "s_endpgm"


class WaveError(Exception):
    """The wave executed something unsupported or wrong."""


def assembled(arch: str) -> dict[str, list[int]]:
    """The instructions of instructions.txt (made by assemble.py) for an architecture, each with its words."""
    result = {}
    for line in TEXTS.read_text(encoding="utf-8").splitlines():
        name, text, words = line.split(" | ")
        if name == arch:
            result[text] = [int(word, 16) for word in words.split()]
    return result


@dataclass(frozen=True)
class State:
    """Registers after a run: `vgprs` and `accvgprs` by register and lane, `lds` as bytes."""

    sgprs: Words
    vgprs: Words
    accvgprs: Words
    lds: NDArray[np.uint8]

    def pair(self, register: int) -> int:
        """64 bits of two SGPRs."""
        return int(self.sgprs[register]) | int(self.sgprs[register + 1]) << 32

    def vector(self, register: int, dtype: Any) -> Array:
        """A vector register by lane, or two for types of 64 bits; for types of 16 bits the lower half."""
        kind = np.dtype(dtype)
        count = max(1, kind.itemsize // 4)
        rows = np.ascontiguousarray(self.vgprs[register : register + count].T)
        values: Array = rows.view(kind)[:, 0]
        return values


def rows(values: Array) -> Words:
    """The registers that hold an array of shape (lanes, …), a lane's values consecutively."""
    flat = np.ascontiguousarray(values).reshape(len(values), -1)
    size = flat.dtype.itemsize * flat.shape[1]
    padded = np.zeros((len(values), -(-size // 4) * 4), np.uint8)
    padded[:, :size] = flat.view(np.uint8).reshape(len(values), size)
    return np.ascontiguousarray(padded.view(np.uint32).T)


class Wave:
    """Carries out instructions, given as text that instructions.txt has.

    Args:
        library: the emulator.
        arch: what it is.
    """

    def __init__(self, library: EmulatorLibrary, arch: str) -> None:
        library.set_arch(arch, races=True)
        self.library = library
        self._words = assembled(arch)

    def run(
        self,
        *texts: str | Sequence[int],
        vgprs: Mapping[int, Array] | None = None,
        accvgprs: Mapping[int, Array] | None = None,
        sgprs: Mapping[int, int] | None = None,
        lds: bytes = b"",
        exec_mask: int = ALL_LANES,
        scratch: int = 0,
        threads: int = LANES,
        cut: int = 0,
    ) -> State:
        """The first wave after the instructions.

        Args:
            texts: the instructions, or their words; the end of the program is added.
            vgprs: first register → values of shape (lanes, …), in as many registers as they take, of all waves.
            accvgprs: the same of accumulation registers.
            sgprs: register → value, of all waves.
            lds: what it begins with.
            exec_mask: lanes that are on.
            scratch: bytes of scratch memory a lane.
            threads: of the workgroup.
            cut: words that the program lacks at its end.

        Raises:
            WaveError: an instruction is not emulated, or did something wrong; the message says so.
        """
        words = [word for text in (*texts, _END) for word in (self._words[text] if isinstance(text, str) else text)]
        code = (ctypes.c_uint32 * len(words))(*words)
        room = ctypes.create_string_buffer(len(words) * self.library.instruction_bytes)
        launch = Launch(program=ctypes.addressof(room), base=ctypes.addressof(code), dwords=len(words) - cut)
        launch.entry, launch.block[:] = launch.base, (threads, 1, 1)
        launch.mode, launch.lds_bytes, launch.most, launch.scratch = _MODE, _LDS_BYTES, 1000, scratch
        self.library.start_group(launch, (0, 0, 0))
        for number in range(threads // LANES):
            self._fill(number, {**(sgprs or {})}, exec_mask)
            for kind, given in ((Registers.VGPRS, vgprs), (Registers.ACCVGPRS, accvgprs)):
                for register, values in (given or {}).items():
                    taken = rows(values)
                    self._file(kind, number)[register : register + len(taken)] = taken
        ctypes.memmove(self.library.lds(), lds, len(lds))
        self._check(self.library.run_group(launch), launch)
        return State(
            self._scalars(0).copy(),
            self._file(Registers.VGPRS, 0).copy(),
            self._file(Registers.ACCVGPRS, 0).copy(),
            np.frombuffer(ctypes.string_at(self.library.lds(), _LDS_BYTES), np.uint8),
        )

    def _fill(self, number: int, sgprs: dict[int, int], exec_mask: int) -> None:
        scalars = self._scalars(number)
        scalars[EXEC], scalars[EXEC + 1] = exec_mask & 0xFFFFFFFF, exec_mask >> 32
        for register, value in sgprs.items():
            scalars[register] = value & 0xFFFFFFFF

    def _scalars(self, number: int) -> Words:
        return np.ctypeslib.as_array(self.library.registers(Registers.SGPRS, number), (_SGPRS,))

    def _file(self, kind: Registers, number: int) -> Words:
        return np.ctypeslib.as_array(self.library.registers(kind, number), (_VGPRS, LANES))

    def _check(self, why: int, launch: Launch) -> None:
        if why == ENDED:
            return
        fault = self.library.fault()
        pc = launch.unknown_pc if why == UNKNOWN else fault.pc
        left = launch.dwords - (pc - launch.base) // 4
        name = self.library.instruction(pc, left)[0] if 0 < left <= launch.dwords else "outside the program"
        text = fault.describe(launch.entry, name) if why == FAULT else f"no instruction {name}"
        raise WaveError(text if why in (UNKNOWN, FAULT) else f"stopped with {why}")


_WORD = 1 << 32


def buffer(memory: NDArray[Any], size: int, stride: int = 0, offset: int = 0) -> dict[int, int]:
    """SGPRs 4 to 7, which describe a buffer on the memory, and 8, an additional offset."""
    at = memory.ctypes.data
    return {4: at % _WORD, 5: at >> 32 | stride << 16, 6: size, 7: 0x20000, 8: offset}


def address(memory: NDArray[Any]) -> dict[int, int]:
    """SGPRs 4 and 5: the memory's address."""
    return {4: memory.ctypes.data % _WORD, 5: memory.ctypes.data >> 32}
