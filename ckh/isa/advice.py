"""One line of advice for kernel authors on the bottleneck of an iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckh.isa.anatomy import SimulatedDocument, TripDocument
    from ckh.schema import Resources

_MUCH_MORE = 1.5  # times the clocks of matrix instructions
_MOSTLY_BUSY = 0.7  # share of an iteration's clocks
_LARGER = {"LDS": "larger wave tiles read less of it", "memory": "larger block tiles load less"}


def advice(taken: Resources, trip: TripDocument | None, simulated: SimulatedDocument | None) -> str:
    """The first thing that the kernel's author could change, in one line."""
    if taken.vgpr_spills:
        return f"it spills {taken.vgpr_spills} vector registers to memory: take a smaller tile, or prefetch fewer tiles"
    if trip is None:
        return "it has no loop: only other blocks can hide its memory latency"
    parts = (_of_pipes(trip, simulated), _of_waits(trip))
    return "; ".join(filter(None, parts)) or "no pipe is a bottleneck, and no wait is long"


def _of_pipes(trip: TripDocument, simulated: SimulatedDocument | None) -> str:
    matrix, vector = trip.clocks["matrix"], trip.clocks["vector ALU"]
    if vector > _MUCH_MORE * matrix:
        return (
            f"the vector ALU is busy for {vector:.0f} clocks per iteration, {trip.address_clocks:.0f} of them on "
            f"addresses and bounds, the matrix pipe for {matrix:.0f}: compute addresses outside of the loop, or in "
            "scalar registers"
        )
    busiest = max(trip.clocks, key=trip.clocks.__getitem__)
    if busiest in _LARGER:
        return f"{busiest} is the busiest pipe, {trip.clocks[busiest]:.0f} clocks per iteration: {_LARGER[busiest]}"
    if simulated is not None and simulated.busy[busiest] >= _MOSTLY_BUSY:
        return f"the {busiest} pipe is busy {simulated.busy[busiest]:.0%} of an iteration: there is little to gain"
    return ""


def _of_waits(trip: TripDocument) -> str:
    if not any(one.counter == "vmcnt" and one.most == 0 and one.in_trip for one in trip.waits):
        return ""
    return (
        "vmcnt(0) waits for loads of the same iteration, whose latency only other blocks hide: prefetch one tile more"
    )
