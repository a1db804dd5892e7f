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
    """Trips over K that it is for."""
    instructions: int
    """Instructions of the function."""
    loop_instructions: int
    """Instructions of one pass of its main loop; 0: it has none."""
    code_bytes: int
    """Size of the machine code."""
    resources: Resources
    """Registers, LDS, scratch memory, spills and occupancy."""
    blocks_per_cu: int
    """Blocks that a compute unit runs at once."""
    bound_by: str
    """Resource that bounds them."""


@dataclass(frozen=True, slots=True)
class TripDocument:
    """One trip over K of the function that is described, for one block."""

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
class SimulatedDocument:
    """Clocks by a simulation of in-order waves on one compute unit; neither fitted nor measured."""

    blocks: int
    """Blocks on the compute unit."""
    before_clocks: float
    """Before the first trip of the loop."""
    trip_clocks: float
    """Clocks of a trip of the loop."""
    after_clocks: float
    """After the last one."""
    busy: Mapping[str, float]
    """Share of a trip's clocks that each pipe is busy."""
    waiting: float
    """Share of a trip that a wave waits."""
    shares: Mapping[str, float]
    """Shares of a block's clocks for the problem: before, trips, after; empty without a problem."""


@dataclass(frozen=True, slots=True)
class EstimatedDocument:
    """The estimated time of the problem and its parts, in microseconds; only the order of estimates means anything."""

    us: float
    """Launch and the larger of the blocks' time and that of memory."""
    launch_us: float
    """Before and after the kernel."""
    trips_us: float
    """Trips over K of all rounds of blocks."""
    ends_us: float
    """Time of blocks before and after their trips."""
    memory_us: float
    """Lower bound by the bandwidth of memory."""
    rounds: int
    """Rounds of blocks over the compute units, the last of which need not be full."""
    blocks_at_once: int
    """Blocks of a compute unit at once."""


class Anatomy(Document, Shown):
    """ckh explain --json: where a kernel's clocks go, by its machine code."""

    schema = "explain"

    kernel: str
    """Name of the kernel, or part of the names of its functions."""
    arch: str
    """Architecture that the code is for."""
    file: str
    """File with the code."""
    problem: str | None
    """Canonical text of the problem; null: none was given."""
    trips: int | None
    """Its trips over K."""
    functions: tuple[FunctionDocument, ...]
    """GPU functions."""
    trip: TripDocument | None
    """One trip; null: the function has no loop."""
    simulated: SimulatedDocument | None
    """Clocks of waves in time; null: the function has too many instructions."""
    estimated: EstimatedDocument | None
    """The analytic estimate of the problem; null without a problem, or for kernels without tiles."""
    advice: str
    """What an author of kernels could do."""

    def __repr__(self) -> str:
        return f"<ckh.Anatomy {self.kernel} on {self.arch}: {len(self.functions)} functions>"

    def table(self) -> ShownTable:
        """A row for each GPU function, with the advice below."""
        columns = ("function", "runs", "trips", "instructions", "loop_instructions", "code_bytes", "vgprs", "agprs")
        rows = [
            (one.name, *(getattr(one, name) for name in columns[1:6]), one.resources.vgprs, one.resources.agprs)
            for one in self.functions
        ]
        return ShownTable(f"{self.kernel}, {self.arch}", columns, rows, (self.advice,))
