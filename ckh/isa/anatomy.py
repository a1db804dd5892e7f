"""The document of `ckh explain --json`: the anatomy of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.documents import Document
from ckh.text.shown import Shown, ShownTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.isa.loops import Wait
    from ckh.schema import Resources


@dataclass(frozen=True, slots=True)
class FunctionDocument:
    """A GPU function of the kernel."""

    name: str
    """Mangled name."""
    runs: bool
    """Whether the description is of this function: it runs the problem, or without one has the largest loop."""
    trips: str
    """Numbers of iterations over K that it supports."""
    instructions: int
    """Instructions of the function."""
    loop_instructions: int
    """Instructions of one pass of its main loop; 0: it has no loop."""
    over_tiles: bool
    """Whether a loop over tiles of C is around it, as in a persistent kernel."""
    code_bytes: int
    """Size of the machine code."""
    calls: bool
    """Whether it calls other functions, whose instructions are not among these."""
    resources: Resources
    """Registers, LDS, scratch memory, spills and occupancy."""
    blocks_per_cu: int
    """Resident blocks per compute unit."""
    bound_by: str
    """Resource that limits them."""


@dataclass(frozen=True, slots=True)
class TripDocument:
    """One iteration over K of the described function, for one block."""

    instructions: Mapping[str, float]
    """Instructions of a wave by kind."""
    loaded_bytes: float
    """Bytes that a block loads from memory."""
    stored_bytes: float
    """Bytes that a block stores to memory."""
    lds_written_bytes: float
    """Bytes that a block writes to LDS."""
    lds_read_bytes: float
    """Bytes that a block reads from LDS."""
    clocks: Mapping[str, float]
    """Clocks that a block keeps each pipe busy: vector ALU and matrix of a SIMD, LDS and memory of the compute unit."""
    address_clocks: float
    """Vector ALU clocks of integer arithmetic: addresses and bounds."""
    waits: tuple[Wait, ...]
    """`s_waitcnt` instructions, with the accesses that they wait for."""


@dataclass(frozen=True, slots=True)
class EstimatedDocument:
    """Estimated time of the problem and its parts, in microseconds; only its order is meaningful."""

    us: float
    """Launch overhead plus the larger of the blocks' time and the memory time."""
    launch_us: float
    """Launch overhead before and after the kernel."""
    trips_us: float
    """Iterations over K of all waves of workgroups."""
    ends_us: float
    """Time of blocks before and after their iterations."""
    memory_us: float
    """Lower bound by the memory bandwidth."""
    rounds: int
    """Number of waves of workgroups, the last of which may be partial."""
    blocks_at_once: int
    """Resident blocks per compute unit."""


class Anatomy(Document, Shown):
    """ckh explain --json: cycle breakdown of a kernel from its machine code."""

    schema = "explain"

    kernel: str
    """Name of the kernel, or part of the names of its functions."""
    arch: str
    """Architecture of the code."""
    file: str
    """File with the code."""
    problem: str | None
    """Canonical text of the problem; null: none was given."""
    trips: int | None
    """Iterations over K for the problem."""
    functions: tuple[FunctionDocument, ...]
    """GPU functions."""
    trip: TripDocument | None
    """One iteration; null: the function has no loop."""
    estimated: EstimatedDocument | None
    """Analytic estimate of the problem; null without a problem, or for kernels without tiles."""
    advice: str
    """Advice for the kernel's author."""

    def __repr__(self) -> str:
        return f"<ckh.Anatomy {self.kernel} on {self.arch}: {len(self.functions)} functions>"

    def table(self) -> ShownTable:
        """A row for each GPU function, with the advice below."""
        columns = ("function", "runs", "trips", "instructions", "loop_instructions", "code_bytes", "vgprs", "agprs")
        rows = [
            (
                function.name,
                *(getattr(function, name) for name in columns[1:6]),
                function.resources.vgprs,
                function.resources.agprs,
            )
            for function in self.functions
        ]
        return ShownTable(f"{self.kernel}, {self.arch}", columns, rows, (self.advice,))
