"""How often the gains of `ckh tune` are right, on a simulated device whose true gains are known.

    python benchmarks/gain_intervals.py [--runs 200]

Nothing here is measured. A device with a clock of its own takes the times; ckh's own rounds, rows, intervals and
verdicts are used. Its times drift, bursts of other work slow down some samples, kernels differ a little from visit to
visit, and the first visit of each shape is slow, of some kernels more than of others. The fastest kernel is chosen by
the last visit, as in a dataset. With a gain of 1.00 all kernels take the same time: whichever looks fastest is chance.

"held" is the share of stated 95 % intervals that have the true gain, "called" that of all shapes or runs with a verdict
of a gain, "first visit" what the first visit alone would state, by its rounds.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from ckh import GemmProblem
from ckh.bench.compilation.compile import Built
from ckh.bench.supervision.driver import time_in_rounds
from ckh.bench.supervision.protocol import Reply
from ckh.bench.supervision.runner import on_problem, result_row
from ckh.data.journal_records import ReferenceRecord, ResultRow
from ckh.schema import Status
from ckh.shapes.layers import WeightedProblem
from ckh.tune.gains import (
    MIN_ROUNDS,
    MeasuredRun,
    Ratio,
    doubt_of,
    established,
    is_worth_it,
    log_ratios,
    ratio_of_visits,
    total_gain,
    tuned_shapes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.bench.supervision.protocol import Job
    from ckh.data.journal_records import Record

RUNS = 200
CASES = ((1, 1.0), (1, 1.5), (4, 1.0), (4, 1.05), (12, 1.0), (12, 1.02), (12, 1.2))  # shapes of a run, and true gain
NAMES = tuple(f"k{number}" for number in range(6))  # today's, and those near the fastest
VISITS = 2
LOOK_S, APART_S, SAMPLE_S = 60.0, 200.0, 0.1  # between looks at the reference, between visits, and of a sample
MAX_DRIFT, PERIOD_S = 0.05, 900.0  # above 0.05 of the reference, gains are not established
BURSTS_S, BURST_S, BURST = 40.0, 1.0, (1.1, 2.0)  # between bursts, duration, slowdown
SLOW_FIRST, UNEVEN_FIRST, UNEVEN = (1.0, 1.3), 0.02, 0.004
NOISE = (0.002, 0.02)  # of a sample


@dataclass
class SimulatedDevice:
    """Times kernels on a clock of its own; `true_ns` by number."""

    random: np.random.Generator
    now_s: float = 0.0
    name: str = ""
    true_ns: Sequence[float] = ()
    noise: float = 0.0
    _uneven: np.ndarray = field(default_factory=lambda: np.ones(0))

    def __post_init__(self) -> None:
        self._drift, self._phase = self.random.uniform(0, MAX_DRIFT), self.random.uniform(0, 2 * math.pi)
        starts = np.cumsum(self.random.exponential(BURSTS_S, 200))
        ends = starts + self.random.exponential(BURST_S, len(starts))
        self._bursts = list(zip(starts, ends, self.random.uniform(*BURST, len(starts)), strict=True))

    def visit(self, true_ns: Sequence[float], noise: float, *, is_first: bool) -> None:
        """Begin a visit of a shape."""
        self.true_ns, self.noise = true_ns, noise
        uneven = math.hypot(UNEVEN, UNEVEN_FIRST if is_first else 0.0)
        slow = self.random.uniform(*SLOW_FIRST) if is_first else 1.0
        self._uneven = slow * np.exp(self.random.normal(0, uneven, len(true_ns)))

    def reference(self) -> float:
        """Time of the reference kernel relative to a device without drift."""
        return 1 + self._drift * math.sin(2 * math.pi * self.now_s / PERIOD_S + self._phase)

    def run(self, _setup: Job, jobs: Sequence[Job]) -> Iterator[tuple[Job, Reply]]:
        """A sample of each job."""
        for job in jobs:
            self.now_s += SAMPLE_S
            slower = max((by for start, end, by in self._bursts if start <= self.now_s < end), default=1.0)
            noise = math.exp(self.random.normal(0, self.noise))
            ns = self.true_ns[job.id] * self.reference() * self._uneven[job.id] * slower * noise
            yield job, Reply(job.id, Status.OK, samples_ns=(ns,), loops=1)


@dataclass(frozen=True)
class Shape:
    """A shape with its kernels, the first of which is today's."""

    weighted: WeightedProblem
    true_ns: tuple[float, ...]
    noise: float

    @property
    def text(self) -> str:
        """Canonical text."""
        return str(self.weighted.problem.canonical())


def drawn(random: np.random.Generator, number: int, gain: float) -> Shape:
    """A shape whose fastest kernel has the given gain; without one, all take the same time."""
    weighted = WeightedProblem("gemm_universal", GemmProblem(64 * (number + 1), 128, 128, "fp16"), 1, (), "")
    fastest = random.uniform(1e5, 1e6)
    others = 1 + random.uniform(0, 0.08, len(NAMES) - 2) * (gain > 1)
    return Shape(
        weighted, (fastest * gain, fastest, *(fastest * others)), float(np.exp(random.uniform(*np.log(NOISE))))
    )


def measured(random: np.random.Generator, shapes: Sequence[Shape]) -> list[Record]:
    """Records of a run that visits all shapes, and again later."""
    device, first = SimulatedDevice(random), 0.0
    records: list[Record] = []
    built = Built(Status.OK, "", "")
    looked_s = -math.inf
    for visit in range(VISITS):
        for shape in shapes:
            if device.now_s - looked_s >= LOOK_S or shape is shapes[0]:
                looked_s, first = device.now_s, first or device.reference()
                ratio = device.reference() / first
                records.append(ReferenceRecord("run", "p", "k", ratio, ratio, None, None, device.now_s))
            device.visit(shape.true_ns, shape.noise, is_first=not visit)
            kernels = [(name, 1) for name in NAMES]
            replies = time_in_rounds(device, on_problem(shape.text), kernels, MIN_ROUNDS, f"{random.random()}")  # type: ignore[arg-type]
            assert replies is not None
            rows = (
                result_row("run", shape.text, name, reply, built) for name, reply in zip(NAMES, replies, strict=True)
            )
            records += [structs.replace(row, remeasured=True, time=device.now_s) for row in rows]
        device.now_s += APART_S
    ratio = device.reference() / first
    return [*records, ReferenceRecord("run", "p", "k", ratio, ratio, None, None, device.now_s)]


@dataclass
class Counted:
    """Gains of shapes, or totals: stated, with the true gain in their interval, and called gains."""

    possible: int = 0
    stated: int = 0
    held: int = 0
    called: int = 0

    def add(self, ratio: Ratio | None, true: float) -> None:
        """Count a gain; None: not established."""
        self.possible += 1
        if ratio is not None:
            self.stated += 1
            self.held += ratio.interval[0] <= true <= ratio.interval[1]
            self.called += is_worth_it(ratio, []) is True


def simulated(runs: int, shapes: int, gain: float, seed: int = 0) -> tuple[Counted, Counted, Counted]:
    """Simulate runs; returns the gains of their shapes, the totals, and the shapes' gains by the first visit alone."""
    of_shapes, totals, of_first = Counted(), Counted(), Counted()
    random = np.random.default_rng([seed, shapes, round(1000 * gain)])
    for _ in range(runs):
        made = [drawn(random, number, gain) for number in range(shapes)]
        records = measured(random, made)
        first: dict[str, dict[str, ResultRow]] = {shape.text: {} for shape in made}
        times: dict[str, dict[str, float]] = {shape.text: {} for shape in made}
        for record in records:
            if isinstance(record, ResultRow) and record.latency_ms is not None:
                first[record.problem].setdefault(record.kernel, record)
                times[record.problem][record.kernel] = record.latency_ms
        today = dict.fromkeys(times, NAMES[0])
        rows = tuned_shapes([shape.weighted for shape in made], today, times, MeasuredRun.of(records), {}, {})
        true = [dict(zip(NAMES, shape.true_ns, strict=True)) for shape in made]
        stated = [(row, of) for row, of in zip(rows, true, strict=True) if row.gain is not None]
        for row, of in zip(rows, true, strict=True):
            own = next((gain for _, gain in established([row])), None)
            of_shapes.add(own, of[NAMES[0]] / of[row.kernel or ""])
            visit = first[row.problem]
            best = min(visit, key=lambda name: visit[name].latency_ms or 0.0)
            pair = visit[NAMES[0]], visit[best]
            is_steady = best != NAMES[0] and not any(map(doubt_of, pair))
            alone = ratio_of_visits([log_ratios(*(kernel.samples_ns for kernel in pair))]) if is_steady else None
            of_first.add(alone, of[NAMES[0]] / of[best])
        before = sum(of[NAMES[0]] for _, of in stated)
        after = sum(of[row.kernel or ""] for row, of in stated)
        totals.add(total_gain(established(rows)), before / (after or 1.0))
    return of_shapes, totals, of_first


def table(runs: int) -> Iterator[str]:
    """Lines of the table."""
    yield f"{'shapes':>6} {'gain':>5}  {'':12} {'stated':>13} {'held':>7} {'called':>7}"
    for shapes, gain in CASES:
        for name, counted in zip(("shape", "total", "first visit"), simulated(runs, shapes, gain), strict=True):
            stated = f"{counted.stated} of {counted.possible}"
            held, called = counted.held / max(counted.stated, 1), counted.called / counted.possible
            yield f"{shapes:6} {gain:5.2f}  {name:12} {stated:>13} {held:7.1%} {called:7.1%}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    for line in table(parser.parse_args().runs):
        print(line, flush=True)
