"""The main loop of a function, what comes before and after it, and what its waits wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.isa.instructions import LDS_KINDS, MEMORY_KINDS, Instruction, InstructionKind

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

_COUNTERS = ("vmcnt", "lgkmcnt")


@dataclass(frozen=True, slots=True)
class Parts:
    """The instructions that a wave issues: before its main loop, in one pass of it, and after it.

    Branches forward are not taken, as where all data are inside of the tensors. `loop` is empty if there is none.
    """

    before: tuple[Instruction, ...]
    loop: tuple[Instruction, ...]
    after: tuple[Instruction, ...]

    @property
    def can_skip(self) -> bool:
        """True if the loop need not be entered: a branch before it goes behind it."""
        return bool(self.loop) and any((one.target or 0) > self.loop[-1].at for one in self.before)

    @property
    def outside(self) -> tuple[Instruction, ...]:
        """What is issued once."""
        return self.before + self.after


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait within a loop."""

    at: int
    """Offset of the instruction in its function, in bytes."""
    counter: str
    """What it counts: vmcnt, accesses to memory; lgkmcnt, those to LDS, and scalar loads."""
    most: int
    """Accesses that may be left under way."""
    awaited: int
    """Accesses that it waits for."""
    in_trip: int
    """How many of these were issued in the same pass of the loop."""
    apart: int
    """Instructions between the last of them and the wait."""


def parts_of(function: Sequence[Instruction]) -> Parts:
    """The parts of a function; its main loop is the innermost one with most matrix instructions."""
    path = _path(function)
    places = {one.at: place for place, one in enumerate(path)}
    loops = [
        (places[one.target], place + 1)
        for place, one in enumerate(path)
        if one.is_loop_branch and one.target in places and places[one.target] <= place
    ]
    if not loops:
        return Parts(tuple(path), (), ())
    start, end = max(loops, key=lambda loop: (count_of(path[slice(*loop)], InstructionKind.MATRIX), loop[0] - loop[1]))
    return Parts(tuple(path[:start]), tuple(path[start:end]), tuple(path[end:]))


def count_of(instructions: Sequence[Instruction], *kinds: InstructionKind) -> int:
    """How many instructions are of some kinds."""
    return sum(one.kind in kinds for one in instructions)


def waits_of(loop: Sequence[Instruction]) -> list[Wait]:
    """The waits of a loop that wait for anything once it has run before."""
    under_way: dict[str, list[int]] = {counter: [] for counter in _COUNTERS}
    found: list[Wait] = []
    for number in range(2 * len(loop)):  # the second pass is as all that follow
        one = loop[number % len(loop)]
        if one.kind in MEMORY_KINDS:
            under_way["vmcnt"].append(number)
        elif one.kind in LDS_KINDS or one.kind is InstructionKind.SCALAR_LOAD:
            under_way["lgkmcnt"].append(number)
        for counter, most in zip(_COUNTERS, (one.most_vm, one.most_lgkm), strict=True):
            waiting = under_way[counter]
            if most is None or len(waiting) <= most:
                continue
            ended, under_way[counter] = waiting[: len(waiting) - most], waiting[len(waiting) - most :]
            if number >= len(loop):
                in_trip = sum(access >= len(loop) for access in ended)
                found.append(Wait(one.at, counter, most, len(ended), in_trip, number - ended[-1] - 1))
    return found


def _path(function: Sequence[Instruction]) -> list[Instruction]:
    """The instructions from the first on, where conditional branches are not taken.

    Where that leads past all matrix instructions, the last branch before the end is taken: it is for blocks that have
    nothing to do.
    """
    taken: set[int] = set()
    has_matrix = count_of(function, InstructionKind.MATRIX) > 0
    while True:
        path = _walked(function, taken)
        if not has_matrix or count_of(path, InstructionKind.MATRIX):
            return path
        left = [one.at for one in path if one.target is not None and one.target > one.at and one.at not in taken]
        if not left:
            return path
        taken.add(left[-1])


def _walked(function: Sequence[Instruction], taken: Container[int]) -> list[Instruction]:
    """The instructions from the first on, where branches without a condition, and those at `taken`, are taken."""
    places = {one.at: place for place, one in enumerate(function)}
    path: list[Instruction] = []
    place, seen = 0, set[int]()
    while place < len(function) and place not in seen:
        one = function[place]
        seen.add(place)
        path.append(one)
        if one.name == "s_endpgm":
            break
        goes = one.target is not None and (one.name == "s_branch" or one.at in taken)
        place = places.get(one.target or 0, len(function)) if goes else place + 1
    return path
