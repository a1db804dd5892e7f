"""An anatomy as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.text.prose import prose
from ckh.text.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.isa.anatomy import Anatomy, EstimatedDocument, FunctionDocument, TripDocument
    from ckh.isa.loops import Wait
    from ckh.schema import Resources


_INDENT = 11
_KB = 1024


def anatomy_text(anatomy: Anatomy) -> str:
    """Text with all facts about a kernel."""
    lines = [f"{anatomy.kernel}, {anatomy.arch}", f"code       {anatomy.file}", *short_lines(anatomy)]
    if any(function.runs and function.over_tiles for function in anatomy.functions):
        lines.append("persistent a block loops over tiles of C; iterations are of one tile")
    if anatomy.trip is not None:
        lines += _trip_lines(anatomy.trip)
    text = [prose(line, _INDENT) for line in lines]
    rows = [_row(function) for function in anatomy.functions]
    columns = ("iterations", "instructions", "in the loop", "bytes", "VGPRs", "AGPRs", "spills", "blocks per CU")
    text += [table_text("GPU functions (* runs)", columns, rows).rstrip("\n")]
    if anatomy.trip is not None:
        text.append(
            table_text("One iteration, clocks of a block", ("pipe", "clocks"), list(_pipes(anatomy.trip))).rstrip("\n")
        )
    if anatomy.problem:
        text += [prose(line, _INDENT) for line in _problem_lines(anatomy)]
    text.append(prose(f"advice     {anatomy.advice}", _INDENT))
    return "\n".join(text) + "\n"


def short_lines(anatomy: Anatomy) -> list[str]:
    """Lines on registers, occupancy and the bottleneck of an iteration."""
    main = next(function for function in anatomy.functions if function.runs)
    blocks = f"{main.blocks_per_cu} block{'s' * (main.blocks_per_cu != 1)} per CU"
    lines = [f"resources  {_resources(main.resources)}; {blocks}, bound by {main.bound_by}"]
    if main.calls:
        lines.append("calls      it calls functions, whose instructions and spills are not counted here")
    elif main.resources.has_unexplained_scratch:
        lines.append("scratch    no reported spill explains it: arrays that are indexed when the kernel runs")
    return lines


def _resources(taken: Resources) -> str:
    spills = f", {taken.vgpr_spills} spilled" if taken.vgpr_spills else ""
    registers = f"{taken.vgprs} vector, {taken.agprs} accumulation and {taken.sgprs} scalar registers{spills}"
    return f"{registers}; {taken.lds_bytes / _KB:g} KB of LDS, {taken.scratch_bytes} bytes of scratch"


def brief_lines(anatomy: Anatomy) -> list[str]:
    """The lines of `ckh predict --explain`."""
    lines = [*short_lines(anatomy)]
    if anatomy.trip is not None:
        clocks = ", ".join(f"{pipe} {count:.0f}" for pipe, count in anatomy.trip.clocks.items())
        lines.append(f"iteration  clocks of a block: {clocks}")
    return [*lines, f"advice     {anatomy.advice}"]


def _trip_lines(trip: TripDocument) -> Iterator[str]:
    counts = ", ".join(f"{count:g} {kind}" for kind, count in trip.instructions.items())
    yield f"iteration  of a wave: {counts}"
    stored = f", {trip.stored_bytes:,.0f} stored" if trip.stored_bytes else ""
    yield (
        f"           of a block: {trip.loaded_bytes:,.0f} bytes loaded{stored}, {trip.lds_written_bytes:,.0f} "
        f"written to and {trip.lds_read_bytes:,.0f} read from LDS"
    )
    for counter in dict.fromkeys(wait.counter for wait in trip.waits):
        yield f"waits      {_waits_text([wait for wait in trip.waits if wait.counter == counter])}"


def _waits_text(waits: Sequence[Wait]) -> str:
    counts = ", ".join(f"{wait.counter}({wait.most}) at {wait.at:#x}" for wait in waits)
    awaited, in_trip = (sum(getattr(wait, name) for wait in waits) for name in ("awaited", "in_trip"))
    what = "accesses to memory" if waits[0].counter == "vmcnt" else "accesses to LDS and scalar loads"
    apart = sorted({min(wait.apart for wait in waits), max(wait.apart for wait in waits)})
    far = " to ".join(map(str, apart))
    return f"{counts}: for {awaited} {what}, {in_trip} of this iteration, {far} instructions later"


def _pipes(trip: TripDocument) -> Iterator[tuple[str, str]]:
    for name, clocks in trip.clocks.items():
        yield name, f"{clocks:,.0f}"
        if name == "vector ALU":
            yield "  of which addresses and bounds", f"{trip.address_clocks:,.0f}"


def _problem_lines(anatomy: Anatomy) -> Iterator[str]:
    yield f"problem    {anatomy.problem}: {anatomy.trips} iterations"
    if anatomy.estimated is not None:
        yield f"estimate   {_estimate(anatomy.estimated)}"


def _estimate(document: EstimatedDocument) -> str:
    parts = {
        "launch": document.launch_us,
        "iterations": document.trips_us,
        "before and after them": document.ends_us,
    }
    shown = ", ".join(f"{name} {us:.1f}" for name, us in parts.items())
    bound = "; bound by memory" if document.memory_us > document.trips_us + document.ends_us else ""
    blocks = f"{document.rounds} rounds of {document.blocks_at_once} blocks per CU"
    return f"{document.us:.1f} us (not measured): {shown}; memory {document.memory_us:.1f}{bound}; {blocks}"


def _row(function: FunctionDocument) -> tuple[str, ...]:
    taken = function.resources
    numbers = (
        function.instructions,
        function.loop_instructions,
        function.code_bytes,
        taken.vgprs,
        taken.agprs,
        taken.vgpr_spills,
    )
    return (
        function.trips + " *" * function.runs,
        *(f"{number:,}" for number in numbers),
        str(function.blocks_per_cu),
    )
