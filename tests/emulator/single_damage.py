"""Single instructions of compiled kernels are replaced by s_nop: how many of them executing the kernels finds.

    python -m tests.emulator.single_damage                                   # ten kernels
    python -m tests.emulator.single_damage --only gemm --each 5 --spaced 0   # fewer of them, more of each kind

Of what a kernel's problems reach it takes some of each kind and some of all, evenly spaced. Left out is what only hints
or saves time (s_nop, s_setprio, s_sleep, s_cbranch_execz), and what never changes anything, without which a kernel does
the same: branches not taken, results that a register had already. A survivor is printed with the reason.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from ckh.bench.devices.device import EMULATED_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.devices.hip_device import emulated_runtime
from ckh.bench.supervision.protocol import Job, Op, Reply
from ckh.bench.supervision.supervisor import Supervisor, SupervisorOptions
from ckh.emulator.codeobject import CodeObject
from ckh.emulator.launch import REACHED_VARIABLE, EmulatorLibrary
from ckh.schema import Status
from ckh.strenum import StrEnum
from tests.emulator.damage import code_of, instructions_of, place_of_code
from tests.emulator.keep import RIGHT, Kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TIMEOUT_S = 300.0
_KERNELS = 10  # of the kept ones: the figures in docs/emulator.md are theirs
_NOP = 0xBF800000
_VCC, _ZERO, _ALL = 106, 128, 193  # inline constants 0 and -1
FOUND_OUT = (Status.WRONG_RESULT, Status.NONDETERMINISTIC, Status.LAUNCH_ERROR, Status.CRASH, Status.TIMEOUT)


_BY_KIND, _SPACED = "of each kind", "evenly spaced"


class Kind(StrEnum):
    """Kinds of instructions."""

    BARRIER = "barrier"
    WAIT = "wait"
    MATRIX = "matrix"
    LDS_WRITE = "write to LDS"
    LDS_READ = "read of LDS"
    LOAD = "load"
    STORE = "store"
    COMPARE = "compare"
    BRANCH = "branch"
    SCALAR = "scalar"
    VECTOR = "vector"


_One = TypeVar("_One")
Counts = Counter[tuple[str, Kind, "Why | None"]]  # by sample, kind and reason for what was not found

_MARKED = (Kind.COMPARE, Kind.BRANCH, Kind.SCALAR, Kind.VECTOR)

# What names begin with; the first that fits says the kind.
_KINDS = (
    (("s_nop", "s_setprio", "s_sleep", "s_endpgm", "s_cbranch_execz", "s_code_end", "s_sethalt", "s_trap"), None),
    (("s_barrier",), Kind.BARRIER),
    (("s_waitcnt",), Kind.WAIT),
    (("v_mfma",), Kind.MATRIX),
    (("ds_write",), Kind.LDS_WRITE),
    (("ds_",), Kind.LDS_READ),
    (("buffer_load", "global_load", "s_load", "s_buffer_load", "flat_load", "scratch_load"), Kind.LOAD),
    (("buffer_", "global_", "flat_", "scratch_"), Kind.STORE),
    (("v_cmp", "s_cmp", "s_bitcmp"), Kind.COMPARE),
    (("s_branch", "s_cbranch", "s_setpc", "s_swappc"), Kind.BRANCH),
    (("s_",), Kind.SCALAR),
    (("v_",), Kind.VECTOR),
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction: its offset in the library's file and from its function's entry, its bytes and words."""

    kind: Kind
    name: str
    place: int
    offset: int
    size: int
    words: tuple[int, ...]


def kind_of(name: str) -> Kind | None:
    """The kind of an instruction; None for those that only hint or save time."""
    return next(kind for beginnings, kind in _KINDS if name.startswith(beginnings))


def reached(kept: Kept, content: bytes, changes: dict[int, bool], emulator: EmulatorLibrary) -> Iterator[Instruction]:
    """The instructions at these offsets from the start of the code; of some kinds those that changed something."""
    code = CodeObject(code_of(content, kept.arch)[0])
    start = place_of_code(content, kept.arch, code)
    for kernel in code.kernels.values():
        for at, name, size in instructions_of(kernel, code, emulator):
            kind = kind_of(name)
            if kind is not None and at in changes and (changes[at] or kind not in _MARKED):
                place = start + at
                words = tuple(
                    int.from_bytes(content[word : word + 4], "little") for word in range(place, place + size, 4)
                )
                yield Instruction(kind, name, place, at - kernel.entry, size, words)


def evenly(some: Sequence[_One], count: int) -> list[_One]:
    """A number of items, evenly spaced; all if there are no more."""
    count = min(count, len(some))
    return [some[(2 * number + 1) * len(some) // (2 * count)] for number in range(count)]


def samples(result: Sequence[Instruction], each: int, spaced: int) -> dict[str, list[Instruction]]:
    """A number of each kind, and a number of all."""
    by_kind = [
        item
        for kind in Kind
        for item in evenly([instruction for instruction in result if instruction.kind is kind], each)
    ]
    return {_BY_KIND: by_kind, _SPACED: evenly(result, spaced)}


def replaced(content: bytes, instruction: Instruction, words: Sequence[int] = ()) -> bytes:
    """A copy of a library with an instruction replaced by other words and s_nop."""
    count = instruction.size // 4
    changed = bytearray(content)
    new = [*words, *[_NOP] * (count - len(words))]
    changed[instruction.place : instruction.place + instruction.size] = b"".join(w.to_bytes(4, "little") for w in new)
    return bytes(changed)


class Bench:
    """Runs libraries of a kernel on its problems, up to the first wrong result."""

    def __init__(self, kept: Kept, folder: Path) -> None:
        self._device, self._folder, self._count = open_device(EMULATED_KIND, DeviceOptions(kept.arch)), folder, 0
        self._problems = [problem.canonical() for problem in kept.problems()]

    def replies(self, content: bytes) -> Iterator[Reply]:
        """The worker's reply for a library on each problem."""
        self._count += 1
        path = self._folder / f"{self._count}.so"
        path.write_bytes(content)
        options = SupervisorOptions(_TIMEOUT_S, self._device.worker_configs()[0])
        job = Job(Op.MEASURE, 1, library=str(path), samples=1)
        with Supervisor(self._device, options, lambda: False) as supervisor:
            for problem in self._problems:
                yield from (reply for _, reply in supervisor.run(Job(Op.PROBLEM, -1, problem=problem), [job]))
        path.unlink()

    def is_found(self, content: bytes) -> Reply | None:
        """The first reply that reports a wrong result."""
        return next((reply for reply in self.replies(content) if reply.status in FOUND_OUT), None)


def instructions(kept: Kept, bench: Bench, folder: Path, emulator: EmulatorLibrary) -> list[Instruction]:
    """The effective instructions that the problems of an undamaged kernel reach."""
    content, note = kept.library(), folder / "reached"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(REACHED_VARIABLE, str(note))
        wrong = bench.is_found(content)
    assert wrong is None, f"{kept.file} is wrong undamaged: {wrong}"
    changes = {int(at): did for at, (_, did) in json.loads(note.read_text(encoding="utf-8")).items()}
    return list(reached(kept, content, changes, emulator))


def damage(kept: Kept, folder: Path, each: int, spaced: int) -> Counts:
    """Damage a kernel, and print the outcome."""
    content, bench = kept.library(), Bench(kept, folder)
    result = instructions(kept, bench, folder, EmulatorLibrary(emulated_runtime()))
    print(f"{kept.file}: {len(result)} instructions do something", flush=True)  # noqa: T201
    counts: Counts = Counter()
    for name, chosen in samples(result, each, spaced).items():
        for instruction in chosen:
            reply = bench.is_found(replaced(content, instruction))
            reason = None if reply else why(instruction, content, bench)
            counts[name, instruction.kind, reason] += 1
            said = f"found: {reply.message[:90]}" if reply else f"SURVIVES: {reason}"
            print(f"  {instruction.kind}, {instruction.name} at +{instruction.offset:#x}: {said}", flush=True)  # noqa: T201
    return counts


_JUNK = 208  # the inline constant -16
_S_MOV_B32, _S_MOV_B64, _V_MOV_B32, _S_CMP_EQ, _S_CMP_LG = 0xBE800000, 0xBE800100, 0x7E000200, 0xBF068080, 0xBF078080


def others(instruction: Instruction) -> list[int]:
    """Instructions that give the same register another value, conditions both values; none without a result."""
    word, is_scalar = instruction.words[0], instruction.name.startswith("s_")
    vector = word & 0xFF if word >> 31 else word >> 17 & 0xFF
    if instruction.kind is Kind.COMPARE:
        register = word & 0x7F if word >> 31 else _VCC
        return [_S_CMP_EQ, _S_CMP_LG] if is_scalar else [_S_MOV_B64 | register << 16 | x for x in (_ZERO, _ALL)]
    if is_scalar:
        to = {Kind.LOAD: word >> 6, Kind.SCALAR: word >> 16}.get(instruction.kind)
        return [] if to is None else [_S_MOV_B32 | (to & 0x7F) << 16 | _JUNK]
    to = {
        Kind.VECTOR: vector,
        Kind.MATRIX: vector,
        Kind.LDS_READ: instruction.words[-1] >> 24,
        Kind.LOAD: instruction.words[-1] >> 8 & 0xFF,
    }.get(instruction.kind)
    return [] if to is None else [_V_MOV_B32 | to << 17 | _JUNK]


class Why(StrEnum):
    """Reasons why damage was not detected; without influence means that no result on these problems depends on it."""

    BARRIER = "no byte of LDS is touched by two waves between the barriers before and behind it"
    WAIT = "nothing that it waits for is used before a later wait"
    WAYS = "both ways give the same result"
    UNUSED = "nothing depends on its result"
    SAME = "what the register had before does as well"


_WITHOUT_INFLUENCE = (Why.BARRIER, Why.WAIT, Why.WAYS, Why.UNUSED)


def why(instruction: Instruction, content: bytes, bench: Bench) -> Why:
    """The reason why damage was not detected."""
    if instruction.kind is Kind.BARRIER:
        return Why.BARRIER
    if instruction.kind is Kind.WAIT:
        return Why.WAIT
    if instruction.kind is Kind.BRANCH:  # which is taken, as it does something
        return Why.WAYS
    is_used = any(bench.is_found(replaced(content, instruction, [word])) for word in others(instruction))
    return Why.SAME if is_used else Why.UNUSED


def table(counts: Counts) -> str:
    """Counts as Markdown."""
    heads = (f"{name} | found | without influence" for name in (_BY_KIND, _SPACED))
    lines = [f"| kind | {' | '.join(heads)} |", "|---|---|---|---|---|---|---|"]
    for kinds, text in (*(((kind,), str(kind)) for kind in Kind), (tuple(Kind), "all")):
        cells = []
        for name in (_BY_KIND, _SPACED):
            all_, result, idle = (
                sum(counts[name, kind, reason] for kind in kinds for reason in reasons)
                for reasons in ((None, *Why), (None,), _WITHOUT_INFLUENCE)
            )
            cells.append(f"{all_} | {result} | {idle}")
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Damage kernels, and print the detected share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="kernels whose file's name has this")
    parser.add_argument("--each", type=int, default=2, help="instructions of each kind of a kernel")
    parser.add_argument("--spaced", type=int, default=20, help="instructions of a kernel, evenly spaced")
    options = parser.parse_args()
    counts: Counts = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for kept in RIGHT[:_KERNELS]:
            if options.only in kept.file:
                counts += damage(kept, Path(folder), options.each, options.spaced)
    print(table(counts))  # noqa: T201


if __name__ == "__main__":
    main()
