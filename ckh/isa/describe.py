"""Description of a kernel: its GPU functions, the cost of an iteration of the one that runs, and its bottleneck."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.emulator.codeobject import calls_functions
from ckh.isa.anatomy import Anatomy, EstimatedDocument, FunctionDocument, TripDocument
from ckh.isa.codefile import waves_by
from ckh.isa.costs import Costs, matrix_shape
from ckh.isa.decode import decoded
from ckh.isa.instructions import InstructionKind
from ckh.isa.loops import count_of, parts_of, waits_of
from ckh.kernels.pipelines import OVERRUNNING_PIPELINES
from ckh.learn.analytic.estimate import compiled_blocks_per_cu, estimated_parts
from ckh.learn.models.artifact import wanted_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.hardware.archspec import ArchSpec
    from ckh.isa.codefile import CodeFile, Function
    from ckh.isa.costs import Pipes
    from ckh.isa.instructions import Instruction
    from ckh.isa.loops import Parts
    from ckh.ops.base import TiledSizes
    from ckh.schema import Resources


_OVERRUN = 3  # iterations; pipelines that overrun execute two more
_MUCH_MORE = 1.5  # times the clocks of matrix instructions
_LARGER = {"LDS": "larger wave tiles read less of it", "memory": "larger block tiles load less"}


@dataclass(frozen=True, slots=True)
class Asked:
    """Facts about a kernel besides its code."""

    name: str  # name of the kernel
    file: str  # file with the code
    kernel: Any = None  # the kernel; None: not of one of ckh's operations
    problem: Any = None  # the problem; None: none was given
    sizes: TiledSizes | None = None  # sizes of its matrix products; None: no problem, or the operation has none
    num_cus: int = 0  # compute units of the GPU; 0: those of `load_arch`

    @property
    def trips(self) -> int | None:
        """Iterations over K that the kernel executes for the problem."""
        if self.sizes is None:
            return None
        trips: int = max(1, ceil(self.sizes.k / (self.kernel.tile_k * getattr(self.kernel, "split_k", 1))))
        overruns = trips == _OVERRUN and self.kernel.pipeline in OVERRUNNING_PIPELINES
        return trips + 2 if overruns else trips


@dataclass(frozen=True, slots=True)
class _Code:
    """A function with its parts and iterations over K: of one pass of the loop, and outside of it."""

    function: Function
    instructions: int
    parts: Parts
    of_loop: int
    outside: int

    @property
    def has_matrix(self) -> bool:
        return bool(
            count_of(self.parts.loop, InstructionKind.MATRIX) or count_of(self.parts.outside, InstructionKind.MATRIX)
        )

    def runs(self, trips: int) -> bool:
        """True if it executes this number of iterations."""
        if not self.parts.loop:
            return trips == self.outside
        more = trips - self.outside
        return more >= self._least and more % self.of_loop == 0

    @property
    def _least(self) -> int:
        """Minimum iterations within the loop."""
        return 0 if self.parts.can_skip and self.outside else self.of_loop

    @property
    def trips(self) -> str:
        if not self.parts.loop:
            return str(self.outside)
        step = "" if self.of_loop == 1 else f", in steps of {self.of_loop}"
        return f"{self.outside + self._least} and more{step}"


def anatomy_of(code: CodeFile, asked: Asked) -> Anatomy:
    """The anatomy of the kernel whose functions are in a file."""
    arch, own = load_arch(code.arch), _codes(code, asked)
    main = _described(own, asked.trips)
    waves = _waves(main.function, asked.kernel, arch)
    trip = _trip(main, Costs(arch), waves) if main.parts.loop else None
    functions = tuple(_function(function, arch, asked.kernel, is_main=function is main) for function in own)
    return Anatomy(
        kernel=asked.name,
        arch=code.arch,
        file=asked.file,
        problem=None if asked.problem is None else asked.problem.canonical(),
        trips=asked.trips,
        functions=functions,
        trip=trip,
        estimated=_estimated(asked, arch, main.function.resources),
        advice=_advice(main, code.arch, asked.trips, trip),
    )


def _codes(code: CodeFile, asked: Asked) -> list[_Code]:
    """Functions with matrix instructions, or all if there are none."""
    texts = decoded(code.arch, tuple(function.code for function in code.functions))
    functions = [
        _parsed(function, parts_of(instructions, is_own=asked.kernel is not None), len(instructions), asked)
        for function, instructions in zip(code.functions, texts, strict=True)
    ]
    return [function for function in functions if function.has_matrix] or functions


def _parsed(function: Function, parts: Parts, count: int, asked: Asked) -> _Code:
    """A function with its iterations, by the products of its matrix instructions.

    A warp tile may take several matrix instructions.
    """
    in_loop, outside = _products(parts.loop), _products(parts.outside)
    each = _product(asked.kernel, "tile") // max(_product(asked.kernel, "wave"), 1) or in_loop or max(outside, 1)
    return _Code(function, count, parts, max(1, round(in_loop / each)), round(outside / each))


def _products(instructions: Sequence[Instruction]) -> int:
    """Number of products computed by a wave's matrix instructions."""
    shapes = (
        matrix_shape(instruction.name) for instruction in instructions if instruction.kind is InstructionKind.MATRIX
    )
    return sum(prod(tile) * blocks for tile, blocks, _ in filter(None, shapes))


def _product(kernel: Any, name: str) -> int:
    """Product of a kernel's sizes along M, N and K; 0 if unknown."""
    return prod(int(getattr(kernel, f"{name}_{axis}", None) or 0) for axis in "mnk")


def _described(codes: Sequence[_Code], trips: int | None) -> _Code:
    """The function that executes this number of iterations; if unknown, the one with the longest loop."""
    if trips is not None:
        # A function without a loop comes first, as it is for exactly this number.
        exact = sorted((code for code in codes if code.runs(trips)), key=lambda code: len(code.parts.loop) > 0)
        if exact:
            return exact[0]
    return max(
        codes,
        key=lambda code: (count_of(code.parts.loop, InstructionKind.MATRIX), len(code.parts.loop), code.instructions),
    )


def _waves(function: Function, kernel: Any, arch: ArchSpec) -> int:
    """Waves per block: the kernel's, else the maximum."""
    return _product(kernel, "wave") or max(1, function.threads // arch.wavefront_size)


def _function(code: _Code, arch: ArchSpec, kernel: Any, *, is_main: bool) -> FunctionDocument:
    taken, waves = code.function.resources, _waves(code.function, kernel, arch)
    allowed = waves_by(taken.vgprs + taken.agprs, taken.sgprs, taken.lds_bytes, waves, arch)
    blocks = {name: count * arch.hardware.simds_per_cu // waves for name, count in allowed.items()}
    if taken.lds_bytes:
        blocks["LDS"] = arch.lds_capacity // taken.lds_bytes
    return FunctionDocument(
        name=code.function.name,
        runs=is_main,
        trips=code.trips,
        instructions=code.instructions,
        loop_instructions=len(code.parts.loop),
        over_tiles=code.parts.over_tiles,
        code_bytes=len(code.function.code),
        calls=calls_functions(code.function.code, arch.name),
        resources=taken,
        blocks_per_cu=compiled_blocks_per_cu(taken, waves, arch),
        bound_by=min(blocks, key=blocks.__getitem__),  # of equal ones the first: wave slots
    )


def _trip(code: _Code, costs: Costs, waves: int) -> TripDocument:
    loop, trips = code.parts.loop, code.of_loop
    counts = Counter(instruction.kind for instruction in loop)
    moved = {
        kind: waves * sum(instruction.bytes for instruction in loop if instruction.kind is kind) / trips
        for kind in InstructionKind
    }
    pipes: Pipes = costs.pipes(loop, waves)
    return TripDocument(
        instructions={str(kind): counts[kind] / trips for kind in InstructionKind if counts[kind]},
        loaded_bytes=moved[InstructionKind.LOAD],
        stored_bytes=moved[InstructionKind.STORE],
        lds_written_bytes=moved[InstructionKind.LDS_WRITE],
        lds_read_bytes=moved[InstructionKind.LDS_READ],
        clocks={name: clocks / trips for name, clocks in pipes.by_name().items()},
        address_clocks=pipes.address / trips,
        waits=tuple(waits_of(loop)),
    )


def _estimated(asked: Asked, arch: ArchSpec, taken: Resources) -> EstimatedDocument | None:
    if asked.sizes is None or arch.peaks is None:
        return None
    wanted = wanted_for(asked.problem, arch.name, asked.num_cus)
    arch = wanted.gpu
    parts = estimated_parts(asked.problem, asked.sizes, asked.kernel, arch, taken)
    return EstimatedDocument(
        us=parts.us,
        launch_us=parts.launch_us,
        trips_us=parts.trips_us,
        ends_us=parts.ends_us,
        memory_us=parts.memory_us,
        rounds=ceil(parts.rounds),
        blocks_at_once=parts.blocks_at_once,
    )


def _advice(main: _Code, arch: str, trips: int | None, trip: TripDocument | None) -> str:
    """The first thing that the kernel's author could change, in one line."""
    taken = main.function.resources
    if trips is not None and not main.runs(trips):
        return f"no function here runs {trips} iterations over K: a function that they call may"
    if taken.vgpr_spills:
        return f"it spills {taken.vgpr_spills} vector registers to memory: take a smaller tile, or prefetch fewer tiles"
    if trip is None and calls_functions(main.function.code, arch):
        return "it has no loop itself, but calls functions, which may have one: have the compiler inline them"
    if trip is None:
        return f"it has no loop{' over K' * main.parts.over_tiles}: only other blocks can hide its memory latency"
    return "; ".join(filter(None, (_of_pipes(trip), _of_waits(trip))))


def _of_pipes(trip: TripDocument) -> str:
    matrix, vector = trip.clocks["matrix"], trip.clocks["vector ALU"]
    busiest = max(trip.clocks, key=trip.clocks.__getitem__)
    if busiest == "vector ALU" and vector > _MUCH_MORE * matrix and trip.address_clocks > vector / 2:
        return (
            f"the vector ALU is busy for {vector:.0f} clocks per iteration, {trip.address_clocks:.0f} of them on "
            f"addresses and bounds, the matrix pipe for {matrix:.0f}: compute addresses outside of the loop, or in "
            "scalar registers"
        )
    most = f"{busiest} is the busiest pipe, {trip.clocks[busiest]:.0f} clocks per iteration"
    return f"{most}: {_LARGER[busiest]}" if busiest in _LARGER else most


def _of_waits(trip: TripDocument) -> str:
    if not any(wait.counter == "vmcnt" and wait.most == 0 and wait.in_trip for wait in trip.waits):
        return ""
    return (
        "vmcnt(0) waits for loads of the same iteration, whose latency only other blocks hide: prefetch one tile more"
    )
