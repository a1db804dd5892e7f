"""Loads and runs damaged code objects, metadata and programs on the emulated GPU, under sanitizers.

    python -m tests.emulator.fuzz objects|metadata|programs [--seed 0] [--count 100000]

An input is refused with the errors that the emulator has for it, or runs to an end that has a name. Anything else is a
failure: another exception, a sanitizer's report, an inline constant that has changed. Kernels may touch a window of
memory alone, so what sanitizers report is never a kernel's own access. `--library` names the C part, compiled with them
before. A failure prints the seed of its input.
"""

from __future__ import annotations

# ruff: noqa: T201 - a script
import argparse
import ctypes
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.emulator.build import compile_command
from ckh.emulator.codeobject import BUNDLE_MAGIC, MAX_KERNARG_BYTES, CodeObject, decode_metadata, find_code
from ckh.emulator.launch import (
    ENDED,
    FAULT,
    LANES,
    EmulatedGpu,
    EmulatorError,
    EmulatorLibrary,
    Launch,
    LoadedProgram,
    Registers,
)
from tests.emulator.damage import code_of, confine
from tests.emulator.damaged_words import DAMAGED
from tests.emulator.keep import KEPT
from tests.emulator.wave import EXEC, assembled

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT = Path(__file__).parents[2]
_SANITIZERS = (
    *("-O0", "-g", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"),
    "-fno-omit-frame-pointer",
)
NO_SANITIZERS = 3  # exit code: gcc has none here
_WINDOW = 1 << 16
_MOST = 2000  # instructions of a wave
_POINTERS = 4096
_ARCHS = ("gfx942", "gfx950", "gfx90a")
_ODD = (0, 1, 2, 4, 63, 64, 127, 128, 255, 0x7FFF, 0xFFFF, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 64) - 1)
# First bits of each encoding, and how many they are.
_ENCODINGS = (
    *((0x80000000, 2), (0xB0000000, 4), (0xBE800000, 9), (0xBF000000, 9), (0xBF800000, 9), (0xC0000000, 6)),
    *((0x00000000, 1), (0x7C000000, 7), (0x7E000000, 7), (0xD0000000, 6), (0xD3800000, 9), (0xD8000000, 6)),
    *((0xDC000000, 6), (0xE0000000, 6)),
)


def build_sanitized(folder: Path) -> Path | None:
    """Compile the C part with sanitizers into a folder; None if gcc has none."""
    if sanitizer() is None:
        return None
    library = folder / "emulator.so"
    subprocess.run(compile_command(("gcc",), library, _SANITIZERS), check=True)
    return library


def sanitizer() -> Path | None:
    """The address sanitizer's library, which a process must load first; None if gcc has none."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    done = subprocess.run([gcc, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = Path(done.stdout.strip())
    return path if path.is_absolute() else None


class Fuzzer:
    """Makes inputs and runs them, each from its own seed."""

    def __init__(self, library: EmulatorLibrary) -> None:
        self.library = library
        self.random = random.Random()
        self._memory = ctypes.create_string_buffer(_WINDOW)
        self._window = ctypes.addressof(self._memory)
        confine(library, self._window, _WINDOW)
        self._content = KEPT[0].library()
        self._elf, at = code_of(self._content, KEPT[0].arch)
        self._header = self._content[self._content.index(BUNDLE_MAGIC) : at][:4096]
        start = self._elf.index(b"AMDGPU\0\0") + 8
        (size,) = struct.unpack_from("<I", self._elf, start - 16)
        self._metadata = self._elf[start : start + size]
        self._texts = {arch: list(assembled(arch).values()) for arch in _ARCHS}
        numbers = np.random.default_rng(0)
        self._values = numbers.integers(0, 256, 2 * MAX_KERNARG_BYTES // 8, np.uint64)
        self._values[::3] = self._window + 64
        words = numbers.integers(0, 1 << 32, (2048, LANES), np.uint32)
        words[::3] %= _WINDOW
        words[1::7] = numbers.choice(np.array([0, 0x80000000, 0x7F800000, 0x7FC00000, 0xFFFFFFFF, 1], np.uint32), LANES)
        self._words = words

    def objects(self) -> bool:
        """Load a damaged code object and run its kernels; False if it is refused."""
        if self.random.random() < 0.1:
            return self._bundle()
        elf = self._damaged(self._elf)
        gpu = EmulatedGpu(self.library, self.random.choice(_ARCHS))
        gpu._most = _MOST
        try:
            code = CodeObject(elf)
            gpu._programs[0] = LoadedProgram(code, self.library.instruction_bytes)
        except ValueError:
            return False
        start = self._values.ctypes.data + 8 * self.random.randrange(1000)
        pointers = (ctypes.c_void_p * _POINTERS)(*[start] * _POINTERS)
        return sum(self._runs(gpu, name, pointers) for name in code.kernels) > 0

    def _runs(self, gpu: EmulatedGpu, name: str, pointers: Any) -> bool:
        """Run a kernel of the loaded code object; True if it ends normally."""
        try:
            gpu.launch(name, 0, (1, 1, 1), (self.random.choice((1, 64, 100, 128)), 1, 1), pointers, 0)
        except (ValueError, EmulatorError):
            return False
        return True

    def _bundle(self) -> bool:
        """Search for code in a damaged bundle that ends at the end of its memory."""
        content = self._damaged(self._header)
        if not content:
            return False
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.flush()
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as memory:
                first = ctypes.c_char.from_buffer(memory)
                try:
                    find_code(ctypes.addressof(first), "gfx942")
                except ValueError:
                    return False
                finally:
                    del first
        return True

    def metadata(self) -> bool:
        """Unpack damaged MessagePack, and load a code object with it; False if either is refused."""
        damaged = self._damaged(self._metadata)
        try:
            decode_metadata(damaged)
            CodeObject(self._elf.replace(self._metadata, damaged.ljust(len(self._metadata))))
        except ValueError:
            return False
        return True

    def programs(self) -> bool:
        """Run a random program on random registers; True if all waves end normally."""
        arch = self.random.choice(_ARCHS)
        self.library.set_arch(arch, races=self.random.random() < 0.5)
        words = [word for _ in range(self.random.randint(1, 8)) for word in self._instruction(arch)]
        if self.random.random() < 0.8:
            words.append(0xBF810000)  # s_endpgm
        code = np.array(words, np.uint32)
        room = ctypes.create_string_buffer(len(words) * self.library.instruction_bytes)
        launch = Launch(program=ctypes.addressof(room), base=code.ctypes.data, dwords=len(words))
        threads = self.random.choice((1, 64, 128))
        launch.entry, launch.block[:], launch.most = launch.base, (threads, 1, 1), _MOST
        launch.mode, launch.lds_bytes = self.random.randrange(256), self.random.choice((0, 512, 65536, 163840))
        launch.scratch, launch.user_count = self.random.choice((0, 4, 64, 4096)), self.random.randrange(17)
        self.library.start_group(launch, (0, 0, 0))
        waves = range(-(-threads // LANES))
        constants = [self._registers(Registers.SGPRS, wave, 256, 1)[128:249].copy() for wave in waves]
        for wave in waves:
            self._fill(wave)
        why = self.library.run_group(launch)
        for wave in waves:
            assert (self._registers(Registers.SGPRS, wave, 256, 1)[128:249] == constants[wave]).all()
        if why == FAULT:
            fault = self.library.fault()
            left = len(words) - (fault.pc - launch.base) // 4
            assert fault.describe(launch.entry, self.library.instruction(fault.pc, left)[0])
        return why == ENDED

    def _registers(self, kind: Registers, wave: int, rows: int, lanes: int) -> Any:
        return np.ctypeslib.as_array(self.library.registers(kind, wave), (rows, lanes))

    def _fill(self, wave: int) -> None:
        for kind in (Registers.VGPRS, Registers.ACCVGPRS):
            at = self.random.randrange(len(self._words) - 256)
            self._registers(kind, wave, 256, LANES)[:] = self._words[at : at + 256]
        scalars = self._registers(Registers.SGPRS, wave, 256, 1)[:, 0]
        scalars[:104] = self._words[self.random.randrange(len(self._words) - 2) :][:2].ravel()[:104]
        for register in range(0, 104, 4):
            if self.random.random() < 0.5:
                scalars[register : register + 2] = self._window & 0xFFFFFFFF, self._window >> 32
                scalars[register + 2] = _WINDOW
        exec_mask = self.random.choice((0, 1, (1 << LANES) - 1, self.random.getrandbits(LANES)))
        scalars[EXEC], scalars[EXEC + 1] = exec_mask & 0xFFFFFFFF, exec_mask >> 32

    def _instruction(self, arch: str) -> list[int]:
        """The words of an instruction: from `DAMAGED`, from LLVM's assembler with damage, or random."""
        kind = self.random.random()
        if kind < 0.1:
            return list(self.random.choice(list(DAMAGED.values())))
        if kind < 0.6:
            words = list(self.random.choice(self._texts[arch]))
            for _ in range(self.random.choice((0, 1, 1, 2, 4))):
                words[self.random.randrange(len(words))] ^= 1 << self.random.randrange(32)
            return words
        if kind < 0.95:
            bits, count = self.random.choice(_ENCODINGS)
            return [bits | self.random.getrandbits(32 - count), self.random.getrandbits(32)]
        return [self.random.getrandbits(32)]

    def _damaged(self, good: bytes) -> bytes:
        """Bytes with some changed, missing, doubled, or replaced by extreme numbers."""
        content, kind = bytearray(good), self.random.randrange(5)
        if kind == 0:
            del content[self.random.randrange(len(content)) :]
        elif kind == 1:
            for _ in range(self.random.randint(1, 3)):
                size = self.random.choice((1, 2, 4, 8))
                at = self.random.randrange(0, len(content) - 8)
                at -= at % size
                content[at : at + size] = struct.pack("<Q", self.random.choice(_ODD))[:size]
        elif kind == 2:
            at, to = (self.random.randrange(len(content) - 64) for _ in range(2))
            content[to : to + 64] = content[at : at + 64]
        else:
            limit = self.random.choice((64, len(content)))  # headers more often than all else
            for _ in range(self.random.choice((1, 2, 8, 64))):
                content[self.random.randrange(limit)] ^= 1 << self.random.randrange(8)
        return bytes(content)


KINDS: dict[str, Callable[[Fuzzer], bool]] = {
    "objects": Fuzzer.objects,
    "metadata": Fuzzer.metadata,
    "programs": Fuzzer.programs,
}


def run_inputs(kind: str, library: Path, seed: int, count: int, progress: int) -> None:
    """Run a number of inputs; the seed of each is written to a file beforehand."""
    fuzzer, accepted = Fuzzer(EmulatorLibrary(library)), 0
    for number in range(seed, seed + count):
        os.pwrite(progress, b"%20d" % number, 0)
        fuzzer.random.seed(number)
        accepted += KINDS[kind](fuzzer)
    print(f"{count} inputs, {accepted} accepted")


def under_sanitizers(kind: str, library: Path, seed: int, count: int) -> int:
    """Run inputs in a process with the sanitizers loaded; its exit code."""
    runtime = sanitizer()
    if runtime is None:
        return NO_SANITIZERS
    paths = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    environment = {
        "LD_PRELOAD": str(runtime),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONMALLOC": "malloc",  # so that sanitizers know where each object ends
        "PYTHONPATH": paths,
    }
    with tempfile.TemporaryFile() as progress:
        given = ["--library", str(library), "--seed", str(seed), "--count", str(count)]
        command = [sys.executable, "-m", "tests.emulator.fuzz", kind, *given, "--progress", str(progress.fileno())]
        run = subprocess.run(
            command, check=False, env={**os.environ, **environment}, pass_fds=(progress.fileno(),), cwd=_ROOT
        )
        if run.returncode:
            number = os.pread(progress.fileno(), 20, 0).decode().strip()
            print(f"failed: python -m tests.emulator.fuzz {kind} --seed {number} --count 1", file=sys.stderr)
    return run.returncode


def main(arguments: list[str]) -> int:
    """Run inputs of one kind."""
    parser = argparse.ArgumentParser(description="fuzz the emulated GPU")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--library", type=Path, help="the C part, compiled with sanitizers; compiled by default")
    parser.add_argument("--progress", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.progress is not None:
        run_inputs(options.kind, options.library, options.seed, options.count, options.progress)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        library = options.library or build_sanitized(Path(folder))
        return under_sanitizers(options.kind, library, options.seed, options.count) if library else NO_SANITIZERS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
