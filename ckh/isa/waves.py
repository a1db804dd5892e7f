"""Simulation of the waves on a compute unit.

Each wave issues in order, and waits for registers, pipes, s_waitcnt and barriers.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ckh.isa.costs import ISSUE_CLOCKS, Costs
from ckh.isa.instructions import LDS_KINDS, MEMORY_KINDS, VECTOR_KINDS, Instruction, InstructionKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.isa.loops import Parts

# Latencies in clocks, of loaded memory in the L2 cache, of LDS, and of scalar loads: round numbers, not fitted to any
# measurement.
MEMORY_CLOCKS, LDS_CLOCKS, SCALAR_LOAD_CLOCKS = 800, 64, 200
_BRANCH_CLOCKS, _BARRIER_CLOCKS = 16, 8
_PASSES = 4  # simulated passes of the loop; the first half fills the pipes
_MOST_STEPS = 400_000
_SHARED_PIPES = {**dict.fromkeys(LDS_KINDS, "LDS"), **dict.fromkeys(MEMORY_KINDS, "memory")}
_SIMD_PIPES = {**dict.fromkeys(VECTOR_KINDS, "vector ALU"), InstructionKind.MATRIX: "matrix"}
_LATENCIES = {"LDS": LDS_CLOCKS, "memory": MEMORY_CLOCKS}


@dataclass(frozen=True, slots=True)
class Timeline:
    """Timeline of the blocks on a compute unit, in clocks."""

    before: float  # clocks until the last wave begins its loop
    loop: float  # clocks of one pass of the loop
    after: float  # clocks from the end of the loop on
    waiting: float  # share of a pass that a wave waits


@dataclass(slots=True)
class _Wave:
    number: int
    block: int
    simd: int
    place: int = 0
    registers: dict[int, float] = field(default_factory=dict)
    memory: deque[float] = field(default_factory=deque)
    lds: deque[float] = field(default_factory=deque)
    since: float = 0.0  # when it could have issued


class _Unit:
    """A compute unit."""

    def __init__(self, costs: Costs, waves: int, blocks: int) -> None:
        simds = costs.arch.hardware.simds_per_cu
        self._costs = costs
        self.waves = [_Wave(number, number // waves, number % simds) for number in range(waves * blocks)]
        self._free: dict[tuple[str, int], float] = {}
        self._at_barrier: dict[int, list[_Wave]] = {}
        self._per_block = waves

    def ready(self, wave: _Wave, instruction: Instruction, now: float) -> float:
        """Time at which a wave can issue its next instruction."""
        at = now
        for first, end in (*instruction.reads, *instruction.writes):
            for register in range(first, end):
                at = max(at, wave.registers.get(register, 0.0))
        for waiting, most in ((wave.memory, instruction.most_vm), (wave.lds, instruction.most_lgkm)):
            if most is not None and len(waiting) > most:
                at = max(at, waiting[len(waiting) - most - 1])
        return max(at, self._free.get(_pipe(wave, instruction), 0.0))

    def issue(self, wave: _Wave, instruction: Instruction, now: float) -> tuple[float, float]:
        """Issue an instruction; returns when its pipe is free again, and when the wave continues."""
        clocks = self._costs.clocks(instruction)
        pipe, busy_until = _pipe(wave, instruction), now + clocks
        self._free[pipe] = busy_until
        if instruction.kind in _SIMD_PIPES:
            for first, end in instruction.writes:
                wave.registers.update(dict.fromkeys(range(first, end), busy_until))
        elif (name := _SHARED_PIPES.get(instruction.kind)) is not None:
            waiting = wave.memory if name == "memory" else wave.lds
            waiting.append(max(busy_until + _LATENCIES[name], waiting[-1] if waiting else 0.0))
        elif instruction.kind is InstructionKind.SCALAR_LOAD:
            wave.lds.append(max(now + SCALAR_LOAD_CLOCKS, wave.lds[-1] if wave.lds else 0.0))
        if instruction.kind is InstructionKind.WAIT:
            _drop(wave.memory, instruction.most_vm)
            _drop(wave.lds, instruction.most_lgkm)
        after = _BRANCH_CLOCKS if instruction.kind is InstructionKind.BRANCH else ISSUE_CLOCKS * (1 + instruction.idle)
        return busy_until, now + after

    def arrive(self, wave: _Wave) -> list[_Wave]:
        """Record a wave at a barrier; returns the waves that continue, once it is the block's last."""
        arrived = self._at_barrier.setdefault(wave.block, [])
        arrived.append(wave)
        return self._at_barrier.pop(wave.block) if len(arrived) == self._per_block else []


def timeline_of(parts: Parts, costs: Costs, waves: int, blocks: int) -> Timeline | None:
    """Simulate `blocks` resident blocks of `waves` waves; None if the code is too long."""
    trace = [*parts.before, *parts.loop * (_PASSES if parts.loop else 0), *parts.after]
    if len(trace) * waves * blocks > _MOST_STEPS or not trace:
        return None
    begin, size = len(parts.before), len(parts.loop)
    marks = [begin, begin + size * (_PASSES // 2), begin + size * (_PASSES - 1), begin + size * _PASSES]
    reached, waits, end = _run(trace, _Unit(costs, waves, blocks), marks)
    loop = (reached[3] - reached[1]) / (_PASSES - _PASSES // 2)
    start = reached[2]
    waited = sum(max(min(until, start + loop) - max(since, start), 0.0) for since, until in waits)
    waiting = waited / (loop * waves * blocks) if loop else 0.0
    return Timeline(reached[0], loop, end - reached[3], min(waiting, 1.0))


def _run(
    trace: Sequence[Instruction], unit: _Unit, marks: Sequence[int]
) -> tuple[list[float], list[tuple[float, float]], float]:
    """Run all waves through a trace; returns when the last was at each mark, when waves waited, and the end time."""
    queue = [(0.0, 0, wave.number) for wave in unit.waves]  # for equal times, the wave that lags behind comes first
    reached, waits, end = [0.0] * len(marks), list[tuple[float, float]](), 0.0
    wanted = {place: number for number, place in reversed(list(enumerate(marks)))}
    while queue:
        now, _, number = heapq.heappop(queue)
        wave = unit.waves[number]
        instruction = trace[wave.place]
        ready = unit.ready(wave, instruction, now)
        if ready > now:
            heapq.heappush(queue, (ready, wave.place, number))
            continue
        if now - wave.since >= ISSUE_CLOCKS:
            waits.append((wave.since, now))
        busy_until, later = unit.issue(wave, instruction, now)
        wave.since, wave.place = later, wave.place + 1
        for place, mark in wanted.items():
            if wave.place == place:
                reached[mark] = max(reached[mark], now)
        end = max(end, busy_until)
        if instruction.kind is not InstructionKind.BARRIER:
            going = [wave]
        else:
            going, later = unit.arrive(wave), later + _BARRIER_CLOCKS
        for released in going:
            if released.place < len(trace):
                heapq.heappush(queue, (later, released.place, released.number))
    return reached, waits, end


def _pipe(wave: _Wave, instruction: Instruction) -> tuple[str, int]:
    """Pipe of an instruction: the compute unit's, its SIMD's, or the wave's own."""
    if (shared := _SHARED_PIPES.get(instruction.kind)) is not None:
        return shared, -1
    if (own := _SIMD_PIPES.get(instruction.kind)) is not None:
        return own, wave.simd
    return "scalar", wave.simd


def _drop(waiting: deque[float], most: int | None) -> None:
    while most is not None and len(waiting) > most:
        waiting.popleft()
