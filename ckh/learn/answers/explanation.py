"""Explanation of the ranking of two kernels, as text and JSON. Imports little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.text.prose import prose

if TYPE_CHECKING:
    from ckh.learn.models.measured_set import NearestProblem


_INDENT = 13  # of lines below the first word


@dataclass(frozen=True, slots=True)
class Reason:
    """Contribution of a group of features to the score difference of the first two kernels."""

    word: str
    contribution: float


@dataclass(frozen=True, slots=True)
class FeatureReason:
    """A feature, its values for both kernels, and its contribution to the score difference."""

    feature: str
    first: float
    second: float
    contribution: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """Roofline of a problem on the device."""

    intensity: float
    """Operations per byte of compulsory traffic."""
    ridge: float | None
    """Intensity of the ridge point; None if the peak rates are unknown."""
    bound: str | None
    """Memory or compute; None if the peak rates are unknown."""
    least_ms: float | None
    """Lower bound of the time at peak rates, for kernels that do all operations; None if these are unknown."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Tile and wave quantization of a kernel."""

    kernel: str
    """Name."""
    fill_m: float
    """Used share of the tiles along M."""
    fill_n: float
    """Likewise along N."""
    fill_k: float
    """Likewise along K."""
    blocks: int
    """Number of tiles of the result."""
    rounds: int
    """Waves of blocks over the compute units (one on the host), including the last partial one."""
    last_fill: float
    """Occupancy of the last wave."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of why the first kernel ranks above the second."""

    first: str
    """Name of the first kernel."""
    second: str
    """Name of the second kernel."""
    difference: float
    """Score difference."""
    reasons: tuple[Reason, ...]
    """Contributions by group, largest first; they sum to the difference. Empty if the ranking is not by trees."""
    features: tuple[FeatureReason, ...]
    """Features with the largest contributions."""
    roofline: Roofline
    """Roofline of the problem."""
    quantisation: tuple[Quantisation, ...]
    """Quantization of both kernels; empty without tiles."""
    nearest: tuple[NearestProblem, ...]
    """Nearest measured problems with their fastest kernels; empty if unknown."""
    code: tuple[str, ...] = ()
    """Summary of the first kernel's machine code by ckh explain, if it was compiled here."""

    def lines(self) -> list[str]:
        """Text for a terminal."""
        lines = ["why the first kernel ranks above the second:"]
        if self.reasons:
            words = ", ".join(f"{reason.word} {reason.contribution:+.4f}" for reason in self.reasons)
            lines.append(f"  trees      {self.difference:+.4f} = {words}")
            lines += [
                f"             {share.feature}: {share.first:.4g} and {share.second:.4g} ({share.contribution:+.4f})"
                for share in self.features
            ]
        else:
            why = "not ranked by trees" if self.difference else "a tie"
            lines.append(f"  scores     {self.difference:+.4f}; {why}")
        lines.append(f"  roofline   {_roofline_text(self.roofline)}")
        for place, used in enumerate(self.quantisation, 1):
            share = f"M {used.fill_m:.0%}, N {used.fill_n:.0%}, K {used.fill_k:.0%} of the tiles are used"
            rounds = f" in {used.rounds} rounds, the last {used.last_fill:.0%} full"
            waves = f"{used.blocks} tiles" + (rounds if used.rounds < used.blocks else "")
            lines.append(f"  sizes {place}    {share}; {waves}")
        lines += [f"  measured   {near.problem}: best {near.kernel}, {near.latency_ms:.4g} ms" for near in self.nearest]
        lines += [f"  {line}" for line in self.code]
        return [prose(line, _INDENT) for line in lines]


def _roofline_text(roofline: Roofline) -> str:
    intensity = f"{roofline.intensity:.4g} operations per byte"
    if roofline.ridge is None:
        return f"{intensity}; peak rates of this device unknown"
    return (
        f"{intensity}, ridge at {roofline.ridge:.4g}: {roofline.bound}-bound; lower bound {roofline.least_ms:.4g} ms "
        f"at peak rates (for kernels that do all operations)"
    )
