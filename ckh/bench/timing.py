"""How a kernel is timed: the rules of calibration and of how many samples it gets, and the statistics of samples.

A sample runs the kernel as many times as make it last half a millisecond. A kernel that is far slower than the best one
seen on the problem gets fewer samples: its exact time does not matter, and most of the time of a sweep would go there.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_SAMPLE_NS = 500_000.0
MAX_LOOPS = 1_000_000
DEFAULT_SAMPLES = 5

# What a kernel can take. Beyond these its clock is wrong, and sums of its times may not be finite.
_POSSIBLE_NS = (1e-3, 1e15)

# Times slower than the best -> the most samples.
_FEWER_SAMPLES = ((10.0, 1), (3.0, 2))
# Above this a first run is warm enough to calibrate with, and is its own warm-up.
_SELF_WARMING_NS = 4_000_000.0
_MAX_TIMING_NS = 2e9

# Median absolute deviation / median above which a time is called unstable.
UNSTABLE_SPREAD = 0.05


@dataclass(frozen=True, slots=True)
class Timing:
    """Statistics of a kernel's samples, in ns."""

    median_ns: float
    min_ns: float
    spread: float


def is_possible(sample_ns: float) -> bool:
    """True if a kernel can take so long: not if it is not a number, zero, negative, or far out of proportion."""
    least, most = _POSSIBLE_NS
    return least <= sample_ns <= most


def complaint(samples_ns: Sequence[float]) -> str:
    """Why these cannot be times that a kernel took; empty if they can."""
    if not samples_ns:
        return "there is no time"
    wrong = next((sample for sample in samples_ns if not is_possible(sample)), None)
    return "" if wrong is None else f"the kernel says that it took {wrong:g} ns"


def sample_count(estimate_ns: float, best_ns: float, wanted: int) -> int:
    """How many samples a kernel gets. `best_ns` 0: no other is known."""
    if best_ns > 0:
        for factor, count in _FEWER_SAMPLES:
            if estimate_ns > factor * best_ns:
                return min(wanted, count)
    return min(wanted, max(1, int(_MAX_TIMING_NS // max(estimate_ns, 1.0))))


def is_hopeless(run_ns: float, best_ns: float) -> bool:
    """True if a run says enough of a kernel: it is far slower than the best, and lasts long enough to be a sample."""
    return best_ns > 0 and run_ns > _FEWER_SAMPLES[0][0] * best_ns and run_ns >= MIN_SAMPLE_NS


def warm_up_loops(first_ns: float) -> int:
    """Runs that warm caches and calibrate; 0 when the first run did."""
    return 0 if first_ns >= _SELF_WARMING_NS else loops_for(first_ns, MIN_SAMPLE_NS / 2)


def loops_for(estimate_ns: float, target_ns: float = MIN_SAMPLE_NS) -> int:
    """How many runs last the target."""
    return min(MAX_LOOPS, max(1, ceil(target_ns / max(estimate_ns, 1.0))))


def summarize(samples_ns: Sequence[float]) -> Timing:
    """Median, least and relative median absolute deviation of samples."""
    middle = median(samples_ns)
    deviation = median(abs(sample - middle) for sample in samples_ns)
    return Timing(middle, min(samples_ns), deviation / middle if middle > 0 else 0.0)
