"""The main loop of a function, the code before and after it, and the accesses that its waits wait for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ckh.isa.instructions import LDS_KINDS, MEMORY_KINDS, Instruction, InstructionKind

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

_COUNTERS = ("vmcnt", "lgkmcnt")


@dataclass(frozen=True, slots=True)
class Parts:
    """The instructions issued by a wave: before its main loop, in one pass of it, and after it.

    Forward branches are not taken, as if all data are within the tensors' bounds. `loop` is empty if there is none.
    In a persistent kernel all of them are those of one tile of C, of several `over_tiles`.
    """

    before: tuple[Instruction, ...]
    loop: tuple[Instruction, ...]
    after: tuple[Instruction, ...]
    over_tiles: bool = False

    @property
    def can_skip(self) -> bool:
        """True if the loop can be skipped by a branch before it."""
        return bool(self.loop) and any(
            (instruction.target or 0) > max(own.at for own in self.loop) for instruction in self.before
        )

    @property
    def outside(self) -> tuple[Instruction, ...]:
        """Instructions issued once."""
        return self.before + self.after


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait within a loop."""

    at: int
    """Offset of the instruction in its function, in bytes."""
    counter: str
    """Its counter: vmcnt for memory accesses; lgkmcnt for LDS accesses and scalar loads."""
    most: int
    """Accesses that may remain outstanding."""
    awaited: int
    """Accesses that it waits for."""
    in_trip: int
    """Number of these that were issued in the same pass of the loop."""
    apart: int
    """Instructions between the last of them and the wait."""


def parts_of(function: Sequence[Instruction], *, is_own: bool = True) -> Parts:
    """Split a function; its main loop is the innermost one with the most matrix instructions, else the longest.

    A loop that multiplies and stores iterates over tiles of C, as in a persistent kernel, and not over K; if it is not
    one of ckh's, and has no other loop that multiplies in it, it may as well add to memory in each iteration. If a
    function has matrix instructions, a loop without any does not iterate over K either: it searches the part of a large
    tensor.
    """
    walk = _walk_to_matrix(function)
    path = walk.path
    matrix = {loop: count_of(path[slice(*loop)], InstructionKind.MATRIX) for loop in walk.loops}
    if count_of(path, InstructionKind.MATRIX):
        matrix = {loop: count for loop, count in matrix.items() if count}
    over_tiles = {loop for loop in matrix if _goes_over_tiles(path[slice(*loop)])}
    if not is_own:
        over_tiles = {loop for loop in over_tiles if any(_is_within(inner, loop) for inner in matrix)}
    matrix = {loop: count for loop, count in matrix.items() if loop not in over_tiles}
    if not matrix:
        return Parts(tuple(path), (), (), bool(over_tiles))
    innermost = [loop for loop in matrix if not any(_is_within(inner, loop) for inner in matrix)]
    start, end = max(innermost, key=lambda loop: (matrix[loop], loop[1] - loop[0]))
    return Parts(tuple(path[:start]), tuple(path[start:end]), tuple(path[end:]), bool(over_tiles))


def _goes_over_tiles(loop: Sequence[Instruction]) -> bool:
    """True if a loop has matrix instructions, and stores to memory other than register spills."""
    stores = any(
        instruction.kind is InstructionKind.STORE and not instruction.name.startswith("scratch_")
        for instruction in loop
    )
    return stores and count_of(loop, InstructionKind.MATRIX) > 0


def _is_within(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    """True if a loop is part of another one."""
    return inner != outer and outer[0] <= inner[0] and inner[1] <= outer[1]


def count_of(instructions: Sequence[Instruction], *kinds: InstructionKind) -> int:
    """Number of instructions of the given kinds."""
    return sum(instruction.kind in kinds for instruction in instructions)


def waits_of(loop: Sequence[Instruction]) -> list[Wait]:
    """Waits of a loop that wait for any access in its steady state."""
    under_way: dict[str, list[int]] = {counter: [] for counter in _COUNTERS}
    waits: list[Wait] = []
    for number in range(2 * len(loop)):  # the second pass is the steady state
        instruction = loop[number % len(loop)]
        if instruction.kind in MEMORY_KINDS:
            under_way["vmcnt"].append(number)
        elif instruction.kind in LDS_KINDS or instruction.kind is InstructionKind.SCALAR_LOAD:
            under_way["lgkmcnt"].append(number)
        for counter, most in zip(_COUNTERS, (instruction.most_vm, instruction.most_lgkm), strict=True):
            waiting = under_way[counter]
            if most is None or len(waiting) <= most:
                continue
            ended, under_way[counter] = waiting[: len(waiting) - most], waiting[len(waiting) - most :]
            if number >= len(loop):
                in_trip = sum(access >= len(loop) for access in ended)
                waits.append(Wait(instruction.at, counter, most, len(ended), in_trip, number - ended[-1] - 1))
    return waits


@dataclass(slots=True)
class _Walk:
    """A path through a function."""

    path: list[Instruction] = field(default_factory=list)  # the instructions, each once
    loops: list[tuple[int, int]] = field(default_factory=list)
    """For each loop on the path, the position where a pass begins, and the position after its end."""


def _walk_to_matrix(function: Sequence[Instruction]) -> _Walk:
    """Path from the first instruction, without taking conditional branches.

    If that skips all matrix instructions, the last branch before the end is taken, as it is for blocks without work.
    """
    taken: set[int] = set()
    has_matrix = count_of(function, InstructionKind.MATRIX) > 0
    while True:
        walk = _walked(function, taken)
        if not has_matrix or count_of(walk.path, InstructionKind.MATRIX):
            return walk
        branches = [
            instruction.at for instruction in walk.path if instruction.is_forward_branch and instruction.at not in taken
        ]
        if not branches:
            return walk
        taken.add(branches[-1])


def _walked(function: Sequence[Instruction], taken: Container[int]) -> _Walk:
    """Path that takes unconditional branches, and those at `taken`.

    A loop ends with a backward branch, which is not taken, or where the path reaches an instruction again: it then
    continues after the last branch that leaves the loop.
    """
    places = {instruction.at: place for place, instruction in enumerate(function)}
    walk, seen = _Walk(), dict[int, int]()  # positions in the path by position in the function
    place: int | None = 0
    while place is not None and place < len(function):
        if place in seen:
            walk.loops.append((seen[place], len(walk.path)))
            place = _exit_of(walk.path[seen[place] :], places, seen)
            continue
        instruction = function[place]
        seen[place] = len(walk.path)
        walk.path.append(instruction)
        if instruction.name == "s_endpgm":
            break
        target = None if instruction.target is None else places.get(instruction.target, len(function))
        if target is not None and (instruction.name == "s_branch" or instruction.at in taken):
            place = target
            continue
        if target in seen:
            walk.loops.append((seen[target], len(walk.path)))
        place += 1
    return walk


def _exit_of(loop: Sequence[Instruction], places: Mapping[int, int], seen: Container[int]) -> int | None:
    """Target of the last branch out of a loop; None if there is none."""
    targets = (places.get(instruction.target) for instruction in reversed(loop) if instruction.target is not None)
    return next((target for target in targets if target is not None and target not in seen), None)
