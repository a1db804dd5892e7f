"""Why one kernel stands above another, as text and as JSON. Imports next to nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ckh.prose import prose

if TYPE_CHECKING:
    from ckh.learn.measured_set import NearestProblem


_INDENT = 13  # of what follows the first word of a line


@dataclass(frozen=True, slots=True)
class Reason:
    """The contribution of the features of one word to the first kernel's score beyond the second's."""

    word: str
    contribution: float


@dataclass(frozen=True, slots=True)
class FeatureReason:
    """A feature, its value for the first and the second kernel, and what it contributes beyond the second's."""

    feature: str
    first: float
    second: float
    contribution: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """Where a problem lies between the device's memory and its matrix units.

    Attributes:
        intensity: operations for each byte that must move at least.
        ridge: intensity from which the matrix units bound; None where the device's peaks are unknown.
        bound: "memory" or "compute"; None where the peaks are unknown.
        least_ms: time that a kernel that does all operations cannot be below, by those peaks; None if they are unknown.
    """

    intensity: float
    ridge: float | None
    bound: str | None
    least_ms: float | None


@dataclass(frozen=True, slots=True)
class Quantisation:
    """The share that a kernel loses to sizes that its tiles do not divide.

    Attributes:
        kernel: its name.
        fill_m: share of the tiles along M that is used; N and K likewise.
        fill_n: as above.
        fill_k: as above.
        blocks: how many tiles of the result there are.
        rounds: blocks over compute units, of which the host has one: whole rounds and the begun one.
        last_fill: share of the last round that is used.
    """

    kernel: str
    fill_m: float
    fill_n: float
    fill_k: float
    blocks: int
    rounds: int
    last_fill: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the first kernel stands above the second.

    Attributes:
        first: name of the first kernel.
        second: of the second.
        difference: of their scores.
        reasons: contributions by word, the largest in size first; they add up to the difference. Empty where no trees
            rank.
        features: the features that contribute most.
        roofline: where the problem lies.
        quantisation: of both kernels; empty where they have no tiles.
        nearest: the nearest measured problems, and what was best there; empty where the model does not say.
    """

    first: str
    second: str
    difference: float
    reasons: tuple[Reason, ...]
    features: tuple[FeatureReason, ...]
    roofline: Roofline
    quantisation: tuple[Quantisation, ...]
    nearest: tuple[NearestProblem, ...]

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        lines = ["why the first kernel ranks above the second:"]
        if self.reasons:
            words = ", ".join(f"{one.word} {one.contribution:+.4f}" for one in self.reasons)
            lines.append(f"  trees      {self.difference:+.4f} = {words}")
            lines += [
                f"             {one.feature}: {one.first:.4g} and {one.second:.4g} ({one.contribution:+.4f})"
                for one in self.features
            ]
        else:
            why = "not ranked by trees" if self.difference else "a tie"
            lines.append(f"  scores     {self.difference:+.4f}; {why}")
        lines.append(f"  roofline   {_roofline_text(self.roofline)}")
        for place, one in enumerate(self.quantisation, 1):
            used = f"M {one.fill_m:.0%}, N {one.fill_n:.0%}, K {one.fill_k:.0%} of the tiles are used"
            rounds = f" in {one.rounds} rounds, the last {one.last_fill:.0%} full"
            waves = f"{one.blocks} tiles" + (rounds if one.rounds < one.blocks else "")
            lines.append(f"  sizes {place}    {used}; {waves}")
        lines += [f"  measured   {near.problem}: best {near.kernel}, {near.latency_ms:.4g} ms" for near in self.nearest]
        return [prose(line, _INDENT) for line in lines]


def _roofline_text(one: Roofline) -> str:
    intensity = f"{one.intensity:.4g} operations per byte"
    if one.ridge is None:
        return f"{intensity}; peak rates of this device unknown"
    return (
        f"{intensity}, ridge at {one.ridge:.4g}: {one.bound}-bound; lower bound {one.least_ms:.4g} ms at peak rates "
        f"(for kernels that do all operations)"
    )
