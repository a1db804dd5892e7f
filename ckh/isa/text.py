"""An anatomy as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.text.prose import prose
from ckh.text.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.isa.anatomy import Anatomy, EstimatedDocument, FunctionDocument, SimulatedDocument, TripDocument
    from ckh.isa.describe import Occupancy
    from ckh.isa.loops import Wait
    from ckh.kernels.compiled import ShippedKernel
    from ckh.schema import Resources

_INDENT = 11
_KB = 1024


def anatomy_text(found: Anatomy) -> str:
    """Text with all facts about a kernel."""
    lines = [f"{found.kernel}, {found.arch}", f"code       {found.file}", *short_lines(found)]
    if found.trip is not None:
        lines += _trip_lines(found.trip)
    text = [prose(line, _INDENT) for line in lines]
    rows = [_row(one) for one in found.functions]
    columns = ("iterations", "instructions", "in the loop", "bytes", "VGPRs", "AGPRs", "spills", "blocks per CU")
    text += [table_text("GPU functions (* runs)", columns, rows).rstrip("\n")]
    if found.trip is not None:
        text.append(
            table_text(
                "One iteration, clocks of a block", ("pipe", "clocks", "busy"), list(_pipes(found, found.trip))
            ).rstrip("\n")
        )
    if found.problem:
        text += [prose(line, _INDENT) for line in _problem_lines(found)]
    text.append(prose(f"advice     {found.advice}", _INDENT))
    return "\n".join(text) + "\n"


def short_lines(found: Anatomy) -> list[str]:
    """Lines on registers, occupancy and the bottleneck of an iteration."""
    main = next(one for one in found.functions if one.runs)
    return [f"resources  {_resources(main.resources)}; {_bound(main)}"]


def shipped_lines(one: ShippedKernel, compiler: str, occupancy: Occupancy) -> list[str]:
    """The same for a kernel that was not compiled here, from the shipped data, with its compiler."""
    functions = f"functions for {', '.join(one.trips)} iterations; {one.code_bytes:,} bytes of code"
    return [
        f"resources  {_resources(one.resources)}; {_bound(occupancy)}; {functions}",
        f"compiled   not here, but by {compiler} (archspecs/compiled); ckh explain compiles it here",
    ]


def _bound(one: FunctionDocument | Occupancy) -> str:
    return f"{one.blocks_per_cu} block{'s' * (one.blocks_per_cu != 1)} per CU, bound by {one.bound_by}"


def _resources(taken: Resources) -> str:
    spills = f", {taken.vgpr_spills} spilled" if taken.vgpr_spills else ""
    registers = f"{taken.vgprs} vector, {taken.agprs} accumulation and {taken.sgprs} scalar registers{spills}"
    return f"{registers}; {taken.lds_bytes / _KB:g} KB of LDS, {taken.scratch_bytes} bytes of scratch"


def brief_lines(found: Anatomy) -> list[str]:
    """The lines of `ckh predict --explain`."""
    lines = [*short_lines(found)]
    if found.trip is not None:
        clocks = ", ".join(f"{name} {value:.0f}" for name, value in found.trip.clocks.items())
        lines.append(f"iteration  clocks of a block: {clocks}")
    return [*lines, f"advice     {found.advice}"]


def _trip_lines(trip: TripDocument) -> Iterator[str]:
    counts = ", ".join(f"{count:g} {kind}" for kind, count in trip.instructions.items())
    yield f"iteration  of a wave: {counts}"
    stored = f", {trip.stored_bytes:,.0f} stored" if trip.stored_bytes else ""
    yield (
        f"           of a block: {trip.loaded_bytes:,.0f} bytes loaded{stored}, {trip.lds_written_bytes:,.0f} "
        f"written to and {trip.lds_read_bytes:,.0f} read from LDS"
    )
    for counter in dict.fromkeys(one.counter for one in trip.waits):
        yield f"waits      {_waits_text([one for one in trip.waits if one.counter == counter])}"


def _waits_text(waits: Sequence[Wait]) -> str:
    counts = ", ".join(f"{one.counter}({one.most}) at {one.at:#x}" for one in waits)
    awaited, in_trip = (sum(getattr(one, name) for one in waits) for name in ("awaited", "in_trip"))
    what = "accesses to memory" if waits[0].counter == "vmcnt" else "accesses to LDS and scalar loads"
    apart = sorted({min(one.apart for one in waits), max(one.apart for one in waits)})
    far = " to ".join(map(str, apart))
    return f"{counts}: for {awaited} {what}, {in_trip} of this iteration, {far} instructions later"


def _pipes(found: Anatomy, trip: TripDocument) -> Iterator[tuple[str, str, str]]:
    for name, clocks in trip.clocks.items():
        busy = "" if found.simulated is None else f"{found.simulated.busy[name]:.0%}"
        yield name, f"{clocks:,.0f}", busy
        if name == "vector ALU":
            yield "  of which addresses and bounds", f"{trip.address_clocks:,.0f}", ""
    if found.simulated is not None:
        yield f"simulated, {found.simulated.blocks} per CU", f"{found.simulated.trip_clocks:,.0f}", ""
        yield "  a wave stalls", "", f"{found.simulated.waiting:.0%}"


def _problem_lines(found: Anatomy) -> Iterator[str]:
    yield f"problem    {found.problem}: {found.trips} iterations"
    if found.simulated is not None and found.simulated.shares:
        yield f"shares     {_shares(found.simulated)}"
    if found.estimated is not None:
        yield f"estimate   {_estimate(found.estimated)}"


def _shares(one: SimulatedDocument) -> str:
    names = {"trips": "iterations"}
    shares = ", ".join(f"{names.get(name, name)} {share:.0%}" for name, share in one.shares.items())
    return f"of a block's clocks: {shares} (simulated, not measured)"


def _estimate(one: EstimatedDocument) -> str:
    parts = {"launch": one.launch_us, "iterations": one.trips_us, "before and after them": one.ends_us}
    shown = ", ".join(f"{name} {us:.1f}" for name, us in parts.items())
    bound = "; bound by memory" if one.memory_us > one.trips_us + one.ends_us else ""
    calibrated = "" if one.calibrated_us is None else f", {one.calibrated_us:.1f} us by the calibration of this GPU"
    blocks = f"{one.rounds} rounds of {one.blocks_at_once} blocks per CU"
    return f"{one.us:.1f} us (not measured){calibrated}: {shown}; memory {one.memory_us:.1f}{bound}; {blocks}"


def _row(one: FunctionDocument) -> tuple[str, ...]:
    taken = one.resources
    numbers = (one.instructions, one.loop_instructions, one.code_bytes, taken.vgprs, taken.agprs, taken.vgpr_spills)
    return (one.trips + " *" * one.runs, *(f"{number:,}" for number in numbers), str(one.blocks_per_cu))
